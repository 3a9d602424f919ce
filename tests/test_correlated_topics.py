"""Stories whose proportions follow from numbers of each document: the posterior on a few words, calibration, new documents.

Documents outside the fit have a law that is written down here by quadrature, every parameter known: copies of one document
are independent draws of it. Limits: means of copies at 6 standard errors, some twenty of them, which a right program misses
with probability 4e-8; posteriors of tiny corpora at 5 standard errors as in test_enumeration.
"""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import local_stories
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from exact import Exact, standard_errors_apart, summaries
from fits import fit_of
from lengths import longest_but
from scipy import stats
from scipy.special import expit

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import calibrate, geweke
from topiczoo.diagnostics.checks import calibration
from topiczoo.diagnostics.scoring.held_out import perplexity
from topiczoo.inference.predictive.evidence import drawn_completion
from topiczoo.models import draw_words

APART, FAR = 5.0, 6.0
BETA = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
ETA, SIGMA = np.array([1.5, -1.0]), 0.4
MEAN, SCALE = 0.6, 1.8  # of the difference of the two logits


def known(corpus, y=None):
    """The difference of two logits is normal; the response reads topics, the logits and an effect of its own."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        apart = numpyro.sample("apart", dist.Normal(MEAN, SCALE))
        effect = numpyro.sample("effect", dist.Normal(0.0, 0.3))
    theta = jnp.stack([jax.nn.sigmoid(apart), jax.nn.sigmoid(-apart)], -1)
    zbar = draw_words(corpus, theta, jnp.asarray(BETA))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ jnp.asarray(ETA) + 0.5 * apart + effect, sigma), obs=y)


TERMS = [0, 0, 1, 2]  # the words of the document, of which there are copies
COPIES = 1200
CORPUS = Corpus.from_counts(np.tile(np.bincount(TERMS, minlength=3), (COPIES, 1)), list("abc"))
GRID = np.linspace(MEAN - 9 * SCALE, MEAN + 9 * SCALE, 4001)
PRIOR = stats.norm.pdf(GRID, MEAN, SCALE) * (GRID[1] - GRID[0])
THETA = np.stack([expit(GRID), expit(-GRID)], -1)


def likelihood(terms):
    """p(words | apart) on the grid."""
    return np.prod([THETA @ BETA[:, term] for term in terms], axis=0) if len(terms) else np.ones(len(GRID))


POSTERIOR = PRIOR * likelihood(TERMS) / (PRIOR * likelihood(TERMS)).sum()


def law_of_topics():
    """All assignments of topics with p(z, apart | words) on the grid."""
    every = np.asarray(list(itertools.product(range(2), repeat=len(TERMS))))
    joint = PRIOR * np.stack(
        [np.prod([THETA[:, k] * BETA[k, t] for k, t in zip(z, TERMS, strict=True)], 0) for z in every]
    )
    return every, joint / joint.sum()


@pytest.fixture(scope="module")
def fit():
    draws = {"sigma": np.full((1, 3), SIGMA)}
    return fit_of(known, draws, CORPUS[:6], np.linspace(-1, 1, 6))


def assert_mean(copies, expected):
    copies = np.asarray(copies, float)
    error = copies.std() / np.sqrt(len(copies))
    assert abs(copies.mean() - expected) < FAR * error, (copies.mean(), expected, error)


def test_proportions_of_new_documents_are_those_of_the_posterior(fit):
    corpus = Corpus.from_counts(
        np.vstack([CORPUS.counts.toarray(), np.zeros((COPIES, 3), int)]), list("abc"), empty="keep"
    )
    found = fit.transform(corpus, num_burn=12)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    assert_mean(found[:COPIES, 0], POSTERIOR @ THETA[:, 0])
    assert_mean(found[COPIES:, 0], PRIOR @ THETA[:, 0])  # a document without words


def test_topics_of_new_words_are_those_of_the_posterior(fit):
    """Each word's topic, and whether two words share theirs."""
    found = inference.token_topics(fit, CORPUS, num_burn=12, most_draws=1)
    z = found.topics[0].reshape(COPIES, len(TERMS))
    every, joint = law_of_topics()
    weights = joint.sum(1)
    for n in range(len(TERMS)):
        assert_mean(z[:, n], weights @ every[:, n])
    assert_mean(z[:, 0] == z[:, 3], weights @ (every[:, 0] == every[:, 3]))


def response_law():
    """Mean and variance of y given the words, and its density at a value."""
    every, joint = law_of_topics()
    centres = (np.stack([ETA[z].mean() for z in every])[:, None] + 0.5 * GRID).ravel()
    weights, spread = joint.ravel(), np.hypot(SIGMA, 0.3)
    mean = weights @ centres
    return mean, weights @ (centres - mean) ** 2 + spread**2, lambda y: weights @ stats.norm.pdf(y, centres, spread)


def test_responses_of_new_documents_have_their_law(fit):
    mean, variance, _ = response_law()
    draws = fit.predict(CORPUS, num_burn=12, most_draws=1).draws[0]
    assert_mean(draws, mean)
    assert_mean((draws - mean) ** 2, variance)


@pytest.mark.slow
def test_densities_of_responses_are_averaged_over_topics_and_what_drives_them(fit):
    _, _, density = response_law()
    found = inference.log_likelihood(fit, CORPUS, np.full(COPIES, 0.9), num_burn=12, most_draws=1, inner=4)
    assert_mean(np.exp(found[0, 0]), density(0.9))


