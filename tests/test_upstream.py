"""Classes above the words: DiscLDA, Bayes' rule against enumeration, and a class of one's own above whole documents."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln, logsumexp

from topiczoo import diagnostics, inference
from topiczoo.corpora import Corpus
from topiczoo.inference.folding import Folding
from topiczoo.inference.upstream import ClassPosterior
from topiczoo.models import disclda, draw_bags

NAMES = np.array(["east", "north", "west"])
ARGUMENTS = {"outputs": 3, "shared": 2, "num_topics": 8, "alpha": 0.3}


def planted(num_documents=120, seed=0):
    """Documents of which half the words come from topics that all classes share."""
    rng = np.random.default_rng(seed)
    beta, y = rng.dirichlet(np.full(40, 0.15), 8), rng.integers(0, 3, num_documents)
    theta = np.zeros((num_documents, 8))
    theta[:, :2] = rng.dirichlet(np.ones(2), num_documents) / 2
    for d in range(num_documents):
        theta[d, [2 + y[d], 5 + y[d]]] = rng.dirichlet(np.ones(2)) / 2
    counts = np.stack([rng.multinomial(30, row) for row in theta @ beta])
    return Corpus.from_counts(counts), NAMES[y]


@pytest.fixture(scope="module")
def fit():
    corpus, y = planted()
    return inference.vem(disclda, corpus[:80], y[:80], **ARGUMENTS, progress_bar=False)


@pytest.mark.parametrize("rule", ["plug-in", "posterior"])
def test_classes_are_told_from_the_words(fit, rule):
    corpus, y = planted()
    found = fit.predict(corpus[80:], rule=rule)
    assert np.mean(found.label == y[80:]) > 0.8
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-4)
    bound = np.array(fit.info["bound"])
    assert (np.diff(bound) > -1e-5 * np.abs(bound[1:])).all()
    # the shares of the classes are those counted, under Dir(1)
    np.testing.assert_allclose(fit.means["pi"][0], (np.array([np.sum(y[:80] == n) for n in NAMES]) + 1) / 83, rtol=1e-3)


def test_gibbs_serves_the_same_story():
    corpus, y = planted()
    settings = {"num_warmup": 150, "num_samples": 40, "num_chains": 1, "progress_bar": False}
    fit = inference.gibbs(disclda, corpus[:80], y[:80], **ARGUMENTS, **settings)
    assert np.mean(fit.predict(corpus[80:]).label == y[80:]) > 0.6
    # a document takes topics of its own class and shared ones
    theta, codes = fit.mean("theta"), np.searchsorted(NAMES, y[:80])
    own = (np.arange(8) < 2) | ((np.arange(8) - 2) % 3 == codes[:, None])
    assert theta[own].sum() / theta.sum() > 0.99
    shares = fit.transform(corpus[80:])
    assert shares.shape == (40, 8)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-4)


def test_classes_by_bayes_rule_are_those_of_enumeration(fit):
    """p(c, w) by summing over all topics of documents of three words: the bound lies below, and not far."""
    counts = np.zeros((4, 40), int)
    for d, words in enumerate(([0, 1, 2], [5, 5, 9], [12, 20, 33], [7, 30, 31])):
        np.add.at(counts[d], words, 1)
    folding = Folding(fit, Corpus.from_counts(counts, fit.vocabulary))
    values = folding.means(0)
    classes = ClassPosterior(folding, "y")
    found, theta = classes.log_joint(values)
    beta, pi = np.asarray(values["beta"], float), np.asarray(values["pi"], float)
    own = (np.arange(8) < 2) | ((np.arange(8) - 2) % 3 == np.arange(3)[:, None])
    alpha = 0.3 * np.where(own, 1.0, 1e-3)
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


def test_scores_and_leave_one_out_know_the_class_above(fit):
    corpus, y = planted()
    table = diagnostics.scores(fit, corpus[80:], y[80:], most_draws=4)
    found = fit.predict(corpus[80:], most_draws=4)
    assert table.loc["accuracy", "value"] == np.mean(found.label == y[80:])
    own = found.probabilities[np.arange(40), np.searchsorted(NAMES, y[80:])]
    np.testing.assert_allclose(table.loc["log_score", "value"], np.log(own).mean(), rtol=1e-3)


def naive_bayes(corpus, y=None, *, num_topics=3):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(num_topics)))
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(pi), obs=y)
        draw_bags(corpus, jnp.asarray(y, int), beta)


def test_a_class_of_ones_own_above_whole_documents_is_exact():
    """Naive Bayes in seven lines, against scikit-learn's at the same smoothing."""
    from sklearn.naive_bayes import MultinomialNB

    corpus, y = planted()
    settings = {"num_warmup": 20, "num_samples": 400, "num_chains": 1, "progress_bar": False}
    fit = inference.gibbs(naive_bayes, corpus[:80], y[:80], **settings)
    theirs = MultinomialNB(alpha=0.5).fit(corpus[:80].counts, y[:80])
    found = fit.predict(corpus[80:], rule="plug-in", calibrate=False)
    np.testing.assert_allclose(found.probabilities, theirs.predict_proba(corpus[80:].counts), atol=0.1)


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
