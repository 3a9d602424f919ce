"""Continuous sites that every document has for itself: trajectories of all documents at once, and blocks made of them.

Copies of one document are independent draws of the same law, so that one program gives thousands of them. Limits:
Kolmogorov-Smirnov tests at a level of 1e-7 and means at 6 standard errors, below fifty of them in all: a right program
fails with probability 5e-6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import local_stories
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from scipy import integrate, stats
from scipy.special import log_expit

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.blocks.block import few
from topiczoo.inference.blocks.local import LocalBlock, above_theta
from topiczoo.inference.kernels.assignments import count
from topiczoo.inference.kernels.local_hmc import Metric, leapfrog, metric, position, trajectories
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.assignments import TopicAssignments
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import draw_words

FAR, LEVEL = 6.0, 1e-7
GRID = np.linspace(-12, 12, 4001)


def cumulative(log_density):
    """The distribution function of a number from its log density on the grid."""
    logs = log_density(GRID)
    found = integrate.cumulative_trapezoid(np.exp(logs - logs.max()), GRID, initial=0)
    return found / found[-1]


def assert_law(draws, log_density):
    law = cumulative(log_density)
    assert stats.kstest(draws, lambda x: np.interp(x, GRID, law)).pvalue > LEVEL


def test_a_share_that_has_underflowed_and_is_not_counted_has_a_finite_slope():
    """theta and beta of no mass at all, which a broken stick makes in single precision; counted ones stay heavy losses."""
    batches = documents(Corpus.from_counts([[2, 1, 0]]), batches=True).batches
    z = count(jnp.zeros_like(batches.terms), batches, 2, 3)
    beta = jnp.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])

    def of_words(theta, beta):
        return TopicAssignments(theta, beta, batches).log_prob(z)

    slopes = jax.grad(of_words, argnums=(0, 1))(jnp.array([[1.0, 0.0]]), beta)
    np.testing.assert_allclose(slopes[0], [[3.0, 0.0]])
    np.testing.assert_allclose(slopes[1], [[4.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(of_words(jnp.array([[1.0, 0.0]]), beta), 3 * np.log(0.5), rtol=1e-6)
    assert of_words(jnp.array([[0.0, 1.0]]), beta) < -180


def test_a_trajectory_leaves_a_skewed_law_as_it_is():
    """Steps are so long that some trajectories are refused; two kinds of documents have different laws."""
    copies, kinds = 10_000, [(0.0, 9.0), (3.0, 1.0)]
    rng = np.random.default_rng(0)

    def log_density(x, successes, failures):
        return -0.5 * (x / 2.0) ** 2 + successes * log_expit(x) + failures * log_expit(-x)

    laws = [lambda x, kind=kind: log_density(x, *kind) for kind in kinds]
    start = np.concatenate([np.interp(rng.uniform(size=copies), cumulative(law), GRID) for law in laws])
    counts = jnp.asarray(np.repeat(kinds, copies, 0), jnp.float32)

    def of_documents(x):
        x = x[:, 0]
        return -0.5 * (x / 2.0) ** 2 - counts[:, 0] * jnp.logaddexp(0, -x) - counts[:, 1] * jnp.logaddexp(0, x)

    size = jnp.ones((2 * copies, 1))
    x = jnp.asarray(start[:, None], jnp.float32)
    with jax.debug_key_reuse(True):
        end = np.asarray(
            jax.jit(lambda key: trajectories(key, x, of_documents, Metric(size, 1.7 * size), 15))(jax.random.key(0))
        )
    moved = end[:, 0] != start.astype(np.float32)
    assert moved.mean() > 0.5
    for draws, law in zip(np.split(end[:, 0], 2), laws, strict=True):
        assert_law(draws, law)


def test_a_trajectory_turned_round_leads_back_to_its_start():
    """Without this a trajectory that is accepted by its energy does not leave the law as it is; rounding is 1e-6."""
    rng = np.random.default_rng(0)
    x, momentum, step = (jnp.asarray(rng.normal(size=(5, 3)), jnp.float32) for _ in range(3))

    def log_density(x):
        return -0.5 * jnp.square(x).sum(1) - jnp.logaddexp(0, 2 * x[:, 0] - x[:, 1])

    start, step = position(log_density, x), 0.3 * jnp.abs(step) + 0.1
    end, last = leapfrog(log_density, start, momentum, step)
    back, again = leapfrog(log_density, end, -last, step)
    assert np.abs(end.x - x).max() > 0.3
    np.testing.assert_allclose(back.x, x, atol=1e-4)
    np.testing.assert_allclose(again, -momentum, atol=1e-4)


def test_scales_and_steps_follow_from_the_curvature():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(5, 4, 4))
    curvature = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(4)
    found = metric(lambda v: jnp.einsum("dij,dj->di", jnp.asarray(curvature, jnp.float32), v), jnp.zeros((5, 4)))
    scale = np.diagonal(curvature, axis1=1, axis2=2) ** -0.5
    np.testing.assert_allclose(found.scale, scale, rtol=1e-4)
    largest = np.linalg.eigvalsh(curvature * scale[:, :, None] * scale[:, None])[:, -1]
    np.testing.assert_allclose(found.step[:, 0], largest**-0.5, rtol=0.1)  # powers come from above


MU, ROOT = np.array([0.4, -0.3]), np.array([[1.5, 0.0], [-0.6, 0.9]])
ETA = np.array([1.0, -0.5])


def known(corpus, y=None):
    """Every parameter is known: logits above the words, an effect and a rate at the response."""
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        logits = numpyro.sample("logits", dist.MultivariateNormal(jnp.asarray(MU), scale_tril=jnp.asarray(ROOT)))
        effect = numpyro.sample("effect", dist.Normal(0.3, 0.7))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    zbar = draw_words(corpus, jax.nn.softmax(logits), jnp.asarray([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    with documents:
        numpyro.sample("size", dist.Normal(zbar @ jnp.asarray(ETA) + effect, 0.5), obs=y["size"])
        numpyro.sample("count", dist.Poisson(rate), obs=y["count"])


COPIES = 1000
WORDS = np.array([[2, 1, 0], [4, 0, 3], [0, 1, 0]])
TOPICS = [[0, 1, 0], [1, 1, 1, 0, 1, 1, 1], [0]]  # of the words of each kind
Y = {"size": np.array([1.5, -1.0, np.nan]), "count": np.array([0.0, 7.0, np.nan])}


@pytest.fixture(scope="module")
def drawn():
    """Three kinds of documents, copies of each, from one and the same start to after some draws of the block."""
    corpus = Corpus.from_counts(np.repeat(WORDS, COPIES, 0))
    y = {name: np.repeat(value, COPIES) for name, value in Y.items()}
    plan = choose_blocks(read(known, corpus, y, {}))
    block = plan.blocks[0]
    assert isinstance(block, LocalBlock) and block.sites == ("logits", "effect", "rate") and not plan.by_nuts
    data = documents(corpus, batches=True)
    topics = np.concatenate([topics for topics in TOPICS for _ in range(COPIES)])
    laid = jnp.zeros(data.batches.terms.shape, jnp.int32).at[data.batches.positions()].set(topics)
    rows = 3 * COPIES
    others = {"z": count(laid, data.batches, 2, 3)}
    values = {"logits": jnp.zeros((rows, 2)), "effect": jnp.full(rows, 2.0), "rate": jnp.full(rows, 0.1)}

    @jax.jit
    def draw(key, values):
        return block.draw(key, {**others, **values}, Data(data, y))

    for sweep in range(12):
        values, means = draw(jax.random.fold_in(jax.random.key(3), sweep), values)
    np.testing.assert_array_equal(values["rate"], means["rate"])
    return {name: np.asarray(value, float).reshape(3, COPIES, -1) for name, value in values.items()}


def counts_of(kind):
    return np.bincount(TOPICS[kind], minlength=2)


@pytest.mark.parametrize("kind", range(3))
def test_logits_are_drawn_from_their_prior_and_the_counts_of_topics(drawn, kind):
    logits, (first, second) = drawn["logits"][kind], counts_of(kind)
    covariance = ROOT @ ROOT.T
    apart = np.array([1.0, -1.0])
    mean, variance = apart @ MU, apart @ covariance @ apart

    def log_density(a):
        return -0.5 * (a - mean) ** 2 / variance + first * log_expit(a) + second * log_expit(-a)

    a = logits @ apart
    assert_law(a, log_density)
    # given the difference the words say nothing of the sum
    slope = covariance.sum(1) @ apart / variance
    left = np.sqrt(covariance.sum() - slope**2 * variance)
    assert stats.kstest((logits.sum(1) - MU.sum() - slope * (a - mean)) / left, "norm").pvalue > LEVEL


@pytest.mark.parametrize("kind", range(3))
def test_what_the_response_reads_is_drawn_from_its_law(drawn, kind):
    """A positive number in its own space, and an effect; where nothing was observed, from their priors."""
    seen = ~np.isnan(Y["count"][kind])
    law = stats.gamma(2.0 + seen * np.nan_to_num(Y["count"][kind]), scale=1 / (1 + seen))
    assert stats.kstest(drawn["rate"][kind, :, 0], law.cdf).pvalue > LEVEL
    precision = 1 / 0.49 + seen / 0.25
    rest = np.nan_to_num(Y["size"][kind] - counts_of(kind) @ ETA / counts_of(kind).sum())
    law = stats.norm((0.3 / 0.49 + seen * rest / 0.25) / precision, precision**-0.5)
    assert stats.kstest(drawn["effect"][kind, :, 0], law.cdf).pvalue > LEVEL


def test_sites_of_a_document_move_apart(drawn):
    """Given the rest they are independent, and so are copies, which all started from one place."""
    for kind in range(3):
        columns = [drawn["logits"][kind, :, 0], drawn["effect"][kind, :, 0], np.log(drawn["rate"][kind, :, 0])]
        far = np.abs(np.corrcoef(columns) - np.eye(3)).max() * np.sqrt(COPIES)
        assert far < FAR
        for column in columns:
            assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) * np.sqrt(COPIES) < FAR


CASES = [
    pytest.param(local_stories.correlated, ["logits"], ["tau", "factor"], marks=pytest.mark.slow),
    pytest.param(local_stories.positive, ["sharpness", "logits", "rate"], ["eta"], marks=pytest.mark.slow),
    pytest.param(local_stories.coordinates, ["x"], ["weights"], marks=pytest.mark.slow),
    (local_stories.effect_on_theta, ["effect"], ["mu"]),
    pytest.param(stories.response_reads_theta, ["theta"], [], marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("story", "local", "by_nuts"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_the_density_of_the_block_is_that_of_the_story(story, local, by_nuts):
    corpus, y = stories.small(counts=story is local_stories.positive)
    table = inference.check(story, corpus, *(() if story is local_stories.effect_on_theta else (y,)), num_topics=3)
    served = {
        site: block for block, sites in zip(table["block"], table["sites"], strict=True) for site in sites.split(", ")
    }
    assert [site for site, block in served.items() if block == LocalBlock.label] == local
    assert [site for site, block in served.items() if block == "NUTS given the rest"] == by_nuts
    assert table["passes"].all(), table.to_string()


def test_a_site_that_links_documents_is_left_to_nuts():
    corpus, y = stories.small()
    graph = read(local_stories.walk, corpus, y, {})
    small = few(graph)
    assert not LocalBlock.recognise(graph, ["move"], small)
    assert not LocalBlock.recognise(graph, ["eta"], small)
    assert choose_blocks(graph).describe()["move"] == "NUTS given the rest"


def test_what_stands_above_theta_is_found_through_other_sites():
    corpus, y = stories.small(counts=True)
    assert above_theta(read(local_stories.positive, corpus, y, {})) == ["sharpness", "logits"]
    assert above_theta(read(stories.latent_below, corpus, y, {})) == ["theta"]
