"""Concentrations of Dirichlet priors that a story draws: what serves them in each engine, and whether it is right.

Limits: one step of a block from 20,000 exact draws, Kolmogorov-Smirnov tests at 1e-7, some 15 of them: right code fails in
2e-6. Slow: the exact posterior at 5 standard errors, some 10 comparisons (6e-6), Geweke's test at 1e-5 and ranks at 1e-4.
"""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from exact import Exact, standard_errors_apart, summaries
from fits import fit_of
from scipy import optimize, stats
from scipy.special import gammaln, logsumexp
from test_calibration import SHAPE

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.diagnostics import calibrate, geweke
from topiczoo.diagnostics.checks import calibration
from topiczoo.diagnostics.scoring.held_out import perplexity
from topiczoo.inference.blocks import concentrations
from topiczoo.inference.blocks.block import few
from topiczoo.inference.blocks.conjugate import DirichletBlock
from topiczoo.inference.em import priors as em_priors
from topiczoo.inference.kernels.assignments import count
from topiczoo.inference.kernels.special import log_rising_ratio
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.samplers.slice import slice_draw
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data

DRAWS, LEVEL, APART = 20_000, 1e-7, 5.0
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
        (models.slda_glm, {"num_topics": 2, **LEARNED}),
        (models.sstm, {"num_topics": 2, **LEARNED}),
        (models.medlda, {"num_topics": 2, "margin": "partial", **LEARNED}),
        (models.disclda, {"num_topics": 4, "shared": 2, "outputs": 2, **LEARNED}),
        (models.sage_topics, {"num_topics": 2, "prior": "laplace", "background": np.zeros(3), "alpha": "learned"}),
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


# variational EM


@pytest.mark.parametrize("rows", [(4,), (6, 4), (1, 4)])
def test_slopes_of_the_bound_in_a_prior(rows):
    rng = np.random.default_rng(0)
    prior, counts = rng.gamma(2.0, 0.3, rows), rng.gamma(0.5, 3.0, (6, 4))
    logs = np.log(rng.dirichlet(np.full(4, 0.7), 6))
    for objective in (partial(em_priors._of_logs, logs), partial(em_priors._of_counts, counts)):
        _, slope = objective(prior)
        found = optimize.approx_fprime(prior.ravel(), lambda flat: objective(flat.reshape(rows))[0], 1e-6)
        np.testing.assert_allclose(slope.ravel(), found, rtol=1e-3, atol=1e-3)
    full = np.broadcast_to(prior, counts.shape)
    assert abs(em_priors._of_counts(counts, prior)[0] - log_counts(full, counts)) < 1e-8
    expected = sum(
        stats.dirichlet(a).logpdf(np.exp(row) / np.exp(row).sum()) for a, row in zip(full, logs, strict=True)
    )
    assert abs(em_priors._of_logs(logs, prior)[0] - expected) < 1e-8


@pytest.fixture(scope="module")
def simulated():
    """200 documents of three topics, common and rare."""
    rng = np.random.default_rng(0)
    beta, theta = rng.dirichlet(np.full(30, 0.2), 3), rng.dirichlet([0.8, 0.3, 0.05], 200)
    return Corpus.from_counts(np.stack([rng.multinomial(60, row @ beta) for row in theta]))


def test_vem_finds_concentrations_and_its_bound_rises(simulated):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fit = inference.vem(models.lda, simulated, num_topics=3, progress_bar=False, tolerance=1e-5, **LEARNED)
    bound = np.asarray(fit.info["bound"])
    assert (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all() and fit.info["converged"]
    alpha, gamma = np.sort(fit.mean("alpha")), float(fit.mean("gamma"))
    np.testing.assert_allclose(alpha, [0.05, 0.3, 0.8], rtol=0.5)
    assert 0.12 < gamma < 0.3
    np.testing.assert_allclose(np.sort(fit.info["alpha"]), alpha, rtol=1e-5)
    assert fit.draws["alpha"].shape[2:] == (3,) and np.ptp(fit.draws["alpha"], axis=1).max() == 0
    shares = fit.transform(simulated[:5])
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-4)


def hyper(corpus, y=None):
    """The concentration has a prior with an unknown of its own."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    alpha = numpyro.sample("alpha", dist.Exponential(rate))
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, alpha)))
    models.draw_words(corpus, theta, beta)


def test_vem_refuses_by_name_what_it_cannot_estimate():
    with pytest.raises(
        ValueError, match=r"'alpha' of the story 'hyper': it is a latent parameter.*and of 'rate'; use gibbs"
    ):
        inference.vem(hyper, CORPUS)
    with pytest.raises(ValueError, match=r"'own'.*belongs to documents"):
        inference.vem(of_documents_too, CORPUS)
    with pytest.raises(ValueError, match="estimate_alpha is True, but the story 'lda' draws 'alpha' itself; leave"):
        inference.vem(models.lda, CORPUS, num_topics=2, alpha="learned", estimate_alpha=True)


# whole fits


@pytest.mark.slow
def test_the_page_on_learned_priors_runs():
    page = (Path(__file__).parents[1] / "docs/priors.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    found: dict = {}
    exec(compile(code, "priors.md", "exec"), found)
    fits = [value for value in found.values() if isinstance(value, inference.Fit)]
    learned = [name for fit in fits for name in fit.draws if SLICE in fit.info["blocks"].get(name, "")]
    assert fits and learned, "the page fits no story with a learned prior"


def test_gibbs_draws_what_stands_above_a_concentration():
    """A rate of Gamma(2, 1) above an exponential number is a Gamma draw, the number itself a slice draw."""
    assert choose_blocks(read(hyper, CORPUS, None, {})).describe() == {
        "rate": "generalised inverse Gaussian draw", "alpha": SLICE, "beta": "Dirichlet draw",
        "z": "topic sweep, theta integrated out", "theta": "topic sweep, theta integrated out",
    }  # fmt: skip


def wide(corpus, y=None):
    """Supervised topics with concentrations about 1: under the zoo's prior few of the draws for a sum would count."""
    alpha, gamma = models.concentration("alpha", shape=[2], mean=1.0), models.concentration("gamma", mean=1.0)
    beta, eta = stories.topics(corpus, 2, gamma), stories.coefficients(2)
    zbar = models.draw_words(corpus, stories.proportions(corpus, 2, alpha), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)


