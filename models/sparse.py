"""Sparse supervised topics: a response that depends on few of the topics."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.arguments import BadArgument, check_choice, check_positive
from .vocabulary.coefficients import COEFFICIENTS
from .vocabulary.distributions import BernoulliProbit
from .vocabulary.priors import concentration
from .vocabulary.words import draw_words


def sstm(
    corpus,
    y=None,
    *,
    response="normal",
    outputs=None,
    prior="laplace",
    num_topics=50,
    alpha=0.1,
    gamma=0.1,
    nu=None,
    sigma=None,
):
    """theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn});  eta_k ~ Laplace(0, nu);

    y_d ~ N(eta . zbar_d, sigma^2)   or   P(y_d = 1) = Phi(eta . zbar_d / sigma)

    ============  ===============  =========================================
    argument      symbol           in Wang, Li & Lin, section 2
    ============  ===============  =========================================
    response      p(y | eta, z)    "normal" (standardise y) or "probit" (two classes)
    outputs       M                responses side by side that share topics, each with its own eta
    prior         p(eta)           "laplace"; or a name or function as in ``models.COEFFICIENTS``
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         beta             Dirichlet prior of a topic's terms; a number, or "learned"
    nu            nu               scale of the coefficients; drawn unless given
    sigma         sigma            deviation of y around eta . zbar; unless given drawn (normal), or 1 (probit)
    ============  ===============  =========================================

    NB: a draw of eta is never exactly 0. ``fit.select`` says which topics count, by a rule you choose.
    """
    _check(y, response, outputs, prior, nu=nu, sigma=sigma)
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    shape = [num_topics] if outputs is None else [num_topics, outputs]
    eta = (COEFFICIENTS[prior] if isinstance(prior, str) else prior)(shape, nu)
    if sigma is None:
        sigma = numpyro.sample("sigma", dist.HalfNormal(1)) if response == "normal" else 1.0
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    x = draw_words(corpus, theta, beta) @ eta
    responses = dist.Normal(x, sigma) if response == "normal" else BernoulliProbit(x / sigma)
    with documents:
        numpyro.sample("y", responses.to_event(x.ndim - 1), obs=y)


def _check(y, response, outputs, prior, **scales):
    if response not in ("normal", "probit"):
        raise BadArgument(f"response is {response!r}; give 'normal' or 'probit' (slda_glm has others).")
    check_choice("prior", prior, COEFFICIENTS, ", or a function")
    check_positive("give a positive number, or leave it out", **scales)
    columns = None if y is None else jnp.shape(y)[1:]
    if columns is not None and columns != (() if outputs is None else (outputs,)):
        fix = f"give outputs={columns[0]}" if columns else "leave outputs out"
        raise BadArgument(f"y has {columns[0] if columns else 'no'} columns and outputs is {outputs}; {fix}.")
