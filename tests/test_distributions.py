"""The zoo's own random numbers: gammas, Dirichlets, inverse Gaussians plain and generalised, normals cut to an interval.

Kolmogorov-Smirnov tests at fixed seeds. The level 1e-4 keeps the chance that any of the 36 fails for a right sampler below
0.4%.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from topiczoo.inference.gamma import dirichlet, log_gamma
from topiczoo.models.distributions import InverseGaussian
from topiczoo.models.gig import GeneralizedInverseGaussian
from topiczoo.models.truncated import TruncatedNormal, positive_normal

LEVEL = 1e-4


@pytest.mark.parametrize("shape", [0.01, 0.3, 1.0, 1.7, 40.0, 3000.0])
def test_gamma(shape):
    draws = np.asarray(log_gamma(jax.random.key(0), jnp.full(50_000, shape)), float)
    assert stats.kstest(draws, stats.loggamma(shape).cdf).pvalue > LEVEL


def test_dirichlet_of_small_concentrations_sums_to_one():
    draws = np.asarray(dirichlet(jax.random.key(0), jnp.full((200, 500), 0.01)))
    np.testing.assert_allclose(draws.sum(1), 1, rtol=1e-5)
    assert np.isfinite(draws).all()
    # E[max] is large when mass sits on few terms; the variance of one coordinate is known exactly
    m = 1 / 500
    assert abs(draws.var() - m * (1 - m) / (500 * 0.01 + 1)) < 0.05 * m


GIG = [(0.5, 1.0, 1.0), (0.0, 2.0, 0.5),
       (-0.5, 2.0, 3.0), (3.0, 0.1, 5.0), (-2500.0, 1.0, 1800.0), (-40.0, 0.0, 30.0), (4.0, 2.0, 0.0),
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


@pytest.mark.parametrize(
    ("order", "a", "b"), [(-3.0, 1.0, 1.0), (-0.5, 1e-3, 2.0), (0.0, 4.0, 1e-4), (0.5, 1.0, 1.0), (3.0, 100.0, 100.0)]
)
def test_moments_of_the_generalised_inverse_gaussian(order, a, b):
    ours, scipys = (
        GeneralizedInverseGaussian(order, a, b),
        stats.geninvgauss(order, np.sqrt(a * b), scale=np.sqrt(b / a)),
    )
    np.testing.assert_allclose([ours.mean, ours.variance], [scipys.mean(), scipys.var()], rtol=1e-3)


def test_moments_that_do_not_exist_are_infinite():
    assert np.isinf(GeneralizedInverseGaussian(-0.5, 0.0, 1.0).mean)
    heavy = GeneralizedInverseGaussian(-1.5, 0.0, 1.0)  # an inverse gamma
    np.testing.assert_allclose(heavy.mean, 1.0, rtol=1e-3)
    assert np.isinf(heavy.variance)


@pytest.mark.parametrize(("mean", "shape"), [(1.0, 1e-3), (1e-3, 1.0), (1e8, 1.0), (3.0, 1e6), (np.inf, 2.0)])
def test_inverse_gaussian_at_its_ends(mean, shape):
    """A mean without bound leaves the law of shape over a chi-square."""
    draws = np.asarray(InverseGaussian(mean, shape).sample(jax.random.key(3), (20_000,)), float)
    law = stats.invgauss(mean / shape, scale=shape) if mean < 1e7 else stats.invgamma(0.5, scale=shape / 2)
    assert np.isfinite(draws).all() and (draws > 0).all()
    assert stats.kstest(draws, law.cdf).pvalue > LEVEL


INTERVALS = [(0, np.inf), (4, 5), (-1, 1), (-np.inf, -40), (40, np.inf), (2, 2.01), (-7, 8), (-np.inf, np.inf), (40, 41),
             (-5.2, -5.1), (-3, np.inf)]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_a_normal_cut_to_an_interval(low, high):
    """In deviations from the mean, forty out and narrow ones included."""
    ours = TruncatedNormal(1.0, 2.0, low=1.0 + 2 * low, high=1.0 + 2 * high)
    scipys = stats.truncnorm(low, high, loc=1.0, scale=2.0)
    draws = np.asarray(ours.sample(jax.random.key(4), (20_000,)), float)
    assert stats.kstest(draws, scipys.cdf).pvalue > LEVEL
    at = np.float32(scipys.ppf([0.01, 0.3, 0.9]))
    np.testing.assert_allclose(ours.log_prob(at), scipys.logpdf(at.astype(float)), atol=2e-5)
    np.testing.assert_allclose((ours.mean - scipys.mean()) / scipys.std(), 0, atol=2e-4)
    np.testing.assert_allclose(ours.variance, scipys.var(), rtol=1e-4)
    assert ours.log_prob(1.0 + 2 * high + 1.0) == -np.inf or np.isinf(high)


def test_a_uniform_number_of_zero_leaves_a_cut_normal_finite(monkeypatch):
    """It comes once in eight million draws, and had put one at infinity and then a coefficient at NaN."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    draws = positive_normal(jax.random.key(0), jnp.array([2.0, 0.0, -3.0, -40.0]))
    assert np.isfinite(draws).all() and (draws > 0).all() and (draws < 9).all()


def test_an_infinite_mean_of_the_inverse_gaussian_and_a_normal_draw_of_zero(monkeypatch):
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: jnp.zeros(shape))
    draws = InverseGaussian(jnp.array([jnp.inf, 1.0]), 3.0).sample(jax.random.key(0))
    assert not np.isnan(draws).any()
