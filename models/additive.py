"""SAGE, sparse additive generative models of text: components deviate from a background in log-space, in few terms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from .arguments import BadArgument, check_choice, check_positive
from .distributions import NormalJeffreys
from .vocabulary import draw_bags, draw_words

__all__ = ["DEVIATIONS", "background", "sage_nb", "sage_topics", "share_of_zeros"]

DEVIATIONS = {"jeffreys": lambda scale: NormalJeffreys(), "laplace": lambda scale: dist.Laplace(0, scale)}


def sage_nb(corpus, y=None, *, background, outputs, prior="jeffreys", scale=3.0):
    """deviation_ci ~ prior;  beta_c = softmax(background + deviation_c);  y_d ~ Cat(1 / C);  w_dn ~ Cat(beta_{y_d})

    ============  ===============  =========================================
    argument      symbol           in Eisenstein, Ahmed & Xing (2011)
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    outputs       Y_max            number of classes
    prior         p(eta)           of a term's deviation: "jeffreys", 1 / abs(eta), or "laplace"
    scale         1/sqrt(2 gamma)  of "laplace"
    ============  ===============  =========================================

    With y it is naive Bayes, without y a mixture. The variances tau of the paper are integrated out.
    """
    beta = _components("classes", outputs, corpus, background, prior, scale)
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(jnp.full(outputs, 1 / outputs)), obs=y)
        draw_bags(corpus, jnp.asarray(y, int), beta)


def sage_topics(corpus, *, background, num_topics=20, alpha=0.1, prior="jeffreys", scale=3.0):
    """theta_d ~ Dir(alpha);  beta_k = softmax(background + deviation_k);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Eisenstein, Ahmed & Xing (2011)
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, or one a topic
    prior         p(eta)           of a term's deviation: "jeffreys", 1 / abs(eta), or "laplace"
    scale         1/sqrt(2 gamma)  of "laplace"
    ============  ===============  =========================================
    """
    beta = _components("topics", num_topics, corpus, background, prior, scale)
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    draw_words(corpus, theta, beta)


def _components(plate, number, corpus, background, prior, scale):
    """beta [components, terms]: deviations drawn term by term and added to the background."""
    check_choice("prior", prior, DEVIATIONS)
    check_positive(scale=scale)
    background = jnp.asarray(background)
    if background.shape != (corpus.num_terms,):
        raise BadArgument(
            f"background has shape {background.shape} for {corpus.num_terms} terms; give models.background(corpus)."
        )
    with numpyro.plate(plate, number):
        deviation = numpyro.sample("deviation", DEVIATIONS[prior](scale).expand([corpus.num_terms]).to_event(1))
    return jax.nn.softmax(background + deviation)


def background(corpus, smoothing=0.5):
    """Log frequencies of the terms of a Corpus, [terms]; ``smoothing`` is added to counts, so that absent terms have one."""
    check_positive(smoothing=smoothing)
    counts = np.asarray(corpus.counts.sum(0), float).ravel() + smoothing
    return np.log(counts / counts.sum()).astype(np.float32)


def share_of_zeros(deviation, threshold=1e-3):
    """The share of deviations that are 0 for all purposes: below ``threshold``, a tenth of a percent of a frequency."""
    return float(np.mean(np.abs(deviation) < threshold))
