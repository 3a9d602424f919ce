"""A root and a solution for each of many small matrices, by loops over columns that move all matrices at once.

LAPACK's batches are shared out to XLA's threads. Inside a program that runs on every host device all threads can be waiting
for such shares, and then nobody computes them: the program stands still. These loops stay on the thread that runs them, and
go along the matrices, not their rows, which is what a processor does best.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.custom_jvp
def cholesky(matrices: jax.Array) -> jax.Array:
    """Lower triangular roots of positive definite matrices [..., C, C]."""
    left = jnp.moveaxis(matrices, (-2, -1), (0, 1))
    rows = jnp.arange(len(left)).reshape(-1, *[1] * (left.ndim - 2))

    def column(j: jax.Array, columns: jax.Array) -> jax.Array:
        own = jax.lax.fori_loop(0, j, lambda k, own: own - columns[k] * columns[k, j], left[j])
        return columns.at[j].set(jnp.where(rows >= j, own / jnp.sqrt(own[j]), 0.0))

    columns = jax.lax.fori_loop(0, len(left), column, jnp.zeros_like(left))
    return jnp.moveaxis(columns, (0, 1), (-1, -2))


@cholesky.defjvp
def _derivative(matrices: tuple, moves: tuple) -> tuple[jax.Array, jax.Array]:
    """dL = L times the lower triangle of L^-1 dA L^-T, its diagonal halved."""
    root = cholesky(*matrices)
    inverse = _inverse(root)
    size = root.shape[-1]
    inner = inverse @ moves[0] @ jnp.swapaxes(inverse, -1, -2)
    return root, root @ (inner * (jnp.tril(jnp.ones((size, size))) - jnp.eye(size) / 2))


def _inverse(roots: jax.Array) -> jax.Array:
    """Of lower triangular matrices [..., C, C]."""
    left = jnp.moveaxis(roots, (-2, -1), (0, 1))
    each = jnp.eye(len(left)).reshape(*left.shape[:2], *[1] * (left.ndim - 2))

    def row(i: jax.Array, found: jax.Array) -> jax.Array:
        start = jnp.broadcast_to(each[i], left.shape[1:])
        own = jax.lax.fori_loop(0, i, lambda j, own: own - left[i, j] * found[j], start)
        return found.at[i].set(own / left[i, i])

    return jnp.moveaxis(jax.lax.fori_loop(0, len(left), row, jnp.zeros_like(left)), (0, 1), (-2, -1))


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
