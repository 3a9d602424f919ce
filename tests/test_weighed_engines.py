"""A weight of the response in vem, svi and nuts: powered densities by hand, and scales that held-out documents tell."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.special import logsumexp
from scipy.stats import dirichlet, kstest
from stories import proportions, topics
from test_response_weight import weighed_inside

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.loop import ascend
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.marginal.model import Marginal
from topiczoo.inference.marginal.scales import HeldOutScales
from topiczoo.inference.marginal.svi_engine import Batches
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.mcmc.weighing import counting, hold_out, scales_of, with_weight
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import draw_words, lda, medlda, slda, slda_glm

RNG = np.random.default_rng(5)
CORPUS = Corpus.from_counts(RNG.poisson(0.7, (45, 4)) + (np.arange(4) == 0))
Y = RNG.normal(size=45).astype(np.float32)
K, WEIGHT, SIGMA, ETA = 2, 3.0, 0.8, np.array([-1.0, 1.4])
BETA, THETA = RNG.dirichlet(np.ones(4), K), RNG.dirichlet(np.ones(K), 45)
VALUES = {
    "beta": jnp.asarray(BETA, jnp.float32), "theta": jnp.asarray(THETA, jnp.float32),
    "eta": jnp.asarray(ETA, jnp.float32), "sigma": jnp.float32(SIGMA),
}  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    """Supervised LDA of 45 documents, of which 20 are held out."""
    return with_weight(read(slda, CORPUS, Y, {"num_topics": K}), WEIGHT)


@pytest.fixture(scope="module")
def held_out(graph):
    return np.isin(np.arange(45), graph.held_out)


def moments():
    """Mean and variance of each document's predictor given its words, by loops."""
    mean, variance = np.zeros(45), np.zeros(45)
    for d, row in enumerate(CORPUS.counts.toarray()):
        for v, count in enumerate(row):
            phi = THETA[d] * BETA[:, v] / (THETA[d] @ BETA[:, v])
            mean[d] += count * (phi @ ETA)
            variance[d] += count * (phi @ (ETA - phi @ ETA) ** 2)
    length = CORPUS.lengths
    return mean / length, variance / length**2


def expected_log(mean, variance, sigma):
    """E[log N(y; x, sigma^2)] of each document."""
    return -0.5 * np.log(2 * np.pi * sigma**2) - ((Y - mean) ** 2 + variance) / (2 * sigma**2)


def test_some_documents_are_held_out_and_scales_are_positive_numbers_that_responses_alone_read(graph, held_out):
    assert held_out.sum() == 20 and scales_of(graph) == ["sigma"]
    assert scales_of(read(slda, CORPUS, Y, {"num_topics": K})) == []  # of the posterior nothing is held out

    def others(corpus, y=None):
        tau = numpyro.sample("tau", dist.HalfNormal(1))  # above eta
        level = numpyro.sample("level", dist.Normal(0, 1))  # of the response, and no scale
        sigma = numpyro.sample("sigma", dist.Gamma(2, 2).expand([2]).to_event(1))
        eta = numpyro.sample("eta", dist.Normal(0, tau).expand([2]).to_event(1))
        zbar = draw_words(corpus, proportions(corpus, 2), topics(corpus, 2))
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", dist.Normal(zbar @ eta + level, sigma[0] + sigma[1]), obs=y)

    assert scales_of(with_weight(read(others, CORPUS, Y, {}), 2)) == ["sigma"]


@pytest.mark.parametrize("average", ["density", "log"])
def test_the_density_of_nuts_and_svi_is_that_of_the_power_written_into_the_story(average):
    corpus, y = CORPUS[:6], Y[:6]
    values = {name: VALUES[name] for name in ("beta", "eta")} | {"theta": VALUES["theta"][:6]}
    data = documents(corpus, pairs=True), jnp.asarray(y)

    def density(graph):
        model = Marginal(graph, nodes=9, average=average)
        return float(jax.jit(lambda values: log_density(model, data, {}, values)[0])(values))

    by_engine = density(with_weight(read(weighed_inside, corpus, y, {"power": 1.0}), 4))
    assert by_engine == pytest.approx(density(read(weighed_inside, corpus, y, {"power": 4.0})), rel=1e-6)
    assert abs(by_engine - density(read(weighed_inside, corpus, y, {"power": 1.0}))) > 1


