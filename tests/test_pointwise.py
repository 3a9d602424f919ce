"""Pointwise log-likelihood of responses: exact values, and what ArviZ makes of it."""

from __future__ import annotations

import itertools

import arviz_stats
import numpy as np
import pytest
import stories
from fits import fit_of
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm

from topiczoo import inference, models
from topiczoo.diagnostics.scoring import pointwise as scoring
from topiczoo.diagnostics.scoring.pointwise import with_log_likelihood
from topiczoo.inference.predictive.pointwise import Pointwise

RNG = np.random.default_rng(2)


def exact(corpus, y, beta, alpha, mean, sigma):
    """log sum over z of p(z | w_d) N(y_d | mean(zbar), sigma^2), and log p(y_d | E[zbar | w_d]), which is not it."""
    document, term = corpus.tokens()
    right, wrong = np.zeros(len(corpus)), np.zeros(len(corpus))
    for d in range(len(corpus)):
        words = term[document == d]
        z = np.array(list(itertools.product(range(len(beta)), repeat=len(words))))
        counts = (z[..., None] == np.arange(len(beta))).sum(1)
        weight = softmax(gammaln(alpha + counts).sum(1) + np.log(beta[z, words]).sum(1))
        zbar = counts / len(words)
        right[d] = logsumexp(norm.logpdf(y[d], mean(zbar), sigma), b=weight)
        wrong[d] = norm.logpdf(y[d], mean(weight @ zbar), sigma)
    return right, wrong


def test_density_is_averaged_over_topics_and_sites_between_given_words_alone():
    """A latent site of variance 1/4 between topics and a response of variance 1/4; topics alone: test_exact_prediction.

    4000 sweeps: the logarithm is known to 0.015.
    """
    story, alpha, sigma = stories.latent_below, 0.5, np.sqrt(0.5)
    corpus, y = stories.tiny()
    y = np.array([y[0], np.nan, y[2]])
    beta = RNG.dirichlet(np.ones(3), (2, 1, 2)).astype(np.float32)
    eta = np.array([[[-1.5, 1.0]], [[0.5, 2.0]]], np.float32)
    draws = {"beta": beta, "eta": eta}
    found = inference.log_likelihood(fit_of(story, draws, corpus, y, num_topics=2), corpus, y, inner=4000, seed=1)
    assert found.shape == (2, 1, 3) and np.isnan(found[:, :, 1]).all()
    for chain in (0, 1):
        right, wrong = exact(corpus, y, beta[chain, 0].astype(float), alpha, lambda zbar: zbar @ eta[chain, 0], sigma)
        np.testing.assert_allclose(found[chain, 0, [0, 2]], right[[0, 2]], atol=0.1)
        assert np.abs(wrong - right)[[0, 2]].max() > 0.2


@pytest.mark.parametrize("margin", ["binary", pytest.param("classes", marks=pytest.mark.slow), "one_against_all"])
def test_the_probabilities_of_a_margins_classes_sum_to_one(margin):
    """As a loss they do not."""
    corpus, _ = stories.tiny()
    classes = 2 if margin == "binary" else 3
    eta = RNG.normal(size=(1, 1, 2) if margin == "binary" else (1, 1, 2, 3)).astype(np.float32)
    draws = {"beta": RNG.dirichlet(np.ones(3), (1, 1, 2)).astype(np.float32), "eta": eta}
    arguments = {"num_topics": 2, "margin": margin, "cost": 2.0, **({} if classes == 2 else {"outputs": 3})}
    labels = [np.full(3, float(c)) for c in range(classes)]
    fit = fit_of(models.medlda, draws, corpus, np.array([0.0, 1.0, 1.0]), **arguments)
    found = [inference.log_likelihood(fit, corpus, y, inner=3) for y in labels]
    np.testing.assert_allclose(np.exp(found).sum(0), 1, rtol=1e-4)


@pytest.fixture(scope="module")
def fit():
    """Twelve documents whose eighth has no response; two chains of 46 draws."""
    corpus, y = stories.small()
    y[7] = np.nan
    draws = {"beta": RNG.dirichlet(np.ones(9), (2, 46, 2)), "eta": RNG.normal(size=(2, 46, 2))}
    draws = {name: value.astype(np.float32) for name, value in draws.items()}
    return fit_of(models.slda, {**draws, "sigma": np.full((2, 46), 1.5, np.float32)}, corpus, y, num_topics=2)


@pytest.mark.slow
def test_arviz_finds_log_likelihoods_beside_the_draws_they_are_of(fit):
    fit.statistics = {"lp": RNG.normal(size=(2, 46))}
    places = np.arange(0, 46, 3)
    settings = {"most_draws": 16, "inner": 5, "seed": 3}
    tree, labelled = with_log_likelihood(fit, **settings), ~np.isnan(fit.y)
    logs = tree["log_likelihood"]["y"]
    assert logs.dims == ("chain", "draw", "document") and logs["draw"].values.tolist() == places.tolist()
    np.testing.assert_array_equal(logs, inference.log_likelihood(fit, fit.corpus, fit.y, **settings)[..., labelled])
    assert logs["document"].values.tolist() == fit.corpus.names[labelled].tolist()
    np.testing.assert_array_equal(tree["observed_data"]["y"], fit.y[labelled].astype(np.float32))
    np.testing.assert_array_equal(tree["posterior"]["eta"], fit.draws["eta"][:, places])
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], fit.statistics["lp"][:, places])
    assert "beta" not in tree["posterior"]
    elpd = arviz_stats.loo(tree)
    assert elpd.n_data_points == labelled.sum() == 10 and elpd.n_samples == 32


def test_the_posterior_beside_log_likelihoods_is_that_of_their_draws(fit, monkeypatch):
    """Evenly spaced: sixteen of forty-six."""
    rng = np.random.default_rng(7)
    labelled = ~np.isnan(fit.y)
    made = Pointwise({"y": np.where(labelled, rng.normal(size=(2, 16, 12)), np.nan)}, {"y": fit.y}, {})
    monkeypatch.setattr(scoring, "pointwise", lambda *_, **__: made)
    tree, places = with_log_likelihood(fit, most_draws=16), np.arange(0, 46, 3)
    np.testing.assert_array_equal(tree["posterior"]["eta"], fit.draws["eta"][:, places])
    np.testing.assert_array_equal(fit.global_draws(16)["eta"], fit.draws["eta"][:, places])
    np.testing.assert_array_equal(tree["log_likelihood"]["y"], made.log_likelihood["y"][..., labelled])
    assert tree["log_likelihood"]["y"]["draw"].values.tolist() == places.tolist()
    assert tree["log_likelihood"]["y"]["document"].values.tolist() == fit.corpus.names[labelled].tolist()


def test_bad_input_is_refused_in_a_sentence(fit):
    for y, words in ((None, "y is missing"), (["a"] * len(fit.corpus), "not numeric"), (np.ones(3), "has 3 values")):
        with pytest.raises(ValueError, match=words):
            inference.log_likelihood(fit, fit.corpus, y)
    with pytest.raises(ValueError, match="inner is 0"):
        inference.log_likelihood(fit, fit.corpus, fit.y, inner=0)
    plain = fit_of(models.lda, {"beta": np.full((1, 2, 2, 3), 1 / 3, np.float32)}, stories.tiny()[0], num_topics=2)
    with pytest.raises(ValueError, match="fitted without"):
        with_log_likelihood(plain)
