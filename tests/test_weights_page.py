"""The weight chosen with one call: the page on weights runs, and the log score of a search is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from fits import fit_of
from scipy.special import logsumexp
from scipy.stats import norm

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.models import slda

CORPUS = Corpus.from_counts(np.random.default_rng(1).poisson(1.5, (9, 5)) + 1)
Y = np.append(np.random.default_rng(2).normal(size=8), np.nan)
LEVELS = np.array([[-0.5, 0.1], [0.4, 1.2]])  # of two chains of two draws


def flat(story, corpus, y, *, seed, response_weight, progress_bar):
    """A fit of which every topic has one coefficient, so that a document's words say nothing: N(level, weight^2)."""
    draws = {
        "beta": np.full((2, 2, 2, 5), 0.2), "eta": np.repeat(LEVELS[..., None], 2, -1),
        "sigma": np.full((2, 2), response_weight),
    }  # fmt: skip
    return fit_of(story, draws, corpus, y, num_topics=2)


@pytest.mark.slow
def test_a_search_by_log_score_has_the_mixture_of_chains_and_draws():
    grid = {"response_weight": [0.2, 1.0, 5.0]}
    table = inference.grid_search(flat, slda, CORPUS, Y, grid, score="log_score", folds=3, progress_bar=False)
    expected = {}
    for width in grid["response_weight"]:
        logs = norm.logpdf(Y[:8], LEVELS.reshape(-1, 1), width)
        expected[width] = (logsumexp(logs, axis=0) - np.log(4)).mean()
    order = sorted(expected, key=expected.get, reverse=True)
    assert table["response_weight"].tolist() == order
    np.testing.assert_allclose(table["log_score"], [expected[width] for width in order], rtol=1e-4)


def test_a_search_refuses_a_score_that_is_none():
    search = {"grid": {"response_weight": [1.0]}, "progress_bar": False}
    with pytest.raises(ValueError, match=r"score is 'r2'; choose from 'error', 'log_score'."):
        inference.grid_search(flat, slda, CORPUS, Y, score="r2", **search)
    with pytest.raises(ValueError, match="predict is given, and score='log_score' makes no predictions"):
        inference.grid_search(flat, slda, CORPUS, Y, score="log_score", predict={"seed": 1}, **search)


@pytest.mark.slow
@pytest.mark.longest
def test_the_page_on_weights_runs():
    page = (Path(__file__).resolve().parents[1] / "docs/weights.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names = {}
    exec(compile(code, "weights.md", "exec"), names)
    assert sorted(names["found"]["response_weight"]) == [1, 10] and names["best"].keys() == {"response_weight"}
    assert len(names["fit"].info["held_out"]) == 20 and np.isfinite(names["interval"]).all()
    assert names["stacked"].weights.sum() == pytest.approx(1)
