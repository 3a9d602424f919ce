"""SAGE, sparse additive generative models of text: components deviate from a background in log-space, in few terms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from .vocabulary.arguments import check_choice, check_positive
from .vocabulary.backgrounds import background, check_background
from .vocabulary.distributions import NormalJeffreys
from .vocabulary.priors import concentration
from .vocabulary.words import draw_bags, draw_words

__all__ = ["DEVIATIONS", "background", "sage_facets", "sage_geo", "sage_nb", "sage_topics", "share_of_zeros"]

DEVIATIONS = {"jeffreys": lambda scale: NormalJeffreys(), "laplace": lambda scale: dist.Laplace(0, scale)}


def sage_nb(corpus, y=None, *, background, outputs, prior="laplace", scale=3.0):
    """share ~ Dir(1);  deviation_ci ~ prior;  beta_c = softmax(background + deviation_c);

    y_d ~ Cat(share);  w_dn ~ Cat(beta_{y_d})

    ============  ===============  =========================================
    argument      symbol           in Eisenstein, Ahmed & Xing (2011)
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    outputs       Y_max            number of classes
    prior         p(eta)           of a term's deviation: "laplace", or "jeffreys", 1 / abs(eta)
    scale         1/sqrt(2 gamma)  of "laplace"
    ============  ===============  =========================================

    With y it is naive Bayes, without y a mixture. The variances tau of the paper are integrated out. Its own prior,
    "jeffreys", has nothing to choose and hears no rare terms where classes are few: see docs/priors.md.
    """
    beta = _components("classes", outputs, corpus, background, prior, scale)
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(outputs)))
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(share), obs=y)
        draw_bags(corpus, jnp.asarray(y, int), beta)


def sage_topics(corpus, *, background, num_topics=20, alpha=0.1, prior="jeffreys", scale=3.0):
    """theta_d ~ Dir(alpha);  beta_k = softmax(background + deviation_k);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Eisenstein, Ahmed & Xing (2011)
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    prior         p(eta)           of a term's deviation: "jeffreys", 1 / abs(eta), or "laplace"
    scale         1/sqrt(2 gamma)  of "laplace"
    ============  ===============  =========================================
    """
    alpha = concentration("alpha", alpha, [num_topics])
    beta = _components("topics", num_topics, corpus, background, prior, scale)
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    draw_words(corpus, theta, beta)


def sage_facets(
    corpus, y=None, *, background, outputs, num_topics=20, alpha=0.1, prior="jeffreys", scale=3.0, interactions=True
):
    """y_d ~ Cat(1 / J);  theta_d ~ Dir(alpha);  beta_jk = softmax(background + topic_k + label_j + joint_jk);

    z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{y_d, z_dn}), with deviations topic_ki, label_ji, joint_jki ~ prior.

    ============  ===============  =========================================
    argument      symbol           in Eisenstein, Ahmed & Xing (2011)
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    outputs       A                number of labels
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    prior         p(eta)           of a term's deviation: "jeffreys", 1 / abs(eta), or "laplace"
    scale         1/sqrt(2 gamma)  of "laplace"
    interactions  eta^(I)          whether there are joint_jk
    ============  ===============  =========================================

    The sites topic_deviation, label_deviation and joint_deviation are eta^(T), eta^(A) and eta^(I).
    """
    alpha = concentration("alpha", alpha, [num_topics])
    beta = _facets(outputs, num_topics, corpus, background, prior, scale, interactions)
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(jnp.full(outputs, 1 / outputs)), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    draw_words(corpus, theta, beta, label=y)


def sage_geo(corpus, y=None, *, background, centres, num_topics=5, alpha=0.1, prior="jeffreys", scale=3.0, wide=1.0):
    """share ~ Dir(1);  centre_r ~ N(centres_r, wide);  spread_r ~ LogN(log wide, 1);  region_d ~ Cat(share);

    y_d ~ N(centre_r, spread_r) and w_dn ~ Cat(beta_{r, z_dn}) with r = region_d, z_dn ~ Cat(theta_d), theta_d ~ Dir(alpha);
    beta_rk = softmax(background + topic_k + label_r + joint_rk), deviations as in ``sage_facets``.

    ============  ===============  =========================================
    argument      symbol           in Eisenstein, Ahmed & Xing (2011)
    ============  ===============  =========================================
    background    m                log frequencies of terms, ``models.background(corpus)``
    centres       (none)           about where regions lie, [regions, 2], e.g. ``models.find_regions(y)``
    num_topics    K                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    prior, scale  p(eta)           of a term's deviation, as in ``sage_facets``
    wide          (none)           how far, in the unit of y, documents lie from their region's centre, about
    ============  ===============  =========================================

    y holds coordinates, [documents, 2]. A document's region is latent and says both where it was written and how.
    """
    check_positive(wide=wide)
    centres = jnp.asarray(centres)
    num_regions = len(centres)
    alpha = concentration("alpha", alpha, [num_topics])
    beta = _facets(num_regions, num_topics, corpus, background, prior, scale)
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(num_regions)))
    with numpyro.plate("regions", num_regions):
        centre = numpyro.sample("centre", dist.Normal(centres, wide).to_event(1))
        spread = numpyro.sample("spread", dist.LogNormal(jnp.log(wide), 1.0).expand([centres.shape[1]]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        region = numpyro.sample("region", dist.Categorical(share))
        numpyro.sample("y", dist.Normal(centre[region], spread[region]).to_event(1), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    draw_words(corpus, theta, beta, label=region)


def _components(plate, number, corpus, background, prior, scale):
    """beta [components, terms]: deviations drawn term by term and added to the background."""
    background, deviations = _checked(corpus, background, prior, scale)
    with numpyro.plate(plate, number):
        deviation = numpyro.sample("deviation", deviations)
    return jax.nn.softmax(background + deviation)


def _facets(num_labels, num_topics, corpus, background, prior, scale, interactions=True):
    """beta [labels, topics, terms]: deviations of topics, of labels and of both, added to the background."""
    background, deviations = _checked(corpus, background, prior, scale)
    topics, labels = numpyro.plate("topics", num_topics, dim=-1), numpyro.plate("labels", num_labels, dim=-2)
    with topics:
        topic = numpyro.sample("topic_deviation", deviations)  # [topics, terms]
    with labels:
        label = numpyro.sample("label_deviation", deviations)  # [labels, 1, terms]
    if not interactions:
        return jax.nn.softmax(background + topic + label)
    with topics, labels:
        joint = numpyro.sample("joint_deviation", deviations)  # [labels, topics, terms]
    return jax.nn.softmax(background + topic + label + joint)


def _checked(corpus, background, prior, scale):
    """The background, and the prior of the deviations of a component."""
    check_choice("prior", prior, DEVIATIONS)
    check_positive(scale=scale)
    return check_background(corpus, background), DEVIATIONS[prior](scale).expand([corpus.num_terms]).to_event(1)


def share_of_zeros(deviation, threshold=1e-3):
    """The share of deviations that are 0 for all purposes: below ``threshold``, a tenth of a percent of a frequency."""
    return float(np.mean(np.abs(deviation) < threshold))


# arguments that follow from the corpus, for who has one and no background yet
for _story in (sage_nb, sage_topics, sage_facets, sage_geo):
    _story.from_corpus = {"background": background}  # type: ignore[union-attr]
