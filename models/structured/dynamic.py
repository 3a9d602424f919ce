"""Dynamic topics: the words of a topic walk from one period to the next."""

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


def dtm(
    corpus, y=None, *, background, period, periods, num_topics=20, alpha=0.1, scale=1.0, pace=0.2,
    response=None, prior="dense", outputs=None,
):  # fmt: skip
    """kappa_1k ~ N(0, scale^2);  kappa_tk ~ N(kappa_{t-1,k}, pace^2);  beta_tk = softmax(background + kappa_tk);

    theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{t_d, z_dn}) with t_d the document's period

    ============  ===============  =========================================
    argument      symbol           in Blei & Lafferty (2006), section 2
    ============  ===============  =========================================
    background    (0)              log frequencies of terms, ``models.background(corpus)``
    period        t                the column of ``corpus.covariates`` with periods 0, 1, ..., in their order
    periods       T                how many there are
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    scale         (none)           how far a topic is from the background in the first period
    pace          sigma            how far it moves from a period to the next
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    ``step`` [periods, topics, terms] holds kappa_1 and the moves after it. NB: alpha does not walk, as it
    does in the paper; a trend of proportions is a covariate of ``stm``.
    """
    check_positive(scale=scale, pace=pace, periods=periods)
    check_covariates(corpus, [period], "period")
    background = check_background(corpus, background)
    alpha = concentration("alpha", alpha, [num_topics])
    far = jnp.where(jnp.arange(periods) == 0, scale, pace)[:, None, None]
    moves = dist.Normal(0, far).expand([periods, num_topics, corpus.num_terms])
    step = numpyro.sample("step", moves.to_event(3))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    beta = jax.nn.softmax(background + jnp.cumsum(step, 0))
    zbar = draw_words(corpus, theta, beta, label=jnp.asarray(corpus.covariates[period], int))
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)


dtm.from_corpus = {"background": background_of}  # type: ignore[attr-defined]
