"""The correlated topic model: proportions are logistic normal, so that topics may go together or apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words


def ctm(corpus, y=None, *, num_topics=20, gamma=0.1, response=None, prior="dense", outputs=None):
    """mu_k ~ N(0, 1);  Sigma = diag(tau) R diag(tau);  logits_d ~ N(mu, Sigma);  theta_d = softmax(logits_d);

    beta_k ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Blei & Lafferty (2007), section 2
    ============  ===============  =========================================
    num_topics    K                number of topics
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    NB: mu, Sigma and beta are unknown constants in the paper. Here tau_k ~ LogN(0, 1/2) and R ~ LKJ(2); ``factor`` is the
    Cholesky factor of the correlations R.
    """
    gamma = concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    tau = numpyro.sample("tau", dist.LogNormal(0, 0.5).expand([num_topics]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(num_topics, 2.0))
    with numpyro.plate("documents", corpus.num_documents):
        logits = numpyro.sample("logits", dist.MultivariateNormal(mu, scale_tril=tau[:, None] * factor))
    zbar = draw_words(corpus, jax.nn.softmax(logits), beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)