def test_the_bound_of_svi_has_kept_documents_at_the_power_and_those_held_out_once(graph, held_out):
    """By loops; and in its slope scales are moved by the documents held out alone, and coefficients by all others."""
    data = counting(graph, documents(CORPUS, pairs=True)), jnp.asarray(Y)
    model, plain = (Marginal(g, nodes=3, average="log") for g in (graph, read(slda, CORPUS, Y, {"num_topics": K})))

    def density(model, values):
        return log_density(model, data, {}, {**VALUES, **values})[0]

    here = {name: VALUES[name] for name in ("sigma", "eta")}
    found, slope = jax.jit(jax.value_and_grad(partial(density, model)))(here)
    unweighed = float(jax.jit(partial(density, plain))(here))
    mean, variance = moments()
    terms = expected_log(mean, variance, SIGMA)
    by_hand = unweighed - terms.sum() + WEIGHT * terms[~held_out].sum() + terms[held_out].sum()
    assert float(found) == pytest.approx(by_hand, rel=1e-5)
    # sigma ~ HalfNormal(1)
    squares = ((Y - mean) ** 2 + variance)[held_out]
    assert float(slope["sigma"]) == pytest.approx((squares / SIGMA**3 - 1 / SIGMA).sum() - SIGMA, rel=1e-3)
    # as a slice of a corpus three times as large

    def thrice(sigma):
        return log_density(model, data, {"scale": 3.0}, {**VALUES, "sigma": sigma})[0]

    expected = 3 * (squares / SIGMA**3 - 1 / SIGMA).sum() - SIGMA
    assert float(jax.jit(jax.grad(thrice))(here["sigma"])) == pytest.approx(expected, rel=1e-3)
    step = 1e-4
    for k in range(K):
        around = []
        for sign in (1, -1):
            ETA[k] += sign * step
            around.append(WEIGHT * expected_log(*moments(), SIGMA)[~held_out].sum() - (ETA**2).sum() / 8)
            ETA[k] -= sign * step
        assert float(slope["eta"][k]) == pytest.approx((around[0] - around[1]) / (2 * step), rel=1e-3, abs=1e-3)


def test_under_a_class_scales_follow_from_the_class_posterior_of_documents_held_out():
    """By hand: log sum_c p(c | theta, w) exp E[log N(y; x + c, sigma^2)] of each document held out."""
    alphas = np.array([[0.5, 2.0], [3.0, 1.0]])

    def of_two(corpus, y=None):
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        eta = numpyro.sample("eta", dist.Normal(0, 2).expand([2]).to_event(1))
        with numpyro.plate("topics", 2):
            beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
        plate = numpyro.plate("documents", corpus.num_documents)
        with plate:
            c = numpyro.sample("c", dist.Categorical(jnp.array([0.3, 0.7])))
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.asarray(alphas)[c]))
        zbar = draw_words(corpus, theta, beta)
        with plate:
            numpyro.sample("y", dist.Normal(zbar @ eta + c, sigma), obs=y)

    graph = with_weight(read(of_two, CORPUS, Y, {}), WEIGHT)
    held_out = np.isin(np.arange(45), graph.held_out)
    data = counting(graph, documents(CORPUS, pairs=True)), jnp.asarray(Y)
    model = Marginal(graph, nodes=3, average="log")
    slope = jax.jit(jax.grad(lambda sigma: log_density(model, data, {}, {**VALUES, "sigma": sigma})[0]))
    mean, variance = moments()
    before = np.log([[0.3], [0.7]]) + np.array([[dirichlet.logpdf(row, alpha) for row in THETA] for alpha in alphas])

    def by_hand(sigma):
        terms = np.stack([expected_log(mean + c, variance, sigma) for c in (0, 1)])
        return (logsumexp(before + terms, axis=0) - logsumexp(before, axis=0))[held_out].sum() - sigma**2 / 2

    step = 1e-4
    expected = (by_hand(SIGMA + step) - by_hand(SIGMA - step)) / (2 * step)
    assert float(slope(jnp.float32(SIGMA))) == pytest.approx(expected, rel=2e-3)
    found = jax.jit(lambda sigma: model.scale_density(*data, VALUES)({"sigma": sigma}))
    apart = float(found(jnp.float32(1.5))) - float(found(jnp.float32(SIGMA)))
    assert apart == pytest.approx(by_hand(1.5) - by_hand(SIGMA), rel=2e-3)


