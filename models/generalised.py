"""Supervised latent Dirichlet allocation with any response."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .vocabulary.arguments import check_arguments
from .vocabulary.priors import concentration
from .vocabulary.responses import RESPONSES
from .vocabulary.words import draw_words


def slda_glm(
    corpus,
    y=None,
    *,
    response="normal",
    options=None,
    outputs=None,
    covariates=(),
    num_topics=20,
    alpha=0.1,
    gamma=0.1,
    scale=2.0,
):
    """theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn});  y_d ~ response(eta . zbar_d + slopes . x_d)

    ============  ===============  =========================================
    argument      symbol           in Blei & McAuliffe (2007), section 4
    ============  ===============  =========================================
    response      p(y | eta, z)    a name in ``models.RESPONSES``, or a function from the predictor to a distribution of y
    options       delta, ...       keyword arguments of the response, e.g. {"num_classes": 3} for "ordered"
    outputs       (none)           columns of eta: classes of "softmax", or responses side by side of "normal"
    covariates    (none)           columns of ``corpus.covariates`` beside zbar
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    scale         (none)           prior deviation of coefficients; classes that words tell apart well want more, say 6
    ============  ===============  =========================================

    y of a class may be numbers from 0, strings, booleans or a pandas Categorical; ``fit.classes`` names them in order.
    """
    check_arguments(corpus, y, response, options, outputs, covariates)
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    shape = [num_topics] if outputs is None else [num_topics, outputs]
    eta = numpyro.sample("eta", dist.Normal(0, scale).expand(shape).to_event(len(shape)))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    predictor = draw_words(corpus, theta, beta) @ eta
    for name in covariates:
        slope = numpyro.sample(f"slope_{name}", dist.Normal(0, scale).expand(shape[1:]).to_event(len(shape) - 1))
        predictor += jnp.multiply.outer(jnp.asarray(corpus.covariates[name]), slope)
    respond = RESPONSES[response] if isinstance(response, str) else response
    distribution = respond(predictor, **(options or {}))
    with documents:
        numpyro.sample("y", distribution, obs=y)


# what makes room for a larger response, by the distribution that has none: {0} is the response, {1} one more
slda_glm.makes_room = {  # type: ignore[attr-defined]
    "BinomialLogits": "options={{'total_count': {0:g}}}",
    "CategoricalLogits": "outputs={1:g}",
    "OrderedLogistic": "options={{'num_classes': {1:g}}}",
}
