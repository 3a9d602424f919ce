"""Latent Dirichlet allocation."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.priors import concentration
from .vocabulary.words import draw_words


def lda(corpus, *, num_topics=20, alpha=0.1, gamma=0.1):
    """beta_k ~ Dir(gamma);  theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ==========  ==============================================
    argument      symbol      in Rasmussen & Ghahramani's lecture
    ============  ==========  ==============================================
    num_topics    K           number of topics
    alpha         alpha       Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         gamma       Dirichlet prior of a topic's terms; a number, or "learned"
    ============  ==========  ==============================================
    """
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    draw_words(corpus, theta, beta)
