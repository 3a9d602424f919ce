"""Classes above the words: DiscLDA, Bayes' rule against enumeration, and a class of one's own above whole documents."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import expected_log, log_polya, words_bound
from scipy.special import gammaln, logsumexp, softmax
from stories import naive_bayes

from topiczoo import diagnostics, inference
from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.predictive.class_posterior import ClassPosterior
from topiczoo.inference.predictive.fold_in import FoldIn
from topiczoo.inference.story.reading import read
from topiczoo.models import disclda, draw_words

NAMES = np.array(["east", "north", "west"])
BETA = 0.85 * np.random.default_rng(0).dirichlet(np.full(40, 0.15), 8) + 0.15 / 40
PI = np.array([0.2, 0.5, 0.3])
OWN = np.array([[1, 1, 1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 0, 0, 1, 0], [1, 1, 0, 0, 1, 0, 0, 1]], bool)  # [class, topic]
ARGUMENTS = {"outputs": 3, "shared": 2, "num_topics": 8, "alpha": 0.3}


def planted(num_documents=120, seed=0):
    """Documents of which half the words come from topics that all classes share."""
    rng = np.random.default_rng(seed)
    beta, y = BETA, rng.integers(0, 3, num_documents)
    theta = np.zeros((num_documents, 8))
    theta[:, :2] = rng.dirichlet(np.ones(2), num_documents) / 2
    for d in range(num_documents):
        theta[d, [2 + y[d], 5 + y[d]]] = rng.dirichlet(np.ones(2)) / 2
    counts = np.stack([rng.multinomial(30, row) for row in theta @ beta])
    return Corpus.from_counts(counts), NAMES[y]


@pytest.fixture(scope="module")
def fit():
    """A fit written down by hand, at the topics that documents are drawn from."""
    corpus, y = planted()
    graph = read(disclda, corpus[:80], y[:80], ARGUMENTS)
    draws = {"beta": BETA[None, None], "pi": PI[None, None]}
    return Fit.of(graph, draws, engine="vem")


def test_a_class_says_which_topics_a_document_may_take_and_how_often_it_comes():
    """alpha of each document as its class has it, the classes' shares from their counts, and the bound of both."""
    corpus, y = planted(30)
    codes = np.searchsorted(NAMES, y)
    model = EMModel(read(disclda, corpus, y, ARGUMENTS), Settings(e_iterations=3))
    np.testing.assert_allclose(model.words.alpha, 0.3 * np.where(OWN[codes], 1, 1e-3), rtol=1e-5)
    assert (model.topics.prior == np.float32(0.05)).all() and model.topics.prior.shape == (8, 40)
    ((site, counted),) = model.classes.counted
    assert site.name == "pi"
    np.testing.assert_allclose(counted, 1 + np.bincount(codes, minlength=3), rtol=1e-5)
    state = model.e_step(model.start(np.random.default_rng(0)), True)
    found = model.bound(state) - state.local.bound.sum() - model.topics.bound(state.topics)
    # E[log p(y | pi)] + E[log p(pi)] - E[log q(pi)], which at the posterior is the evidence of y
    np.testing.assert_allclose(found, log_polya(np.bincount(codes, minlength=3), np.ones(3)), rtol=1e-5)
    np.testing.assert_allclose(model.q(state)["pi"].concentration, counted)
    log_beta = model.topics.log_mean(state.topics)
    row = corpus.counts.toarray()[4]
    gamma, terms = np.asarray(state.local.gamma[4], float), np.repeat(np.arange(40), row)
    phi = softmax(expected_log(gamma) + log_beta[:, terms].T, axis=1)
    np.testing.assert_allclose(
        state.local.bound[4], words_bound(phi, gamma, log_beta[:, terms].T, model.words.alpha[4]), rtol=1e-4
    )


@pytest.mark.slow
def test_classes_are_told_from_the_words(fit):
    """At the truth, of 40 documents: a third would be right by chance, and four fifths never."""
    corpus, y = planted()
    assert np.mean(fit.predict(corpus[80:], rule="plug-in", calibrate=False).label == y[80:]) > 0.8


