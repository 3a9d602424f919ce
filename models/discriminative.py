"""DiscLDA: a document's class says which topics it may take."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.arguments import BadArgument, check_positive
from .vocabulary.priors import concentration
from .vocabulary.words import draw_words


def disclda(corpus, y=None, *, outputs, shared=10, num_topics=40, alpha=0.1, leak=1e-3, gamma=0.05):
    """pi ~ Dir(1);  y_d ~ Cat(pi);  theta_d ~ Dir(alpha T_{y_d});  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    T_c is 1 for topics that all classes share and for those of class c, and ``leak`` for those of other classes.

    ============  ===============  =========================================
    argument      symbol           in Lacoste-Julien, Sha & Jordan (2008)
    ============  ===============  =========================================
    outputs       C                number of classes
    shared        B_0              topics that all classes share; the others belong to the classes in turn
    num_topics    K                number of topics, shared ones and classes' own together
    alpha         alpha            Dirichlet prior of proportions, of topics that its class may take; or "learned"
    leak          (0)              what is left of alpha for topics of other classes
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    ============  ===============  =========================================

    NB: the transformations T are given, as in the paper's first experiments; there beta and then T are trained to
    discriminate. The class stands above the words here, so that a new document's class follows from Bayes' rule.
    """
    check_positive(alpha=alpha, leak=leak, gamma=gamma)
    if num_topics - shared < outputs or shared < 0:
        raise BadArgument(
            f"shared is {shared} of num_topics {num_topics} for {outputs} classes; leave at least one topic a class."
        )
    places = jnp.arange(num_topics)
    own = (places - shared) % outputs == jnp.arange(outputs)[:, None]
    transform = jnp.where((places < shared) | own, 1.0, leak)
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(outputs)))
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(pi), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(alpha * transform[jnp.asarray(y, int)]))
    draw_words(corpus, theta, beta)
