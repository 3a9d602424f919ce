"""The engine's own random numbers: gammas, Dirichlets and generalised inverse Gaussians.

Kolmogorov-Smirnov tests at fixed seeds. The level 1e-4 keeps the chance that any of the 16 fails for a right sampler below
0.2%.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from topiczoo.inference import sweep
from topiczoo.inference.gamma import dirichlet, log_gamma
from topiczoo.models.gig import GeneralizedInverseGaussian

LEVEL = 1e-4


@pytest.mark.parametrize("shape", [0.01, 0.3, 1.0, 1.7, 40.0, 3000.0])
def test_gamma(shape):
    draws = np.asarray(log_gamma(jax.random.key(0), jnp.full(50_000, shape)), float)
    assert stats.kstest(draws, stats.loggamma(shape).cdf).pvalue > LEVEL


def test_exponential_of_the_sweep():
    x = -np.concatenate([np.linspace(0, 87, 20_001), np.geomspace(1e-8, 1, 2_000)]).astype(np.float32)
    np.testing.assert_allclose(sweep._exp(jnp.asarray(x)), np.exp(x.astype(float)), rtol=1e-5)  # x itself has 1e-7 x 87
    assert sweep._exp(jnp.float32(-jnp.inf)) < 1e-37 and sweep._exp(jnp.float32(0)) == 1


def test_dirichlet_of_small_concentrations_sums_to_one():
    draws = np.asarray(dirichlet(jax.random.key(0), jnp.full((200, 500), 0.01)))
    np.testing.assert_allclose(draws.sum(1), 1, rtol=1e-5)
    assert np.isfinite(draws).all()
    # E[max] is large when mass sits on few terms; the variance of one coordinate is known exactly
    m = 1 / 500
    assert abs(draws.var() - m * (1 - m) / (500 * 0.01 + 1)) < 0.05 * m


GIG = [(0.5, 1.0, 1.0), (-0.5, 2.0, 3.0), (3.0, 0.1, 5.0), (-2500.0, 1.0, 1800.0), (-40.0, 0.0, 30.0), (4.0, 2.0, 0.0),
       (0.01, 1e-3, 1e-3), (-1.0, 1e-6, 1e-4), (1000.0, 3.0, 2.0)]  # fmt: skip


@pytest.mark.parametrize(("order", "a", "b"), GIG)
def test_generalised_inverse_gaussian(order, a, b):
    law = GeneralizedInverseGaussian(order, a, b)
    draws = np.log(np.asarray(law.sample(jax.random.key(1), (20_000,)), float))

    # the distribution function of log x, by quadrature around the mode
    def log_density(u):
        return order * u - (a * np.exp(u) + b * np.exp(-u)) / 2

    grid = np.linspace(draws.min() - 1, draws.max() + 1, 40_001)
    density = np.exp(log_density(grid) - log_density(grid).max())
    cumulative = integrate.cumulative_trapezoid(density, grid, initial=0)
    assert stats.kstest(draws, lambda u: np.interp(u, grid, cumulative / cumulative[-1])).pvalue > LEVEL

    at = np.quantile(draws, [0.1, 0.5, 0.9])
    expected = log_density(at) - log_density(grid).max() - np.log(cumulative[-1]) - at
    np.testing.assert_allclose(law.log_prob(jnp.exp(jnp.asarray(at, jnp.float32))), expected, atol=5e-3)
