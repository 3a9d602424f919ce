"""Distributions that stories use and NumPyro does not have."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes


class InverseGaussian(dist.Distribution):
    """p(x) = sqrt(shape / (2 pi x^3)) exp(-shape (x - mean)^2 / (2 mean^2 x)); variance mean^3 / shape."""

    arg_constraints: ClassVar = {"loc": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    reparametrized_params: ClassVar[list[str]] = []

    def __init__(self, loc: jax.Array, concentration: jax.Array, *, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = promote_shapes(jnp.asarray(loc), jnp.asarray(concentration))
        shape = jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(concentration))
        super().__init__(batch_shape=shape, validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Michael, Schucany & Haas (1976): the smaller root x of a chi-square's equation, or mean^2 / x.

        With r = 1 / mean and h = chi^2 / (2 shape) the root is 1 / (r + h + sqrt(h (h + 2 r))), which loses no digits
        however large the mean; it is kept with probability 1 / (1 + x r).
        """
        normal_key, key = jax.random.split(key)
        shape = sample_shape + self.batch_shape
        r = 1.0 / self.loc
        h = jax.random.normal(normal_key, shape) ** 2 / (2 * self.concentration)
        # r and h are both 0 where an infinite mean meets a normal draw of exactly 0
        x = 1.0 / jnp.maximum(r + h + jnp.sqrt(h * (h + 2 * r)), jnp.finfo(h.dtype).tiny)
        return jnp.where(jax.random.uniform(key, shape) * (1 + x * r) <= 1, x, 1.0 / (r * (r * x)))

    def log_prob(self, value: jax.Array) -> jax.Array:
        gap = (value - self.loc) / self.loc
        return 0.5 * (jnp.log(self.concentration / (2 * jnp.pi * value**3)) - self.concentration * gap**2 / value)

    @property
    def mean(self) -> jax.Array:
        return jnp.broadcast_to(self.loc, self.batch_shape)

    @property
    def variance(self) -> jax.Array:
        return jnp.broadcast_to(self.loc**3 / self.concentration, self.batch_shape)


class BernoulliProbit(dist.BernoulliLogits):
    """P(y = 1) = Phi(loc). Held as logits, log Phi(loc) - log Phi(-loc), which are exact far out."""

    arg_constraints: ClassVar = {"loc": constraints.real}
    pytree_data_fields = ("loc",)

    def __init__(self, loc: jax.Array, *, validate_args: bool | None = None) -> None:
        self.loc = jnp.asarray(loc)
        super().__init__(log_ndtr(self.loc) - log_ndtr(-self.loc), validate_args=validate_args)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return log_ndtr((2.0 * value - 1) * self.loc)


class NormalJeffreys(dist.Distribution):
    """p(x) = 1 / |x|: N(x; 0, tau) with p(tau) = 1 / tau integrated out. Improper, at 0 and far out."""

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real

    def __init__(self, *, validate_args: bool | None = None) -> None:
        super().__init__(validate_args=validate_args)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -jnp.log(jnp.abs(value))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        raise ValueError("NormalJeffreys is improper and cannot simulate; take a proper prior, e.g. Laplace.")
