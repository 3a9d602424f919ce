"""Pointwise log-likelihood of responses: exact values, and what ArviZ makes of it."""

from __future__ import annotations

import itertools

import arviz_stats
import numpy as np
import pytest
import stories
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm
from test_held_out import fit_of

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics.pointwise import with_log_likelihood
from topiczoo.inference.pointwise import draw_index

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


@pytest.mark.parametrize(
    ("story", "alpha", "sigma"), [(models.slda, 0.1, 0.4), (stories.latent_below, 0.5, np.sqrt(0.5))]
)
def test_density_is_averaged_over_topics_given_words_alone(story, alpha, sigma):
    corpus, y = stories.tiny()
    y = np.array([y[0], np.nan, y[2]])
    beta = RNG.dirichlet(np.ones(3), (2, 1, 2)).astype(np.float32)
    eta = np.array([[[-1.5, 1.0]], [[0.5, 2.0]]], np.float32)
    draws = {"beta": beta, "eta": eta}
    if story is models.slda:
        draws["sigma"] = np.full((2, 1), sigma, np.float32)
    found = inference.log_likelihood(fit_of(story, draws, corpus, y, num_topics=2), corpus, y, inner=4000, seed=1)
    assert found.shape == (2, 1, 3) and np.isnan(found[:, :, 1]).all()
    for chain in (0, 1):
        right, wrong = exact(corpus, y, beta[chain, 0].astype(float), alpha, lambda zbar: zbar @ eta[chain, 0], sigma)
        np.testing.assert_allclose(found[chain, 0, [0, 2]], right[[0, 2]], atol=0.1)
        assert np.abs(wrong - right)[[0, 2]].max() > 0.2


@pytest.mark.parametrize("margin", ["binary", "classes", "one_against_all"])
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
def simulated():
    """Sixty documents of 30 words whose response follows their topics; draws near the truth, and far from it."""
    beta = RNG.dirichlet(np.full(12, 0.2), 2)
    theta = RNG.dirichlet([0.5, 0.5], 60)
    eta = np.array([-1.0, 1.0])
    corpus = Corpus.from_counts([RNG.multinomial(30, t @ beta) for t in theta], empty="drop")
    y = RNG.normal(theta @ eta, 0.3)
    y[7] = np.nan

    def near(value, spread):
        return (value + spread * RNG.normal(size=(2, 50, *np.shape(value)))).astype(np.float32)

    topics = np.abs(near(beta, 1e-3)) + 1e-4
    draws = {"beta": topics / topics.sum(-1, keepdims=True), "eta": near(eta, 0.05), "sigma": near(0.35, 0.02)}
    good = fit_of(models.slda, draws, corpus, y, num_topics=2, alpha=0.5)
    bad = fit_of(stories.student_t, {**draws, "eta": near(0 * eta, 0.05)}, corpus, y, num_topics=2)
    return good, bad


def test_loo_and_compare_work_across_stories(simulated):
    good, bad = simulated
    trees = {
        "slda": with_log_likelihood(good, most_draws=40, inner=5),
        "t": with_log_likelihood(bad, most_draws=40, inner=5),
    }
    tree = trees["slda"]
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "document")
    assert tree["log_likelihood"]["y"].shape == (2, 40, 59) and "7" not in tree["observed_data"]["document"].values
    np.testing.assert_array_equal(tree["observed_data"]["y"], good.y[~np.isnan(good.y)].astype(np.float32))
    np.testing.assert_array_equal(tree["posterior"]["eta"], good.draws["eta"][:, draw_index(good, 40)])
    np.testing.assert_array_equal(good.global_draws(40)["eta"], tree["posterior"]["eta"])
    assert "beta" not in tree["posterior"]
    elpd = arviz_stats.loo(tree)
    assert elpd.n_data_points == 59 and elpd.n_samples == 80
    np.testing.assert_allclose(elpd.elpd, tree["log_likelihood"]["y"].mean(("chain", "draw")).sum(), rtol=0.2)
    table = arviz_stats.compare(trees)
    assert list(table.index) == ["slda", "t"] and table["elpd_diff"].iloc[1] != 0


def test_draws_of_large_sites_are_matched():
    corpus, y = stories.tiny()
    draws = {"eta": np.arange(20.0, dtype=np.float32).reshape(1, 10, 2), "sigma": np.ones((1, 10), np.float32)}
    fit = fit_of(models.slda, draws, corpus, y, num_topics=2)
    fit.snapshots, fit.snapshot_index = {"beta": np.full((1, 4, 2, 3), 1 / 3, np.float32)}, np.array([0, 3, 6, 9])
    for most in (2, 3, 50):
        np.testing.assert_array_equal(fit.global_draws(most)["eta"], draws["eta"][:, draw_index(fit, most)])


def test_bad_input_is_refused_in_a_sentence(simulated):
    fit = simulated[0]
    for y, words in ((None, "y is missing"), (["a"] * len(fit.corpus), "not numeric"), (np.ones(3), "has 3 values")):
        with pytest.raises(ValueError, match=words):
            inference.log_likelihood(fit, fit.corpus, y)
    with pytest.raises(ValueError, match="inner is 0"):
        inference.log_likelihood(fit, fit.corpus, fit.y, inner=0)
    plain = fit_of(models.lda, {"beta": np.full((1, 2, 2, 3), 1 / 3, np.float32)}, stories.tiny()[0], num_topics=2)
    with pytest.raises(ValueError, match="fitted without"):
        with_log_likelihood(plain)
