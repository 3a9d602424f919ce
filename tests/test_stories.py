"""The stories as plain NumPyro programs: no engine answers draw_words."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from topiczoo import models
from topiczoo.inference.story.tracing import feasible


def log_joint(name, corpus, y, values):
    """The log joint density of a story, written down with SciPy; alpha and gamma are 0.3 and 0.2."""
    document, term = corpus.tokens()
    theta, beta, z = values["theta"], values["beta"], values["z"]
    total = sum(stats.dirichlet.logpdf(row, np.full(len(row), 0.2)) for row in beta)
    if name == "mixture":
        total += stats.dirichlet.logpdf(theta, np.full(3, 0.3)) + np.log(theta[z]).sum()
        return total + (corpus.counts.toarray() * np.log(beta[z])).sum()
    total += sum(stats.dirichlet.logpdf(row, np.full(3, 0.3)) for row in theta)
    total += np.log(theta[document, z]).sum() + np.log(beta[z, term]).sum()
    if name == "slda":
        zbar = np.stack([np.bincount(z[document == d], minlength=3) / corpus.lengths[d] for d in range(len(corpus))])
        total += stats.norm.logpdf(values["eta"], 0, 2).sum() + stats.halfnorm.logpdf(values["sigma"])
        total += stats.norm.logpdf(y, zbar @ values["eta"], values["sigma"]).sum()
    return total


@pytest.mark.parametrize("story", [models.lda, models.slda, models.mixture], ids=lambda s: s.__name__)
def test_a_story_is_a_numpyro_model_with_the_density_of_its_formula(story):
    corpus, y = stories.small()
    rng, y = np.random.default_rng(3), np.nan_to_num(y)
    topics = 12 if story is models.mixture else corpus.num_tokens
    values = {
        "beta": 0.8 * rng.dirichlet(np.ones(9), 3) + 0.2 / 9, "z": rng.integers(0, 3, topics),
        "theta": rng.dirichlet(np.ones(3) * 2, None if story is models.mixture else 12),
        "eta": np.array([1.0, -2.0, 0.5]), "sigma": 0.7,
    }  # fmt: skip
    responses = (y,) if story is models.slda else ()
    arguments = {"num_topics": 3, "alpha": 0.3, "gamma": 0.2}
    density, trace = log_density(handlers.seed(story, 0), (corpus, *responses), arguments, values)
    values = {name: np.asarray(value, float if name != "z" else int) for name, value in values.items()}
    np.testing.assert_allclose(density, log_joint(story.__name__, corpus, y, values), rtol=1e-4)
    assert trace["z"]["value"].shape == (topics,)


def test_zbar_is_the_mean_of_the_topic_indicators():
    corpus, _ = stories.tiny()

    def story():
        theta, beta = np.full((3, 2), 0.5), np.full((2, 3), 1 / 3)
        numpyro.deterministic("zbar", models.draw_words(corpus, theta, beta))

    trace = handlers.trace(handlers.seed(story, 1)).get_trace()
    document, _ = corpus.tokens()
    for d in range(len(corpus)):
        topics = np.asarray(trace["z"]["value"])[document == d]
        np.testing.assert_allclose(trace["zbar"]["value"][d], [np.mean(topics == k) for k in range(2)])


def test_blocks_hold_every_token_once_with_little_padding(monkeypatch):
    from topiczoo.corpora import layouts, load_reviews

    corpus, _ = load_reviews()
    for least, shards in ((0, layouts.SHARDS), (10**9, 1)):
        monkeypatch.setattr(layouts, "LEAST_SHARED", least)
        batches = layouts.token_batches(corpus)
        assert len(batches.terms) == shards and batches.padding < 1.3
        work = np.asarray(batches.depth).sum(1)  # threads take neighbouring shards: halves and quarters have equal work
        assert shards == 1 or max(work[:4].sum(), work[4:].sum()) < 0.55 * work.sum()
        assert int(batches.lengths.sum()) == corpus.num_tokens == int((batches.terms < corpus.num_terms).sum())
        rows, lengths = (np.asarray(part).reshape(-1) for part in (batches.rows, batches.lengths))
        lane = np.asarray(batches.lane)
        np.testing.assert_array_equal(rows[lane], np.arange(len(corpus)))
        np.testing.assert_array_equal(lengths[lane], corpus.lengths)
        shard, batch, place = np.unravel_index(lane[7], batches.lengths.shape)
        start = int(batches.start[shard, batch])
        terms = np.asarray(batches.terms)[shard, start : start + corpus.lengths[7], place]
        np.testing.assert_array_equal(np.bincount(terms, minlength=corpus.num_terms), corpus.counts[[7]].toarray()[0])


def test_bags_are_drawn_from_the_documents_topic():
    corpus, _ = stories.small()
    beta = np.eye(9)[:3]
    bag = models.vocabulary.BagOfWords(beta, np.arange(12) % 3, corpus.lengths)
    counts = np.asarray(bag.sample(jax.random.key(0)))
    np.testing.assert_array_equal(counts.argmax(1), np.arange(12) % 3)
    np.testing.assert_array_equal(counts.sum(1), corpus.lengths)


def test_values_that_a_story_is_tried_out_at_lie_in_their_support_and_are_no_pattern():
    """As random as numbers of a generator: spread evenly, no place like its neighbour, and no site like another."""

    def value(name, fn):
        return feasible({"name": name, "fn": fn, "kwargs": {}})

    free = {name: np.asarray(value(name, dist.Normal(0, 1).expand([5000])), float) for name in ("a", "b")}
    np.testing.assert_array_equal(free["a"], value("a", dist.Normal(3, 2).expand([5000])))
    for numbers in free.values():
        assert stats.kstest(numbers, "uniform", (-1, 2)).pvalue > 1e-4
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.06
    assert abs(np.corrcoef(free["a"], free["b"])[0, 1]) < 0.06
    for fn in (dist.Dirichlet(np.ones(4)).expand([3]), dist.HalfNormal(1), dist.Beta(2, 2), dist.LKJCholesky(3)):
        assert np.all(fn.support(value("a", fn))) and np.shape(value("a", fn)) == fn.shape()
    assert value("a", dist.Bernoulli(0.5)) is None