@pytest.mark.slow
def test_the_rest_of_a_document_follows_from_its_beginning(fit):
    halves = [
        Corpus.from_counts(np.tile(np.bincount(terms, minlength=3), (COPIES, 1)), list("abc"))
        for terms in (TERMS[1:3], [TERMS[0], TERMS[3]])
    ]
    few, many = (
        np.exp(drawn_completion(fit, *halves, most_draws=1, num_thetas=number, num_burn=12)[0, 0]) for number in (5, 50)
    )
    joint = PRIOR * likelihood(TERMS[1:3])
    expected = joint @ likelihood([TERMS[0], TERMS[3]]) / joint.sum()
    assert_mean(few, expected)
    assert_mean(many, expected)
    assert many.std() < few.std() / 2  # a third, were all sweeps independent


def test_methods_that_need_a_dirichlet_name_the_one_that_works(fit):
    for method in ("left_to_right", "chib"):
        with pytest.raises(ValueError, match="use method='completion'"):
            perplexity(fit, CORPUS[:4], method)
    with pytest.raises(ValueError, match="rule='posterior'"):
        fit.predict(CORPUS[:4], rule="plug-in")
    with pytest.raises(TypeError, match="'particles' is no setting"):
        perplexity(fit, CORPUS[:4], "completion", particles=3)


def walking(corpus, y=None):
    """Proportions of a document depend on those before it."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("documents", corpus.num_documents):
        move = numpyro.sample("move", dist.Normal(0, sigma))
    level = jnp.cumsum(move)
    draw_words(corpus, jnp.stack([jax.nn.sigmoid(level), jax.nn.sigmoid(-level)], -1), jnp.asarray(BETA))


def test_documents_that_are_linked_cannot_be_folded_in():
    linked = fit_of(walking, {"sigma": np.full((1, 3), SIGMA)}, CORPUS[:6])
    with pytest.raises(ValueError, match="folded in one by one"):
        linked.transform(CORPUS[:4])


@pytest.mark.slow
def test_vem_refuses_a_correlated_topic_model_by_name():
    with pytest.raises(ValueError, match="vem cannot serve the site 'logits' of the story 'correlated'"):
        inference.vem(local_stories.correlated, *stories.small(), num_topics=3)


@pytest.mark.longest
@pytest.mark.parametrize("engine", ["gibbs", "svi", "nuts"])
def test_a_correlated_topic_model_fits_and_predicts(engine):
    corpus, y = stories.small()
    settings = {"num_steps": 60} if engine == "svi" else {"num_warmup": 20, "num_samples": 20, "num_chains": 1}
    fit = getattr(inference, engine)(local_stories.correlated, corpus, y, num_topics=3, progress_bar=False, **settings)
    assert np.isfinite(fit.predict(corpus, most_draws=4).mean).all()
    np.testing.assert_allclose(fit.transform(corpus, most_draws=4).sum(1), 1, rtol=1e-4)
    assert len(fit.topics(3)) == 9
    held_out = perplexity(fit, corpus, "completion", most_draws=2, num_thetas=5)
    assert 1 < held_out.perplexity < 20 and held_out.method == "completion"
    if engine == "gibbs":
        blocks = fit.info["blocks"]
        assert blocks["logits"] == "Hamiltonian trajectories, all documents at once" and blocks["mu"] == "normal draw"
        shares = np.exp(fit.mean("logits"))
        assert shares.shape == (12, 3)


ALL = (local_stories.correlated, local_stories.effect_on_theta, local_stories.coordinates, local_stories.positive)


@pytest.mark.longest
@pytest.mark.parametrize("story", ALL)
def test_gibbs_agrees_with_the_sum_over_all_topics(story):
    corpus, y = stories.tiny(counts=story is local_stories.positive)
    data = (corpus,) if story is local_stories.effect_on_theta else (corpus, y)
    settings = {"num_warmup": 300, "num_samples": 4000, "num_chains": 2, "seed": 3, "progress_bar": False}
    draws = inference.gibbs(story, *data, **settings).draws
    found = summaries({name: value for name, value in draws.items() if name not in ("z", "factor")})
    exact = Exact(story, *data).summaries()
    apart = standard_errors_apart(found, {name: exact[name] for name in found})
    assert max(apart.values()) < APART, apart


SHAPE = Corpus.from_counts(np.random.default_rng(0).poisson(1.2, (6, 5)) + np.eye(6, 5, dtype=int))


@pytest.mark.longest
@pytest.mark.parametrize("story", longest_but(ALL, local_stories.correlated))
def test_the_joint_distribution_stays(story, monkeypatch):
    """Geweke's test at a level of 1e-5 for all quantities of a story together."""
    monkeypatch.setattr(calibration, "LEVEL", 1e-5)
    table = geweke(story, SHAPE, num_topics=2, progress_bar=False, num_chains=1200, num_steps=50)
    assert table["passes"].all(), table.to_string()


@pytest.mark.slow
@pytest.mark.longest
def test_ranks_are_uniform(monkeypatch):
    """At a level of 1e-4 for all quantities together."""
    monkeypatch.setattr(calibration, "LEVEL", 1e-4)
    monkeypatch.setattr(calibration, "_null_excursions", partial(calibration._null_excursions, repeats=100_000))
    found = calibrate(
        local_stories.coordinates, SHAPE, num_topics=2, progress_bar=False, thinning=10, num_simulations=150
    )
    assert found.passes, found
