"""Simulation-based calibration and Geweke's test: of the engines, and of the tests themselves."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import known_parameters as known
import numpy as np
import pandas as pd
import pytest
from lengths import longest_but
from scipy import stats

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import Calibration, calibrate, geweke
from topiczoo.diagnostics.checks import calibration
from topiczoo.inference import Trials
from topiczoo.inference import simulation as trials
from topiczoo.inference.blocks.augmented import AugmentedBlock
from topiczoo.inference.blocks.block import Block
from topiczoo.inference.kernels import sweep
from topiczoo.inference.story.graph import StoryGraph

SHAPE = Corpus.from_counts(
    np.random.default_rng(0).poisson(1.2, (6, 5)) + np.eye(6, 5, dtype=int)
)  # 5 to 10 tokens each
FLAT = {"num_topics": 2, "alpha": 1.0, "gamma": 1.0, "progress_bar": False}

EXACT = {
    "lda-gibbs": (models.lda, {}),
    "mixture-gibbs": (models.mixture, {}),
    "slda-gibbs": (models.slda, {}),
    "slda-collapsed": (models.slda, {"collapse": "topics"}),
    "sstm-gibbs": (models.sstm, {}),
    "sstm-probit-gibbs": (models.sstm, {"response": "probit", "sigma": 0.5}),
    "medlda-partial-gibbs": (models.medlda, {"margin": "partial", "epsilon": 0.3}),
    "mixture-nuts": (models.mixture, {"engine": "nuts"}),
    "lda-nuts": (models.lda, {"engine": "nuts"}),
}


@pytest.mark.slow
@pytest.mark.longest
@pytest.mark.parametrize("name", ["slda-gibbs", "mixture-nuts"])  # Geweke's test, below, has more power for the time
def test_ranks_are_uniform(name, monkeypatch):
    """At a level of 1e-4 for all quantities of a story together, for which the null law must be known so far out."""
    monkeypatch.setattr(calibration, "LEVEL", 1e-4)
    monkeypatch.setattr(calibration, "_null_excursions", partial(calibration._null_excursions, repeats=100_000))
    story, options = EXACT[name]
    cheaper = {"thinning": 10, "num_simulations": 150}
    if options.get("engine") == "nuts":  # it is dear side by side and its draws are nearly independent
        cheaper = {"thinning": 3, "num_simulations": 100}
    found = calibrate(story, SHAPE, **options, **FLAT, **cheaper)
    assert found.passes, found
    assert len(found.table) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(EXACT, "slda-gibbs"))
def test_the_joint_distribution_stays(name, monkeypatch):
    """At a level of 1e-5 for all quantities of a story together."""
    monkeypatch.setattr(calibration, "LEVEL", 1e-5)
    story, options = EXACT[name]
    chains = 500 if options.get("engine") == "nuts" else 1200
    table = geweke(story, SHAPE, **options, **FLAT, num_chains=chains, num_steps=25 if chains == 500 else 50)
    assert table["passes"].all(), table.to_string()


class Toy:
    """mu ~ N(0, 1) and three responses ~ N(mu, 1) in the place of a story: the posterior is N(sum y / 4, 1/4)."""

    graph: ClassVar = StoryGraph.from_dims({"mu": ()})
    scale, shift = 1.0, 0.0  # of an engine that may be wrong

    def __init__(self, story, corpus, **options):
        pass

    def simulate(self, key, values=None):
        first, second = jax.random.split(key)
        mu = jax.random.normal(first) if values is None else values["mu"]
        return trials.Simulated({"mu": mu}, jnp.zeros(0, int), mu + jax.random.normal(second, (3,)))

    def documents(self, terms):
        return None

    def start(self, key, simulated, num_warmup=0, at_truth=False):
        return key, simulated.values["mu"] if at_truth else 9.0

    def step(self, state, simulated):
        key, draw_key = jax.random.split(state[0])
        deviation = self.shift + self.scale * jax.random.normal(draw_key)
        return key, simulated.y.sum() / 4 + deviation / 2

    def values(self, state, simulated):
        return {"mu": state[1]}


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1.5, 0.0), (0.65, 0.0), (1.0, 0.5), (1.0, -0.5)])
def test_right_and_wrong_engines_are_told_apart(monkeypatch, scale, shift):
    """At levels at which right engines fail in 3 of 10,000 (ranks) and 1 of a million (Geweke's test)."""
    monkeypatch.setattr(Toy, "scale", scale)
    monkeypatch.setattr(Toy, "shift", shift)
    monkeypatch.setattr(calibration, "Trials", Toy)
    quiet = {"progress_bar": False}
    monkeypatch.setattr(calibration, "LEVEL", 3e-4)
    found = calibrate(models.lda, SHAPE, num_simulations=600, num_draws=31, num_warmup=2, thinning=2, **quiet)
    passes = found.passes  # at this level
    monkeypatch.setattr(calibration, "LEVEL", 1e-6)
    table = geweke(models.lda, SHAPE, num_chains=600, num_steps=10, **quiet)
    right = (scale, shift) == (1.0, 0.0)
    assert passes == right, found
    assert table["passes"].all() == right, table
    assert len(found.ranks) == 600 and found.ranks["mu"].between(0, 31).all() and found.ranks["mu"].nunique() == 32
    (rank,), (place,) = found.table.to_dict("records"), table.to_dict("records")
    if shift:  # draws are too large, so the truth is below them
        assert (rank["mean_rank"] < 0.45) == (shift > 0) == (place["z_mean"] > 5)
    elif not right:  # too wide a posterior: the truth is in its middle
        assert (rank["spread"] < 1) == (scale > 1) == (place["z_spread"] > 3)


def wrong_exponent(monkeypatch):
    right = sweep.BatchSweep.response
    monkeypatch.setattr(sweep.BatchSweep, "response", lambda self, lanes: 2 * right(self, lanes))


def forgotten_decrement(monkeypatch):
    right = sweep.BatchSweep.move
    monkeypatch.setattr(sweep.BatchSweep, "move", lambda self, lanes, topic, step: right(self, lanes, topic, abs(step)))


@pytest.mark.slow
@pytest.mark.longest
@pytest.mark.parametrize(
    ("breakage", "story"),
    [(wrong_exponent, models.slda), (forgotten_decrement, models.lda)],
    ids=["exponent", "decrement"],
)
def test_broken_samplers_are_caught(monkeypatch, breakage, story):
    breakage(monkeypatch)
    table = geweke(story, SHAPE, **FLAT)
    assert not table["passes"].all(), table.to_string()


class PrintedOrder(Block):
    """Topics without the auxiliary variables of a probit response, then eta given those of the former topics."""

    def __init__(self, eta, topics):
        super().__init__(eta.graph, [*topics.sites, *eta.sites])
        self.eta, self.topics = eta, topics

    def draw(self, key, values, data):
        keys = jax.random.split(key, 3)
        older = self.eta.auxiliary(keys[0], 0, values, data)
        moved, _ = self.topics.draw(keys[1], values, data)
        conditional, unravel = self.eta.conditional(older, {**values, **moved}, data)
        return {**moved, **unravel(conditional.sample(keys[2]))}, {}


@pytest.mark.slow
@pytest.mark.longest
def test_coefficients_from_an_auxiliary_variable_older_than_the_topics_are_caught(monkeypatch):
    """The order in which the paper on sparse supervised topics prints its sampler."""
    right = trials.choose_blocks

    def wrong(graph, **options):
        plan = right(graph, **options)
        eta = next(block for block in plan.blocks if isinstance(block, AugmentedBlock))
        rest = [block for block in plan.blocks[:-1] if block is not eta]
        plan.blocks = [*rest, PrintedOrder(eta, plan.blocks[-1])]
        return plan

    monkeypatch.setattr(trials, "choose_blocks", wrong)
    table = geweke(models.sstm, SHAPE, response="probit", sigma=0.2, nu=1.0, **FLAT)
    assert not table["passes"].all(), table.to_string()


def ranks(shape, seed=0):
    """200 ranks among 63 draws: uniform where shape is 1."""
    return pd.DataFrame({"x": np.floor(64 * np.random.default_rng(seed).beta(shape, shape, 200)).astype(int)})


def test_level_and_power_of_the_rank_test():
    passed = [Calibration(ranks(1.0, seed), 63).passes for seed in range(100)]
    assert sum(passed) >= 95  # fails 1 in 100 of right engines
    assert not Calibration(ranks(0.6), 63).passes  # too narrow a posterior
    assert not Calibration(ranks(2.0), 63).passes  # too wide
    table = Calibration(ranks(2.0), 63).table
    assert table["spread"].iloc[0] < 0.9 and abs(table["mean_rank"].iloc[0] - 0.5) < 0.05


def test_the_level_is_shared_out_to_all_quantities():
    """Ranks that fail by themselves, at one in a hundred, and pass among twenty."""
    rng = np.random.default_rng(0)
    for shift in range(1, 30):
        ranks = np.minimum(rng.permutation(np.arange(200) % 64) + (np.arange(200) % 30 < shift) * 12, 63)
        alone = Calibration(pd.DataFrame({"one": ranks}), 63).table
        if calibration.LEVEL / 20 < alone["p"]["one"] < calibration.LEVEL:
            break
    assert calibration.LEVEL / 20 < alone["p"]["one"] < calibration.LEVEL and not alone["passes"]["one"]
    others = {f"q{i}": rng.integers(0, 64, 200) for i in range(19)}
    table = Calibration(pd.DataFrame({"one": ranks, **others}), 63).table
    assert table["p"]["one"] == alone["p"]["one"] and table["passes"]["one"]
    assert table["mean_rank"]["one"] == pytest.approx((ranks + 0.5).mean() / 64) and table["mean_rank"]["one"] > 0.5


def test_the_truth_has_any_place_among_draws_that_differ_from_it_by_rounding():
    drawn = jnp.asarray([0.2, *[np.float32(1 - 2e-7), np.float32(1 + 2e-7)] * 3, 1.5])
    ranks = np.asarray(
        jax.vmap(lambda key: calibration._rank(key, drawn, 1.0))(jax.random.split(jax.random.key(0), 700))
    )
    found = np.bincount(ranks, minlength=9)
    assert found[[0, 8]].sum() == 0 and (np.abs(found[1:8] - 100) < 6 * 9.3).all()


def test_geweke_knows_that_the_law_it_compares_with_is_itself_drawn(monkeypatch):
    """Chains whose averages have the error of few draws from the story in common."""
    monkeypatch.setattr(calibration, "PRIOR_DRAWS", 100)
    rng = np.random.default_rng(0)
    found = [
        calibration._z(rng.normal(0.5 + rng.normal(0, 0.1 / 12**0.5), 12**-0.5, 400), 0.5, 1 / 12) for _ in range(400)
    ]
    assert np.std(found) == pytest.approx(1, abs=0.2) and abs(np.mean(found)) < 0.3


def test_rank_plot():
    import matplotlib

    matplotlib.use("agg")
    figure = Calibration(ranks(1.0), 63, "title").plot()
    assert len(figure.axes) == 2
    many = pd.concat({f"x{i}": ranks(1.0, i)["x"] for i in range(8)}, axis=1)
    figure = Calibration(many, 63, "title").plot()  # in two rows: side by side eight would be too small to read
    assert sorted(axis.get_title() for axis in figure.axes) == [""] * 8 + list(many)
    assert figure.get_size_inches()[0] < 15


def test_simulated_corpora_have_the_law_of_the_story():
    """At known parameters. Means of 4000 simulations at 5.5 standard errors: fails of right code in 1e-6 runs."""
    trials = Trials(known.supervised, SHAPE)
    many = jax.jit(jax.vmap(trials.simulate))(jax.random.split(jax.random.key(1), 4000))
    z, terms, y = np.asarray(many.values["z"]), np.asarray(many.terms), np.asarray(many.y)
    document, theta = np.asarray(trials.document), known.ALPHA / known.ALPHA.sum()
    for k in range(known.K):  # topics by theta, words by their topics
        assert known.standard_errors(z == k, theta[k]).max() < 5.5
        own = np.where(z == k, 1.0, np.nan)[..., None] * np.eye(5)[terms]
        assert known.standard_errors(own[~np.isnan(own[..., 0])], known.BETA[k]).max() < 5.5
    zbar = np.stack([np.eye(known.K)[z][:, document == d].mean(1) for d in range(len(SHAPE))], 1)
    residual = y - zbar @ known.ETA
    assert known.standard_errors(residual, 0).max() < 5.5
    assert known.standard_errors(residual**2, known.SIGMA**2).max() < 5.5
    one = jax.tree.map(lambda leaf: leaf[0], many)
    corpus, batches = trials.corpus(one.terms, SHAPE), trials.documents(one.terms).batches
    assert (corpus.lengths == SHAPE.lengths).all() and corpus.num_terms == SHAPE.num_terms
    expected = np.zeros((len(SHAPE), 5), int)
    np.add.at(expected, (document, terms[0]), 1)
    np.testing.assert_array_equal(corpus.counts.toarray(), expected)
    np.testing.assert_array_equal(batches.of_tokens(batches.terms), terms[0])


def test_a_right_engine_fails_geweke_once_in_a_hundred_times():
    """Two numbers of each of five quantities, too far off to either side."""
    limit = stats.norm.isf(0.01 / 20)
    table = pd.DataFrame({"z_mean": [limit, -limit, 0, 0, 0], "z_spread": [0, 0, limit, -limit, 0]})
    assert calibration._judged(0.999 * table)["passes"].all()
    assert calibration._judged(1.001 * table)["passes"].tolist() == [False] * 4 + [True]


def test_bad_input():
    with pytest.raises(ValueError, match="engine is 'mcmc'; give one of 'gibbs', 'nuts', 'svi'"):
        calibrate(models.lda, SHAPE, "mcmc", num_topics=2)
    with pytest.raises(ValueError, match="engine is 'svi'; Geweke's test is for MCMC"):
        geweke(models.lda, SHAPE, "svi", num_topics=2)
