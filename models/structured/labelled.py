"""Labelled LDA: a topic a label, and a document has those of its labels."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ..vocabulary.arguments import BadArgument, check_covariates, check_positive
from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words


def labelled_lda(
    corpus, y=None, *, labels, shared=0, alpha=0.5, leak=1e-3, gamma=0.1,
    response=None, prior="dense", outputs=None,
):  # fmt: skip
    """theta_d ~ Dir(alpha Lambda_d);  beta_k ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    Lambda_dk is 1 if document d has label k or topic k is shared, else ``leak``.

    ============  ===============  =========================================
    argument      symbol           in Ramage, Hall, Nallapati & Manning (2009)
    ============  ===============  =========================================
    labels        Lambda           columns of ``corpus.covariates``, 1 where a document has the label and 0 where not
    shared        (0)              topics behind those of labels that every document may take
    alpha         alpha            Dirichlet prior of proportions, of topics that a document may take
    leak          (0)              what is left of alpha for topics of other labels
    gamma         eta              Dirichlet prior of a topic's terms; a number, or "learned"
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    A new document whose labels nobody has written down has them all: give 1 in each column, and ``fit.transform`` says
    how much it has of each.
    """
    check_positive(alpha=alpha, leak=leak)
    check_covariates(corpus, labels, "labels")
    if shared < 0 or len(labels) + shared < 2:
        raise BadArgument(
            f"labels has {len(labels)} columns and shared is {shared}; give at least two topics together."
        )
    gamma, num_topics = concentration("gamma", gamma), len(labels) + shared
    has = [jnp.asarray(corpus.covariates[name]) > 0 for name in labels]
    may = jnp.stack([*has, *[jnp.ones(corpus.num_documents, bool)] * shared], 1)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(alpha * jnp.where(may, 1.0, leak)))
    zbar = draw_words(corpus, theta, beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)