def test_classes_by_bayes_rule_are_those_of_enumeration(fit):
    """p(c, w) by summing over all topics of documents of three words: the bound lies below, and not far."""
    counts = np.zeros((4, 40), int)
    for d, words in enumerate(([0, 1, 2], [5, 5, 9], [12, 20, 33], [7, 30, 31])):
        np.add.at(counts[d], words, 1)
    fold = FoldIn(fit, Corpus.from_counts(counts, fit.vocabulary))
    values = fold.means(0)
    classes = ClassPosterior(fold, "y")
    found, theta = classes.log_joint(values)
    beta, pi = np.asarray(values["beta"], float), np.asarray(values["pi"], float)
    alpha = 0.3 * np.where(OWN, 1.0, 1e-3)
    exact = np.zeros((4, 3))
    for d, c in itertools.product(range(4), range(3)):
        words, paths = np.repeat(np.arange(40), counts[d]), []
        for z in itertools.product(range(8), repeat=len(words)):
            n = np.bincount(z, minlength=8)
            topics = gammaln(alpha[c] + n).sum() - gammaln(alpha[c]).sum()
            topics += gammaln(alpha[c].sum()) - gammaln(alpha[c].sum() + len(words))
            paths.append(topics + np.log(beta[list(z), words]).sum())
        exact[d, c] = np.log(pi[c]) + logsumexp(paths)
    assert (found < exact + 1e-4).all() and (exact - found < 2).all()
    shares, mixed = classes(values)
    np.testing.assert_allclose(shares, np.exp(exact - logsumexp(exact, axis=1, keepdims=True)), atol=0.2)
    np.testing.assert_allclose(mixed, np.einsum("dc,cdk->dk", shares, theta), rtol=1e-5)
    np.testing.assert_allclose(theta.sum(-1), 1, rtol=1e-5)
    # the response: shares of its draws are the probabilities, within five standard errors (once in two million times)
    told = classes.part(jax.random.key(0), values, 3000)["y"]
    np.testing.assert_allclose(told["probabilities"], shares, atol=1e-5)
    np.testing.assert_allclose(np.exp(told["log_probabilities"]), shares, atol=1e-5)
    np.testing.assert_allclose(told["mean"], shares @ np.arange(3), rtol=1e-4)
    drawn = np.stack([(told["draw"] == c).mean(0) for c in range(3)], 1)
    assert (np.abs(drawn - shares) < 5 * np.sqrt(shares * (1 - shares) / 3000) + 1e-3).all()


@pytest.mark.slow
def test_gibbs_serves_the_same_story():
    corpus, y = planted()
    settings = {"num_warmup": 150, "num_samples": 40, "num_chains": 1, "progress_bar": False}
    fit = inference.gibbs(disclda, corpus[:80], y[:80], **ARGUMENTS, **settings)
    assert np.mean(fit.predict(corpus[80:]).label == y[80:]) > 0.6
    # a document takes topics of its own class and shared ones
    theta, codes = fit.mean("theta"), np.searchsorted(NAMES, y[:80])
    assert theta[OWN[codes]].sum() / theta.sum() > 0.99
    shares = fit.transform(corpus[80:])
    assert shares.shape == (40, 8)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-4)


@pytest.mark.slow
def test_scores_know_the_class_above(fit):
    corpus, y = planted()
    table = diagnostics.scores(fit, corpus[80:], y[80:], most_draws=4)
    found = fit.predict(corpus[80:], most_draws=4)
    assert table.loc["accuracy", "value"] == np.mean(found.label == y[80:])
    own = found.probabilities[np.arange(40), np.searchsorted(NAMES, y[80:])]
    np.testing.assert_allclose(table.loc["log_score", "value"], np.log(own).mean(), rtol=1e-3)


def test_a_class_of_ones_own_above_whole_documents_is_exact():
    """Naive Bayes in seven lines, at given topics: Bayes' rule."""
    corpus, y = planted()
    graph = read(naive_bayes, corpus[:80], y[:80], {})
    draws = {"beta": BETA[None, None, :3], "pi": PI[None, None]}
    fit = Fit.of(graph, draws, engine="gibbs")
    found = fit.predict(corpus[80:], rule="plug-in", calibrate=False)
    log_beta = np.log(np.maximum(BETA[:3].astype(np.float32), np.finfo(np.float32).tiny)).astype(float)
    joint = corpus[80:].counts @ log_beta.T + np.log(PI)
    np.testing.assert_allclose(found.probabilities, softmax(joint, axis=1), atol=1e-3)


