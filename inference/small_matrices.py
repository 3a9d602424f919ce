"""A root and a solution for each of many small matrices, by loops over columns that move all matrices at once.

LAPACK's batches are shared out to XLA's threads. Inside a program that runs on every host device all threads can be waiting
for such shares, and then nobody computes them: the program stands still. These loops stay on the thread that runs them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def cholesky(matrices: jax.Array) -> jax.Array:
    """Lower triangular roots of positive definite matrices [..., C, C]."""
    rows = jnp.arange(matrices.shape[-1])

    def column(left: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = jnp.where(rows >= j, left[..., j], 0.0) / jnp.sqrt(left[..., j, j])[..., None]
        return left - found[..., :, None] * found[..., None, :], found

    return jnp.moveaxis(jax.lax.scan(column, matrices, rows)[1], 0, -1)


def solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """x of matrix x = right for one matrix [C, C] and vector [C], by elimination with pivots; for ``jax.vmap``."""
    size = len(right)
    rows = jnp.arange(size)

    def eliminate(c: jax.Array, table: jax.Array) -> jax.Array:
        pivot = jnp.argmax(jnp.where(rows >= c, jnp.abs(table[:, c]), -1.0))
        table = table[jnp.where(rows == c, pivot, jnp.where(rows == pivot, c, rows))]
        own = table[c] / table[c, c]
        return jnp.where((rows == c)[:, None], own, table - table[:, c, None] * own)

    return jax.lax.fori_loop(0, size, eliminate, jnp.concatenate([matrix, right[:, None]], 1))[:, -1]
