"""Concentrations of Dirichlet priors that a story draws: the sampler of one number, the block, and what is refused.

Limits: one step of a block from 20,000 exact draws, Kolmogorov-Smirnov tests at 1e-7, some 15 of them: right code fails in
2e-6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from fits import fit_of
from scipy import stats
from scipy.special import gammaln, logsumexp

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.diagnostics.scoring.held_out import perplexity
from topiczoo.inference.blocks import concentrations
from topiczoo.inference.blocks.block import few
from topiczoo.inference.kernels.assignments import count
from topiczoo.inference.kernels.special import log_rising_ratio
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.samplers.slice import WIDTH, slice_draw
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models.vocabulary.priors import concentration

DRAWS, LEVEL = 20_000, 1e-7
SLICE = "slice draws given counts"
LEARNED = {"alpha": "learned", "gamma": "learned"}
COUNTS = np.array([[2, 1, 0], [0, 1, 3], [1, 0, 1], [0, 0, 2], [3, 0, 1], [1, 1, 1]])
AGE = np.array([0.5, -1.0, 2.0, 0.3, -0.7, 1.1])
CORPUS = Corpus.from_counts(COUNTS, covariates={"age": AGE})
TOPICS = np.random.default_rng(3).integers(0, 2, COUNTS.sum())


# arithmetic and the sampler of one number


def test_ratios_of_rising_factorials_keep_their_digits():
    """Of counts up to thousands, where differences of log Gammas in float32 would be off by a thousandth each."""
    rng = np.random.default_rng(0)
    old = rng.gamma(0.5, 0.3, 4000).astype(np.float32) + np.float32(1e-5)
    new = (old * np.exp(rng.normal(0, 0.7, 4000))).astype(np.float32)
    n = np.concatenate([np.zeros(100), np.ones(100), rng.integers(0, 30, 1800), rng.integers(0, 5000, 2000)])
    a, b = new.astype(float), old.astype(float)
    exact = gammaln(a + n) - gammaln(a) - gammaln(b + n) + gammaln(b)
    found = np.asarray(jax.jit(log_rising_ratio)(new, old, n.astype(np.float32)))
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=2e-6)
    assert (found[:100] == 0).all()


def two_humps(x):
    return jnp.logaddexp(jnp.log(0.3) - 2 * (x + 1.5) ** 2, jnp.log(0.7) - 0.5 * (x - 1.0) ** 2)


def test_the_first_interval_of_a_slice_lies_anywhere_about_the_number():
    """Its low end is read first; always in the middle, a number would be left more easily than it is reached."""
    seen, first = [], []

    @jax.jit
    def step(key, x):
        def log_ratio(v):
            jax.debug.callback(lambda place: seen.append(float(place)), v, ordered=True)
            return -((v - x) ** 2)

        return slice_draw(key, log_ratio, x)

    for key in jax.random.split(jax.random.key(5), 80):
        seen.clear()
        jax.block_until_ready(step(key, jnp.float32(3.0)))
        jax.effects_barrier()
        first.append(3.0 - seen[0])
    assert stats.kstest(np.array(first) / WIDTH, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("law", ["two humps", "skewed"])
def test_a_slice_step_leaves_the_law_as_it_is(law):
    """From exact draws. Humps are nearer than the first interval is wide; the skewed law is log Gamma(0.3)."""
    rng = np.random.default_rng(1)
    if law == "skewed":
        start, log_density = np.log(rng.gamma(0.3, size=DRAWS)), lambda x: 0.3 * x - jnp.exp(x)
        cdf = lambda x: stats.gamma(0.3).cdf(np.exp(x))  # noqa: E731
    else:
        weight = np.array([0.3 * 0.5, 0.7])  # of densities that integrate to sqrt(2 pi) times these
        weight /= weight.sum()
        start = np.where(rng.random(DRAWS) < weight[0], rng.normal(-1.5, 0.5, DRAWS), rng.normal(1.0, 1.0, DRAWS))
        log_density = two_humps
        cdf = lambda x: weight[0] * stats.norm(-1.5, 0.5).cdf(x) + weight[1] * stats.norm(1).cdf(x)  # noqa: E731

    @jax.jit
    @jax.vmap
    def step(key, x):
        return slice_draw(key, lambda v: log_density(v) - log_density(x), x)

    moved = np.asarray(step(jax.random.split(jax.random.key(0), DRAWS), jnp.asarray(start, jnp.float32)))
    assert stats.kstest(moved, cdf).pvalue > LEVEL
    # a step forgets: of right steps from the same place the correlation with it is far from 1
    assert np.corrcoef(start, moved)[0, 1] < 0.8 and (moved == start.astype(np.float32)).mean() < 1e-3


# the Gibbs block


def edited(corpus, y=None):
    """Not the zoo's: proportions by a covariate, one concentration for all terms, other priors and other names."""
    base = numpyro.sample("base", dist.Normal(-0.5, 0.5))
    lean = numpyro.sample("lean", dist.Normal(0, 0.5).expand([2]).to_event(1))
    rough = numpyro.sample("rough", dist.HalfCauchy(0.5))
    with numpyro.plate("themes", 2):
        words = numpyro.sample("words", dist.Dirichlet(jnp.full(corpus.num_terms, rough)))
    with numpyro.plate("papers", corpus.num_documents):
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.exp(base + corpus.covariates["age"][:, None] * lean)))
    models.draw_words(corpus, mix, words)


