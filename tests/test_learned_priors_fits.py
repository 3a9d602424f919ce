"""Concentrations of Dirichlet priors that a story draws, in variational EM and in whole fits of every engine.

Limits: the exact posterior at 5 standard errors, some 10 comparisons (6e-6), Geweke's test at 1e-5 and ranks at 1e-4.
"""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from exact import Exact, standard_errors_apart, summaries
from lengths import longest_but
from scipy import optimize, stats
from test_calibration import SHAPE
from test_learned_priors import CORPUS, LEARNED, SLICE, log_counts, of_documents_too

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import calibrate, geweke
from topiczoo.diagnostics.checks import calibration
from topiczoo.diagnostics.scoring.held_out import perplexity
from topiczoo.inference.blocks.conjugate import DirichletBlock
from topiczoo.inference.em import priors as em_priors
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read

APART = 5.0


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


@pytest.mark.slow
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


@pytest.mark.slow
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
@pytest.mark.longest
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
@pytest.mark.parametrize("name", longest_but(GEWEKE))
def test_the_joint_distribution_stays(name, monkeypatch):
    monkeypatch.setattr(calibration, "LEVEL", 1e-5)
    story, options = GEWEKE[name]
    settings = {"num_chains": 1200, "num_steps": 50, "quantities": rounded, "progress_bar": False}
    table = geweke(story, SHAPE, **settings, **options)
    assert table["passes"].all(), table.to_string()


@pytest.mark.slow
@pytest.mark.longest
def test_topics_drawn_under_another_gamma_than_the_last_are_caught(monkeypatch):
    """As they would be, were gamma drawn between topics and the sweep that reads them."""
    right = DirichletBlock.conditional

    def other(self, values, data):
        return right(self, {**values, "gamma": 0.5 * values["gamma"]}, data)

    monkeypatch.setattr(DirichletBlock, "conditional", other)
    table = geweke(wide, SHAPE, num_chains=1200, num_steps=50, quantities=rounded, progress_bar=False)
    assert not table["passes"].all(), table.to_string()


@pytest.mark.slow
@pytest.mark.longest
def test_ranks_are_uniform(monkeypatch):
    monkeypatch.setattr(calibration, "LEVEL", 1e-4)
    monkeypatch.setattr(calibration, "_null_excursions", partial(calibration._null_excursions, repeats=100_000))
    settings = {"thinning": 10, "num_simulations": 150, "progress_bar": False}
    found = calibrate(wide, SHAPE, **settings)
    assert found.passes, found


@pytest.mark.slow
@pytest.mark.parametrize("engine", longest_but(["gibbs", "nuts", "svi", "vem"], "gibbs", "vem"))
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
@pytest.mark.longest
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
