"""What is expected of a document follows from its words: not from its row, and not from what is predicted beside it.

Limits are those of tests/test_exact_prediction.py, whose laws these are, at known parameters:
Bernstein's inequality at 1e-7, some 10 of them.
"""

from __future__ import annotations

import numpy as np
import pytest
import test_exact_prediction as exact
from fits import fit_of

from topiczoo import models
from topiczoo.corpora import Corpus

CORPUS = Corpus.from_counts(exact.KINDS)
DRAWS = 1600


def test_documents_of_the_same_words_have_the_same_fingerprint():
    rng = np.random.default_rng(0)
    counts = np.unique(rng.poisson(0.7, (3000, 8)), axis=0)
    found = Corpus.from_counts(counts, empty="keep").fingerprints
    # of n different documents two have the same of 2^31 numbers with probability n^2 / 2^32
    assert len(set(found.tolist())) == len(counts) > 1000 and found.min() >= 0 and found.dtype == np.int32
    order = rng.permutation(len(counts))
    np.testing.assert_array_equal(Corpus.from_counts(counts[order], empty="keep").fingerprints, found[order])
    alone = Corpus.from_counts(counts[7:8], empty="keep").fingerprints
    np.testing.assert_array_equal(alone, found[7:8])
    swapped = Corpus.from_counts([[2, 1], [1, 2]]).fingerprints
    assert swapped[0] != swapped[1]


@pytest.fixture(scope="module")
def fit():
    """1600 draws of the same parameters: each is a draw of the same law of topics."""
    same = {name: np.repeat(value[:1, :1], DRAWS, 1) for name, value in exact.DRAWS.items()}
    return fit_of(models.slda, same, CORPUS, np.arange(4.0), num_topics=exact.K, alpha=exact.ALPHA)


def test_topics_have_their_law_and_documents_random_numbers_of_their_own(fit):
    prediction = fit.predict(CORPUS, alike=True, most_draws=DRAWS, **exact.EXACTLY)
    (expected,) = prediction.expected  # [draw, document]
    for kind, row in enumerate(exact.KINDS):
        law = exact.Law(row, (0, 0))
        mean, variance, reach = law.moments(law.zbar @ exact.at("eta", (0, 0)))
        exact.assert_means(expected[:, kind], mean, variance, reach)
    # 1600 independent pairs: a correlation has the deviation 0.025, and six times it once in 5e8
    apart = np.corrcoef(expected.T)[np.triu_indices(4, 1)]
    assert np.abs(apart).max() < 0.15


@pytest.mark.slow
def test_a_prediction_does_not_depend_on_what_stands_beside_it(fit):
    order = [3, 1, 0, 2, 1]
    there = fit.predict(CORPUS, alike=True).mean
    np.testing.assert_allclose(fit.predict(CORPUS[order], alike=True).mean, there[order], rtol=1e-5)
    np.testing.assert_allclose(fit.predict(CORPUS[1:2], alike=True).mean, there[1:2], rtol=1e-5)
    shares = fit.transform(CORPUS, alike=True)
    np.testing.assert_allclose(fit.transform(CORPUS[order], alike=True), shares[order], rtol=1e-5)
    by_rows = fit.predict(CORPUS[order]).mean
    assert np.abs(by_rows - fit.predict(CORPUS).mean[order]).max() > 1e-4  # else the test could not fail


def test_there_are_as_many_draws_however_many_documents_there_are(fit, monkeypatch):
    from topiczoo.inference.predictive import predicting

    monkeypatch.setattr(predicting, "MOST_MOVES", 0)
    assert fit.predict(CORPUS, alike=True).expected.shape[1] == 20 > fit.predict(CORPUS).expected.shape[1]
