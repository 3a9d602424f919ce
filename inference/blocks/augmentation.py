"""Auxiliary variables that make a density normal in its location.

A family is augmented if its density, as a function of some x that is linear in the coefficients, is the mean over an
auxiliary variable a of exp(linear x - precision x^2 / 2) times what does not depend on x. Then, with a drawn given x, the
coefficients are normal (:mod:`.augmented`). It serves responses (logit, probit, classes, heavy tails, margins) and
priors (Laplace, Student's t, spike and slab) alike.

Families are looked up in ``AUGMENTED``; add yours there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr

from topiczoo.models.vocabulary.distributions import BernoulliProbit, InverseGaussian
from topiczoo.models.vocabulary.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll

from ..samplers.polya_gamma import polya_gamma
from ..samplers.truncated import positive_normal

MOST_PRECISE = 1e25  # of a coefficient at zero: beyond, squares leave float32


class Quadratic(NamedTuple):
    """The density in x, given the auxiliary variable: exp(linear x - precision x^2 / 2)."""

    linear: jax.Array
    precision: jax.Array


class Augmentation:
    """How one family is augmented; arrays have the shape of the distribution's batch."""

    columns = False  # whether x has a last axis of classes, of which one is moved at a time

    def serves(self, prior: Any) -> bool:
        """Whether it serves this prior; None stands for a response."""
        return True

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        """x."""
        raise NotImplementedError

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        """The auxiliary variable given x and the value."""
        raise NotImplementedError

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        """The density in x given the auxiliary variable."""
        raise NotImplementedError

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        """log p(auxiliary | x, value), without terms of the auxiliary variable alone: for checking."""
        raise NotImplementedError


def _log_cosh(x: jax.Array) -> jax.Array:
    return jnp.logaddexp(x, -x)


class Logistic(Augmentation):
    """Polya-Gamma: y successes of n, log odds x."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.logits

    def _count(self, fn: Any) -> Any:
        return getattr(fn, "total_count", 1)

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return polya_gamma(key, jnp.broadcast_to(self._count(fn), fn.logits.shape), fn.logits)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(value - self._count(fn) / 2, auxiliary)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return self._count(fn) * _log_cosh(fn.logits / 2) - auxiliary * fn.logits**2 / 2


class Classes(Augmentation):
    """Polya-Gamma for one class against the others (Holmes & Held 2006): log odds x_c - log sum_{j != c} exp x_j."""

    columns = True

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.logits

    def _others(self, fn: Any, column: Any) -> jax.Array:
        is_column = jnp.arange(fn.logits.shape[-1]) == column
        return jax.nn.logsumexp(jnp.where(is_column, -jnp.inf, fn.logits), -1)

    def _odds(self, fn: Any, column: Any) -> jax.Array:
        return fn.logits[..., column] - self._others(fn, column)

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        odds = self._odds(fn, column)
        return polya_gamma(key, jnp.ones(odds.shape, int), odds)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic((value == column) - 0.5 + auxiliary * self._others(fn, column), auxiliary)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        odds = self._odds(fn, column)
        return _log_cosh(odds / 2) - auxiliary * odds**2 / 2


class Probit(Augmentation):
    """Albert & Chib (1993): u ~ N(x, 1), and y says whether u is positive. The variable drawn is u itself."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.loc

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        sign = 2.0 * value - 1
        return sign * positive_normal(key, sign * fn.loc)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(auxiliary, jnp.ones_like(auxiliary))

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return auxiliary * fn.loc - fn.loc**2 / 2 - log_ndtr((2.0 * value - 1) * fn.loc)


class HeavyTail(Augmentation):
    """Student's t as a normal whose precision is a gamma; x is the deviation from the centre."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.loc - value

    def _rate(self, fn: Any, value: jax.Array) -> jax.Array:
        return (fn.df + ((value - fn.loc) / fn.scale) ** 2) / 2

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return dist.Gamma((fn.df + 1) / 2, self._rate(fn, value), validate_args=False).sample(key)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(jnp.zeros_like(auxiliary), auxiliary / fn.scale**2)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        rate = self._rate(fn, value)
        return (fn.df + 1) / 2 * jnp.log(rate) - auxiliary * rate


class DoubleExponential(Augmentation):
    """Laplace as a normal whose variance is exponential (Park & Casella 2008); the variable drawn is 1 / variance."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.loc - value

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        deviation = jnp.abs(value - fn.loc)
        # the mean is infinite where the deviation is 0, which the law allows
        law = InverseGaussian(1 / (fn.scale * deviation), fn.scale**-2.0, validate_args=False)
        return jnp.minimum(law.sample(key), MOST_PRECISE)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(jnp.zeros_like(auxiliary), auxiliary)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        deviation = jnp.abs(value - fn.loc)
        return deviation / fn.scale - auxiliary * deviation**2 / 2


