"""The defaults of sparse additive naive Bayes: rare terms of few classes are heard, and so are classes' shares."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import log_softmax, softmax

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference.em import loop
from topiczoo.models import background, sage_nb

QUIET = {"progress_bar": False}
# two classes of 3 and 9 documents of 40 words; the terms 4 to 7 are said 1, 2, 3 and 9 times, by the first alone
ROWS = [[24, 12, 0, 0, 1, 0, 0, 3], [24, 11, 0, 0, 0, 2, 0, 3], [24, 10, 0, 0, 0, 0, 3, 3]] + [
    [24, 10, 3, 3, 0, 0, 0, 0]
] * 9
CORPUS = Corpus.from_counts(np.array(ROWS))
COUNTS, LABELS = CORPUS.counts.toarray(), np.repeat([0.0, 1.0], [3, 9])
GIVEN = {"background": background(CORPUS), "outputs": 2}
NEW = Corpus.from_counts(np.eye(8, dtype=int), CORPUS.vocabulary)  # documents of one word


@pytest.fixture(scope="module")
def fit():
    return inference.vem(sage_nb, CORPUS, LABELS, **GIVEN, **QUIET)


def test_counts_of_a_class_are_discounted_by_one_third(fit):
    """Slopes of the likelihood are 1/3 up or down where a term deviates and less where it does not: counts minus a third,
    where that is more than the background expects, as absolute discounting has it."""
    deviation = fit.means["deviation"][0].astype(float)
    counts = np.stack([COUNTS[LABELS == c].sum(0) for c in (0, 1)])
    slope = counts - counts.sum(1, keepdims=True) * softmax(GIVEN["background"] + deviation, axis=1)
    away = np.abs(deviation) > 0.05
    np.testing.assert_allclose(slope[away], np.sign(deviation[away]) / 3, atol=0.02)
    assert (np.abs(slope[~away]) < 0.36).all()


def test_a_term_said_once_by_one_class_alone_is_heard_and_under_jeffreys_is_not(fit):
    """A deviation x > 0 rests where count - expected e^x = 1 / x: x (n - n share e^x) must reach 1 for some x, which it does
    from n = 3 with a quarter of the words, and from n = 10 with half of them. A Laplace prior asks n - n share > 1/3."""
    found = fit.means["deviation"][0]
    assert (found[0, 4:] > 0.4).all()
    jeffreys = inference.vem(sage_nb, CORPUS, LABELS, **GIVEN, prior="jeffreys", **QUIET).means["deviation"][0]
    np.testing.assert_array_equal(jeffreys[0, 4:6], 0)
    assert jeffreys[0, 7] > 0.5
    x = np.linspace(0.01, 3, 3000)
    least = {
        share: next(n for n in range(1, 99) if (x * n * (1 - share * np.exp(x))).max() >= 1) for share in (0.25, 0.5)
    }
    assert least == {0.25: 3, 0.5: 10}


def test_classes_count_by_their_share_of_the_documents(fit):
    """Bayes' rule with the shares' mean, 4/14 and 10/14; a word that all say alike leaves them as they are."""
    told = fit.predict(NEW, rule="plug-in", calibrate=False).probabilities
    log_beta = log_softmax(GIVEN["background"] + fit.means["deviation"][0], axis=1)
    expected = softmax(log_beta.T + np.log([4 / 14, 10 / 14]), axis=1)
    np.testing.assert_allclose(told, expected, rtol=1e-3)
    assert abs(told[0, 0] - 4 / 14) < 0.02 and told[4, 0] > 0.5


def test_copies_of_a_large_point_stay_few(monkeypatch):
    """Beside shares that are drawn: as many as fit, and eight at least; alone a point is kept once."""
    monkeypatch.setattr(loop, "LARGEST_POINT", 10 * 4 * 60)
    rng, shares = np.random.default_rng(0), dist.Dirichlet(np.ones(3))
    for terms, most, expected in ((20, 200, 10), (20, 5, 5), (200, 200, 8)):
        q = {"deviation": dist.Delta(np.zeros((3, terms))), "share": shares}
        assert {value.shape[1] for value in loop.draw(q, rng, most).values()} == {expected}
        assert loop.draw({"deviation": q["deviation"]}, rng, most)["deviation"].shape == (1, 1, 3, terms)
