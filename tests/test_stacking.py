"""Chains weighted by stacking, on densities and fits made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from fits import fit_of
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.inference import stacking
from topiczoo.inference.predictive.prediction import by_weight
from topiczoo.inference.stacking import PRIOR, left_out, stacked

RNG = np.random.default_rng(0)
WORDS = RNG.integers(0, 2, 60)  # each document has one word three times: its topic is known
CORPUS = Corpus.from_counts(3 * np.eye(2, dtype=int)[WORDS], ["ant", "bee"])
MEANS = np.array([-1.0, 1.0])[WORDS]
Y = np.append(MEANS[:50] + RNG.normal(0, 0.5, 50), np.full(10, np.nan))


def by_hand(scales, eta=(-1.0, 1.0)):
    """A fit with a chain for each pair of coefficients, one topic a word and sigma 0.5; the second draw is a little off."""
    eta = np.asarray(scales)[:, None, None] * np.array([eta, np.multiply(eta, 0.9)])
    num_chains = len(scales)
    beta = np.broadcast_to(np.full((2, 2), 1e-7) + (1 - 2e-7) * np.eye(2), (num_chains, 2, 2, 2))
    draws = {"beta": beta, "eta": eta, "sigma": np.full((num_chains, 2), 0.5)}
    return fit_of(models.slda, {n: v.astype(np.float32) for n, v in draws.items()}, CORPUS, Y, num_topics=2, alpha=1e-4)


def log_normal(y, mean):
    return -0.5 * ((y - mean) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))


def objective(weights, logs):
    return logsumexp(logs, axis=0, b=weights[:, None]).sum() + PRIOR * np.log(weights).sum()


@pytest.fixture(scope="module")
def fit():
    """The first chain is right, the second has the coefficients the wrong way round."""
    return by_hand([1.0, -1.0])


def test_weights_are_the_maximum_of_the_log_score():
    logs = RNG.normal(0, 2, (4, 80)) + np.array([0.0, 1.0, -3.0, 0.8])[:, None]
    found = stacked(logs)
    other = minimize(lambda free: -objective(softmax(free), logs), np.zeros(4), tol=1e-12)
    np.testing.assert_allclose(found, softmax(other.x), atol=1e-5)
    assert found.sum() == pytest.approx(1) and (found > 0).all()
    np.testing.assert_allclose(found, stacked(logs + RNG.normal(size=80)))  # what all chains share tells nothing


def test_chains_that_are_alike_keep_weights_alike():
    """Densities that differ by noise alone: no chain gets more than twice its share."""
    logs = RNG.normal(0, 1, 300) + RNG.normal(0, 0.05, (5, 300))
    np.testing.assert_allclose(stacked(np.tile(logs[:1], (5, 1))), 0.2)
    assert stacked(logs).max() < 0.4
    assert stacked(logs + np.array([0, 0, 0, 0, 3.0])[:, None])[-1] > 0.95


def test_a_response_is_left_out_by_the_harmonic_mean_of_its_densities():
    logs = RNG.normal(0, 0.3, (2, 400, 7))
    np.testing.assert_allclose(left_out(logs), -np.log(np.exp(-logs).mean(1)), rtol=1e-6)
    # one draw in four hundred that has it for nearly impossible counts no more than twenty draws
    logs[0, 0] = -50.0
    ratios = np.exp(-logs[0])
    cut = np.minimum(ratios, ratios.mean(0) * 20)
    np.testing.assert_allclose(left_out(logs)[0], np.log((cut * np.exp(logs[0])).sum(0) / cut.sum(0)), rtol=1e-6)


def test_draws_are_taken_by_their_weights():
    draws = np.arange(8.0)[:, None]
    np.testing.assert_array_equal(by_weight(draws, np.full(8, 0.125)), draws)
    np.testing.assert_array_equal(
        by_weight(draws, np.array([2, 0, 1, 1, 0, 0, 4, 0.0]))[:, 0], [0, 0, 2, 3, 6, 6, 6, 6]
    )


def exact_weights(scales, y, rows, leave_out):
    """Densities of the documents' responses by hand: a document has one topic, so that zbar is known."""
    logs = np.array([[log_normal(y, MEANS[rows] * scale * off) for off in (1.0, 0.9)] for scale in scales])
    return stacked(left_out(logs) if leave_out else logsumexp(logs, axis=1) - np.log(2))


