"""Slice sampling of one number: a level below the density, and a uniform draw of what lies above it (Neal 2003)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

WIDTH = 1.0  # of the first interval; shrinking is quick where it is too wide
MOST_STEPS = 20  # by which the interval grows at most, both sides together
MOST_TURNS = 120  # then the interval is a point: the number stays


class _State(NamedTuple):
    """An interval that grows on its left, then on its right, and then shrinks."""

    phase: jax.Array  # 0, 1, 2, and 3 when a number is found
    low: jax.Array
    high: jax.Array
    steps: jax.Array  # that the end may still grow by, [left, right]
    turn: jax.Array
    new: jax.Array


def slice_draw(key: jax.Array, log_ratio: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """A number from a step that leaves the density invariant, from x; ``log_ratio(v)`` is log p(v) - log p(x).

    The interval steps out (figure 3 of the paper) and shrinks towards x (figure 5). All is one loop with one place where
    the density is read: it is compiled once.
    """
    level_key, place_key, split_key, shrink_key = jax.random.split(key, 4)
    level = -jax.random.exponential(level_key)
    left = x - WIDTH * jax.random.uniform(place_key)
    steps_left = jnp.floor(MOST_STEPS * jax.random.uniform(split_key)).astype(jnp.int32)
    steps = jnp.stack([steps_left, MOST_STEPS - 1 - steps_left])

    def turn(state: _State) -> _State:
        phase, low, high, steps, i, _ = state
        growing = phase < 2
        inside = low + (high - low) * jax.random.uniform(jax.random.fold_in(shrink_key, i))
        place = jnp.where(growing, jnp.where(phase == 0, low, high), inside)
        above = log_ratio(place) > level
        end = jnp.minimum(phase, 1)
        grows = growing & above & (steps[end] > 0)
        shrinks = ~growing & ~above
        low = jnp.where(grows & (phase == 0), low - WIDTH, jnp.where(shrinks & (place < x), place, low))
        high = jnp.where(grows & (phase == 1), high + WIDTH, jnp.where(shrinks & (place >= x), place, high))
        phase = phase + jnp.where(growing, ~grows, above)
        return _State(phase, low, high, steps.at[end].add(-1 * grows), i + 1, place)

    start = _State(jnp.zeros((), jnp.int32), left, left + WIDTH, steps, jnp.zeros((), jnp.int32), x)
    last = jax.lax.while_loop(lambda state: (state.phase < 3) & (state.turn < MOST_TURNS), turn, start)
    return jnp.where(last.phase == 3, last.new, x)


def slice_draws(
    key: jax.Array, log_ratio: Callable[[jax.Array], jax.Array], width: jax.Array, most_steps: int = MOST_STEPS
) -> jax.Array:
    """Moves of many numbers side by side, each by a step of its own that leaves its density invariant.

    ``log_ratio(d)`` is log p(x + d) - log p(x), number by number. ``width`` of the first intervals must not depend on x.
    All take as many turns as the one that takes most.
    """
    level_key, place_key, split_key, shrink_key = jax.random.split(key, 4)
    level = -jax.random.exponential(level_key, width.shape)
    low = -width * jax.random.uniform(place_key, width.shape)
    left = jnp.floor(most_steps * jax.random.uniform(split_key, width.shape))

    def grown(end: jax.Array, step: jax.Array, left: jax.Array) -> jax.Array:
        def turn(state: tuple) -> tuple:
            end, left, growing = state
            growing = growing & (left > 0) & (log_ratio(end) > level)
            return jnp.where(growing, end + step, end), left - growing, growing

        return jax.lax.while_loop(lambda state: state[2].any(), turn, (end, left, jnp.ones(end.shape, bool)))[0]

    low, high = grown(low, -width, left), grown(low + width, width, most_steps - 1 - left)

    def shrink(state: tuple) -> tuple:
        low, high, move, found, i = state
        place = low + (high - low) * jax.random.uniform(jax.random.fold_in(shrink_key, i), width.shape)
        above = log_ratio(place) > level
        low, high = jnp.where(~above & (place < 0), place, low), jnp.where(~above & (place >= 0), place, high)
        return low, high, jnp.where(above & ~found, place, move), found | above, i + 1

    start = low, high, jnp.zeros_like(width), jnp.zeros(width.shape, bool), jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(lambda state: ~state[3].all() & (state[4] < MOST_TURNS), shrink, start)[2]
