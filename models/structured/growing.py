"""As many topics as the documents ask for, up to a number: Dirichlet processes by breaking a stick.

A break takes the share stick ~ Beta(1, growth) of what is left. It is drawn as -log(1 - stick) ~ Exponential(growth), which
is the same and does not underflow where hardly anything is left.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_bags, draw_words

LEAST = 1e-6  # of a concentration, so that a Dirichlet has a density


def hdp(corpus, y=None, *, num_topics=50, gamma=0.1, response=None, prior="dense", outputs=None):
    """stick_k ~ Beta(1, growth);  share_k = stick_k prod_{l < k} (1 - stick_l);  theta_d ~ Dir(alpha share);

    beta_k ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn}), with growth, alpha ~ Gamma(1, 1)

    ============  ===============  =========================================
    argument      symbol           in Teh, Jordan, Beal & Blei (2006), section 4
    ============  ===============  =========================================
    num_topics    K                the most topics there can be: the stick is broken so often
    gamma         H                Dirichlet prior of a topic's terms; a number, or "learned"
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    The paper's gamma and alpha_0 are the sites growth and alpha, breaks are -log(1 - stick), of which
    ``models.stick_shares`` makes shares. NB: truncated: where the last topics are used, num_topics is too small.
    """
    gamma = concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    growth = numpyro.sample("growth", dist.Gamma(1, 1))
    alpha = numpyro.sample("alpha", dist.Gamma(1, 1))
    breaks = numpyro.sample("breaks", dist.Exponential(growth).expand([num_topics - 1]).to_event(1))
    share = jnp.exp(log_shares(breaks))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.maximum(alpha * share, LEAST)))
    zbar = draw_words(corpus, theta, beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)


def dp_mixture(corpus, *, num_topics=50, gamma=0.1):
    """stick_k ~ Beta(1, growth);  share_k = stick_k prod_{l < k} (1 - stick_l);  z_d ~ Cat(share);

    beta_k ~ Dir(gamma);  w_dn ~ Cat(beta_{z_d}), with growth ~ Gamma(1, 1)

    ============  ===============  =========================================
    argument      symbol           in Yin & Wang (2016), section 3
    ============  ===============  =========================================
    num_topics    K                the most topics there can be: the stick is broken so often
    gamma         beta             Dirichlet prior of a topic's terms
    ============  ===============  =========================================

    For short texts: a document has one topic. growth is the paper's alpha, breaks are -log(1 - stick). NB: truncated, and
    with the stick drawn, where the paper's sampler integrates it out.
    """
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    growth = numpyro.sample("growth", dist.Gamma(1, 1))
    breaks = numpyro.sample("breaks", dist.Exponential(growth).expand([num_topics - 1]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        z = numpyro.sample("z", dist.Categorical(logits=log_shares(breaks)))
        draw_bags(corpus, z, beta)


def log_shares(breaks):
    """log of the shares of a stick whose breaks are -log(1 - stick), the last share being what is left."""
    left = jnp.concatenate([jnp.zeros(1), -jnp.cumsum(breaks)])
    return left + jnp.append(jnp.log(-jnp.expm1(-breaks)), 0.0)


def stick_shares(breaks):
    """Shares of topics, [..., topics], of draws of the site breaks, [..., topics - 1]."""
    breaks = np.asarray(breaks)
    left = np.cumprod(np.exp(-np.insert(breaks, 0, 0.0, -1)), -1)
    return left * np.append(-np.expm1(-breaks), np.ones((*breaks.shape[:-1], 1)), -1)
