"""Content: the words of a topic follow from a covariate, by few deviations in log-space."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from ..vocabulary.arguments import check_covariates, check_positive
from ..vocabulary.backgrounds import background as background_of
from ..vocabulary.backgrounds import check_background
from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words


def stm_content(
    corpus, y=None, *, background, content, levels, num_topics=20, alpha=0.1, scale=0.5,
    response=None, prior="dense", outputs=None,
):  # fmt: skip
    """beta_jk = softmax(background + topic_k + level_j + joint_jk), deviations ~ Laplace(0, scale);

    theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{j_d, z_dn}) with j_d the document's level

    ============  ===============  =========================================
    argument      symbol           in Roberts, Stewart & Airoldi (2016), section 2
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    content       y_d              the column of ``corpus.covariates`` with levels 0, 1, ... (a side, a source)
    levels        A                how many there are
    num_topics    K                number of topics
    alpha         (none)           Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    scale         (none)           of the deviations' Laplace prior
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    The sites topic_deviation, level_deviation and joint_deviation are kappa^(t), kappa^(c) and kappa^(i).
    """
    check_positive(scale=scale, levels=levels)
    check_covariates(corpus, [content], "content")
    background = check_background(corpus, background)
    alpha = concentration("alpha", alpha, [num_topics])
    deviations = dist.Laplace(0, scale).expand([corpus.num_terms]).to_event(1)
    topics, sides = numpyro.plate("topics", num_topics, dim=-1), numpyro.plate("levels", levels, dim=-2)
    with topics:
        topic = numpyro.sample("topic_deviation", deviations)  # [topics, terms]
    with sides:
        level = numpyro.sample("level_deviation", deviations)  # [levels, 1, terms]
    with topics, sides:
        joint = numpyro.sample("joint_deviation", deviations)  # [levels, topics, terms]
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    beta = jax.nn.softmax(background + topic + level + joint)
    zbar = draw_words(corpus, theta, beta, label=jnp.asarray(corpus.covariates[content], int))
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)


stm_content.from_corpus = {"background": background_of}  # type: ignore[attr-defined]
