"""log Gamma and digamma of positive numbers in float32, several times quicker than JAX's, which serve all numbers.

Both step up to x + 6 by their recurrences where x is small, and take Stirling's series there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

SMALL, STEPS = 8.0, 6


def gammaln(x: jax.Array) -> jax.Array:
    """log Gamma(x), x > 0."""
    small = x < SMALL
    product = x
    for i in range(1, STEPS):
        product = product * (x + i)
    far = jnp.where(small, x + STEPS, x)
    inverse = 1 / far
    series = inverse * (1 / 12 - inverse**2 * (1 / 360 - inverse**2 / 1260))
    stirling = (far - 0.5) * jnp.log(far) - far + 0.9189385332046727 + series
    return stirling - jnp.where(small, jnp.log(jnp.where(small, product, 1.0)), 0.0)


def digamma(x: jax.Array) -> jax.Array:
    """The derivative of log Gamma, x > 0."""
    small = x < SMALL
    below = sum(1 / (x + i) for i in range(STEPS))
    far = jnp.where(small, x + STEPS, x)
    inverse = 1 / far
    series = inverse * (0.5 + inverse * (1 / 12 - inverse**2 * (1 / 120 - inverse**2 / 252)))
    return jnp.log(far) - series - jnp.where(small, below, 0.0)
