"""The hidden topic Markov model: the words of a sentence share a topic, which stays until a sentence takes a new one."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words


def htmm(corpus, y=None, *, num_topics=20, alpha=0.1, gamma=0.1, response=None, prior="dense", outputs=None):
    """theta_d ~ Dir(alpha);  beta_k ~ Dir(gamma);  switch ~ Beta(1, 1);  taken_ds ~ Bernoulli(switch), 1 for s = 1;

    z_ds ~ Cat(theta_d) if taken_ds, else z_ds = z_d,s-1;  w_dsn ~ Cat(beta_{z_ds}) for the words of sentence s

    ============  ===============  =========================================
    argument      symbol           in Gruber, Rosen-Zvi & Weiss (2007), section 3
    ============  ===============  =========================================
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         eta              Dirichlet prior of a topic's terms; a number, or "learned"
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    The paper's epsilon is the site switch, its psi is taken. NB: epsilon is a constant there, found by EM. The corpus must
    keep its sentences: ``Corpus.from_texts(texts, sentences=True)``.
    """
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    switch = numpyro.sample("switch", dist.Beta(1, 1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta, switch=switch)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)
