"""The mixture of categoricals: one topic a document."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.words import draw_bags


def mixture(corpus, *, num_topics=20, alpha=1.0, gamma=0.1):
    """theta ~ Dir(alpha);  beta_k ~ Dir(gamma);  z_d ~ Cat(theta);  w_dn ~ Cat(beta_{z_d})

    ============  ==========  ==============================================
    argument      symbol      in Rasmussen & Ghahramani's lecture
    ============  ==========  ==============================================
    num_topics    K           number of topics
    alpha         alpha       Dirichlet prior of the topics' shares; one number, or one a topic
    gamma         gamma       Dirichlet prior of a topic's terms
    ============  ==========  ==============================================
    """
    theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    with numpyro.plate("documents", corpus.num_documents):
        z = numpyro.sample("z", dist.Categorical(theta))
        draw_bags(corpus, z, beta)
