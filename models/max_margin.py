"""Max-margin supervised topics: responses enter by the loss of a support vector machine."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.arguments import BadArgument, check_choice, check_positive
from .vocabulary.coefficients import COEFFICIENTS
from .vocabulary.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll
from .vocabulary.priors import concentration
from .vocabulary.words import draw_words

MARGINS = {"binary": Hinge, "classes": MultiClassHinge, "one_against_all": OneAgainstAll}
REGRESSIONS = ("regression", "partial")


def medlda(
    corpus,
    y=None,
    *,
    margin="classes",
    outputs=None,
    weight=1.0,
    cost=16.0,
    epsilon=1e-3,
    prior="dense",
    nu=1.0,
    num_topics=40,
    alpha=0.1,
    gamma=0.05,
):
    """theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn});  eta ~ N(0, nu^2);

    p(y_d | zbar_d) is proportional to exp(-weight loss(y_d, eta . zbar_d))

    ============  ===============  =========================================
    argument      symbol           in Zhu, Ahmed & Xing (2012), section 3
    ============  ===============  =========================================
    margin        loss             "binary", "classes" (Crammer & Singer) or "one_against_all" for classes; "regression"
                                   (a normal response and a margin) or "partial" (the margin alone) for numbers
    outputs       J                number of classes, for "classes" and "one_against_all"
    weight        C, or C / D      weight of a document's loss: C in regression, C / D in classification
    cost          l                how far classes shall be apart
    epsilon       epsilon          how far from eta . zbar a number may lie without loss
    prior, nu     p_0(eta)         "dense": N(0, nu^2); or a name or function as in ``models.COEFFICIENTS``
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    ============  ===============  =========================================

    NB: the loss of a draw, as in Zhu et al. (2014); the paper's own algorithm takes the loss of an expectation.
    By vem that is one optimum of many: with these defaults it may predict some points of accuracy below gibbs, whose draws
    are averaged, though its bound rests (docs/priors.md).
    """
    _check(y, margin, outputs, prior, weight=weight, cost=cost, nu=nu)
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    shape = [num_topics] if outputs is None else [num_topics, outputs]
    eta = (COEFFICIENTS[prior] if isinstance(prior, str) else prior)(shape, nu)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1)) if margin == "regression" else None
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    x = draw_words(corpus, theta, beta) @ eta
    with documents:
        if margin in MARGINS:
            numpyro.sample("y", MARGINS[margin](x, weight, cost), obs=y)
        elif margin == "partial":
            numpyro.sample("y", EpsilonInsensitive(x, weight, epsilon), obs=y)
        else:
            numpyro.sample("y", dist.Normal(x, sigma), obs=y)
            if y is not None:  # a demand on what is seen, not a second draw of it
                numpyro.sample("margin", EpsilonInsensitive(x, weight, epsilon), obs=y)


def _check(y, margin, outputs, prior, **positive):
    check_choice("margin", margin, (*MARGINS, *REGRESSIONS))
    check_choice("prior", prior, COEFFICIENTS, ", or a function")
    check_positive(**positive)
    several = margin in ("classes", "one_against_all")
    if several and (outputs is None or outputs < 2):
        raise BadArgument(
            f"outputs is {outputs} for the margin {margin!r}; give the number of classes, e.g. outputs=3."
        )
    if not several and outputs is not None:
        raise BadArgument(f"outputs is {outputs}, but the margin {margin!r} has one; leave outputs out.")
    if y is not None and jnp.ndim(y) > 1:
        raise BadArgument(f"y has {jnp.shape(y)[1]} columns; give one class or number a document.")
