"""Special functions of float32 numbers that Triton does not know, from operations that it does; as accurate as XLA's."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

ERF_NEAR = (7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2, 1.128358514861418e-1,
    -3.761262582423300e-1, 1.128379165726710)  # fmt: skip
ERFC_BELOW_TWO = (2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
    6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1,
    5.638259427386472e-1)  # fmt: skip
ERFC_ABOVE_TWO = (-1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786, -1.015265279202700,
    4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1)  # fmt: skip
LANCZOS = (676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
    -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7)  # fmt: skip


def erf(x: jax.Array) -> jax.Array:
    """The error function, which Triton does not know: Maclaurin's series near 0, else 1 - erfc."""
    near = x * _polynomial(x * x, ERF_NEAR)
    return jnp.where(jnp.abs(x) < 1, near, jnp.sign(x) * (1 - _erfc_beyond_one(jnp.abs(x))))


def erfc(x: jax.Array) -> jax.Array:
    """1 - erf(x), to full precision where it is small (Cephes, as XLA)."""
    beyond = _erfc_beyond_one(jnp.abs(x))
    return jnp.where(jnp.abs(x) < 1, 1 - x * _polynomial(x * x, ERF_NEAR), jnp.where(x < 0, 2 - beyond, beyond))


def _erfc_beyond_one(x: jax.Array) -> jax.Array:
    """erfc(x) for x >= 1: exp(-x^2) / x times a polynomial of 1 / x^2."""
    square = jnp.maximum(x * x, 1.0)
    shape = jnp.where(x < 2, _polynomial(1 / square, ERFC_BELOW_TWO), _polynomial(1 / square, ERFC_ABOVE_TWO))
    return jnp.exp(-square) / jnp.maximum(x, 1.0) * shape


def lgamma(x: jax.Array) -> jax.Array:
    """log |Gamma(x)| by Lanczos' sum, as XLA; below 1/2 by the reflection formula."""
    below = x < 0.5
    z = jnp.where(below, -x, x - 1)
    series = jnp.full_like(x, 0.99999999999980993227684700473478)
    for i, coefficient in enumerate(LANCZOS):
        series = series + coefficient / (z + (i + 1))
    t = z + 7.5
    # (z + 1/2) log t - t with the large parts together: log t = log 7.5 + log1p(z / 7.5)
    log_t = np.float32(np.log(7.5)) + jnp.log1p(z / 7.5)
    direct = np.float32(0.5 * np.log(2 * np.pi)) + (z + 0.5 - t / log_t) * log_t + jnp.log(series)
    fraction = jnp.abs(x) - jnp.floor(jnp.abs(x))
    sine = jnp.log(jnp.sin(np.float32(np.pi) * jnp.minimum(fraction, 1 - fraction)))
    reflected = jnp.where(jnp.isinf(sine), jnp.inf, np.float32(np.log(np.pi)) - sine - direct)
    return jnp.where(below, reflected, direct)


def _polynomial(x: jax.Array, coefficients: Sequence[float]) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
