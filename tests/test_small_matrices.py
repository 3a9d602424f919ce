"""Roots and solutions of many small matrices, against LAPACK's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topiczoo.inference.kernels.small_matrices import cholesky, solve


@pytest.mark.parametrize("size", [1, 6])
def test_roots_and_their_slopes_are_lapacks(size):
    """The slope along a symmetric direction, against a difference in double precision, and its transpose."""
    rng = np.random.default_rng(0)
    factor, direction = rng.normal(size=(2, 7, size, size))
    matrices, direction = factor @ factor.swapaxes(1, 2) + np.eye(size), direction + direction.swapaxes(1, 2)
    single = [jnp.asarray(part, jnp.float32) for part in (matrices, direction)]
    roots, moves = jax.jit(lambda m, d: jax.jvp(cholesky, (m,), (d,)))(*single)
    np.testing.assert_allclose(roots, np.linalg.cholesky(matrices), atol=1e-4)
    expected = (
        np.linalg.cholesky(matrices + 1e-6 * direction) - np.linalg.cholesky(matrices - 1e-6 * direction)
    ) / 2e-6
    np.testing.assert_allclose(moves, expected, atol=2e-3)
    weights = rng.normal(size=roots.shape)
    slope = jax.jit(jax.grad(lambda m: (jnp.asarray(weights, jnp.float32) * cholesky(m)).sum()))(single[0])
    np.testing.assert_allclose((slope * direction).sum((1, 2)), (weights * expected).sum((1, 2)), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("size", [2, 20])
def test_solutions_are_lapacks_and_need_their_pivots(size):
    rng = np.random.default_rng(0)
    matrices, right = rng.normal(size=(7, size, size)), rng.normal(size=(7, size))
    matrices[0, 0, 0] = 0.0
    found = jax.vmap(solve)(jnp.asarray(matrices, jnp.float32), jnp.asarray(right, jnp.float32))
    np.testing.assert_allclose(found, np.linalg.solve(matrices, right[..., None])[..., 0], rtol=2e-2, atol=2e-3)
