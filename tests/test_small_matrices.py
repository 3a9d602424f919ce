"""Roots and solutions of many small matrices, against LAPACK's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topiczoo.inference.small_matrices import cholesky, solve


@pytest.mark.parametrize("size", [1, 2, 20])
def test_roots_and_their_slopes_are_lapacks(size):
    factor = np.random.default_rng(0).normal(size=(7, size, size))
    matrices = jnp.asarray(factor @ factor.swapaxes(1, 2) + np.eye(size), jnp.float32)
    np.testing.assert_allclose(cholesky(matrices), np.linalg.cholesky(matrices), atol=1e-4)

    def slope(root):
        return jax.grad(lambda m: jnp.sin(root((m + jnp.swapaxes(m, 1, 2)) / 2)).sum())(matrices)

    np.testing.assert_allclose(slope(cholesky), slope(jnp.linalg.cholesky), atol=2e-3)


@pytest.mark.parametrize("size", [2, 20])
def test_solutions_are_lapacks_and_need_their_pivots(size):
    rng = np.random.default_rng(0)
    matrices, right = rng.normal(size=(7, size, size)), rng.normal(size=(7, size))
    matrices[0, 0, 0] = 0.0
    found = jax.vmap(solve)(jnp.asarray(matrices, jnp.float32), jnp.asarray(right, jnp.float32))
    np.testing.assert_allclose(found, np.linalg.solve(matrices, right[..., None])[..., 0], rtol=2e-2, atol=2e-3)