class NormalParts(Augmentation):
    """A prior that is a mixture of normals, such as spike and slab: the variable drawn is the part."""

    def serves(self, prior: Any) -> bool:
        return prior is not None and isinstance(prior.component_distribution, dist.Normal)

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return value

    def _logits(self, fn: Any, value: jax.Array) -> jax.Array:
        parts = fn.component_distribution.log_prob(value[..., None])
        return jax.nn.log_softmax(fn.mixing_distribution.logits + parts, -1)

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return jax.random.categorical(key, self._logits(fn, value))

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        parts = fn.component_distribution
        shape = (*auxiliary.shape, parts.batch_shape[-1])
        loc, scale = (
            jnp.take_along_axis(jnp.broadcast_to(of_parts, shape), auxiliary[..., None], -1)[..., 0]
            for of_parts in (parts.loc, parts.scale)
        )
        return Quadratic(loc / scale**2, scale**-2.0)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return jnp.take_along_axis(self._logits(fn, value), auxiliary[..., None], -1)[..., 0]


class Margin(Augmentation):
    """Hinges exp(-weight max(0, zeta)) with zeta = slope x + offset (Polson & Scott 2011); the variable drawn is 1 / lambda.

    With c = weight / 2, exp(-2 c max(0, zeta)) is the integral of N(-c zeta; lambda, lambda) over lambda from 0.
    A family may be a product of several hinges, which stand side by side in a leading axis.
    """

    def hinges(self, fn: Any, value: jax.Array, column: Any) -> tuple[jax.Array, jax.Array]:
        """Slope and offset of each hinge, [hinges, ...]."""
        raise NotImplementedError

    def _zeta(self, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        slope, offset = self.hinges(fn, value, column)
        x = self.location(fn, value)
        return slope * (x[..., column] if self.columns else x) + offset

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        distance = fn.weight / 2 * jnp.abs(self._zeta(fn, value, column))
        return InverseGaussian(1 / distance, jnp.ones(()), validate_args=False).sample(key)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        slope, offset = self.hinges(fn, value, column)
        half = fn.weight / 2
        precision = jnp.minimum(half * auxiliary * half, MOST_PRECISE)
        return Quadratic((-slope * (half + offset * precision)).sum(0), precision.sum(0))

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        distance = fn.weight / 2 * jnp.abs(self._zeta(fn, value, column))
        return (distance - auxiliary * distance**2 / 2).sum(0)


class TubeMargin(Margin):
    """Epsilon-insensitive: a hinge above and a hinge below."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return jnp.broadcast_to(fn.loc, fn.batch_shape)

    def hinges(self, fn: Any, value: jax.Array, column: Any) -> tuple[jax.Array, jax.Array]:
        sides = jnp.array([-1.0, 1.0]).reshape(2, *[1] * jnp.ndim(value))
        return sides, -sides * value - fn.epsilon


class BinaryMargin(Margin):
    """Two classes."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.scores

    def hinges(self, fn: Any, value: jax.Array, column: Any) -> tuple[jax.Array, jax.Array]:
        slope = (1 - 2.0 * value)[None]
        return slope, jnp.broadcast_to(fn.cost, slope.shape)


class OneAgainstAllMargin(Margin):
    """Each class has a hinge of its own."""

    columns = True

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.scores

    def hinges(self, fn: Any, value: jax.Array, column: Any) -> tuple[jax.Array, jax.Array]:
        slope = jnp.where(value == column, -1.0, 1.0)[None]
        return slope, jnp.broadcast_to(fn.cost, slope.shape)


class MultiClassMargin(OneAgainstAllMargin):
    """Crammer & Singer: in one class's score x alone the loss is a constant plus a hinge.

    Where y is the class, the loss is max(0, cost + best other score - x). Elsewhere it is at least ``least``, the loss
    without the class, and the hinge is what x adds to it.
    """

    def hinges(self, fn: Any, value: jax.Array, column: Any) -> tuple[jax.Array, jax.Array]:
        classes = jnp.arange(fn.scores.shape[-1])
        own = jnp.take_along_axis(fn.scores, value[..., None], -1)[..., 0]
        others = jnp.where(classes == column, -jnp.inf, fn.scores)
        least = (jnp.where(classes == value[..., None], 0.0, fn.cost) + others).max(-1) - own
        hit = value == column
        slope = jnp.where(hit, -1.0, 1.0)
        return slope[None], (fn.cost + jnp.where(hit, others.max(-1), -own - least))[None]


AUGMENTED: dict[type, Augmentation] = {
    dist.BernoulliLogits: Logistic(),
    dist.BinomialLogits: Logistic(),
    dist.CategoricalLogits: Classes(),
    BernoulliProbit: Probit(),
    dist.StudentT: HeavyTail(),
    dist.Laplace: DoubleExponential(),
    dist.MixtureSameFamily: NormalParts(),
    EpsilonInsensitive: TubeMargin(),
    Hinge: BinaryMargin(),
    MultiClassHinge: MultiClassMargin(),
    OneAgainstAll: OneAgainstAllMargin(),
}
