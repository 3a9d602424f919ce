"""Simulation-based calibration and Geweke's test: of the engines, and of the tests themselves."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import Calibration, calibrate, geweke
from topiczoo.inference import Trials, sweep, trials
from topiczoo.inference.augmented_block import AugmentedBlock
from topiczoo.inference.blocks import Block

SHAPE = Corpus.from_counts(
    np.random.default_rng(0).poisson(1.2, (6, 5)) + np.eye(6, 5, dtype=int)
)  # 5 to 10 tokens each
FLAT = {"num_topics": 2, "alpha": 1.0, "gamma": 1.0, "progress_bar": False}

EXACT = [
    pytest.param(models.lda, {}, id="lda-gibbs"),
    pytest.param(models.mixture, {}, id="mixture-gibbs", marks=pytest.mark.slow),
    pytest.param(models.slda, {}, id="slda-gibbs", marks=pytest.mark.slow),
    pytest.param(models.lda, {"collapse": "topics"}, id="lda-collapsed", marks=pytest.mark.slow),
    pytest.param(models.slda, {"collapse": "topics"}, id="slda-collapsed", marks=pytest.mark.slow),
    pytest.param(models.sstm, {}, id="sstm-gibbs", marks=pytest.mark.slow),
    pytest.param(models.sstm, {"response": "probit", "sigma": 0.5}, id="sstm-probit-gibbs", marks=pytest.mark.slow),
    pytest.param(
        models.medlda, {"margin": "partial", "epsilon": 0.3}, id="medlda-partial-gibbs", marks=pytest.mark.slow
    ),
    pytest.param(models.mixture, {"engine": "nuts"}, id="mixture-nuts", marks=pytest.mark.slow),
    pytest.param(models.lda, {"engine": "nuts"}, id="lda-nuts", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("story", "options"), EXACT)
def test_ranks_are_uniform(story, options):
    cheaper = {"thinning": 10, "num_simulations": 150}
    if options.get("engine") == "nuts":  # it is dear side by side and its draws are nearly independent
        cheaper = {"thinning": 3, "num_simulations": 100}
    if "response" in options:  # little is learned from six classes: the scale of eta wanders, and ranks want free draws
        cheaper = {"thinning": 60, "num_warmup": 600, "num_simulations": 120}
    found = calibrate(story, SHAPE, **options, **FLAT, **cheaper)
    assert found.passes, found
    assert len(found.table) >= 4


@pytest.mark.parametrize(("story", "options"), EXACT)
def test_the_joint_distribution_stays(story, options):
    chains = 500 if options.get("engine") == "nuts" else 1200
    table = geweke(story, SHAPE, **options, **FLAT, num_chains=chains, num_steps=25 if chains == 500 else 50)
    assert table["passes"].all(), table.to_string()


def wrong_exponent(monkeypatch):
    right = sweep.BlockSweep.response
    monkeypatch.setattr(sweep.BlockSweep, "response", lambda self, lanes: 2 * right(self, lanes))


def forgotten_decrement(monkeypatch):
    right = sweep.BlockSweep.move
    monkeypatch.setattr(sweep.BlockSweep, "move", lambda self, lanes, topic, step: right(self, lanes, topic, abs(step)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breakage", "story"),
    [(wrong_exponent, models.slda), (forgotten_decrement, models.lda)],
    ids=["exponent", "decrement"],
)
@pytest.mark.parametrize("test", ["calibrate", "geweke"])
def test_broken_samplers_are_caught(monkeypatch, breakage, story, test):
    breakage(monkeypatch)
    if test == "calibrate":
        found = calibrate(story, SHAPE, **FLAT)
        assert not found.passes, found
    else:
        table = geweke(story, SHAPE, **FLAT)
        assert not table["passes"].all(), table.to_string()


class PrintedOrder(Block):
    """Topics without the auxiliary variables of a probit response, then eta given those of the former topics."""

    def __init__(self, eta, topics):
        super().__init__(None, eta.reading, [*topics.sites, *eta.sites])
        self.eta, self.topics = eta, topics

    def draw(self, key, values, corpus, y):
        keys = jax.random.split(key, 3)
        older = self.eta.auxiliary(keys[0], 0, values, corpus, y)
        moved, _ = self.topics.draw(keys[1], values, corpus, y)
        conditional, unravel = self.eta.conditional(older, {**values, **moved}, corpus, y)
        return {**moved, **unravel(conditional.sample(keys[2]))}, {}


@pytest.mark.slow
def test_coefficients_from_an_auxiliary_variable_older_than_the_topics_are_caught(monkeypatch):
    """The order in which the paper on sparse supervised topics prints its sampler."""
    right = trials.choose_blocks

    def wrong(reading, **options):
        plan = right(reading, **options)
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


def test_rank_plot():
    import matplotlib

    matplotlib.use("agg")
    figure = Calibration(ranks(1.0), 63, "title").plot()
    assert len(figure.axes) == 2


def test_simulated_corpora_have_the_shape_asked_for():
    import jax

    trials = Trials(models.slda, SHAPE, num_topics=2)
    one = trials.simulate(jax.random.key(1))
    corpus = trials.corpus(one.terms, SHAPE)
    assert (corpus.lengths == SHAPE.lengths).all() and corpus.num_terms == SHAPE.num_terms
    assert one.y.shape == (6,) and one.values["z"].shape == (SHAPE.num_tokens,)
    blocks = trials.documents(one.terms).blocks
    laid = np.asarray(blocks.terms)[np.asarray(blocks.terms) < SHAPE.num_terms]
    assert (np.bincount(laid, minlength=5) == np.bincount(one.terms, minlength=5)).all()


def test_bad_input():
    with pytest.raises(ValueError, match="engine is 'mcmc'; give one of 'gibbs', 'nuts', 'svi'"):
        calibrate(models.lda, SHAPE, "mcmc", num_topics=2)
    with pytest.raises(ValueError, match="engine is 'svi'; Geweke's test is for MCMC"):
        geweke(models.lda, SHAPE, "svi", num_topics=2)