def of_places(corpus, y=None):
    """A latent region of each document says how and where it was written."""
    with numpyro.plate("labels", 2, dim=-2), numpyro.plate("topics", 2, dim=-1):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    with numpyro.plate("regions", 2):
        centre = numpyro.sample("centre", dist.Normal(0, 5).expand([2]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        region = numpyro.sample("region", dist.Categorical(jnp.array([0.3, 0.7])))
        numpyro.sample("y", dist.Normal(centre[region], 0.5).to_event(1), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(2)))
    draw_words(corpus, theta, beta, label=region)


def test_what_a_latent_class_generates_is_a_mixture_over_classes():
    """The mean, and draws in their shares around the centres, within five standard errors (once in two million times)."""
    counts = np.array([[3, 1, 0, 0], [0, 1, 1, 2], [1, 1, 1, 1]])
    corpus, y = Corpus.from_counts(counts), np.array([[0.0, 0.0], [9.0, 1.0], [8.0, 0.0]])
    graph = read(of_places, corpus, y, {})
    beta = np.random.default_rng(1).dirichlet(np.ones(4), (2, 2))
    centre = np.array([[-8.0, 4.0], [8.0, 0.0]])
    regions = np.zeros((1, 1, 3), int)
    draws = {"beta": beta[None, None], "centre": centre[None, None], "region": regions}
    fit = Fit.of(graph, draws, engine="vem")
    fold = FoldIn(fit, corpus)
    classes, values = ClassPosterior(fold, "region"), fold.means(0)
    assert classes.answers == ["y"]
    shares, _ = classes(values)
    told = classes.part(jax.random.key(0), values, 4000)["y"]
    np.testing.assert_allclose(told["mean"], shares @ centre, rtol=1e-4, atol=1e-4)
    draw = np.asarray(told["draw"], float)
    assert draw.shape == (4000, 3, 2)
    second = draw[..., 0] > 0
    assert (np.abs(second.mean(0) - shares[:, 1]) < 5 * np.sqrt(shares[:, 0] * shares[:, 1] / 4000)).all()
    away = draw - centre[second.astype(int)]
    np.testing.assert_allclose(away.std((0,)), 0.5, rtol=0.06)
    assert np.abs(away.mean(0)).max() < 5 * 0.5 / np.sqrt(4000)


@pytest.mark.slow
def test_a_class_of_ones_own_may_be_missing_for_most_documents():
    corpus, y = planted()
    codes = np.searchsorted(NAMES, y).astype(float)
    some = np.where(np.arange(len(codes)) < 6, codes, np.nan)
    fit = inference.vem(naive_bayes, corpus[:80], some[:80], progress_bar=False)
    assert "y" not in fit.sites and fit.info["converged"]
    assert np.mean(fit.predict(corpus[80:]).label == codes[80:]) > 0.9


def test_missing_classes_and_wrong_numbers_are_refused():
    corpus, y = planted(30)
    codes = np.searchsorted(NAMES, y).astype(float)
    codes[3] = np.nan
    for story, arguments in ((disclda, ARGUMENTS), (naive_bayes, {})):
        with pytest.raises(ValueError, match="y is missing for some documents, and in the story"):
            inference.gibbs(story, corpus, codes, **arguments)
    with pytest.raises(ValueError, match="y is missing for some documents, and in the story 'disclda'"):
        inference.vem(disclda, corpus, codes, **ARGUMENTS)
    with pytest.raises(ValueError, match="shared is 6 of num_topics 8 for 3 classes; leave at least one topic a class"):
        inference.vem(disclda, corpus, y, **{**ARGUMENTS, "shared": 6})
    with pytest.raises(ValueError, match="leak is 0; give a positive number"):
        inference.vem(disclda, corpus, y, **ARGUMENTS, leak=0)
