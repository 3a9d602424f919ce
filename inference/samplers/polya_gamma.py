"""Polya-Gamma draws: the auxiliary variable that makes a logistic likelihood normal in its predictor.

(e^x)^a / (1 + e^x)^b = 2^-b e^((a - b/2) x) E[exp(-w x^2 / 2)], w ~ PG(b, 0); given x, w ~ PG(b, x) (Polson, Scott & Windle
2013). Draws are exact: Devroye's rejection from two pieces, all elements proposed at once, the series summed until float32
has no more digits for it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri

from .uniforms import inside_unit

BREAK = 0.64  # where the two series for the density of J = 4 PG are exchanged
TERMS = 4  # of the alternating series: the fifth is below 1e-13 of the first on either side of BREAK


def polya_gamma(key: jax.Array, count: jax.Array, tilt: jax.Array) -> jax.Array:
    """PG(count, tilt) draws for whole counts, as sums of PG(1, tilt)."""
    count, tilt = jnp.broadcast_arrays(jnp.asarray(count), jnp.asarray(tilt, jnp.float32))

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        return total + jnp.where(i < count, polya_gamma_one(jax.random.fold_in(key, i), tilt), 0.0)

    return jax.lax.fori_loop(0, jnp.max(count, initial=0).astype(jnp.int32), add, jnp.zeros_like(tilt))


def polya_gamma_one(key: jax.Array, tilt: jax.Array) -> jax.Array:
    """PG(1, tilt) draws."""
    z = jnp.abs(tilt) / 2
    rate = np.pi**2 / 8 + z**2 / 2
    # masses of the two proposals: exponential beyond BREAK, inverse Gaussian (mean 1/z, shape 1) below
    log_right = jnp.log(np.pi / (2 * rate)) - rate * BREAK
    root = np.sqrt(1 / BREAK)
    upper, lower = log_ndtr(root * (BREAK * z - 1)), 2 * z + log_ndtr(-root * (BREAK * z + 1))
    log_left = np.log(2) - z + jnp.logaddexp(upper, lower)
    share_right = jax.nn.sigmoid(log_right - log_left)

    def again(carry: tuple) -> tuple:
        turn, draw, right, inside, accepted = carry
        branch, first, second, keep, squeeze = inside_unit(jax.random.fold_in(key, turn), (5, *tilt.shape))
        # a piece is chosen anew only after its proposal has been judged; a proposal outside the piece is no judgement
        right = jnp.where(inside, branch < share_right, right)
        proposal, inside = _propose(z, rate, right, first, second, keep)
        ok = inside & (squeeze * _term(0, proposal) <= _series(proposal))
        draw = jnp.where(accepted, draw, proposal)
        # a tilt that is not finite would never be accepted: let it through, the engine reports NaN by site
        return turn + 1, draw, right, inside, accepted | ok | ~jnp.isfinite(tilt)

    nowhere = jnp.zeros(tilt.shape, bool)
    start = 0, jnp.zeros_like(tilt), nowhere, ~nowhere, nowhere
    _, draw, _, _, _ = jax.lax.while_loop(lambda carry: ~carry[4].all(), again, start)
    return jnp.where(jnp.isfinite(tilt), draw / 4, jnp.nan)


def _propose(
    z: jax.Array, rate: jax.Array, right: jax.Array, first: jax.Array, second: jax.Array, keep: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A proposal from the right or the left piece, and whether it lies inside that piece."""
    beyond = BREAK - jnp.log(first) / rate
    # z small: 1 / N^2 with |N| beyond 1/sqrt(BREAK), tilted by exp(-z^2 x / 2)
    heavy = 1 / ndtri(first * ndtr(-np.sqrt(1 / BREAK))) ** 2
    # z large: the inverse Gaussian itself (see distributions.InverseGaussian), cut at BREAK
    h = ndtri(first) ** 2 / 2
    root = 1.0 / (z + h + jnp.sqrt(h * (h + 2 * z)))
    light = jnp.where(second * (1 + root * z) <= 1, root, 1.0 / (jnp.maximum(z, 1e-6) ** 2 * root))
    small = z < 1 / BREAK
    left = jnp.where(small, heavy, light)
    inside = jnp.where(small, keep <= jnp.exp(-(z**2) * heavy / 2), light < BREAK)
    return jnp.where(right, beyond, left), right | inside


def _term(n: int, x: jax.Array) -> jax.Array:
    """The n-th term of the density's series, on both sides of BREAK."""
    half = n + 0.5
    near = (2 / (np.pi * x)) ** 1.5 * jnp.exp(-2 * half**2 / x)
    return np.pi * half * jnp.where(x <= BREAK, near, jnp.exp(-(half**2) * np.pi**2 * x / 2))


def _series(x: jax.Array) -> jax.Array:
    return sum((-1) ** n * _term(n, x) for n in range(TERMS))
