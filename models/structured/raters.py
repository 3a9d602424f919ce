"""Ratings by several people, who see one scale differently."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

from ..vocabulary.arguments import BadArgument, check_choice
from ..vocabulary.coefficients import COEFFICIENTS
from ..vocabulary.priors import concentration
from ..vocabulary.words import draw_words


def slda_raters(corpus, y=None, *, raters, num_classes=5, num_topics=20, alpha=0.1, gamma=0.1, prior="dense"):
    """theta_d ~ Dir(alpha);  beta_k ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn});  eta ~ prior;

    P(y_dr > c) = 1 / (1 + exp(cuts_rc - eta . zbar_d)), with cuts_r rising, N(0, 4) before they are ordered

    ============  ===============  =========================================
    argument      symbol           in McCullagh (1980), section 2; cuts by rater
    ============  ===============  =========================================
    raters        R                columns of y, [documents, raters]; NaN where a rater has not rated
    num_classes   k                ratings are 0, 1, ..., num_classes - 1
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    prior         p(eta)           of the coefficients: a name or function as in ``models.COEFFICIENTS``
    ============  ===============  =========================================

    Raters agree on what a text says, ``zbar @ eta``, and differ in how much of it a rating takes.
    """
    check_choice("prior", prior, COEFFICIENTS, ", or a function")
    if y is not None and jnp.shape(y)[1:] != (raters,):
        raise BadArgument(f"y has shape {jnp.shape(y)} and raters is {raters}; give a column a rater.")
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    eta = (COEFFICIENTS[prior] if isinstance(prior, str) else prior)([num_topics])
    one = dist.Normal(0, 2).expand([num_classes - 1]).to_event(1)
    with numpyro.plate("raters", raters):
        cuts = numpyro.sample("cuts", dist.TransformedDistribution(one, OrderedTransform()))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    predictor = draw_words(corpus, theta, beta) @ eta
    with numpyro.plate("rated documents", corpus.num_documents, dim=-2), numpyro.plate("rated by", raters, dim=-1):
        numpyro.sample("y", dist.OrderedLogistic(predictor[:, None], cuts), obs=y)
