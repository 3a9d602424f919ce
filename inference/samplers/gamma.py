"""Fast draws of gammas and Dirichlets in bulk.

``jax.random.gamma`` loops over one element at a time and costs about a microsecond a draw on a CPU; a topic draw needs
topics x terms of them in every sweep. Here all elements are proposed at once and only the few rejected ones again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..native import dirichlet as compiled
from ..native.build import registered
from .uniforms import inside_unit

FEW = 2**14  # elements that are all proposed again until each is accepted: half as much to compile


def log_gamma(key: jax.Array, shape: jax.Array) -> jax.Array:
    """log of Gamma(shape, 1) draws: Marsaglia & Tsang (2000), exact; in logs because small shapes underflow.

    For shape < 1: Gamma(shape) = Gamma(shape + 1) U^(1/shape).
    """
    flat = jnp.ravel(shape)
    small = flat < 1.0
    d = jnp.where(small, flat + 1.0, flat) - 1.0 / 3.0
    if flat.size <= FEW:
        boost, (_, log_v) = inside_unit(key, flat.shape), _accepted(key, d, jnp.zeros(d.shape, bool), 1)
    else:
        boost, log_v = _mostly_at_once(key, d)
    log_boost = jnp.where(small, jnp.log(boost) / jnp.where(small, flat, 1.0), 0.0)
    return (jnp.log(d) + log_v + log_boost).reshape(jnp.shape(shape))


def _accepted(key: jax.Array, d: jax.Array, done: jax.Array, turn: Any) -> tuple[Any, jax.Array]:
    """Proposals for all that are not done, until all are: the turns there have been, and log v."""

    def again(carry: tuple) -> tuple:
        turn, found, done = carry
        uniform, normal = inside_unit(jax.random.fold_in(key, turn), (2, *d.shape))
        new, ok = _propose(normal, uniform, d)
        return turn + 1, jnp.where(done, found, new), done | ok

    turn, log_v, _ = jax.lax.while_loop(lambda carry: ~carry[2].all(), again, (turn, jnp.zeros_like(d), done))
    return turn, log_v


def _mostly_at_once(key: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A uniform number for each element, and its log v: one proposal for all, more for the few that are refused."""
    uniform, normal, boost = inside_unit(key, (3, *d.shape))  # in one call: each is dear to compile
    log_v, accepted = _propose(normal, uniform, d)

    # Rejected elements (8% at most) are gathered, at most `room` of them, and proposed until all are accepted.
    room = max(min(d.size, 256), d.size // 12)

    def gathered(carry: tuple) -> tuple:
        turn, log_v, accepted = carry
        (index,) = jnp.nonzero(~accepted, size=room, fill_value=d.size)
        own = d.at[index].get(mode="clip")
        turn, found = _accepted(key, own, index == d.size, turn)
        return turn, log_v.at[index].set(found, mode="drop"), accepted.at[index].set(True, mode="drop")

    _, log_v, _ = jax.lax.while_loop(lambda carry: ~carry[2].all(), gathered, (1, log_v, accepted))
    return boost, log_v


def _propose(normal: jax.Array, uniform: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One proposal v = (1 + x/sqrt(9 d))^3 for each element: log v, and whether it is accepted."""
    x = jnp.sqrt(2.0) * jax.scipy.special.erfinv(2.0 * normal - 1.0)
    base = 1.0 + x / jnp.sqrt(9.0 * d)
    log_v = 3.0 * jnp.log(jnp.where(base > 0, base, 1.0))
    accepted = (base > 0) & (jnp.log(uniform) < 0.5 * x**2 + d * (1.0 - base**3 + log_v))
    # a shape that is not finite would never be accepted: let it through, the engine reports NaN by site
    return log_v, accepted | ~jnp.isfinite(d)


def dirichlet(key: jax.Array, concentration: jax.Array) -> jax.Array:
    """Dirichlet draws over the last axis, in C++ where that is built."""
    if registered() and jnp.result_type(concentration) == jnp.float32:
        return compiled.dirichlet(key, concentration)
    return jax.nn.softmax(log_gamma(key, concentration), axis=-1)
