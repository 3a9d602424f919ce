"""The generalised inverse Gaussian law: density proportional to x^(order - 1) exp(-(a x + b / x) / 2).

It contains the inverse gamma (a = 0), the gamma (b = 0) and the inverse Gaussian (order = -1/2), and is the conditional
law of a variance, a precision or a scale under most priors in use. Draws are Devroye's (2014): rejection on the log
scale, exact and uniformly fast for all parameters.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

from .uniforms import inside_unit


class _Envelope(NamedTuple):
    """The log-density psi of X, where the variate is a multiple of exp(X), and the pieces that bound it."""

    alpha: jax.Array
    order: jax.Array  # not negative
    t: jax.Array
    s: jax.Array

    def psi(self, x: jax.Array) -> jax.Array:
        # exp(x) - x - 1, without cancellation near zero
        near = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5)))
        growth = jnp.where(jnp.abs(x) < 0.1, near, jnp.expm1(x) - x)
        return -self.alpha * 2 * jnp.sinh(x / 2) ** 2 - self.order * growth

    def slope(self, x: jax.Array) -> jax.Array:
        return -self.alpha * jnp.sinh(x) - self.order * jnp.expm1(x)


def _envelope(order: jax.Array, omega_squared: jax.Array) -> _Envelope:
    alpha = omega_squared / (jnp.sqrt(omega_squared + order**2) + order)
    bare = _Envelope(alpha, order, jnp.ones_like(alpha), jnp.ones_like(alpha))
    right, left = -bare.psi(bare.t), -bare.psi(-bare.s)
    t = jnp.where(right > 2, jnp.sqrt(2 / (alpha + order)), jnp.log(4 / (alpha + 2 * order)))
    narrow = jnp.log1p(1 / alpha + jnp.sqrt(1 / alpha**2 + 2 / alpha))
    s = jnp.where(left > 2, jnp.sqrt(4 / (alpha * jnp.cosh(1.0) + order)), jnp.minimum(1 / order, narrow))
    return bare._replace(
        t=jnp.where((right >= 0.5) & (right <= 2), 1.0, t), s=jnp.where((left >= 0.5) & (left <= 2), 1.0, s)
    )


class GeneralizedInverseGaussian(dist.Distribution):
    """GIG(order, a, b) on the positive numbers; a or b may be zero where the law is still proper."""

    arg_constraints: ClassVar = {
        "order": constraints.real, "a": constraints.nonnegative, "b": constraints.nonnegative,
    }  # fmt: skip
    support = constraints.positive
    pytree_data_fields = ("order", "a", "b")

    def __init__(self, order: Any, a: Any, b: Any, *, validate_args: bool | None = None) -> None:
        shape = jax.lax.broadcast_shapes(*map(jnp.shape, (order, a, b)))
        self.order, self.a, self.b = promote_shapes(*map(jnp.asarray, (order, a, b)), shape=shape)
        super().__init__(batch_shape=shape, validate_args=validate_args)

    def _parts(self) -> tuple[_Envelope, jax.Array]:
        order, a, b = (jnp.broadcast_to(part, self.batch_shape) for part in (self.order, self.a, self.b))
        size = jnp.abs(order)
        reach = size + jnp.sqrt(a * b + order**2)
        # order >= 0: x = reach / a * exp(X);  order < 0: the reciprocal law, x = b / (reach * exp(X))
        log_scale = jnp.where(order < 0, jnp.log(b) - jnp.log(reach), jnp.log(reach) - jnp.log(a))
        return _envelope(size, a * b), log_scale

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        envelope, log_scale = self._parts()
        t, s = envelope.t, envelope.s
        eta, zeta = -envelope.psi(t), -envelope.slope(t)
        theta, xi = -envelope.psi(-s), envelope.slope(-s)
        p, r = 1 / xi, 1 / zeta
        flat_right, flat_left = t - r * eta, s - p * theta
        q = flat_right + flat_left
        shape = sample_shape + self.batch_shape

        def again(carry: tuple) -> tuple:
            key, x, accepted = carry
            key, proposal_key = jax.random.split(key)
            u, v, w = inside_unit(proposal_key, (3, *shape))
            place, total = u * (p + q + r), jnp.log(v)
            new = jnp.where(
                place < q,
                q * v - flat_left,
                jnp.where(place < q + r, flat_right - r * total, p * total - flat_left),
            )
            log_hat = jnp.where(
                new > flat_right,
                -eta - zeta * (new - t),
                jnp.where(new < -flat_left, -theta + xi * (new + s), 0.0),
            )
            ok = jnp.log(w) + log_hat <= envelope.psi(new)
            return key, jnp.where(accepted, x, new), accepted | ok | jnp.isnan(p)

        start = key, jnp.zeros(shape), jnp.zeros(shape, bool)
        _, x, _ = jax.lax.while_loop(lambda carry: ~carry[2].all(), again, start)
        return jnp.exp(log_scale + jnp.where(self.order < 0, -x, x))

    def _grid(self, decades: float, size: int) -> tuple[jax.Array, jax.Array]:
        """Places on the log scale and the log mass there: the trapezoid rule is very good on the whole line."""
        envelope, _ = self._parts()
        grid = jnp.linspace(-1.0, 1.0, size).reshape(-1, *(1,) * len(self.batch_shape))
        width = jnp.where(
            grid < 0,
            envelope.s + decades / envelope.slope(-envelope.s),
            envelope.t - decades / envelope.slope(envelope.t),
        )
        places = grid * width
        return places, envelope.psi(places) + jnp.log(jnp.asarray(jnp.gradient(places, axis=0)))

    def log_prob(self, value: jax.Array) -> jax.Array:
        envelope, log_scale = self._parts()
        x = jnp.log(value) - log_scale
        log_normaliser = jax.nn.logsumexp(self._grid(25.0, 801)[1], axis=0)
        return envelope.psi(jnp.where(self.order < 0, -x, x)) - log_normaliser - jnp.log(jnp.asarray(value))

    def _moment(self, power: int, log_centre: jax.Array | float = -jnp.inf) -> jax.Array:
        """E[|x / scale - centre|^power]; infinite where the tail is too heavy."""
        places, logs = self._grid(80.0, 4001)
        log_x = jnp.where(self.order < 0, -places, places)
        gap = jnp.abs(log_x - log_centre)
        log_distance = jnp.maximum(log_x, log_centre) + jnp.log(-jnp.expm1(-gap))  # no power of x leaves float32
        moment = jnp.exp(jax.nn.logsumexp(logs + power * log_distance, axis=0) - jax.nn.logsumexp(logs, axis=0))
        return jnp.where((self.a > 0) | (self.order + power < 0), moment, jnp.inf)

    @property
    def mean(self) -> jax.Array:
        return jnp.exp(self._parts()[1]) * self._moment(1)

    @property
    def variance(self) -> jax.Array:
        return jnp.exp(2 * self._parts()[1]) * self._moment(2, jnp.log(self._moment(1)))
