"""The front page runs, block after block, as a reader would run it: with few draws, of what they are enough to show."""

from __future__ import annotations

import re
from functools import partial, wraps
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from topiczoo import corpora, diagnostics, inference, models

PAGE = Path(__file__).resolve().parents[1] / "README.md"
FEW = {"num_warmup": 4, "num_samples": 8, "num_chains": 2}


def with_few(engine):
    """The engine with no more draws than these."""

    @wraps(engine)
    def call(*arguments, **named):
        return engine(*arguments, **{**named, **{name: min(named.get(name, most), most) for name, most in FEW.items()}})

    return call


@pytest.mark.slow
def test_the_front_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    for module, name, few in [
        (inference, "gibbs", with_few(inference.gibbs)),
        (inference, "compile_sweep", lambda: None),  # it has tests of its own, where there is a compiler
        (diagnostics, "calibrate", partial(diagnostics.calibrate, num_simulations=10, num_draws=7, num_warmup=2)),
        (diagnostics, "geweke", partial(diagnostics.geweke, num_chains=20, num_steps=3)),
    ]:
        monkeypatch.setattr(module, name, few)
    _, stars, reviews = corpora.load_reviews(return_aspects=True)
    pd.DataFrame({"id": np.arange(60), "text": reviews["text"][:60], "stars": stars[:60]}).to_csv("reviews.csv")
    story, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert story.startswith("def slda(")
    names = {"my_story": models.slda}
    for place, code in enumerate(blocks):
        exec(compile(code, f"README.md, block {place + 1}", "exec"), names)
    assert (tmp_path / "report.html").exists() and (tmp_path / "fit.nc").exists()
    plt.close("all")
