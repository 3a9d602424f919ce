"""A story without topics, naive Bayes of sparse deviations, is diagnosed and reported by its classes."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from fits import fit_of
from report_page import Page

from topiczoo import diagnostics, models
from topiczoo.corpora import Corpus

NAMES = np.array(["fire", "sea", "wood"], object)
TERMS = 12


@pytest.fixture(scope="module")
def data():
    """Class c says the terms 4c to 4c + 3, the first of them most; the last third of the classes is not told."""
    rng = np.random.default_rng(0)
    share = np.full((3, TERMS), 0.02)
    for c in range(3):
        share[c, 4 * c : 4 * c + 4] = [0.4, 0.2, 0.15, 0.1]
    code = np.arange(30) % 3
    counts = np.stack([rng.multinomial(50, share[c] / share[c].sum()) for c in code])
    known = NAMES[code]
    known[20:] = None
    return Corpus.from_counts(counts, [f"term{v}" for v in range(TERMS)]), known, NAMES[code]


@pytest.fixture(scope="module")
def fit(data):
    """As variational EM would leave it: deviations at a point, and a bound that rests."""
    corpus, known, truth = data
    background, places = models.background(corpus), np.searchsorted(NAMES.astype(str), truth.astype(str))
    shares = np.stack([1 + corpus.counts.toarray()[places == c].sum(0) for c in range(3)])
    deviation = (np.log(shares / shares.sum(1, keepdims=True)) - background)[None].astype(np.float32)
    draws = {"deviation": deviation[None], "share": np.full((1, 1, 3), 1 / 3, np.float32)}
    made = fit_of(models.sage_nb, draws, corpus, truth.tolist(), background=background, outputs=3)
    codes = np.where([name is None for name in known], np.nan, places).astype(np.float32)
    made.response = replace(made.response, parts={"y": codes})
    made.engine, made.means = "vem", {"deviation": deviation, "share": draws["share"][0]}
    made.info = {"bound": [-9.0, -8.0, -7.999], "converged": True}
    return made


def test_the_bound_is_judged_and_no_topics_are_asked_for(fit):
    diagnosis = diagnostics.diagnose(fit)
    assert list(diagnosis.checks.index) == ["the bound rests", "the bound never fell", "distance from the posterior"]
    assert diagnosis.checks.loc["the bound rests", "passes"] and "topic" not in diagnosis.verdict


def test_chains_are_compared_by_the_leading_terms_of_classes(fit):
    rng, chains = np.random.default_rng(1), copy.copy(fit)
    mean = fit.means["deviation"][0]
    chains.engine, chains.info = "nuts", {}
    chains.draws = {"deviation": mean + 0.1 * rng.normal(size=(2, 300, *mean.shape))}
    alike = diagnostics.diagnose(chains, predictions=0)
    assert alike.passes and "chains found the same topics" not in alike.checks.index
    assert {"deviation[fire, term0]", "deviation[sea, term4]", "deviation[wood, term8]"} <= set(alike.numbers.index)
    chains.draws["deviation"][1, :, 1, 4] += 1.0
    apart = diagnostics.diagnose(chains, predictions=0)
    assert apart.checks.loc["R-hat of parameters", "passes"] is False
    assert "deviation[sea, term4]" in apart.checks.loc["R-hat of parameters", "meaning"]


def test_the_report_has_classes_where_others_have_topics(fit, data, tmp_path):
    corpus, _, truth = data
    path = diagnostics.report(fit, tmp_path / "r.html", test=corpus[20:], y_test=truth[20:], progress_bar=False)
    page = Page(path)
    titles = [
        "What can be relied on, and why",
        "Data and story",
        "Classes",
        "Convergence",
        "Predictive checks",
        "Held-out scores",
        "How to reproduce",
    ]
    assert page.headings == titles
    rows = {row[0]: row[1].split()[:4] for row in page.tables["classes-deviation"][1:]}
    assert {name: set(terms) for name, terms in rows.items()} == {
        name: {f"term{v}" for v in range(4 * c, 4 * c + 4)} for c, name in enumerate(NAMES)
    }
    scores = {row[0]: row[1] for row in page.tables["score-table"][1:]}
    assert float(scores["accuracy"]) == 1.0 and "0 topics" not in path.read_text()


def test_topics_are_asked_for_in_vain_with_a_sentence(fit):
    with pytest.raises(ValueError, match="no site with axes of topics and terms; deviations"):
        fit.topics()