def held_out_density(sigma, held_out, mean, variance):
    """log of the prior and of E[p(y | x, sigma)] over nine Gauss-Hermite points, of documents held out."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    points = mean + np.sqrt(variance) * nodes[:, None]
    logs = -0.5 * ((Y - points) / sigma) ** 2 - np.log(sigma)
    return logsumexp(logs, axis=0, b=weights[:, None] / weights.sum())[held_out].sum() - sigma**2 / 2


def test_nuts_draws_scales_given_documents_held_out(graph, held_out):
    """One step from each of 6,000 exact draws of sigma, all else fixed, leaves its law; Kolmogorov-Smirnov at 1e-7."""
    block = HeldOutScales(Marginal(graph, nodes=9, average="density"), "sigma")
    data = Data(counting(graph, documents(CORPUS, pairs=True)), jnp.asarray(Y))
    places = np.linspace(0.3, 4.0, 2000)
    of_words = moments()
    logs = np.array([held_out_density(place, held_out, *of_words) for place in places])
    found = jax.jit(jax.vmap(lambda sigma: block.log_density(VALUES, data)({"sigma": sigma})))(places[::250])
    np.testing.assert_allclose(np.diff(found), np.diff(logs[::250]), rtol=1e-3)
    cumulated = np.cumsum(np.exp(logs - logs.max()))
    cumulated /= cumulated[-1]
    exact = np.interp(np.random.default_rng(0).random(6000), cumulated, places)
    step = jax.vmap(lambda key, sigma: block.draw(key, {**VALUES, "sigma": sigma}, data)[0]["sigma"])
    new = np.asarray(jax.jit(step)(jax.random.split(jax.random.key(1), 6000), jnp.asarray(exact, jnp.float32)))
    assert kstest(new, lambda x: np.interp(x, places, cumulated)).pvalue > 1e-7
    assert (np.abs(new - exact) > 1e-3).mean() > 0.9


def test_a_batch_of_svi_knows_which_of_its_documents_are_held_out(graph):
    taken, _, _ = Batches(CORPUS, Y, 5, graph.held_out).take(np.arange(5, 10))
    np.testing.assert_array_equal(np.asarray(taken.counted), ~np.isin(np.arange(5, 10), graph.held_out))
    assert Batches(CORPUS, Y, 5).take(np.arange(5))[0].counted is None


def test_gibbs_draws_by_slices_a_scale_that_nuts_would_draw(held_out):
    """Cauchy's scale has no conditional in closed form, and would be drawn with the coefficients, at the power."""

    def heavy(corpus, y=None):
        eta = numpyro.sample("eta", dist.Normal(0, 1).expand([2]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(1))
        zbar = draw_words(corpus, proportions(corpus, 2), topics(corpus, 2))
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", dist.Cauchy(zbar @ eta, spread), obs=y)

    graph = with_weight(read(heavy, CORPUS, Y, {}), WEIGHT)
    plan = choose_blocks(graph)
    assert "spread" in plan.by_nuts
    data = Data(documents(CORPUS, batches=True), jnp.asarray(Y))
    plan, data = hold_out(plan, data)
    assert plan.describe()["spread"] == "slice draw" and "spread" not in plan.by_nuts
    (block,) = [block for block in plan.blocks if block.sites == ("spread",)]
    shares = np.random.default_rng(2).dirichlet(np.ones(2), 45).astype(np.float32)
    z = SimpleNamespace(document_topic=jnp.asarray(shares * CORPUS.lengths[:, None]))
    values = {**VALUES, "z": z, "spread": jnp.float32(1.0)}
    densities = jax.jit(jax.vmap(lambda spread: block.log_density(values, block.given(data))({"spread": spread})))
    places = np.array([0.3, 0.9, 2.0], np.float32)
    away = (Y - shares @ ETA)[held_out]
    expected = [-np.log(s * (1 + (away / s) ** 2)).sum() - s**2 / 2 for s in places]
    np.testing.assert_allclose(np.diff(densities(places)), np.diff(expected), rtol=1e-3)


def copies(corpus, y=None, *, number=1):
    """Supervised LDA with a known scale, and its response so many times."""
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("topics", 3):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    plate = numpyro.plate("documents", corpus.num_documents)
    with plate:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(3, 0.5)))
    zbar = draw_words(corpus, theta, beta)
    x = zbar @ eta
    with plate:
        for copy in range(number):
            numpyro.sample(f"y{copy}", dist.Normal(x, 0.6), obs=y)