@pytest.mark.slow
def test_gibbs_agrees_with_the_sum_over_all_topics():
    corpus, y = stories.tiny()
    draws, weights = Exact(wide, corpus, y).by_weights(100_000)
    assert 1 / (weights**2).sum() > 500  # enough of them count
    fit = inference.gibbs(wide, corpus, y, num_warmup=250, num_samples=4000, num_chains=2, seed=3, progress_bar=False)
    apart = standard_errors_apart(summaries(fit.draws), summaries(draws, weights))
    assert max(apart.values()) < APART, apart


def rounded(values, corpus, y):
    """Quantities without theta's last digits: under a small alpha it is 1 but for them, and rounding decides the rank."""
    _, term = corpus.tokens()
    shares = jnp.round(1000 * values["theta"])
    found = {"alpha[0]": values["alpha"][0], "sum of alpha": values["alpha"].sum(), "gamma": values["gamma"]}
    found |= {"theta[0, 0]": shares[0, 0], "sum of theta^2": (shares**2).sum()}
    found |= {"beta[0, 0]": jnp.round(1000 * values["beta"][0, 0]), "sum of beta^2": (values["beta"] ** 2).sum()}
    return found | {"first words in first topic": ((values["z"] == 0) * (term == 0)).sum().astype(float)}


GEWEKE = {
    "lda": (models.lda, {"num_topics": 2, **LEARNED}), "wide": (wide, {}), "collapsed": (wide, {"collapse": "topics"}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", GEWEKE)
def test_the_joint_distribution_stays(name, monkeypatch):
    monkeypatch.setattr(calibration, "LEVEL", 1e-5)
    story, options = GEWEKE[name]
    settings = {"num_chains": 1200, "num_steps": 50, "quantities": rounded, "progress_bar": False}
    table = geweke(story, SHAPE, **settings, **options)
    assert table["passes"].all(), table.to_string()


@pytest.mark.slow
def test_topics_drawn_under_another_gamma_than_the_last_are_caught(monkeypatch):
    """As they would be, were gamma drawn between topics and the sweep that reads them."""
    right = DirichletBlock.conditional

    def other(self, values, data):
        return right(self, {**values, "gamma": 0.5 * values["gamma"]}, data)

    monkeypatch.setattr(DirichletBlock, "conditional", other)
    table = geweke(wide, SHAPE, num_chains=1200, num_steps=50, quantities=rounded, progress_bar=False)
    assert not table["passes"].all(), table.to_string()


@pytest.mark.slow
def test_ranks_are_uniform(monkeypatch):
    monkeypatch.setattr(calibration, "LEVEL", 1e-4)
    monkeypatch.setattr(calibration, "_null_excursions", partial(calibration._null_excursions, repeats=100_000))
    settings = {"thinning": 10, "num_simulations": 150, "progress_bar": False}
    found = calibrate(wide, SHAPE, **settings)
    assert found.passes, found


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gibbs", "nuts", "svi", "vem"])
def test_every_engine_learns_concentrations(engine, simulated):
    settings = {
        "gibbs": {"num_warmup": 200, "num_samples": 100, "num_chains": 1},
        "nuts": {"num_warmup": 60, "num_samples": 30, "num_chains": 1, "max_tree_depth": 5},
        "svi": {"num_steps": 1500, "num_draws": 50},
        "vem": {},
    }[engine]
    fit = getattr(inference, engine)(models.lda, simulated, num_topics=3, progress_bar=False, **settings, **LEARNED)
    alpha = fit.draws["alpha"].reshape(-1, 3)
    assert np.isfinite(alpha).all() and (alpha > 0).all()
    if engine != "nuts":  # which has not come far after so few draws
        assert 0.5 < np.mean(alpha.sum(1)) < 2.5 and 0.1 < np.mean(fit.draws["gamma"]) < 0.35
    assert np.isfinite(perplexity(fit, simulated[:5], most_draws=2).perplexity)


@pytest.mark.slow
def test_chains_of_alpha_mix(simulated):
    """Given theta NUTS diverged in most draws; given counts a chain forgets within some sweeps."""
    fit = inference.gibbs(
        models.lda, simulated, num_topics=3, num_warmup=300, num_samples=600, progress_bar=False, **LEARNED
    )
    total = fit.draws["alpha"].sum(-1)
    for chain in total:
        steps = chain - chain.mean()
        assert (steps[10:] * steps[:-10]).mean() / steps.var() < 0.8
    assert "diverging" not in fit.statistics
