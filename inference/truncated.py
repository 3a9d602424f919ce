"""Draws from a normal cut off at zero, right however far out the cut lies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

FAR = -4.0  # means below: the inverse of the distribution function would lose digits


def positive_normal(key: jax.Array, mean: jax.Array) -> jax.Array:
    """N(mean, 1) given that it is positive.

    Near: by inversion. Far below zero: Robert's (1995) rejection from an exponential, which accepts nine of ten.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    uniform = jax.random.uniform(key, mean.shape, minval=tiny)
    near = jnp.maximum(mean, FAR)
    # the upper tail: P(N > u) = uniform * P(N > -mean)
    inverted = jnp.maximum(near - ndtri(uniform * ndtr(near)), tiny)
    far = mean < FAR
    cut = jnp.where(far, -mean, 1.0)
    rate = (cut + jnp.sqrt(cut**2 + 4)) / 2

    def again(carry: tuple) -> tuple:
        turn, excess, accepted = carry
        keep, u = jax.random.uniform(jax.random.fold_in(key, turn), (2, *mean.shape), minval=tiny)
        new = -jnp.log(u) / rate
        ok = jnp.log(keep) <= -((cut + new - rate) ** 2) / 2
        return turn + 1, jnp.where(accepted, excess, new), accepted | ok

    start = 1, jnp.zeros_like(mean), ~far
    _, excess, _ = jax.lax.while_loop(lambda carry: ~carry[2].all(), again, start)
    return jnp.where(far, excess, inverted)
