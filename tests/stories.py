"""Edited stories: each changes a line or two of supervised LDA, as a user would."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from topiczoo.corpora import Corpus
from topiczoo.models import draw_bags, draw_words


def topics(corpus, num_topics, gamma=0.5):
    with numpyro.plate("topics", num_topics):
        return numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))


def proportions(corpus, num_topics, alpha=0.5):
    with numpyro.plate("documents", corpus.num_documents):
        return numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))


def coefficients(num_topics, prior=None):
    return numpyro.sample("eta", (prior or dist.Normal(0, 1)).expand([num_topics]).to_event(1))


def student_t(corpus, y=None, *, num_topics=2):
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.4))
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.StudentT(3, zbar @ eta, sigma), obs=y)


def poisson(corpus, y=None, *, num_topics=2):
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Poisson(jnp.exp(zbar @ eta)), obs=y)


def negative_binomial(corpus, y=None, *, num_topics=2):
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    size = numpyro.sample("size", dist.Gamma(2, 1))
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(zbar @ eta), size), obs=y)


def laplace_eta(corpus, y=None, *, num_topics=2):
    beta, eta = topics(corpus, num_topics), coefficients(num_topics, dist.Laplace(0, 1))
    sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.4))
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


def asymmetric_alpha(corpus, y=None, *, num_topics=2):
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    variance = numpyro.sample("variance", dist.InverseGamma(3, 2))
    zbar = draw_words(corpus, proportions(corpus, num_topics, jnp.arange(1.0, num_topics + 1) / 2), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, jnp.sqrt(variance)), obs=y)


def random_effect(corpus, y=None, *, num_topics=2):
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        effect = numpyro.sample("effect", dist.Normal(0, 0.7))
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta + effect, 0.5), obs=y)


def squared_shares(corpus, y=None, *, num_topics=2):
    """Not linear in zbar."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar**2 @ eta, 0.6), obs=y)


def mean_and_scale(corpus, y=None, *, num_topics=2):
    """Two predictors: a location and a log scale."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    spread = numpyro.sample("spread", dist.Normal(0, 0.5).expand([num_topics]).to_event(1))
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, jnp.exp(zbar @ spread)), obs=y)


def latent_below(corpus, y=None, *, num_topics=2):
    """A latent site between zbar and the response."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        rate = numpyro.sample("rate", dist.Normal(zbar @ eta, 0.5))
        numpyro.sample("y", dist.Normal(rate, 0.5), obs=y)


def response_reads_theta(corpus, y=None, *, num_topics=2):
    """theta has a child beside z: it cannot be integrated out."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    theta = proportions(corpus, num_topics)
    draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(theta @ eta, 0.5), obs=y)


def logistic_normal(corpus, y=None, *, num_topics=2):
    """theta is no Dirichlet."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        logits = numpyro.sample("logits", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    zbar = draw_words(corpus, jax.nn.softmax(logits), beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)


def learned_alpha(corpus, y=None, *, num_topics=2):
    """theta's own prior is unknown."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    alpha = numpyro.sample("alpha", dist.Gamma(2, 2))
    zbar = draw_words(corpus, proportions(corpus, num_topics, alpha), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)


def centred(corpus, y=None, *, num_topics=2):
    """The predictor of a document depends on the others' topics."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    predictor = draw_words(corpus, proportions(corpus, num_topics), beta) @ eta
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(predictor - predictor.mean(), 0.5), obs=y)


def total_only(corpus, y=None, *, num_topics=2):
    """One response for the whole corpus."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    predictor = draw_words(corpus, proportions(corpus, num_topics), beta) @ eta
    numpyro.sample("total", dist.Normal(predictor.sum(), 1.0), obs=1.0)


def global_switch(corpus, y=None, *, num_topics=2):
    """A discrete latent that belongs to no document."""
    beta, eta = topics(corpus, num_topics), coefficients(num_topics)
    switch = numpyro.sample("switch", dist.Bernoulli(0.5))
    zbar = draw_words(corpus, proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta * switch, 0.5), obs=y)


def naive_bayes(corpus, y=None, *, num_topics=3):
    """A class above whole documents."""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(num_topics)))
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(pi), obs=y)
        draw_bags(corpus, jnp.asarray(y, int), beta)


REAL = (student_t, laplace_eta, asymmetric_alpha, random_effect, squared_shares, mean_and_scale, latent_below,
        response_reads_theta, logistic_normal, learned_alpha)  # fmt: skip
COUNTS = (poisson, negative_binomial)


def tiny(counts: bool = False) -> tuple[Corpus, np.ndarray]:
    """Seven tokens in three documents, with responses: every assignment of topics can be written down."""
    corpus = Corpus.from_counts(np.array([[2, 1, 0], [0, 1, 1], [1, 0, 1]]))
    return corpus, np.array([3.0, 0.0, 1.0]) if counts else np.array([1.2, -0.8, 0.3])


def small(counts: bool = False, seed: int = 0) -> tuple[Corpus, np.ndarray]:
    """Twelve documents of a dozen words; the last response is missing."""
    rng = np.random.default_rng(seed)
    corpus = Corpus.from_counts(rng.poisson(1.0, (12, 9)) + (np.arange(9) == 0))
    y = rng.poisson(1.5, 12).astype(float) if counts else rng.normal(size=12)
    y[-1] = np.nan
    return corpus, y