@pytest.mark.slow
def test_vem_with_weight_2_is_vem_with_each_response_twice():
    settings = {"num_iterations": 4, "progress_bar": False, "tolerance": 0.0}
    once = inference.vem(copies, CORPUS[:30], Y[:30], response_weight=2, **settings)
    twice = inference.vem(copies, CORPUS[:30], Y[:30], number=2, **settings)
    assert once.info["response_weight"] == 2 and once.info["held_out"] == []  # of 30 documents none can be spared
    np.testing.assert_allclose(once.info["bound"], twice.info["bound"], rtol=1e-5)
    np.testing.assert_allclose(once.draws["eta"], twice.draws["eta"], rtol=1e-3, atol=1e-3)


def test_vem_estimates_scales_from_documents_held_out_and_their_words_alone(graph, held_out):
    """The M-step's sigma is where the slope of held-out documents' log-density and the prior's is 0; they have no tilt."""
    model = EMModel(graph, Settings())
    state = model.e_step(model.start(np.random.default_rng(0)), fresh=True)
    tilts = np.abs(np.asarray(state.local.tilt)).max(1)
    assert tilts[held_out].max() == 0 and tilts[~held_out].min() > 0
    _, parts = model.response.move_eta(model.words, model.topics.log_mean(state.topics), state)
    sigma = float(model.response.m_step(model.words, model.topics.log_mean(state.topics), state)["sigma"])
    (_, _, mean, covariance) = parts[0]
    squares = ((Y - np.asarray(mean)[:, 0]) ** 2 + np.asarray(covariance)[:, 0, 0])[held_out]
    slope = squares.sum() / sigma**3 - 20 / sigma - sigma  # HalfNormal(1)
    assert abs(slope) < 0.02 * squares.sum() / sigma**3
    # what that does to the bound of the documents that are kept; given it, a turn raises the bound
    moved, old = model.m_step(state, fresh=True), float(state.response["sigma"])
    each = [expected_log(np.asarray(mean)[:, 0], np.asarray(covariance)[:, 0, 0], s)[~held_out] for s in (sigma, old)]
    shift = WEIGHT * (each[0] - each[1]).sum() - (sigma**2 - old**2) / 2
    assert abs(shift) > 1 and moved.shift == pytest.approx(shift, rel=2e-3)
    before = model.bound(state) + moved.shift
    assert model.bound(model.e_step(moved, fresh=False)) > before - 1e-6 * abs(before)


class Shifted(NamedTuple):
    bound: float
    shift: float


class Script:
    """A model whose bound is put elsewhere by scales in each M-step, and then rises in the E-step, both as told."""

    monotone, afresh = True, False

    def __init__(self, shifts, rises):
        self.shifts, self.rises = iter(shifts), iter([0.0, *rises])

    def e_step(self, state, fresh):
        return state._replace(bound=state.bound + state.shift + next(self.rises))

    def m_step(self, state, fresh):
        return state._replace(shift=next(self.shifts))

    def bound(self, state):
        return state.bound


def test_the_turns_of_em_count_a_rise_from_where_scales_have_put_the_bound():
    """A fall that scales have made is none; and EM does not rest before they do."""
    script = Script(shifts=[-30.0, -20.0, 5.0, 0.0], rises=[10.0, 1e-6, 1e-6, 1e-6])
    _, info = ascend(script, Shifted(-100.0, 0.0), None, 50, 1e-3, False)
    np.testing.assert_allclose(info["bound"], [-100, -120, -140, -135, -135], atol=1e-4)
    assert info["converged"] and "warning" not in info