@pytest.mark.slow
def test_the_good_chain_outweighs_the_bad_one(fit):
    """By the fitted documents with their responses left out, by others, and as it is told; each counts in the mean."""
    new = CORPUS[50:]
    means = np.array([0.95, -0.95])[:, None] * MEANS[50:]
    found = fit.predict(new, chains="stacked")
    np.testing.assert_allclose(found.weights, exact_weights([1.0, -1.0], Y[:50], np.arange(50), True), atol=1e-3)
    assert found.weights[0] > 0.95 and found.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.mean, found.weights @ means, atol=1e-3)
    y = -MEANS[:40] + RNG.normal(0, 0.5, 40)  # new documents for which the other chain is right
    other = fit.predict(new, chains=(CORPUS[:40], y))
    np.testing.assert_allclose(other.weights, exact_weights([1.0, -1.0], y, np.arange(40), False), atol=1e-3)
    assert other.weights[1] > 0.95
    told = fit.predict(new, chains=[0.25, 0.75])
    np.testing.assert_allclose(told.mean, np.array([0.25, 0.75]) @ means, atol=1e-3)
    alike = fit.predict(new)
    assert alike.weights is None
    np.testing.assert_allclose(alike.mean, 0, atol=1e-3)
    # a quarter of the draws is of the first chain, and none is nearer to the other's mean than chance has it
    share = (told.draws * MEANS[50:] > 0).mean()
    assert len(told.draws) >= 200 and abs(share - (0.25 * 0.97 + 0.75 * 0.03)) < 0.05


def test_weights_are_found_once_and_one_chain_has_them_all(fit, monkeypatch):
    stays = fit.predict(CORPUS[:3], chains="stacked").weights
    monkeypatch.setattr(stacking, "pointwise", None)
    assert fit.predict(CORPUS[:3], chains="stacked").weights is stays
    np.testing.assert_array_equal(stacking.chain_weights(by_hand([1.0]), "stacked"), [1.0])


def test_fitted_documents_are_left_out_and_others_are_not(monkeypatch):
    """With draws that differ much the two densities order the chains differently."""
    logs = np.stack([RNG.normal(0, 2.0, (30, 40)), RNG.normal(0.2, 0.1, (30, 40))])
    asked = []
    monkeypatch.setattr(stacking, "_log_densities", lambda fit, corpus, y: asked.append((corpus, y)) or logs)
    other = by_hand([1.0, -1.0])
    by_fitted = stacking.chain_weights(other, "stacked")
    by_others = stacking.chain_weights(other, (CORPUS[:30], Y[:30]))
    np.testing.assert_allclose(by_fitted, stacked(left_out(logs)))
    np.testing.assert_allclose(by_others, stacked(logsumexp(logs, axis=1) - np.log(30)))
    assert by_fitted[0] < 0.2 and by_others[0] > 0.8
    (fitted, y), (_, told) = asked
    np.testing.assert_array_equal(fitted.names, CORPUS.names[:50])  # those without a response tell nothing
    np.testing.assert_allclose(y, Y[:50].astype(np.float32))
    np.testing.assert_array_equal(told, Y[:30])


@pytest.mark.slow
def test_what_cannot_weigh_chains_is_refused(fit):
    for chains in ("best", [0.5, 0.6], [1.0], [1.5, -0.5], 3, (CORPUS, Y, Y)):
        with pytest.raises(ValueError, match=r"chains is .*; give 'equal', 'stacked', \(corpus, y\)"):
            fit.predict(CORPUS, chains=chains)
    with pytest.raises(ValueError, match="chains are weighed by 5 documents with a response; give 20 at least"):
        fit.predict(CORPUS, chains=(CORPUS[:5], Y[:5]))
    beta = np.full((2, 2, 2, 2), 0.5, np.float32)
    with pytest.raises(ValueError, match="'lda' was fitted without a response"):
        stacking.chain_weights(fit_of(models.lda, {"beta": beta}, CORPUS, num_topics=2), "stacked")
