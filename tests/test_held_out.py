"""Held-out perplexity of fits, against sums over all assignments of topics."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stories
from fits import fit_of
from scipy.special import logsumexp
from test_evidence import exact

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.pairs import Pairs
from topiczoo.diagnostics.scoring import held_out
from topiczoo.diagnostics.scoring.evidence import split
from topiczoo.diagnostics.scoring.held_out import HeldOut, perplexity
from topiczoo.inference.predictive import evidence as predictive

RNG = np.random.default_rng(1)
TEST = Corpus.from_counts(
    [[2, 1, 0, 1, 0, 1], [0, 0, 3, 2, 1, 0], [0, 0, 0, 0, 0, 2], [1, 1, 1, 1, 1, 1]], list("edcbax"), names=list("pqrs")
)
KNOWN = TEST.with_vocabulary(list("abcde"))
ALPHA = np.array([0.2, 0.5, 1.5])
SETTINGS = {"particles": 6, "repeats": 64}


@pytest.fixture(scope="module")
def fit():
    beta = 0.6 * RNG.dirichlet(np.full(5, 0.5), (2, 2, 3)) + 0.4 / 5
    return fit_of(models.lda, {"beta": beta.astype(np.float32)}, num_topics=3, alpha=ALPHA)


def truth(fit, alpha, corpus):
    beta = fit.draws["beta"].astype(float).reshape(-1, 3, 5)
    return np.stack([exact(b, alpha, corpus) for b in beta])


@pytest.mark.parametrize("method", ["left_to_right", pytest.param("chib", marks=pytest.mark.slow), "completion"])
def test_draws_are_averaged_as_probabilities(fit, method):
    settings = {"repeats": 64} if method == "chib" else SETTINGS
    found = perplexity(fit, TEST, method, most_draws=2, seed=3, **settings)
    logs = truth(fit, ALPHA, KNOWN)
    tokens = KNOWN.lengths
    if method == "completion":
        first, second = split(KNOWN, seed=3)
        logs, tokens = logs - truth(fit, ALPHA, first), second.lengths
    expected = logsumexp(logs, axis=0) - np.log(4)
    np.testing.assert_array_equal(found.num_tokens, tokens)
    # the draws are given here, so what is left is the estimators' noise, well below their differences
    np.testing.assert_allclose(found.log_likelihood, expected, atol=0.05)
    np.testing.assert_allclose(found.perplexity, np.exp(-expected.sum() / tokens.sum()), rtol=0.02)
    assert found.log_likelihood[2] == 0 and found.error[2] == 0 and (found.error[[0, 1, 3]] > 0).all()
    assert found.perplexity_error > 0
    assert list(found.frame().columns) == ["tokens", "log_likelihood", "error", "perplexity"]
    assert list(found.frame().index) == list("pqrs") and f"by {method}" in repr(found)


def test_the_rest_of_a_document_has_the_mean_of_its_probabilities_at_drawn_proportions(monkeypatch):
    """Five draws of theta that are known, every word as often as it is said."""
    rng = np.random.default_rng(7)
    thetas, terms = rng.dirichlet(np.ones(3), (6, 2)), rng.dirichlet(np.ones(4), 3).T
    pairs = Pairs(*map(jnp.asarray, ([0, 0, 1, 1], [0, 3, 1, 2], [2.0, 1.0, 3.0, 1.0])))
    monkeypatch.setattr(predictive, "read_weights", lambda graph, corpus, y, values, collapsed: SimpleNamespace(
        proportions=jnp.asarray(thetas)[values["z"]], term_topic=jnp.asarray(terms)))  # fmt: skip
    fold = SimpleNamespace(
        graph=SimpleNamespace(num_topics=3), given=lambda z, theta, values: {"z": z},
        topics=lambda *_: jnp.asarray(0), sweep=lambda corpus, key, z, values: z + 1,
    )  # fmt: skip
    data = SimpleNamespace(num_documents=2), pairs
    found = predictive._log_completed(fold, 0, 5, data, jax.random.key(0), None, {})
    words = np.einsum("sdk,vk->sdv", thetas[1:], terms)
    expected = [words[:, 0, 0] ** 2 * words[:, 0, 3], words[:, 1, 1] ** 3 * words[:, 1, 2]]
    np.testing.assert_allclose(found, np.log(np.mean(expected, 1)), rtol=1e-5)


def test_every_draw_has_random_numbers_of_its_own(monkeypatch):
    """Of the estimator, by chain and draw, and others for another seed; topics go with their own draw."""
    seeds, topics = [], []

    def estimate(method, given, first, second, *, seed, repeats):
        seeds.append(seed)
        topics.append(given[0])
        return SimpleNamespace(repeats=np.full((repeats, len(second)), -len(seeds)))

    monkeypatch.setattr(held_out, "_estimate", estimate)
    beta = RNG.dirichlet(np.full(5, 0.5), (2, 3, 3)).astype(np.float32)
    fit = fit_of(models.lda, {"beta": beta}, num_topics=3, alpha=ALPHA)
    found = perplexity(fit, TEST, repeats=2, seed=1)
    np.testing.assert_array_equal(found.estimates[:, :, 0], -np.arange(1, 7).repeat(2).reshape(2, 6))
    np.testing.assert_allclose(np.stack(topics), beta.reshape(6, 3, 5), rtol=1e-6)
    perplexity(fit, TEST, seed=2)
    assert len(set(seeds)) == 12


def test_error_covers_draws_noise_and_chains():
    """Estimates of known spread: the stated errors match what repetition shows."""
    rng = np.random.default_rng(0)
    tokens = np.full(50, 100)

    def made(shared, chain):
        logs = rng.normal(-600, 0.3, (2, 10, 50)) + rng.normal(0, shared, (2, 10, 1)) + rng.normal(0, chain, (2, 1, 1))
        return HeldOut("made", tokens.astype(str), tokens, logs)

    many = [made(0.3, 0.0) for _ in range(60)]
    spread = np.std([m.perplexity for m in many])
    assert 0.7 < np.mean([m.perplexity_error for m in many]) / spread < 1.7  # the larger of two is a little too large
    spread = np.std([m.log_likelihood for m in many], axis=0).mean()
    assert 0.7 < np.mean([m.error for m in many]) / spread < 1.7
    apart = [made(0.0, 0.5) for _ in range(60)]
    assert np.mean([m.perplexity_error for m in apart]) > 0.5 * np.std([m.perplexity for m in apart])
    one = HeldOut("made", tokens.astype(str), tokens, rng.normal(-600, 1, (1, 1, 50)))
    assert np.isnan(one.perplexity_error) and np.isfinite(one.perplexity)


def test_estimated_alpha_is_used(fit):
    alpha = [3.0, 0.1, 0.4]
    other = fit_of(models.lda, fit.draws, info={"alpha": alpha}, num_topics=3, alpha=0.5)
    weights = inference.word_weights(other, TEST)
    np.testing.assert_allclose(weights.alpha, np.broadcast_to(alpha, weights.alpha.shape), rtol=1e-6)
    np.testing.assert_allclose(weights.beta, fit.draws["beta"], rtol=1e-6)
    assert weights.alpha.shape == (2, 2, 1, 3) and list(weights.corpus.vocabulary) == list("abcde")
    # E[theta] of a document without known words is the prior's mean
    np.testing.assert_allclose(other.transform(TEST, num_burn=1)[2], np.divide(alpha, 3.5), rtol=1e-5)


def test_a_prior_that_differs_in_some_topics_alone_is_each_documents_own():
    """Labels say which topics a document may have; a topic that all share has the same concentration in all."""
    corpus = Corpus.from_counts(np.ones((3, 5), int), list("abcde"), covariates={"u": [1, 0, 1], "v": [0, 1, 1]})
    beta = np.full((1, 2, 3, 5), 0.2, np.float32)
    fit = fit_of(models.labelled_lda, {"beta": beta}, corpus, labels=["u", "v"], shared=1, alpha=0.5, leak=0.1)
    found = inference.word_weights(fit, corpus).alpha
    expected = [[0.5, 0.05, 0.5], [0.05, 0.5, 0.5], [0.5, 0.5, 0.5]]
    np.testing.assert_allclose(found, np.broadcast_to(expected, (1, 2, 3, 3)), rtol=1e-6)


def test_the_mixture_is_exact():
    theta = RNG.dirichlet(np.ones(3), (1, 4)).astype(np.float32)
    beta = RNG.dirichlet(np.ones(5), (1, 4, 3)).astype(np.float32)
    fit = fit_of(models.mixture, {"theta": theta, "beta": beta}, num_topics=3)

    def by_hand(corpus):
        words = np.einsum("dv,skv->skd", corpus.counts.toarray(), np.log(beta[0]))
        return logsumexp(np.log(theta[0])[:, :, None] + words, axis=1)

    found = perplexity(fit, TEST)
    np.testing.assert_allclose(found.estimates[0], by_hand(KNOWN), rtol=1e-5, atol=1e-6)
    assert found.log_likelihood[2] == 0
    first, _ = split(KNOWN, seed=0)
    np.testing.assert_allclose(
        perplexity(fit, TEST, "completion").estimates[0], by_hand(KNOWN) - by_hand(first), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(TypeError, match="exact"):
        perplexity(fit, TEST, particles=3)


def test_what_cannot_be_scored_is_refused(fit):
    corpus, y = stories.tiny()
    draws = {"beta": np.full((1, 2, 2, 3), 1 / 3, np.float32), "eta": np.zeros((1, 2, 2), np.float32)}
    with pytest.raises(ValueError, match=r"that only words read.*use method='completion'"):
        perplexity(fit_of(stories.response_reads_theta, draws, corpus, y, num_topics=2), corpus)
    with pytest.raises(ValueError, match="method is 'guess'"):
        perplexity(fit, TEST, "guess")
    with pytest.raises(ValueError, match="most_draws is 0"):
        perplexity(fit, TEST, most_draws=0)
    with pytest.raises(TypeError, match="make a Corpus"):
        perplexity(fit, TEST.counts)