def test_vem_starts_where_held_out_responses_are_not_known(graph, held_out):
    """Other responses of the documents held out change nothing of the start."""
    other = np.where(held_out, -5 * Y, Y).astype(np.float32)
    again = with_weight(read(slda, CORPUS, other, {"num_topics": K}), WEIGHT)
    starts = [EMModel(g, Settings()).start(np.random.default_rng(0)).topics for g in (graph, again)]
    np.testing.assert_array_equal(*starts)


def test_the_weight_of_a_margin_is_that_of_its_loss():
    y = (Y > 0).astype(float)
    given = {"num_topics": 3, "margin": "binary"}
    weighed = EMModel(with_weight(read(medlda, CORPUS[:30], y[:30], {**given, "weight": 2.0}), 4), Settings())
    plain = EMModel(read(medlda, CORPUS[:30], y[:30], {**given, "weight": 8.0}), Settings())
    assert float(weighed.response.parameters["weight"]) == float(plain.response.parameters["weight"]) == 8
    whole = with_weight(read(medlda, CORPUS, y, given), 4)
    labelled = EMModel(whole, Settings()).response.labelled
    np.testing.assert_array_equal(labelled, ~np.isin(np.arange(45), whole.held_out))


@pytest.mark.parametrize("engine", ["gibbs", "nuts", "svi", "vem"])
def test_every_engine_refuses_a_weight_that_is_none_and_a_story_without_a_response(engine):
    fit = getattr(inference, engine)
    with pytest.raises(ValueError, match=r"^response_weight is 0; give a number above 0, 1 for the posterior.$"):
        fit(slda, CORPUS, Y, num_topics=2, response_weight=0)
    with pytest.raises(ValueError, match="response_weight is 2, and the story 'lda' has no response of topics"):
        fit(lda, CORPUS, num_topics=2, response_weight=2)


def test_vem_refuses_a_weight_where_it_has_none():
    with pytest.raises(ValueError, match="order='sequential' knows no weight of the response; leave order out"):
        inference.vem(slda, CORPUS, Y, num_topics=2, response_weight=2, order="sequential")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("vem", {}),
        pytest.param("svi", {"num_steps": 800}, marks=pytest.mark.longest),
        pytest.param(
            "nuts",
            {"num_warmup": 60, "num_samples": 60, "num_chains": 1, "max_tree_depth": 5},
            marks=pytest.mark.longest,
        ),
    ],
)
def test_the_scale_does_not_fall_with_topics_that_follow_the_response(engine, settings):
    """Responses that have nothing to do with words: their deviation is 1, of 20 held-out ones known to 20%."""
    rng = np.random.default_rng(3)
    corpus, y = Corpus.from_counts(rng.poisson(1.0, (150, 10)) + (np.arange(10) == 0)), rng.normal(size=150)
    fit = getattr(inference, engine)(slda, corpus, y, num_topics=3, response_weight=20, progress_bar=False, **settings)
    assert len(fit.info["held_out"]) == 20 and fit.info["response_weight"] == 20
    assert 0.4 < fit.draws["sigma"].mean() < 2.5 and not fit.story.weighed


@pytest.mark.slow
def test_nuts_draws_a_scale_and_all_else_in_turn():
    """The scale by the documents held out, in one kernel with coefficients and proportions."""
    fit = inference.nuts(
        slda, CORPUS, Y, num_topics=2, response_weight=3, num_warmup=3, num_samples=4, num_chains=1, max_tree_depth=2,
        progress_bar=False,
    )  # fmt: skip
    assert len(fit.info["held_out"]) == 20 and {"sigma", "eta", "beta"} <= set(fit.draws)
    assert len(np.unique(fit.draws["sigma"])) > 2 and np.isfinite(fit.draws["eta"]).all()


@pytest.mark.longest
def test_a_response_without_a_scale_is_weighed_all_the_same():
    y = (Y > 0).astype(float)
    for engine, settings in (
        ("svi", {"num_steps": 60}),
        ("nuts", {"num_warmup": 10, "num_samples": 10, "num_chains": 1}),
    ):
        fit = getattr(inference, engine)(
            slda_glm, CORPUS, y, num_topics=2, response="logit", response_weight=2, progress_bar=False, **settings
        )
        assert np.isfinite(fit.draws["eta"]).all() and len(fit.info["held_out"]) == 20
