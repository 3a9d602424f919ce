"""Seeded topics: words that are known to belong to a topic beforehand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ..vocabulary.arguments import BadArgument, check_positive
from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words

__all__ = ["keyatm", "seed_words", "seeded_lda"]


def seeded_lda(
    corpus, y=None, *, seeds, weight=100.0, num_topics=20, alpha=0.1, gamma=0.1,
    response=None, prior="dense", outputs=None,
):  # fmt: skip
    """beta_k ~ Dir(gamma + weight seeds_k);  theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Watanabe & Baturo (2024)
    ============  ===============  =========================================
    seeds         (none)           which terms each seeded topic has, ``models.seed_words(corpus, [["food", ...], ...])``
    weight        (none)           how many words a seed is worth beforehand; of thousands that a topic has, some hundred
    num_topics    k                number of topics; those behind the seeded ones have no seeds
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         beta             Dirichlet prior of a topic's other terms
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================
    """
    seeds = _checked(corpus, seeds, num_topics, weight=weight, gamma=gamma)
    known = jnp.zeros((num_topics, corpus.num_terms)).at[: len(seeds)].set(seeds)
    alpha = concentration("alpha", alpha, [num_topics])
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(gamma + weight * known))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)


def keyatm(
    corpus, y=None, *, seeds, num_topics=20, alpha=0.1, gamma=0.01, gamma_seeds=0.1,
    response=None, prior="dense", outputs=None,
):  # fmt: skip
    """theta_d ~ Dir(alpha);  use_k ~ Beta(1, 1);  beta_k ~ Dir(gamma);  seeded_k ~ Dir(gamma_seeds) on its seeds;

    z_dn ~ Cat(theta_d);  s_dn ~ Bernoulli(use_{z_dn});  w_dn ~ Cat(seeded_{z_dn}) if s_dn = 1, else Cat(beta_{z_dn})

    ============  ===============  =========================================
    argument      symbol           in Eshima, Imai & Sasaki (2024), section 2
    ============  ===============  =========================================
    seeds         V_k              which terms each keyword topic has, ``models.seed_words(corpus, [["food", ...], ...])``
    num_topics    K                number of topics; those behind the seeded ones have no keywords, so that s is 0
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         beta             Dirichlet prior of a topic's terms
    gamma_seeds   beta tilde       Dirichlet prior of a topic's keywords
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    A word's topic and its switch s are one number: topic num_topics + k of ``fit.topics()`` holds the keywords of topic
    k, with a coefficient of its own where there is a response; the site ``theta`` has the shares of both together. NB:
    the paper draws alpha, under a Gamma prior.
    """
    seeds = _checked(corpus, seeds, num_topics, gamma=gamma, gamma_seeds=gamma_seeds)
    alpha = concentration("alpha", alpha, [num_topics])
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    with numpyro.plate("seeded topics", len(seeds)):
        use = numpyro.sample("use", dist.Dirichlet(jnp.ones(2)))  # of keywords, and of other terms
    rows = [beta]
    for k, own in enumerate(map(np.flatnonzero, seeds)):
        seeded = numpyro.sample(f"seeded_{k}", dist.Dirichlet(jnp.full(len(own), gamma_seeds)))
        rows.append(jnp.zeros((1, corpus.num_terms)).at[0, own].set(seeded))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    others = jnp.ones(num_topics).at[: len(seeds)].set(use[:, 1])
    both = jnp.concatenate([theta * others, theta[:, : len(seeds)] * use[:, 0]], 1)  # z and s
    zbar = draw_words(corpus, both, jnp.concatenate(rows))
    draw_response(corpus, zbar, num_topics + len(seeds), y, response, prior, outputs)


def seed_words(corpus, words):
    """Which terms of a Corpus are among the ``words`` of each topic, [topics, terms]: what ``seeds`` is."""
    place = {term: number for number, term in enumerate(corpus.vocabulary)}
    seeds = np.zeros((len(words), corpus.num_terms), bool)
    for k, own in enumerate(words):
        if isinstance(own, str):
            raise BadArgument(f"words has the bare string {own!r} for topic {k}; give a list, [{own!r}].")
        if not (known := [place[word] for word in own if word in place]):
            raise BadArgument(
                f"words has {list(own)!r} for topic {k}, none of which is in the vocabulary; give others."
            )
        seeds[k, known] = True
    return seeds


def _checked(corpus, seeds, num_topics, **positive):
    check_positive(**positive)
    seeds = np.asarray(seeds, bool)
    if seeds.ndim != 2 or seeds.shape[1] != corpus.num_terms or not seeds.any(1).all():
        raise BadArgument(
            f"seeds has shape {seeds.shape} for {corpus.num_terms} terms, or a topic without any; give "
            "models.seed_words(corpus, words)."
        )
    if len(seeds) > num_topics:
        raise BadArgument(f"seeds has {len(seeds)} topics and num_topics is {num_topics}; give at least as many.")
    return seeds
