"""The zoo's own random numbers and densities: gammas, Dirichlets, Polya-Gammas, inverse Gaussians plain and generalised,
normals cut to an interval.

Each law has one call of 20,000 draws for all its parameters. Limits: Kolmogorov-Smirnov tests at a level of 1e-7 and means
at 6 standard errors, some 80 in all: a right sampler fails with probability 1e-5.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p
from scipy import integrate, stats
from scipy.special import gammaln

from topiczoo.inference.samplers import gamma as gammas
from topiczoo.inference.samplers.gamma import dirichlet, log_gamma
from topiczoo.inference.samplers.gig import GeneralizedInverseGaussian
from topiczoo.inference.samplers.polya_gamma import _series, polya_gamma
from topiczoo.inference.samplers.truncated import TruncatedNormal, positive_normal
from topiczoo.inference.samplers.uniforms import inside_unit, threefry
from topiczoo.models.vocabulary.distributions import BernoulliProbit, InverseGaussian, NormalJeffreys

DRAWS, LEVEL, FAR = 20_000, 1e-7, 6.0


def drawn(law, seed=0):
    """[draw, ...] in double precision."""
    return np.asarray(jax.jit(lambda key: law.sample(key, (DRAWS,)))(jax.random.key(seed)), float)


def assert_law(draws, distribution_function):
    assert stats.kstest(draws, distribution_function).pvalue > LEVEL


def assert_independent(draws):
    """Columns of draws do not move together: correlations of ranks, which every law has."""
    ranks = stats.rankdata(draws, axis=0)
    assert np.abs(np.corrcoef(ranks.T) - np.eye(draws.shape[1])).max() < FAR / np.sqrt(len(draws))


def test_uniform_numbers_lie_inside_and_have_their_law():
    draws = np.asarray(inside_unit(jax.random.key(0), (1_000_000,)), float)
    assert draws.min() > 0 and draws.max() < 1
    assert_law(draws[:DRAWS], "uniform")
    # midpoints of 2^23 cells
    np.testing.assert_array_equal((draws * 2**23) % 1, 0.5)
    assert_independent(draws.reshape(10, -1).T)


def test_the_generator_is_threefry_as_jax_has_it():
    counter = jnp.arange(1000, dtype=jnp.uint32)
    parts = jnp.uint32(7), jnp.uint32(2**31 + 5), counter, counter[::-1] * jnp.uint32(65537)
    ours = threefry(parts[:2], *parts[2:])
    np.testing.assert_array_equal(ours, threefry2x32_p.bind(*(jnp.broadcast_to(part, 1000) for part in parts)))


@pytest.mark.parametrize("number", ["many", "few"])
def test_gamma(number):
    """Rejected proposals are made anew until all are accepted: small, whole and large shapes beside each other."""
    shapes, key = np.array([1e-3, 0.01, 0.3, 0.999, 1.0, 1.7, 40.0, 3000.0]), jax.random.key(0)
    if number == "many":
        draws = jax.jit(log_gamma)(key, jnp.broadcast_to(shapes, (DRAWS, 8)))
    else:  # each call draws for few, and they are proposed together until all are accepted
        several = jnp.broadcast_to(shapes, (100, 8))
        draws = jax.jit(jax.vmap(lambda key: log_gamma(key, several)))(jax.random.split(key, DRAWS // 100))
    draws = np.asarray(draws, float).reshape(-1, 8)
    for shape, column in zip(shapes, draws.T, strict=True):
        below = np.exp(np.minimum(shape * column - gammaln(shape + 1), 0))  # P(log x < u) where x itself underflows
        assert_law(np.where(column > -500, stats.loggamma(shape).cdf(np.maximum(column, -500)), below), "uniform")
    assert_independent(draws)


def test_gammas_that_are_rejected_at_first_are_as_good_as_others(monkeypatch):
    """The first proposals are all turned down: what is drawn comes from the second round on, more than there is room for."""
    right, calls = gammas._propose, []

    def refuse_once(normal, uniform, d):
        log_v, accepted = right(normal, uniform, d)
        calls.append(1)
        return log_v, accepted if len(calls) > 1 else jnp.zeros_like(accepted)

    monkeypatch.setattr(gammas, "_propose", refuse_once)
    shapes = np.array([0.2, 2.5])
    draws = np.asarray(log_gamma(jax.random.key(0), jnp.broadcast_to(shapes, (DRAWS, 2))), float)
    for shape, column in zip(shapes, draws.T, strict=True):
        assert_law(column, stats.loggamma(shape).cdf)
    assert_independent(draws)


def test_a_shape_that_is_no_number_ends_and_leaves_the_others_alone():
    draws = np.asarray(log_gamma(jax.random.key(0), jnp.array([np.nan, 1.0, np.inf, 2.0])))
    assert np.isfinite(draws[[1, 3]]).all() and not np.isfinite(draws[[0, 2]]).any()


def test_dirichlet():
    """Each share is a beta, shares that are negligible included; means and covariances are known."""
    concentration = np.array([[1e-3, 0.2, 2.0], [5.0, 0.4, 0.7]])
    draws = np.asarray(jax.jit(dirichlet)(jax.random.key(0), jnp.broadcast_to(concentration, (DRAWS, 2, 3))), float)
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
    for row, total in enumerate(concentration.sum(1)):
        share = concentration[row] / total
        products = draws[:, row, :, None] * draws[:, row, None]
        expected = (np.outer(share, share) * total + np.diag(share)) / (total + 1)
        assert (np.abs(products.mean(0) - expected) * np.sqrt(DRAWS) < FAR * products.std(0) + 1e-6).all()
        law = stats.beta(concentration[row, 1], total - concentration[row, 1])
        assert_law(draws[:, row, 1], law.cdf)
    many = np.asarray(
        jax.jit(dirichlet)(jax.random.key(1), jnp.full((500, 500), 0.01)), float
    )  # mass sits on few terms
    squares = (many**2).sum(1)
    assert abs(squares.mean() - 0.01 * 1.01 * 500 / (5 * 6)) * np.sqrt(500) < FAR * squares.std()


def test_both_series_of_the_polya_gamma_density_are_the_density():
    """Either converges everywhere, one fast for small x and the other for large; the sampler takes few terms of each."""
    x, n = np.linspace(0.05, 6.0, 200), np.arange(60)[:, None] + 0.5
    signs = (-1.0) ** np.arange(60)[:, None]
    exact = np.pi * (signs * n * np.exp(-(n**2) * np.pi**2 * x / 2)).sum(0)
    np.testing.assert_allclose(_series(jnp.asarray(x)), exact, rtol=1e-4, atol=1e-6)


def test_polya_gamma_has_the_known_laplace_transform_and_moments():
    """E exp(-t w) = (cosh(c / 2) / cosh(sqrt(c^2 / 4 + t / 2)))^b for counts b of 0 to 3 and tilts c."""
    tilts = np.array([1e-4, 0.1, -0.5, 2.0, 3.0, -3.3, 6.0, 40.0, 200.0, 1.0, -3.3, 2.0])
    counts = np.array([1] * 9 + [0, 2, 3])
    size = DRAWS // 3
    sample = jax.jit(lambda key: polya_gamma(key, jnp.broadcast_to(counts, (size, 12)), jnp.asarray(tilts)))
    draws = np.asarray(sample(jax.random.key(1)), float)
    assert (draws[:, counts == 0] == 0).all() and (draws[:, counts > 0] > 0).all()
    mean = counts * np.tanh(tilts / 2) / (2 * tilts)
    variance = counts / 4 * np.where(np.abs(tilts) < 0.01, 1 / 6, 0.0)
    large = np.abs(tilts) >= 0.01
    c = np.abs(tilts[large])
    variance[large] = counts[large] / c**3 * ((1 - np.exp(-2 * c)) / 2 - c * np.exp(-c)) / (1 + np.exp(-c)) ** 2
    compared = [(draws, mean), ((draws - mean) ** 2, variance)]
    for t in (0.3, 3.0, 30.0):
        half, bent = tilts / 2, np.sqrt((tilts**2 / 2 + t) / 2)
        known = np.exp(counts * (np.logaddexp(half, -half) - np.logaddexp(bent, -bent)))
        compared.append((np.exp(-t * draws), known))
    for found, known in compared:
        assert (np.abs(found.mean(0) - known) * np.sqrt(size) <= FAR * found.std(0) + 1e-6).all()
    assert_independent(draws[:, counts > 0])
    assert np.isnan(sample_with_nan := polya_gamma(jax.random.key(0), jnp.ones(2, int), jnp.array([np.nan, 1.0])))[0]
    assert np.isfinite(sample_with_nan[1])


GIG = np.array([(0.5, 1.0, 1.0), (0.0, 2.0, 0.5),
       (-0.5, 2.0, 3.0), (3.0, 0.1, 5.0), (-2500.0, 1.0, 1800.0), (-40.0, 0.0, 30.0), (4.0, 2.0, 0.0),
       (0.01, 1e-3, 1e-3), (-1.0, 1e-6, 1e-4), (1000.0, 3.0, 2.0), (-0.5, 1e4, 1e4)])  # fmt: skip


def test_generalised_inverse_gaussian():
    law = GeneralizedInverseGaussian(*GIG.T.astype(np.float32))
    draws = np.log(drawn(law, 1))
    at = np.quantile(draws, [0.1, 0.5, 0.9], axis=0)
    found = np.asarray(jax.jit(law.log_prob)(jnp.exp(jnp.asarray(at, jnp.float32))))
    for i, (order, a, b) in enumerate(GIG):
        # the distribution function of log x, by quadrature around the mode
        def log_density(u, order=order, a=a, b=b):
            return order * u - (a * np.exp(u) + b * np.exp(-u)) / 2

        grid = np.linspace(draws[:, i].min() - 1, draws[:, i].max() + 1, 40_001)
        highest = log_density(grid).max()
        cumulative = integrate.cumulative_trapezoid(np.exp(log_density(grid) - highest), grid, initial=0)
        assert_law(draws[:, i], lambda u, grid=grid, c=cumulative: np.interp(u, grid, c / c[-1]))
        expected = log_density(at[:, i]) - highest - np.log(cumulative[-1]) - at[:, i]
        np.testing.assert_allclose(found[:, i], expected, atol=5e-3)
    assert_independent(draws)


def test_moments_of_the_generalised_inverse_gaussian():
    cases = np.array([(-3.0, 1.0, 1.0), (-0.5, 1e-3, 2.0), (0.0, 4.0, 1e-4), (0.5, 1.0, 1.0), (3.0, 100.0, 100.0)])
    order, a, b = cases.T
    scipys = stats.geninvgauss(order, np.sqrt(a * b), scale=np.sqrt(b / a))
    # an inverse gamma has a mean and a variance only where its order is beyond -1 and -2
    every = np.concatenate([cases, [(-0.5, 0.0, 1.0), (-1.5, 0.0, 1.0), (-1.0, 0.0, 2.0), (-2.0, 0.0, 2.0)]]).astype(
        np.float32
    )
    mean, variance = jax.jit(lambda law: (law.mean, law.variance))(GeneralizedInverseGaussian(*every.T))
    np.testing.assert_allclose(mean, [*scipys.mean(), np.inf, 1.0, np.inf, 1.0], rtol=1e-3)
    np.testing.assert_allclose(variance, [*scipys.var(), *[np.inf] * 4], rtol=1e-3)


def test_inverse_gaussian():
    """Densities, moments and draws; a mean without bound leaves the law of shape over a chi-square."""
    mean = np.array([1.0, 0.01, 50.0, 1e6, 1.0, 1e-3, 1e8, 3.0, np.inf])
    shape = np.array([1.0, 5.0, 0.3, 2.0, 1e-3, 1.0, 1.0, 1e6, 2.0])
    law = InverseGaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(shape, jnp.float32))
    draws = drawn(law, 3)
    assert np.isfinite(draws).all() and (draws > 0).all()
    for i, (m, s) in enumerate(zip(mean, shape, strict=True)):
        scipys = stats.invgauss(m / s, scale=s) if m < 1e7 else stats.invgamma(0.5, scale=s / 2)
        assert_law(draws[:, i], scipys.cdf)
    assert_independent(draws)
    scipys = stats.invgauss(mean[:4] / shape[:4], scale=shape[:4])
    few = InverseGaussian(*(jnp.asarray(part[:4], jnp.float32) for part in (mean, shape)))
    x = np.float32(scipys.ppf(np.array([0.01, 0.3, 0.7, 0.95])[:, None]))
    np.testing.assert_allclose(few.log_prob(x), scipys.logpdf(x.astype(float)), rtol=3e-4, atol=3e-4)
    np.testing.assert_allclose([few.mean, few.variance], [scipys.mean(), scipys.var()], rtol=1e-3)


INTERVALS = [(0, np.inf), (4, 5), (-1, 1), (-np.inf, -40), (40, np.inf), (2, 2.01), (-7, 8), (-np.inf, np.inf), (40, 41),
             (-5.2, -5.1), (-3, np.inf), (-np.inf, 2), (3.9, 4.2), (-0.05, 0.03), (-8, -3), (-40, np.inf),
             (-np.inf, 25), (-60, 50)]  # fmt: skip


def test_a_normal_cut_to_an_interval():
    """In deviations from the mean, forty out and narrow ones included."""
    low, high = (1 + 2 * np.array(ends) for ends in zip(*INTERVALS, strict=True))
    ours = TruncatedNormal(1.0, 2.0, low=jnp.asarray(low, jnp.float32), high=jnp.asarray(high, jnp.float32))
    laws = [stats.truncnorm(*ends, loc=1.0, scale=2.0) for ends in INTERVALS]
    draws = drawn(ours, 4)
    at = np.stack([np.float32(law.ppf([0.01, 0.3, 0.9])) for law in laws], 1)
    density = np.asarray(jax.jit(ours.log_prob)(at))
    mean, variance = jax.jit(lambda law: (law.mean, law.variance))(ours)
    for i, law in enumerate(laws):
        # in shares of the law's own width: forty deviations out a number in single precision has few digits left
        assert_law(draws[:, i], lambda x, law=law: law.cdf(x))
        np.testing.assert_allclose(density[:, i], law.logpdf(at[:, i].astype(float)), atol=5e-5)
        np.testing.assert_allclose((mean[i] - law.mean()) / law.std(), 0, atol=3e-4)
        np.testing.assert_allclose(variance[i], law.var(), rtol=1e-4)
    assert (draws >= np.float32(low)).all() and (draws <= np.float32(high)).all()
    assert_independent(draws)
    assert (np.isneginf(ours.log_prob(high + 1.0)) | np.isinf(high)).all()
    assert (np.isneginf(ours.log_prob(low - 1.0)) | np.isinf(low)).all()


def test_a_normal_cut_at_zero_is_right_however_far_out():
    means = np.array([6.0, 1.0, 0.0, -3.0, -3.99, -4.01, -8.0, -40.0])
    sample = jax.jit(lambda key: positive_normal(key, jnp.broadcast_to(jnp.asarray(means), (DRAWS, 8))))
    draws = np.asarray(sample(jax.random.key(2)), float)
    assert (draws > 0).all()
    # P(N > u | N > 0) through log survival functions, which hold far out
    tails = np.exp(stats.norm.logsf(draws - means) - stats.norm.logsf(-means))
    for tail in tails.T:
        assert_law(tail, "uniform")
    assert_independent(tails)


def test_a_uniform_number_of_zero_leaves_a_cut_normal_finite(monkeypatch):
    """It comes once in eight million draws, and had put one at infinity and then a coefficient at NaN."""
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    draws = positive_normal(jax.random.key(0), jnp.array([2.0, 0.0, -3.0, -40.0]))
    assert np.isfinite(draws).all() and (draws > 0).all() and (draws < 9).all()


def test_an_infinite_mean_of_the_inverse_gaussian_and_a_normal_draw_of_zero(monkeypatch):
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: jnp.zeros(shape))
    draws = InverseGaussian(jnp.array([jnp.inf, 1.0]), 3.0).sample(jax.random.key(0))
    assert not np.isnan(draws).any()


def test_probit_is_exact_far_out_on_both_sides():
    x = np.array([-30.0, -8.0, -1.0, 0.0, 0.4, 2.0, 9.0])
    law = BernoulliProbit(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(law.log_prob(jnp.ones(7)), stats.norm.logcdf(x), rtol=1e-5)
    np.testing.assert_allclose(law.log_prob(jnp.zeros(7)), stats.norm.logcdf(-x), rtol=1e-5, atol=1e-37)
    np.testing.assert_allclose(law.probs, stats.norm.cdf(x), rtol=1e-5, atol=1e-37)
    np.testing.assert_allclose(law.logits, stats.norm.logcdf(x) - stats.norm.logcdf(-x), rtol=1e-5)


def test_the_jeffreys_prior_is_flat_in_logarithms_and_cannot_simulate():
    np.testing.assert_allclose(
        NormalJeffreys().log_prob(jnp.array([-2.0, 0.1, 5.0])), -np.log([2.0, 0.1, 5.0]), rtol=1e-6
    )
    with pytest.raises(ValueError, match="improper and cannot simulate"):
        NormalJeffreys().sample(jax.random.key(0))
