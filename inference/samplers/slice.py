"""Slice sampling of one number: a level below the density, and a uniform draw of what lies above it (Neal 2003)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

WIDTH = 1.0  # of the first interval; shrinking is quick where it is too wide
MOST_STEPS = 20  # by which the interval grows at most, both sides together
MOST_SHRINKS = 100  # then the interval is a point: the number stays


def slice_draw(key: jax.Array, log_ratio: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """A number from a step that leaves the density invariant, from x; ``log_ratio(v)`` is log p(v) - log p(x).

    The interval steps out (figure 3 of the paper) and shrinks towards x (figure 5).
    """
    level_key, place_key, split_key, shrink_key = jax.random.split(key, 4)
    level = -jax.random.exponential(level_key)
    left = x - WIDTH * jax.random.uniform(place_key)
    steps_left = jnp.floor(MOST_STEPS * jax.random.uniform(split_key)).astype(jnp.int32)

    def grown(end: jax.Array, step: float, most: jax.Array) -> jax.Array:
        def outside(state: tuple) -> jax.Array:
            end, i = state
            return (i < most) & (log_ratio(end) > level)

        return jax.lax.while_loop(outside, lambda state: (state[0] + step, state[1] + 1), (end, 0))[0]

    low = grown(left, -WIDTH, steps_left)
    high = grown(left + WIDTH, WIDTH, MOST_STEPS - 1 - steps_left)

    def shrink(state: tuple) -> tuple:
        low, high, i, new, _ = state
        new = low + (high - low) * jax.random.uniform(jax.random.fold_in(shrink_key, i))
        inside = log_ratio(new) > level
        low, high = (jnp.where(~inside & (new < x), new, low), jnp.where(~inside & (new >= x), new, high))
        return low, high, i + 1, new, inside

    state = low, high, 0, x, jnp.zeros((), bool)
    _, _, _, new, inside = jax.lax.while_loop(lambda state: ~state[4] & (state[2] < MOST_SHRINKS), shrink, state)
    return jnp.where(inside, new, x)
