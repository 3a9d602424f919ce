"""Topics whose logarithms are sums of sites: which stories are taken for such, and the law of what is drawn.

The law is tested by what a kernel must leave alone: sites from their prior and counts of words given these stay pairs of
that kind however often the sites are drawn anew. 2,000 pairs each; Kolmogorov-Smirnov tests at a level of 1e-6, some forty
of them in all: a right program fails with probability 4e-5.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from lengths import slow_but
from scipy import stats

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.blocks import log_linear
from topiczoo.inference.blocks.block import few
from topiczoo.inference.blocks.log_linear import LogLinearBlock, look
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.samplers.slice import slice_draws
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import draw_words

PAIRS, LEVEL = 2000, 1e-6
OPTIMISED = {"xla_backend_optimization_level": 2}  # where most of a test is running, not compiling
rng = np.random.default_rng(0)
SIDE = np.arange(30) % 2
CORPUS = Corpus.from_counts(rng.poisson(1.0, (30, 4)) + 1, covariates={"side": SIDE})
BACKGROUND = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
LABEL = "slice draws of log-linear topics"


def facets(
    corpus, *, how_many=2, sides=2, laws=(dist.Laplace(0, 1), dist.Normal(0.3, 0.7), dist.StudentT(5.0)), scale=1.0
):
    """As many sides as topics: only what the story computes says which axis is which."""
    topic_law, side_law, joint_law = laws
    topic = numpyro.sample("topic", topic_law.expand([how_many, corpus.num_terms]).to_event(2))
    side = numpyro.sample("side", side_law.expand([sides, corpus.num_terms]).to_event(2))
    joint = numpyro.sample("joint", joint_law.expand([sides, how_many, corpus.num_terms]).to_event(3))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(how_many, 0.5)))
    beta = jax.nn.softmax(BACKGROUND + topic + side[:, None] + scale * joint)
    draw_words(corpus, theta, beta, label=jnp.asarray(corpus.covariates["side"], int))


def of_topics(make):
    """A story with one site of deviations, and what ``make`` computes of them."""

    def story(corpus, *, how_many=3):
        drawn = make(corpus, how_many)
        with numpyro.plate("documents", corpus.num_documents):
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(how_many, 0.5)))
        draw_words(corpus, theta, jax.nn.softmax(BACKGROUND + drawn))

    return story


def deviations(corpus, how_many, law=dist.Normal(0, 1)):
    with numpyro.plate("topics", how_many):
        return numpyro.sample("deviation", law.expand([corpus.num_terms]).to_event(1))


def spread(corpus, how_many):
    apart = numpyro.sample("apart", dist.HalfNormal(1))
    return deviations(corpus, how_many, dist.Normal(0, apart))


def far_from_centre(corpus, how_many):
    apart = numpyro.sample("apart", dist.HalfNormal(1).expand([how_many]).to_event(1))
    return apart[:, None] * deviations(corpus, how_many)


def two(corpus, how_many):
    common = numpyro.sample("common", dist.Normal(0, 1).expand([corpus.num_terms]).to_event(1))
    return common + deviations(corpus, how_many, dist.Laplace(0, 2.0))


def together(corpus, how_many):
    covariance = 0.5 * jnp.eye(corpus.num_terms) + 0.5
    with numpyro.plate("topics", how_many):
        return numpyro.sample("deviation", dist.MultivariateNormal(jnp.zeros(corpus.num_terms), covariance))


def walk(corpus, how_many):
    return jnp.cumsum(deviations(corpus, how_many), 0)


def read_twice(corpus, how_many):
    found = deviations(corpus, how_many)
    numpyro.sample("seen", dist.Normal(found.sum(), 1), obs=0.5)
    return found


SERVED = {
    "deviations": (of_topics(deviations), {"deviation": (3, 4)}),
    "a learned scale": (of_topics(spread), {"deviation": (3, 4)}),
    "a scale that multiplies": (of_topics(far_from_centre), {"deviation": (3, 4)}),
    "one for all topics": (of_topics(two), {"common": (1, 4), "deviation": (3, 4)}),
    "facets": (facets, {"topic": (1, 2, 4), "side": (2, 1, 4), "joint": (2, 2, 4)}),
}  # fmt: skip
OTHERS = {
    "cubes": of_topics(lambda corpus, how_many: deviations(corpus, how_many) ** 3),
    "terms that go together": of_topics(together),
    "sums of topics": of_topics(walk),
    "read by something else": of_topics(read_twice),
    "terms shifted": of_topics(lambda corpus, how_many: jnp.roll(deviations(corpus, how_many), 1, -1)),
    "positive": of_topics(lambda corpus, how_many: deviations(corpus, how_many, dist.HalfNormal(1))),
}


def block_of(story, **arguments):
    plan = choose_blocks(read(story, CORPUS, None, arguments))
    return next((block for block in plan.blocks if isinstance(block, LogLinearBlock)), None)


@pytest.mark.parametrize("name", SERVED)
def test_sums_are_found_and_which_axis_is_which(name):
    story, shapes = SERVED[name]
    block = block_of(story)
    assert block is not None and block.shapes == shapes and set(block.sites) == set(shapes)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_sum_of_independent_numbers_is_left_to_others(name):
    graph = read(OTHERS[name], CORPUS, None, {})
    assert choose_blocks(graph).describe()["deviation"] == "NUTS given the rest"


def test_the_story_of_content_and_sparse_topics_are_served():
    flat = np.full(4, -np.log(4), np.float32)
    for story, given in (
        (models.stm_content, {"background": flat, "content": "side", "levels": 2, "num_topics": 3}),
        (models.sage_topics, {"background": flat, "num_topics": 3, "prior": "laplace"}),
        (models.sage_nb, {"background": flat, "outputs": 2}),
    ):
        served = choose_blocks(read(story, CORPUS, None, given)).describe()
        assert {block for site, block in served.items() if "deviation" in site} == {LABEL}


def test_words_of_documents_of_one_topic_are_counted():
    graph = read(models.sage_nb, CORPUS, SIDE, {"background": BACKGROUND, "outputs": 2})
    data, values = Data(graph.documents(pairs=True), graph.response.on_device()), few(graph).values
    counts = CORPUS.counts.toarray()
    expected = np.stack([counts[side == SIDE].sum(0) for side in (0, 1)])
    np.testing.assert_allclose(look(graph, ["deviation"], values, data).counts, expected, rtol=1e-6)


def test_terms_that_no_topic_has_do_not_count_for_the_factor():
    """Where the background rules a term out, whatever its numbers are."""

    def without_the_last(corpus, how_many):
        apart = numpyro.sample("apart", dist.HalfNormal(1))
        ruled_out = jnp.where(jnp.arange(corpus.num_terms) == corpus.num_terms - 1, -jnp.inf, 0.0)
        return ruled_out + apart * deviations(corpus, how_many)

    block = block_of(of_topics(without_the_last))
    tried = few(block.graph)
    slope = block.slope("deviation", {**tried.values, "apart": 0.37}, tried.data)
    np.testing.assert_allclose(slope, 0.37, rtol=1e-4)


def pairs(block, data, values, totals):
    """By seed: sites from their prior, and counts of as many words as ``totals`` says given these."""

    @jax.jit
    @jax.vmap
    def sites(key):
        priors = look(block.graph, block.sites, values, data).priors
        own = {
            name: priors[name].expand(values[name].shape).sample(key) if priors[name].batch_shape != values[name].shape
            else priors[name].sample(key)
            for name, key in zip(block.sites, jax.random.split(key, len(block.sites)), strict=True)
        }  # fmt: skip
        return own, look(block.graph, block.sites, {**values, **own}, data).beta

    def drawn(seed):
        own, beta = sites(jax.random.split(jax.random.key(seed), PAIRS))
        p = np.asarray(beta, float)
        counts = np.random.default_rng(seed).multinomial(totals, p / p.sum(-1, keepdims=True))  # compiles nothing
        return own, jnp.asarray(counts, jnp.float32)

    return drawn


LAWS = {
    "facets": (facets, {}, [[0, 4], [60, 400]]),
    "a part of the joint": (facets, {"scale": 0.3, "laws": (dist.Laplace(0, 3),) * 3}, [[9, 0], [30, 2]]),
    "one for all topics": (of_topics(two), {}, [0, 5, 100]),
    "a scale that multiplies": (of_topics(far_from_centre), {}, [0, 5, 100]),
}


@pytest.mark.parametrize("name", slow_but(LAWS, "facets", "one for all topics", "a scale that multiplies"))
def test_sites_and_counts_stay_pairs_of_their_law(name):
    story, arguments, totals = LAWS[name]
    block = block_of(story, **arguments)
    tried = few(block.graph)
    data, values = tried.data, tried.values
    made = pairs(block, data, values, totals)
    (own, counts), fresh = made(1), made(2)

    @jax.jit
    @jax.vmap
    def drawn_three_times(key, own, counts):
        z = values["z"]._replace(topic_term=counts)

        def step(number, own):
            return block.draw(jax.random.fold_in(key, number), {**values, **own, "z": z}, data)[0]

        return jax.lax.fori_loop(0, 3, step, own)

    moved = drawn_three_times(jax.random.split(jax.random.key(3), PAIRS), own, counts)

    @jax.jit
    @jax.vmap
    def told(own, counts):
        beta = look(block.graph, block.sites, {**values, **own}, data).beta
        found = {f"{name}, {what}": of(x) for name, x in own.items() for what, of in ABOUT.items()}
        return found | {
            "words": (counts * jnp.log(beta)).sum(),
            "product": (
                counts
                * sum(
                    x.reshape(shape)
                    for x, shape in zip(own.values(), (block.shapes[name] for name in own), strict=True)
                )
            ).sum(),
        }

    there, before = told(moved, counts), told(*fresh)
    assert all(np.any(np.asarray(moved[site]) != np.asarray(own[site])) for site in own)
    for what in there:
        assert stats.ks_2samp(there[what], before[what]).pvalue > LEVEL, what
    for site in block.sites:  # each number by itself, too
        last = np.asarray(moved[site])[(slice(None), *(-1,) * (moved[site].ndim - 1))]
        other = np.asarray(fresh[0][site])[(slice(None), *(-1,) * (moved[site].ndim - 1))]
        assert stats.ks_2samp(last, other).pvalue > LEVEL, site


ABOUT = {
    "mean": jnp.mean,
    "size": lambda x: jnp.abs(x).mean(),
    "first": lambda x: x.ravel()[0],
    "squares": lambda x: (x**2).sum(),
}


@pytest.fixture(scope="module")
def chain_of_two_numbers():
    """A story of two numbers of one topic, and its chain of 20,000 draws given counts: compiled once for all of these."""
    two_terms = Corpus.from_counts(np.ones((3, 2), int))
    background = np.log(np.array([0.7, 0.3], np.float32))

    def story(corpus):
        numbers = numpyro.sample("numbers", dist.Laplace(0, 1).expand([1, 2]).to_event(2))
        with numpyro.plate("documents", corpus.num_documents):
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(1)))
        draw_words(corpus, theta, jax.nn.softmax(background + numbers))

    graph = read(story, two_terms, None, {})
    tried = few(graph)
    block = LogLinearBlock.recognise(graph, ["numbers"], tried)

    @partial(jax.jit, compiler_options=OPTIMISED)
    def chain(counts):
        z = tried.values["z"]._replace(topic_term=counts)

        def step(x, key):
            new, _ = block.draw(key, {**tried.values, "numbers": x, "z": z}, tried.data)
            return new["numbers"], new["numbers"]

        return jax.lax.scan(step, jnp.zeros((1, 2)), jax.random.split(jax.random.key(0), 20_000))[1]

    return background, chain


@pytest.mark.parametrize("totals", [0, 1, 30])
def test_numbers_reach_all_of_their_conditional(chain_of_two_numbers, totals):
    """One chain of 20,000 draws given few words, against the same by NUTS' own words: sums over a grid of two numbers."""
    background, chain = chain_of_two_numbers
    counts = np.array([[totals * 0.1, totals * 0.9]], np.float32)
    chain = chain(jnp.asarray(counts))
    chain = np.asarray(chain)[200:, 0]
    grid = np.linspace(-14, 14, 1401)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    eta = np.stack([background[0] + a, background[1] + b])
    log_p = -abs(a) - abs(b) + (counts[0][:, None, None] * (eta - np.logaddexp(*eta))).sum(0)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for name, of in {"first": a, "second": b, "difference": a - b, "sum": a + b}.items():
        drawn = {
            "first": chain[:, 0],
            "second": chain[:, 1],
            "difference": chain[:, 0] - chain[:, 1],
            "sum": chain.sum(1),
        }[name]
        mean, square = (p * of).sum(), (p * of**2).sum()
        blocks = drawn[: len(drawn) // 100 * 100].reshape(-1, 100)
        for found, exact in ((blocks, mean), (blocks**2, square)):
            error = found.mean(1).std() / np.sqrt(len(found))
            assert abs(found.mean() - exact) < 5 * error, (name, found.mean(), exact, error)


def test_widths_of_slices_do_not_depend_on_what_is_drawn(monkeypatch):
    """Else a number would be left more easily than it is reached, and its law were another."""
    block, recorded, widths = block_of(facets), [], []
    tried = few(block.graph)

    def recording(key, log_p, width, *rest):
        recorded.append(width)
        return jnp.zeros(jnp.broadcast_shapes(width.shape, jax.eval_shape(log_p, jnp.zeros(width.shape)).shape))

    @jax.jit
    def of_a_draw(sites):
        recorded.clear()
        block.draw(jax.random.key(2), {**tried.values, **sites}, tried.data)
        return list(recorded)

    monkeypatch.setattr(log_linear, "slice_draws", recording)
    for shift in (0.0, 0.9):
        sites = {site: tried.values[site] + shift * jnp.ones_like(tried.values[site]) for site in block.sites}
        sites = {site: value.at[..., 0].add(-3 * shift) for site, value in sites.items()}
        widths.append(of_a_draw(sites))
    assert len(widths[0]) >= 2 * len(block.sites)
    for one, other in zip(*widths, strict=True):
        np.testing.assert_array_equal(one, other)


def test_slices_of_many_numbers_have_the_law_of_each():
    """A normal, a Laplace and a law of two heaps, each from its own law, stay so, whatever the width."""
    number = 20_000
    keys = jax.random.split(jax.random.key(0), 4)
    heaps = jnp.where(jax.random.bernoulli(keys[2], 0.3, (number,)), 3.0, -1.0)
    x = jnp.stack([
        jax.random.normal(keys[0], (number,)), jax.random.laplace(keys[1], (number,)),
        heaps + 0.5 * jax.random.normal(keys[3], (number,)),
    ])  # fmt: skip

    def log_p(x):
        of_heaps = jnp.logaddexp(jnp.log(0.3) - 2 * (x[2] - 3) ** 2, jnp.log(0.7) - 2 * (x[2] + 1) ** 2)
        return jnp.stack([-0.5 * x[0] ** 2, -jnp.abs(x[1]), of_heaps])

    def moved(step, x, width=1.5, most_steps=2):
        return x + slice_draws(
            jax.random.key(step), lambda d: log_p(x + d) - log_p(x), jnp.full(x.shape, width), most_steps
        )

    first = x
    wide = jax.jit(lambda step, x, width: moved(step, x, width, 20), compiler_options=OPTIMISED)
    for step, width in enumerate((0.2, 2.0, 50.0)):
        x = wide(step, x, width)
    narrow = jax.jit(lambda x: jax.lax.fori_loop(3, 40, moved, x), compiler_options=OPTIMISED)
    x = narrow(x)  # intervals that end within the slice
    assert (np.asarray(x) != np.asarray(first)).mean() > 0.999
    assert stats.kstest(x[0], "norm").pvalue > LEVEL and stats.kstest(x[1], "laplace").pvalue > LEVEL
    assert stats.ks_2samp(x[2], first[2]).pvalue > LEVEL
    assert abs(np.mean(np.asarray(x[2]) > 1) - 0.3) < 5 * np.sqrt(0.21 / number)


@pytest.mark.slow
def test_a_fit_of_facets_passes_its_check_and_finds_its_sides():
    corpus = Corpus.from_counts(rng.multinomial(40, [0.4, 0.3, 0.2, 0.1], 60), covariates={"side": np.arange(60) % 2})
    inference.check(facets, corpus)
    fit = inference.gibbs(facets, corpus, num_warmup=20, num_samples=20, num_chains=1, progress_bar=False)
    assert fit.info["blocks"]["joint"] == LABEL and np.isfinite(fit.draws["joint"]).all()
