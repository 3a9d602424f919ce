"""Supervised latent Dirichlet allocation with a real-valued response."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.priors import concentration
from .vocabulary.words import draw_words


def slda(corpus, y=None, *, num_topics=20, alpha=0.1, gamma=0.1):
    """theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn});  y_d ~ N(eta . zbar_d, sigma^2)

    ============  ===============  =========================================
    argument      symbol           in Blei & McAuliffe (2007), section 2
    ============  ===============  =========================================
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    ============  ===============  =========================================

    NB: the paper treats beta, eta and sigma as unknown constants; here they have priors. The priors of eta and sigma
    expect a response on a unit scale: standardise y.
    """
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)
