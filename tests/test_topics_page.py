"""The page on topics runs, block after block, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs/topics.md"


@pytest.mark.slow
@pytest.mark.longest
def test_the_page_on_topics_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for place, code in enumerate(blocks):
        exec(compile(code, f"topics.md, block {place}", "exec"), names)
    assert names["named"].topic_names.tolist() == ["food", "service", "2", "3"]
    assert (tmp_path / "predictions.png").stat().st_size > 5000
    assert "text" in names["fit"].documents(0) and names["named"].effects()["topic"].iloc[0] == "food"
    plt.close("all")
