"""As many topics as the documents ask for, up to a number: Dirichlet processes by breaking a stick."""

from __future__ import annotations

import jax.numpy as jnp
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

    The paper's gamma and alpha_0 are the sites growth and alpha. NB: truncated; ``fit.summary()`` of share says how many
    topics are used, and where the last ones are, num_topics was too small.
    """
    gamma = concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    growth = numpyro.sample("growth", dist.Gamma(1, 1))
    alpha = numpyro.sample("alpha", dist.Gamma(1, 1))
    stick = numpyro.sample("stick", dist.Beta(1, growth).expand([num_topics - 1]).to_event(1))
    share = numpyro.deterministic("share", _broken(stick, 1 - stick))
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

    For short texts: a document has one topic. growth is the paper's alpha; a break is drawn as a Dirichlet of two, the
    piece and the rest. NB: truncated, and with the stick drawn, where the paper's sampler integrates it out.
    """
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    growth = numpyro.sample("growth", dist.Gamma(1, 1))
    with numpyro.plate("breaks", num_topics - 1):
        stick = numpyro.sample("stick", dist.Dirichlet(jnp.stack([jnp.ones(()), growth])))
    share = _broken(stick[:, 0], stick[:, 1])
    with numpyro.plate("documents", corpus.num_documents):
        z = numpyro.sample("z", dist.Categorical(share))
        draw_bags(corpus, z, beta)


def _broken(piece, rest):
    """Shares of a stick of which each break takes a piece and leaves a rest, the last share being what is left."""
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(rest)])
    return left * jnp.append(piece, 1.0)
