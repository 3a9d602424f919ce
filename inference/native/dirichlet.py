"""A call of the C++ Dirichlet draws from a traced program."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .build import DIRICHLET


def dirichlet(key: jax.Array, concentration: jax.Array) -> jax.Array:
    """Dirichlet draws over the last axis, in float32."""
    flat = concentration.astype(jnp.float32).reshape(-1, concentration.shape[-1])
    call = jax.ffi.ffi_call(DIRICHLET, jax.ShapeDtypeStruct(flat.shape, jnp.float32), vmap_method="sequential")
    words = jax.random.key_data(key).ravel()[:2].astype(jnp.uint32)
    return call(words, flat).reshape(concentration.shape)
