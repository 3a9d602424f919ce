"""The normal law cut to an interval, on one side or both, right however far out the interval lies."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr, ndtri
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

from .uniforms import inside_unit

FAR, NARROW = 4.0, 0.1  # beyond, and below, inversion of the distribution function would lose digits
WIDEST = 9.0  # deviations from the nearer end, or from the mean, beyond which nothing is left in float32
NODES, WEIGHTS = np.polynomial.legendre.leggauss(128)


def excess(key: jax.Array, low: jax.Array, width: jax.Array) -> jax.Array:
    """x - low for x ~ N(0, 1) on [low, low + width], an interval whose middle is not negative.

    By inversion, and where the interval is far out or narrow by rejection from an exponential cut to the width, which
    accepts nine of ten. Unlike x itself the excess keeps all its digits.
    """
    low, width = jnp.broadcast_arrays(low, width)
    tiny = jnp.finfo(low.dtype).tiny
    rejects = (low > FAR) | (width < NARROW)
    uniform = inside_unit(key, low.shape)
    near = jnp.minimum(low, FAR)
    above, beyond = ndtr(-near), ndtr(-(near + width))
    # the upper tail, where small probabilities keep their digits
    inverted = jnp.clip(-ndtri(beyond + uniform * (above - beyond)) - near, tiny, width)
    inverted = jnp.where(jnp.isnan(inverted), width, inverted)
    rate = jnp.maximum(low, 0.0)

    def again(carry: tuple) -> tuple:
        turn, found, accepted = carry
        keep, u = inside_unit(jax.random.fold_in(key, turn), (2, *low.shape))
        steep = rate * width > 1e-3
        bent = -jnp.log1p(u * jnp.expm1(-rate * jnp.where(steep, width, 1.0))) / jnp.where(steep, rate, 1.0)
        new = jnp.where(steep, bent, u * jnp.where(steep, 1.0, width))
        ok = jnp.log(keep) <= -((jnp.minimum(low, 0.0) + new) ** 2) / 2
        return turn + 1, jnp.where(accepted, found, new), accepted | ok

    start = 1, jnp.zeros_like(low), ~rejects
    _, found, _ = jax.lax.while_loop(lambda carry: ~carry[2].all(), again, start)
    return jnp.where(rejects, jnp.minimum(found, width), inverted)


def positive_normal(key: jax.Array, mean: jax.Array) -> jax.Array:
    """N(mean, 1) given that it is positive."""
    return excess(key, -mean, jnp.full_like(mean, jnp.inf))


class TruncatedNormal(dist.Distribution):
    """N(loc, scale^2) given that it lies between low and high; either may be infinite.

    NumPyro's own inverts the distribution function in float32: good six deviations out, infinite at forty. Here draws and
    densities are right there too.
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    reparametrized_params: ClassVar[list[str]] = []
    pytree_data_fields = ("loc", "scale", "low", "high")

    def __init__(
        self, loc: Any = 0.0, scale: Any = 1.0, *, low: Any = -jnp.inf, high: Any = jnp.inf,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        parts = [jnp.asarray(part, jnp.result_type(float)) for part in (loc, scale, low, high)]
        shape = jax.lax.broadcast_shapes(*map(jnp.shape, parts))
        self.loc, self.scale, self.low, self.high = promote_shapes(*parts, shape=shape)
        super().__init__(batch_shape=shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    def _interval(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Whether the interval was mirrored to have its middle above the mean, its low end, and its width, in deviations."""
        low, high = (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale
        mirrored = jnp.abs(high) < jnp.abs(low)
        width = (self.high - self.low) / self.scale
        return mirrored, jnp.maximum(jnp.where(mirrored, -high, low), -2 * WIDEST), width

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        mirrored, low, width = (jnp.broadcast_to(part, sample_shape + self.batch_shape) for part in self._interval())
        step = excess(key, low, width) * self.scale
        clipped = low <= -2 * WIDEST  # an end that is out of reach: the step is from the place to which it was brought
        start = jnp.where(clipped, self.loc + self.scale * low, self.low)
        from_high = jnp.where(clipped, self.loc - self.scale * low, self.high)
        return jnp.clip(jnp.where(mirrored, from_high - step, start + step), self.low, self.high)

    def _places(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Places above the (mirrored) low end and log weights of the law there, with the log of their sum."""
        _, low, width = self._interval()
        reach = jnp.where(low > 1, jnp.minimum(60 / low, WIDEST), WIDEST - jnp.minimum(low, 0.0))
        span = jnp.minimum(width, reach)
        nodes = jnp.asarray(NODES).reshape(-1, *(1,) * low.ndim)
        places = (nodes + 1) / 2 * span
        weights = jnp.log(jnp.asarray(WEIGHTS / 2)).reshape(nodes.shape) + jnp.log(span)
        # relative to the height of the normal density at the low end, or at its top
        height = -places * (jnp.maximum(low, 0.0) + places / 2)
        height = jnp.where(low < 0, -((low + places) ** 2) / 2, height)
        logs = weights + height
        return places, logs, jax.nn.logsumexp(logs, axis=0)

    def log_prob(self, value: jax.Array) -> jax.Array:
        mirrored, low, _ = self._interval()
        z = (value - self.loc) / self.scale
        end = jnp.where(mirrored, self.high, self.low)
        above = jnp.abs(value - end) / self.scale
        height = jnp.where(low < 0, -(z**2) / 2, -above * (low + above / 2))
        inside = (value >= self.low) & (value <= self.high)
        return jnp.where(inside, height - self._places()[2] - jnp.log(self.scale), -jnp.inf)

    def _of_excess(self, power: int) -> jax.Array:
        places, logs, log_total = self._places()
        weights = jnp.exp(logs - log_total)
        mean = (weights * places).sum(0)
        return mean if power == 1 else (weights * (places - mean) ** 2).sum(0)

    @property
    def mean(self) -> jax.Array:
        mirrored, low, _ = self._interval()
        z = low + self._of_excess(1)
        return self.loc + self.scale * jnp.where(mirrored, -z, z)

    @property
    def variance(self) -> jax.Array:
        return self.scale**2 * self._of_excess(2)
