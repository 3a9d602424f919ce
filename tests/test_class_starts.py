"""Where chains start whose documents have one topic each: twice as many classes, merged a few at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.mcmc.class_starts import merged_classes
from topiczoo.inference.mcmc.merging import merged
from topiczoo.inference.story.classes import class_site
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_bags

CLUSTERS, TERMS = 5, 60
SIZES = [70, 55, 40, 25, 10]


def clusters():
    """Documents of fifteen words in clusters of different sizes, mixed up, and the cluster of each."""
    rng = np.random.default_rng(3)
    beta = rng.dirichlet(np.full(TERMS, 0.1), CLUSTERS)
    own = rng.permutation(np.repeat(np.arange(CLUSTERS), SIZES))
    return Corpus.from_counts(np.stack([rng.multinomial(15, beta[k]) for k in own])), own


CORPUS, OWN = clusters()
RUN = {"num_warmup": 2, "num_samples": 2, "num_chains": 3, "progress_bar": False}


def table(classes, number):
    counts = np.zeros((CLUSTERS, number), int)
    np.add.at(counts, (OWN, classes), 1)
    return counts


@pytest.mark.parametrize("number", [CLUSTERS, 12])
@pytest.mark.parametrize("seed", range(4))
def test_clusters_are_found_the_largest_first(seed, number):
    """Nearly all documents of a cluster have one class, which no other has; classes that are not needed are left empty."""
    graph = read(models.mixture, CORPUS, None, {"num_topics": number})
    classes = merged_classes(graph, "z", 100, jax.random.key(seed))
    counts = table(classes, number)
    assert counts.max(1).sum() >= 0.98 * len(OWN)
    assert len(set(counts.argmax(1))) == CLUSTERS
    used = counts.sum(0)
    assert (np.diff(used) <= 0).all() and (used > 0).sum() == CLUSTERS


def test_every_chain_of_a_mixture_starts_where_the_corpus_is():
    fit = inference.gibbs(models.mixture, CORPUS, num_topics=CLUSTERS, **RUN)
    assert fit.info["start"] == "merged"
    for usage in fit.statistics["usage"][:, -1]:
        np.testing.assert_allclose(np.sort(usage)[::-1] * len(OWN), SIZES, atol=6)
    assert np.ptp(fit.statistics["lp"][:, -1]) < 60  # a cluster that is missed costs hundreds


def test_who_asks_for_random_classes_has_them_and_small_corpora_as_well():
    fit = inference.gibbs(models.mixture, CORPUS, num_topics=CLUSTERS, **RUN | {"num_chains": 1}, start="random")
    assert fit.info["start"] == "random"
    fit = inference.gibbs(models.mixture, CORPUS[:20], num_topics=CLUSTERS, **RUN | {"num_chains": 1})
    assert fit.info["start"] == "random"


def test_classes_have_no_seeds_to_start_from():
    with pytest.raises(ValueError, match="no topic of the story 'mixture' has words, or documents, of its own"):
        inference.gibbs(models.mixture, CORPUS, num_topics=CLUSTERS, **RUN, start="seeded")


def seeded(corpus, *, weight=50.0):
    """A mixture whose first topic has a term of its own beforehand."""
    gamma = jnp.full((3, corpus.num_terms), 0.1).at[0, 0].add(weight)
    theta = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("topics", 3):
        beta = numpyro.sample("beta", dist.Dirichlet(gamma))
    with numpyro.plate("documents", corpus.num_documents):
        draw_bags(corpus, numpyro.sample("of", dist.Categorical(theta)), beta)


@pytest.mark.parametrize(
    ("story", "given", "site"),
    [
        (models.mixture, {"num_topics": 3}, "z"),
        (models.dp_mixture, {"num_topics": 3}, "z"),
        (seeded, {"weight": 0.0}, "of"),
        (seeded, {}, None),
        (models.lda, {"num_topics": 3}, None),
    ],
)
def test_classes_are_merged_where_all_are_alike_beforehand(story, given, site):
    """Merged classes have any number: not where one of them has words of its own."""
    assert class_site(read(story, CORPUS, None, given)) == site


@pytest.mark.parametrize(
    ("seed", "number", "num_terms"), [(0, 3, TERMS), (1, 4, TERMS), (2, 400, TERMS), (3, 100, 2000)]
)
def test_merging_ends_where_it_no_longer_gains(seed, number, num_terms):
    """By the log joint density of classes and words written out, a class that is gone counting as an empty one."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(num_terms, 0.1), 2)
    terms = np.stack([rng.multinomial(number, beta[k]) for k in (0, 0, 1)])
    sizes = np.full(3, 5)  # documents

    def log_joint(classes):
        cells, own = np.zeros((3, num_terms)), np.zeros(3)
        np.add.at(cells, classes, terms)
        np.add.at(own, classes, sizes)
        words = gammaln(0.05 + cells).sum() - gammaln(0.05 * num_terms + cells.sum(1)).sum()
        return words + gammaln(1.0 + own).sum()

    found = merged(sizes[None].astype(np.float32), terms.astype(np.float32), 1, 1.0, 0.05, 1.0, gaining=True)
    courses = [[0, 1, 2], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 0, 0]]
    densities = [log_joint(np.array(course)) for course in courses]
    assert found.tolist() == courses[int(np.argmax(densities))]
    assert len(set(merged(sizes[None].astype(np.float32), terms.astype(np.float32), 1, 1.0, 0.05))) == 1
