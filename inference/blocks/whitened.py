"""Normal vectors that share one scale, read by a product with its inverse.

NumPyro solves a triangular system for each of them, which XLA does slowly: for 2000 vectors of 20 numbers 8 ms in the place
of 0.3. Blocks that read such a density hundreds of times a sweep read it through :class:`Whitened`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import Documents

from ..story.response import Y
from ..story.tracing import base_distribution


class WhitenedNormal(dist.Distribution):
    """N(loc, L L') with one L [numbers, numbers] for all vectors."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector
    pytree_data_fields = ("loc", "scale_tril")

    def __init__(self, loc: jax.Array, scale_tril: jax.Array) -> None:
        self.loc, self.scale_tril = loc, scale_tril
        super().__init__(jnp.shape(loc)[:-1], jnp.shape(loc)[-1:], validate_args=False)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.loc + jax.random.normal(key, self.shape(sample_shape)) @ self.scale_tril.T

    def log_prob(self, value: jax.Array) -> jax.Array:
        size = self.scale_tril.shape[0]
        inverse = solve_triangular(self.scale_tril, jnp.eye(size), lower=True)
        half_log_det = jnp.log(jnp.diagonal(self.scale_tril)).sum() + 0.5 * size * np.log(2 * np.pi)
        return -0.5 * jnp.square((value - self.loc) @ inverse.T).sum(-1) - half_log_det

    @property
    def mean(self) -> jax.Array:
        return self.loc


class Whitened(Messenger):
    """Puts :class:`WhitenedNormal` in the place of normal vectors that share one scale; the law is the same."""

    def process_message(self, msg: dict) -> None:
        if msg["type"] != "sample":
            return
        fn, base = msg["fn"], base_distribution(msg["fn"])
        if type(base) is not dist.MultivariateNormal or _masked(fn) or fn.event_dim != 1:
            return
        if base.scale_tril.size == base.event_shape[0] ** 2:
            scale_tril = base.scale_tril.reshape(base.event_shape * 2)
            msg["fn"] = WhitenedNormal(base.loc, scale_tril).expand(fn.batch_shape)


def _masked(fn: dist.Distribution) -> bool:
    while isinstance(fn, dist.ExpandedDistribution | dist.Independent):
        fn = fn.base_dist
    return isinstance(fn, dist.MaskedDistribution)


def whitened(story: Callable) -> Callable:
    """The story with such vectors."""

    def read(corpus: Documents, y: Y) -> None:
        with Whitened():
            story(corpus, y)

    return read
