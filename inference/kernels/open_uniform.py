"""Uniform numbers strictly inside (0, 1), for inverting distribution functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def inside_unit(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """Midpoints of the generator's 2^23 cells: neither end is reached, and no draw is farther out than its cell.

    NB: ``jax.random.uniform`` gives 0 once in eight million draws, and ``minval=tiny`` puts a draw 13 deviations out there.
    """
    return jax.random.uniform(key, shape, dtype) + jnp.finfo(dtype).eps / 2
