"""Stories with numbers of each document that no block integrates out, as a user would write them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from topiczoo.models import draw_words


def correlated(corpus, y=None, *, num_topics=2, scale=1.0, gamma=0.5):
    """Correlated topic model with a response (Blei & Lafferty 2007): proportions are logistic normal."""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    tau = numpyro.sample("tau", dist.LogNormal(jnp.log(scale), 0.5).expand([num_topics]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(num_topics, 2.0))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        logits = numpyro.sample("logits", dist.MultivariateNormal(mu, scale_tril=tau[:, None] * factor))
    zbar = draw_words(corpus, jax.nn.softmax(logits), beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)


def topics(corpus, num_topics, gamma=0.5):
    with numpyro.plate("topics", num_topics):
        return numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))


def effect_on_theta(corpus, *, num_topics=2):
    """A document uses its first topic more or less than others do."""
    beta = topics(corpus, num_topics)
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        effect = numpyro.sample("effect", dist.Normal(0, 1.5))
    draw_words(corpus, jax.nn.softmax(mu + effect[:, None] * (jnp.arange(num_topics) == 0)), beta)


def coordinates(corpus, y=None, *, num_topics=2):
    """Documents are points in the plane, which say what they are about."""
    beta = topics(corpus, num_topics)
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2, num_topics]).to_event(2))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        x = numpyro.sample("x", dist.Normal(0, 1).expand([2]).to_event(1))
    zbar = draw_words(corpus, jax.nn.softmax(x @ weights), beta)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta + x[:, 0], 0.5), obs=y)


def positive(corpus, y=None, *, num_topics=2):
    """How mixed a document is, a positive number, above its logits, and a positive number that its count reads."""
    beta = topics(corpus, num_topics)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        sharpness = numpyro.sample("sharpness", dist.Gamma(2.0, 1.0))
        logits = numpyro.sample("logits", dist.Normal(0, sharpness[:, None] * jnp.ones(num_topics)).to_event(1))
    zbar = draw_words(corpus, jax.nn.softmax(logits), beta)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    with documents:
        rate = numpyro.sample("rate", dist.LogNormal(zbar @ eta, 0.5))
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def walk(corpus, y=None, *, num_topics=2):
    """Documents follow each other in time: their levels are linked."""
    beta = topics(corpus, num_topics)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        move = numpyro.sample("move", dist.Normal(0, 1))
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    zbar = draw_words(corpus, theta, beta)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta + jnp.cumsum(move), 0.5), obs=y)


def shared_theta(corpus, y=None, *, num_topics=2):
    """A document speaks a little of what all others do: its proportions depend on theirs."""
    beta = topics(corpus, num_topics)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    zbar = draw_words(corpus, 0.9 * theta + 0.1 * theta.mean(0), beta)
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)
