"""Proportions with concentrations next to 0, as NUTS moves them: their law, the density, and what a fit shows of it.

Limits: Kolmogorov-Smirnov tests at a level of 1e-6, some twenty of them: a right program fails with probability 1e-5.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import softmax

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.marginal.model import Marginal
from topiczoo.inference.marginal.proportions import by_gammas, parts_given, spread_out
from topiczoo.inference.simulation import Trials
from topiczoo.inference.story.reading import read

COUNTS = np.random.default_rng(0).poisson(1.0, (5, 6)) + 1
CORPUS = Corpus.from_counts(COUNTS)
LEVEL = 1e-6


@pytest.mark.parametrize("concentrations", [(0.5, 2.0, 3.0), (0.02, 0.1, 1.5), (1e-4, 1e-3, 2e-3)])
def test_shares_made_of_gammas_are_dirichlet(concentrations):
    a = np.array(concentrations)

    @jax.jit
    def drawn(key):
        with handlers.seed(rng_seed=key):
            return by_gammas("theta", dist.Dirichlet(jnp.broadcast_to(jnp.asarray(a, jnp.float32), (20_000, 3))))

    shares = np.asarray(drawn(jax.random.key(1)), float)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    rng = np.random.default_rng(0)
    for k in range(3):
        exact = stats.beta(a[k], a.sum() - a[k]).rvs(20_000, random_state=rng)
        found, exact = (np.clip(x, 1e-30, 1 - 1e-6) for x in (shares[:, k], exact))
        assert stats.ks_2samp(found, exact).pvalue > LEVEL, k


@pytest.mark.parametrize("concentrations", [(0.5, 2.0, 3.0), (0.02, 0.1, 1.5)])
def test_what_shares_are_made_of_is_drawn_given_them(concentrations):
    """Shares from their law, the two numbers given these: then the numbers have theirs, and make the shares."""
    a = jnp.asarray(concentrations)

    @jax.jit
    def drawn(key):
        shares_key, key = jax.random.split(key)
        theta = jax.random.dirichlet(shares_key, a, (20_000,))
        return theta, parts_given(key, "theta", theta, a)

    theta, parts = jax.tree.map(lambda value: np.asarray(value, float), drawn(jax.random.key(3)))
    gammas, powers = parts["theta~gammas"], parts["theta~powers"]
    np.testing.assert_allclose(softmax(np.log(gammas) - powers / concentrations, 1), theta, atol=2e-3)
    for k, concentration in enumerate(concentrations):
        assert stats.kstest(gammas[:, k], stats.gamma(concentration + 1).cdf).pvalue > LEVEL, k
        assert stats.kstest(powers[:, k], stats.expon.cdf).pvalue > LEVEL, k
    assert abs(np.corrcoef(gammas[:, 0], powers[:, 0])[0, 1]) < 0.05


@pytest.mark.parametrize("at_truth", [False, True])
def test_a_trial_has_the_shares_and_not_what_they_are_made_of(at_truth):
    trials = Trials("hdp", CORPUS, engine="nuts", num_topics=3, gamma=1.0)
    simulated = jax.jit(trials.simulate)(jax.random.key(4))
    values = jax.jit(lambda key: trials.values(trials.start(key, simulated, at_truth=at_truth), simulated))(
        jax.random.key(5)
    )
    assert set(values) == {"alpha", "growth", "breaks", "beta", "theta"}
    if at_truth:
        for site, value in values.items():
            np.testing.assert_allclose(value, simulated.values[site], rtol=1e-3, atol=2e-3)


def test_they_are_made_so_where_a_concentration_may_come_next_to_0():
    assert spread_out(read(models.hdp, CORPUS, None, {"num_topics": 4})) == ("theta",)
    for story, told in (
        (models.lda, {"num_topics": 4, "alpha": 1e-4}),  # what is given is the user's
        (models.lda, {"num_topics": 4, "alpha": "learned"}),
        (models.slda, {"num_topics": 4, "alpha": "learned"}),
    ):
        y = np.arange(5.0) if story is models.slda else None
        assert spread_out(read(story, CORPUS, y, told)) == ()
    # numbers that reach next to 0 in nine of ten draws, by many topics
    assert spread_out(read(models.lda, CORPUS, None, {"num_topics": 200, "alpha": "learned"})) == ("theta",)


def test_the_density_is_that_of_the_story_in_other_numbers():
    graph = read(models.hdp, CORPUS, None, {"num_topics": 3, "gamma": 1.0})
    rng = np.random.default_rng(2)
    values = {
        "beta": rng.dirichlet(np.ones(6), 3), "growth": 0.7, "alpha": 1.3, "breaks": np.array([0.4, 1.1]),
        "theta~gammas": rng.gamma(1.5, size=(5, 3)), "theta~powers": rng.exponential(size=(5, 3)),
    }  # fmt: skip
    found, _ = log_density(
        Marginal(graph, nodes=9, average="density"), (documents(CORPUS, pairs=True), None), {},
        {name: jnp.asarray(value, jnp.float32) for name, value in values.items()},
    )  # fmt: skip
    left = np.exp(-np.r_[0, np.cumsum(values["breaks"])])
    a = 1.3 * left * np.r_[-np.expm1(-values["breaks"]), 1]
    weights = values["theta~gammas"] * np.exp(-values["theta~powers"] / a)
    theta = weights / weights.sum(1, keepdims=True)
    lp = (COUNTS * np.log(theta @ values["beta"])).sum() + stats.dirichlet.logpdf(values["beta"].T, np.ones(6)).sum()
    lp += stats.gamma.logpdf(values["theta~gammas"], a + 1).sum() + stats.expon.logpdf(values["theta~powers"]).sum()
    lp += stats.expon.logpdf(values["breaks"], scale=1 / 0.7).sum() + stats.expon.logpdf([0.7, 1.3]).sum()
    np.testing.assert_allclose(found, lp, rtol=1e-5)


@pytest.mark.slow
def test_nuts_draws_what_gibbs_draws():
    """Of concentrations next to 0 trajectories used to diverge, two of five, and alpha to be half as large."""
    told = {"num_topics": 3, "gamma": 1.0, "progress_bar": False, "num_chains": 2}
    nuts = inference.nuts("hdp", CORPUS, num_warmup=400, num_samples=800, **told)
    gibbs = inference.gibbs("hdp", CORPUS, num_warmup=500, num_samples=8000, thinning=10, **told)
    assert set(nuts.draws) == {"alpha", "growth", "breaks", "beta", "theta"}
    assert nuts.info["divergences"] < 40
    for site in ("alpha", "growth"):
        one, other = (np.log(fit.draws[site]).ravel() for fit in (nuts, gibbs))
        # 100 effective draws of each
        assert abs(one.mean() - other.mean()) < 5 * np.hypot(one.std(), other.std()) / 10, site
    squares = [(fit.draws["theta"] ** 2).sum(-1).mean((0, 1)) for fit in (nuts, gibbs)]
    np.testing.assert_allclose(*squares, atol=0.12)
