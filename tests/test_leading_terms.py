"""Terms that lead a topic: by relevance, by frex and by probability, each against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from fits import fit_of

from topiczoo import diagnostics, models
from topiczoo.corpora import Corpus
from topiczoo.inference.posterior.leading_terms import term_scores

# "the" is the most probable term of both topics, "soup" and "bill" tell them apart
TERMS = ["the", "soup", "salt", "bill", "lost"]
BETA = np.array([[0.50, 0.30, 0.15, 0.04, 0.01], [0.60, 0.02, 0.03, 0.30, 0.05]])
CORPUS = Corpus.from_counts([[6, 3, 1, 0, 0], [5, 0, 1, 4, 0]], TERMS, names=["p", "q"])
SHARE = np.array([11, 3, 2, 4, 0.5]) / 20  # a term that never occurs counts for half a time


def fit(**more):
    draws = {"beta": np.stack([BETA * 0.9 + 0.02, BETA * 1.1 - 0.02])[None].astype(np.float64), **more}
    return fit_of(models.lda, draws, CORPUS, num_topics=2)


def test_relevance_is_the_formula_of_sievert_and_shirley():
    for weight in (0.0, 0.3, 0.6, 1.0):
        expected = weight * np.log(BETA) + (1 - weight) * np.log(BETA / SHARE)
        counts = np.asarray(CORPUS.counts.sum(0))
        np.testing.assert_allclose(term_scores(BETA, counts, "relevance", weight), expected)
    table = fit().topics(2)  # lambda is 0.6: 0.6 log 0.3 + 0.4 log(0.3 / 0.15) leads 0.6 log 0.5 + 0.4 log(0.5 / 0.55)
    first = table[table["topic"] == 0]
    assert first["term"].tolist() == ["soup", "the"] and (table["chain"] == 0).all()
    np.testing.assert_allclose(first["score"].iloc[0], 0.6 * np.log(0.3) + 0.4 * np.log(0.3 / 0.15), rtol=1e-6)
    np.testing.assert_allclose(first["probability"], [0.3, 0.5], rtol=1e-6)
    of_bills = table[table["topic"] == 1]
    assert of_bills["term"].tolist() == ["the", "bill"]
    assert fit().topics(1, weight=0.3)["term"].tolist() == ["soup", "bill"]


def test_frex_is_the_harmonic_mean_of_ranks():
    """Worked out for the first topic: exclusivity is 0.45, 0.94, 0.83, 0.12, 0.17, so its ranks are 3, 5, 4, 1, 2."""
    counts = np.asarray(CORPUS.counts.sum(0))
    exclusivity, frequency = np.array([3, 5, 4, 1, 2]) / 5, np.array([5, 4, 3, 2, 1]) / 5
    for weight in (0.5, 0.8):
        expected = 1 / (weight / exclusivity + (1 - weight) / frequency)
        np.testing.assert_allclose(term_scores(BETA, counts, "frex", weight)[0], expected)
    table = fit().topics(3, by="frex")
    assert table["term"].tolist()[:3] == ["soup", "the", "salt"]  # 4.44, 3.75 and 3.43 fifths
    np.testing.assert_allclose(table["score"].iloc[0], 4 / 4.5)
    equal = term_scores(np.full((2, 4), 0.25), np.ones(4), "frex")
    np.testing.assert_allclose(equal, 1.0)  # all are the largest


def test_probability_is_the_order_of_old():
    table = fit().topics(5, by="probability")
    assert table["term"].tolist()[:5] == TERMS and table["term"].tolist()[5:] == ["the", "bill", "lost", "salt", "soup"]
    np.testing.assert_array_equal(table["probability"], table["score"])
    assert list(table.columns) == ["chain", "topic", "rank", "term", "probability", "score"]


def test_a_probability_of_zero_leads_nothing():
    beta = np.array([[0.0, 1.0], [0.5, 0.5]])
    for by in ("relevance", "frex", "probability"):
        assert term_scores(beta, np.array([3, 1]), by)[0].argmax() == 1
    assert np.isfinite(term_scores(beta, np.array([3, 1]))).all()


def test_what_is_no_order_is_refused():
    for given, said in (
        ({"by": "lift"}, r"by is 'lift'; choose from 'relevance', 'frex', 'probability'."),
        ({"weight": 1.5}, "weight is 1.5; give a number from 0 to 1."),
        ({"weight": True}, "weight is True; give a number from 0 to 1."),
        ({"by": "probability", "weight": 0.5}, "weight is 0.5, and by='probability' has none; leave it out"),
        ({"n": 0}, "n is 0; give a whole number of at least 1."),
    ):
        with pytest.raises(ValueError, match=said):
            fit().topics(**given)


def test_coherence_is_of_the_most_probable_terms():
    """As in published figures: relevance must not move them."""
    found = diagnostics.coherence(fit(), CORPUS, n=2)
    assert found["terms"].tolist() == ["the soup", "the bill"]
