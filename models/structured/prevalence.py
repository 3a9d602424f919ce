"""Prevalence: how much a document says of each topic follows from its covariates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ..vocabulary.arguments import BadArgument, check_covariates, check_positive
from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words


def stm(corpus, y=None, *, prevalence, num_topics=20, gamma=0.1, scale=1.0, response=None, prior="dense", outputs=None):
    """logits_d ~ N(level + x_d . effect, diag(tau) R diag(tau));  theta_d = softmax(logits_d);

    beta_k ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Roberts, Stewart & Airoldi (2016), section 2
    ============  ===============  =========================================
    prevalence    x                columns of ``corpus.covariates``; standardise them
    num_topics    K                number of topics
    gamma         (none)           Dirichlet prior of a topic's terms; a number, or "learned"
    scale         sigma_k          prior deviation of the effects, Gamma in the paper
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    ``fit.effects()`` has the effects with their intervals. NB: topics are Dirichlet; ``stm_content`` has the paper's
    deviations. As in ``ctm`` tau_k ~ LogN(0, 1/2) and R ~ LKJ(2).
    """
    x = _columns(corpus, prevalence, scale)
    gamma = concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    level = numpyro.sample("level", dist.Normal(0, 1).expand([num_topics]).to_event(1))
    effect = numpyro.sample("effect", dist.Normal(0, scale).expand([x.shape[1], num_topics]).to_event(2))
    tau = numpyro.sample("tau", dist.LogNormal(0, 0.5).expand([num_topics]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(num_topics, 2.0))
    with numpyro.plate("documents", corpus.num_documents):
        normal = dist.MultivariateNormal(level + x @ effect, scale_tril=tau[:, None] * factor)
        logits = numpyro.sample("logits", normal)
    zbar = draw_words(corpus, jax.nn.softmax(logits), beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)


def dmr(corpus, y=None, *, prevalence, num_topics=20, gamma=0.1, scale=0.5, response=None, prior="dense", outputs=None):
    """level_k ~ N(-1, 1);  effect_pk ~ N(0, scale^2);  theta_d ~ Dir(exp(level + x_d . effect));

    beta_k ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Mimno & McCallum (2008), section 3
    ============  ===============  =========================================
    prevalence    x                columns of ``corpus.covariates``; standardise them
    num_topics    T                number of topics
    gamma         beta             Dirichlet prior of a topic's terms; a number, or "learned"
    scale         sigma            prior deviation of the effects
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    Dirichlet-multinomial regression: theta is integrated out, so that it is quicker than ``stm``, and topics are
    independent given the covariates. ``fit.effects()`` has the effects with their intervals.
    """
    x = _columns(corpus, prevalence, scale)
    gamma = concentration("gamma", gamma)
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    level = numpyro.sample("level", dist.Normal(-1, 1).expand([num_topics]).to_event(1))
    effect = numpyro.sample("effect", dist.Normal(0, scale).expand([x.shape[1], num_topics]).to_event(2))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.exp(level + x @ effect)))
    zbar = draw_words(corpus, theta, beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)


def _columns(corpus, prevalence, scale):
    """The covariates side by side, [documents, covariates]."""
    check_positive(scale=scale)
    check_covariates(corpus, prevalence, "prevalence")
    if not len(prevalence):
        raise BadArgument("prevalence is empty; name columns of corpus.covariates, or use a story without covariates.")
    return jnp.stack([jnp.asarray(corpus.covariates[name], float) for name in prevalence], 1)