def topics_by_hand():
    document, term = CORPUS.tokens()
    of_documents, of_terms = np.zeros((6, 2)), np.zeros((2, 3))
    np.add.at(of_documents, (document, TOPICS), 1)
    np.add.at(of_terms, (TOPICS, term), 1)
    return of_documents, of_terms


def log_counts(prior, counts):
    """log prod_d B(prior_d + n_d) / B(prior_d)."""
    prior = np.broadcast_to(prior, counts.shape)
    rises = gammaln(prior + counts).sum(1) - gammaln(prior).sum(1) - gammaln((prior + counts).sum(1))
    return (rises + gammaln(prior.sum(1))).sum()


def exact_draws(log_density, axes, rng):
    """Draws from a density on a grid of logarithms or numbers, spread within its cells: [draws, numbers]."""
    grids = np.meshgrid(*axes, indexing="ij")
    points = np.stack([grid.ravel() for grid in grids], 1)
    logs = np.array([log_density(point) for point in points])
    chance = np.exp(logs - logs.max())
    chosen = points[rng.choice(len(points), DRAWS, p=chance / chance.sum())]
    return chosen + (rng.random(chosen.shape) - 0.5) * np.array([axis[1] - axis[0] for axis in axes])


BLOCKS = {  # story, arguments, site, density of the site in the space without bounds given the counts, grid there
    "one a topic": (
        models.lda, {"num_topics": 2, **LEARNED}, "alpha", np.exp,
        lambda x, d, t: log_counts(np.exp(x), d) - 10 * np.exp(x).sum() + x.sum(), [np.linspace(-9, 3, 241)] * 2,
    ),
    "one of terms": (
        models.lda, {"num_topics": 2, **LEARNED}, "gamma", np.exp,
        lambda x, d, t: log_counts(np.exp(x), t) - 10 * np.exp(x[0]) + x[0], [np.linspace(-9, 4, 4001)],
    ),
    "by a covariate": (
        edited, {}, "lean", lambda x: x,
        lambda x, d, t: log_counts(np.exp(-0.3 + np.outer(AGE, x)), d) - 2 * (x**2).sum(), [np.linspace(-2.5, 2.5, 201)] * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BLOCKS)
def test_a_concentration_is_drawn_from_its_law_given_the_counts(case):
    """One step from exact draws, theta and beta at values that would give another law."""
    story, arguments, site, to, log_density, axes = BLOCKS[case]
    of_documents, of_terms = topics_by_hand()
    free = exact_draws(lambda x: log_density(x, of_documents, of_terms), axes, np.random.default_rng(2))
    graph = read(story, CORPUS, None, arguments)
    plan = choose_blocks(graph)
    (block,) = [block for block in plan.blocks if block.sites == (site,)]
    assert block.label == SLICE and block.by_column == (case == "one a topic")
    assert [b.sites[0] for b in plan.blocks].index(site) < [b.sites[0] for b in plan.blocks].index(graph.beta)
    data = documents(CORPUS, batches=True)
    laid = jnp.zeros(data.batches.terms.shape, jnp.int32).at[data.batches.positions()].set(TOPICS)
    values = {**few(graph).values, "base": jnp.float32(-0.3), "z": count(laid, data.batches, 2, 3)}
    values[graph.theta] = jnp.tile(jnp.array([0.9, 0.1]), (6, 1))

    @jax.jit
    @jax.vmap
    def step(key, value):
        return block.draw(key, {**values, site: value}, Data(data, None))[0][site]

    start = to(free).reshape(DRAWS, *graph.latent[site].shape).astype(np.float32)
    moved = np.asarray(step(jax.random.split(jax.random.key(4), DRAWS), start), float).reshape(DRAWS, -1)
    start = start.reshape(DRAWS, -1)
    for before, after in [*zip(start.T, moved.T, strict=True), (start.sum(1), moved.sum(1))]:
        assert stats.ks_2samp(before, after).pvalue > LEVEL
        assert np.corrcoef(before, after)[0, 1] < 0.8


def test_conditionals_are_those_of_the_story():
    corpus, y = stories.small()
    found = inference.check(models.slda, corpus, y, num_topics=2, num_documents=3, num_tokens=4, **LEARNED)
    assert found["passes"].all(), found.to_string()
    assert (found.set_index("sites").loc[["alpha", "gamma"], "block"] == SLICE).all()


def test_a_wrong_conditional_is_caught(monkeypatch):
    right = concentrations.log_rising_ratio
    monkeypatch.setattr(concentrations, "log_rising_ratio", lambda new, old, n: 1.2 * right(new, old, n))
    corpus, _ = stories.small()
    found = inference.check(models.lda, corpus, num_topics=2, num_documents=3, num_tokens=4, **LEARNED)
    assert set(found.loc[~found["passes"], "sites"]) == {"alpha", "gamma"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "arguments"),
    [
        (edited, {}),
        pytest.param(models.slda_glm, {"num_topics": 2, **LEARNED}, marks=pytest.mark.longest),
        pytest.param(models.sstm, {"num_topics": 2, **LEARNED}, marks=pytest.mark.longest),
        (models.medlda, {"num_topics": 2, "margin": "partial", **LEARNED}),
        (models.disclda, {"num_topics": 4, "shared": 2, "outputs": 2, **LEARNED}),
        pytest.param(
            models.sage_topics,
            {"num_topics": 2, "prior": "laplace", "background": np.zeros(3), "alpha": "learned"},
            marks=pytest.mark.longest,
        ),
        (models.slda, {"num_topics": 2, "collapse": "topics", **LEARNED}),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_conditionals_are_those_of_other_stories(story, arguments):
    y = np.arange(6) % 2 if story is models.disclda else 0.5 * AGE
    responses = () if story is models.sage_topics else (y,)
    found = inference.check(story, CORPUS, *responses, num_documents=3, num_tokens=4, **arguments)
    assert found["passes"].all(), found.to_string()
    assert (found["block"] == SLICE).sum() == (1 if story is models.sage_topics else 3 if story is edited else 2)


def of_documents_too(corpus, y=None):
    """A site above theta that every document has for itself, beside one for all."""
    level = numpyro.sample("level", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    with numpyro.plate("documents", corpus.num_documents):
        own = numpyro.sample("own", dist.Normal(0, 1))
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.exp(level + own[:, None])))
    models.draw_words(corpus, theta, beta)


def test_nobody_reads_a_site_that_is_yet_to_be_drawn_again(monkeypatch):
    """Where something else is drawn given theta, theta is not integrated out, and is drawn though nobody stores it."""
    plan = choose_blocks(read(of_documents_too, CORPUS, None, {}), draw_theta=False)
    assert SLICE not in plan.describe().values() and plan.blocks[-1].draw_theta
    graph = read(models.lda, CORPUS, None, {"num_topics": 2, **LEARNED})
    plan = choose_blocks(graph, draw_theta=False)
    assert [plan.describe()[name] for name in LEARNED] == [SLICE, SLICE] and not plan.blocks[-1].draw_theta
    # topics by a block of the user's, which comes before
    own = concentrations.concentration_blocks(graph, ["alpha", "gamma"], few(graph), taken={"beta"})
    assert [block.sites for block in own] == [("alpha",)]
    monkeypatch.setattr(concentrations, "MOST", 1)
    plan = choose_blocks(graph, draw_theta=False)
    assert plan.by_nuts == ["alpha"] and plan.blocks[-1].draw_theta and plan.describe()["gamma"] == SLICE


# stories


def test_a_number_or_an_array_stays_what_it_is():
    graph = read(models.lda, CORPUS, None, {"num_topics": 2, "alpha": [0.2, 0.4], "gamma": 0.3})
    assert set(graph.latent) == {"beta", "theta"}
    np.testing.assert_allclose(graph.fixed_values["theta"]["concentration"].reshape(-1, 2)[0], [0.2, 0.4])
    graph = read(models.lda, CORPUS, None, {"num_topics": 2, "alpha": "learned"})
    assert set(graph.latent) == {"alpha", "beta", "theta"} and graph.dims["alpha"] == ("topic",)
    graph = read(models.lda, CORPUS, None, {"num_topics": 2, "gamma": "learned"})
    assert set(graph.latent) == {"gamma", "beta", "theta"} and graph.dims["gamma"] == ()
    assert graph.latent["gamma"].role == "global"


def test_a_learned_concentration_is_exponential_with_the_mean_that_is_said():
    """0.1 unless said otherwise, whatever its shape: its sum over topics is Gamma(topics, 1 / mean)."""
    for shape, mean in (((), None), ([3], 0.25)):
        told = {} if mean is None else {"mean": mean}
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
            concentration("alpha", "learned", shape, **told)
        fn, x = trace["alpha"]["fn"], np.full(shape, 0.3, np.float32)
        expected = stats.expon(scale=mean or 0.1).logpdf(x).sum()
        assert float(fn.log_prob(x)) == pytest.approx(expected, rel=1e-5) and fn.shape() == tuple(shape)


@pytest.mark.parametrize("name", ["alpha", "gamma"])
def test_another_word_is_refused_in_one_sentence(name):
    with pytest.raises(
        ValueError, match=f"^{name} is 'fitted'; give a positive number, an array of them, or 'learned'."
    ):
        inference.gibbs(models.slda, CORPUS, AGE, **{name: "fitted"})


# predictions from draws of alpha


def test_every_draw_has_its_own_alpha_in_held_out_documents_and_predictions():
    """A fit with one draw of alpha says what a fit with that alpha given says, and one with two their mean."""
    rng = np.random.default_rng(5)
    beta = rng.dirichlet(np.full(5, 0.5), (1, 2, 3)).astype(np.float32)
    alphas = np.array([[[0.05, 0.05, 2.0], [1.0, 0.3, 0.02]]], np.float32)
    settings = {"method": "left_to_right", "particles": 20, "repeats": 20, "seed": 3}
    test = Corpus.from_counts(rng.poisson(1.0, (4, 5)) + 1, list("abcde"))
    learned = fit_of(models.lda, {"beta": beta, "alpha": alphas}, num_topics=3, alpha="learned")
    both = perplexity(learned, test, **settings).estimates.reshape(2, 20, 4)  # [draw, repeat, document]
    for i, alpha in enumerate(alphas[0]):
        given = fit_of(models.lda, {"beta": beta[:, i : i + 1]}, num_topics=3, alpha=alpha)
        one = perplexity(given, test, **settings).estimates
        drawn = fit_of(
            models.lda, {"beta": beta[:, i : i + 1], "alpha": alphas[:, i : i + 1]}, num_topics=3, alpha="learned"
        )
        np.testing.assert_allclose(perplexity(drawn, test, **settings).estimates, one, rtol=1e-5)
        shares = [fit.transform(test, seed=1) for fit in (given, drawn)]
        np.testing.assert_allclose(shares[1], shares[0], rtol=1e-4)
        # another seed, and so Monte Carlo error: some 0.05 of a document by 20 repeats of 20 particles
        np.testing.assert_allclose(logsumexp(both[i], 0), logsumexp(one[0], 0), atol=0.5)
    assert abs(logsumexp(both[0], 0) - logsumexp(both[1], 0)).max() > 1
