"""Margins: losses of support vector machines as distributions of y given the predictor.

A margin is a site like any other. ``numpyro.sample("margin", Hinge(zbar @ eta, weight, cost), obs=y)`` in a story multiplies
its density by exp(-weight loss), and every engine takes it from there (Polson & Scott 2011; Zhu et al. 2014).

EpsilonInsensitive is a proper density. The others are pseudo-likelihoods: exp(-weight loss) summed over classes is not 1 but
depends on the predictor. As a law of new classes, when a story is simulated or predicts, they are normalised; as the density
of classes that are observed they are not, since it is the loss that counts.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

__all__ = ["EpsilonInsensitive", "Hinge", "MultiClassHinge", "OneAgainstAll"]


class EpsilonInsensitive(dist.Distribution):
    """p(y) = exp(-weight max(0, |y - loc| - epsilon)) / (2 epsilon + 2 / weight): errors up to epsilon cost nothing."""

    arg_constraints: ClassVar = {
        "loc": constraints.real, "weight": constraints.positive, "epsilon": constraints.nonnegative
    }  # fmt: skip
    support = constraints.real
    reparametrized_params: ClassVar[list[str]] = ["loc"]

    def __init__(
        self,
        loc: jax.Array,
        weight: jax.Array | float = 1.0,
        epsilon: jax.Array | float = 1e-3,
        *,
        validate_args: bool | None = None,
    ) -> None:
        parts = map(jnp.asarray, (loc, weight, epsilon))
        self.loc, self.weight, self.epsilon = promote_shapes(*parts)
        shape = jnp.broadcast_shapes(*(jnp.shape(part) for part in (loc, weight, epsilon)))
        super().__init__(batch_shape=shape, validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Flat with probability epsilon / (epsilon + 1 / weight), else an exponential beyond epsilon, on either side."""
        sign_key, side_key, flat_key, tail_key = jax.random.split(key, 4)
        shape = sample_shape + self.batch_shape
        flat = self.epsilon * jax.random.uniform(flat_key, shape)
        tail = self.epsilon + jax.random.exponential(tail_key, shape) / self.weight
        inside = jax.random.uniform(side_key, shape) * (self.epsilon + 1 / self.weight) < self.epsilon
        return self.loc + jnp.where(inside, flat, tail) * jax.random.rademacher(sign_key, shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        loss = jnp.maximum(0.0, jnp.abs(value - self.loc) - self.epsilon)
        return -self.weight * loss - jnp.log(2 * self.epsilon + 2 / self.weight)

    @property
    def mean(self) -> jax.Array:
        return jnp.broadcast_to(self.loc, self.batch_shape)

    @property
    def variance(self) -> jax.Array:
        scale, epsilon = 1 / self.weight, self.epsilon
        tail = epsilon**2 + 2 * epsilon * scale + 2 * scale**2
        return jnp.broadcast_to((epsilon**3 / 3 + scale * tail) / (epsilon + scale), self.batch_shape)


class _Margin:
    """Classes by their scores, a loss of each, and its weight; what a pseudo-likelihood puts before a law of classes."""

    pytree_data_fields = ("scores", "weight", "cost")

    def __init__(
        self,
        scores: jax.Array,
        weight: jax.Array | float = 1.0,
        cost: jax.Array | float = 1.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.scores, self.weight, self.cost = jnp.asarray(scores), jnp.asarray(weight), jnp.asarray(cost)
        super().__init__(self._logits(), validate_args=validate_args)  # type: ignore[call-arg]  # the law of classes

    def _logits(self) -> jax.Array:
        """Of the law of new classes: minus the loss of each, up to a constant."""
        raise NotImplementedError

    @property
    def log_normaliser(self) -> jax.Array:
        """What log_prob lacks to be the law of new classes, [...]."""
        raise NotImplementedError


class Hinge(_Margin, dist.BernoulliLogits):
    """log density -weight max(0, cost - scores) where y is 1, -weight max(0, cost + scores) where y is 0."""

    arg_constraints: ClassVar = {
        "scores": constraints.real, "weight": constraints.positive, "cost": constraints.positive
    }  # fmt: skip

    def _loss(self, value: jax.Array | int) -> jax.Array:
        return self.weight * jnp.maximum(0.0, self.cost - (2.0 * value - 1) * self.scores)

    def _logits(self) -> jax.Array:
        return self._loss(0) - self._loss(1)

    @property
    def log_normaliser(self) -> jax.Array:
        return jnp.logaddexp(-self._loss(0), -self._loss(1))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -self._loss(value)


class _Classes(_Margin, dist.CategoricalLogits):
    """Classes 0, 1, ... by their scores, [..., classes], and the loss of each."""

    arg_constraints: ClassVar = {
        "scores": constraints.real_vector, "weight": constraints.positive, "cost": constraints.positive
    }  # fmt: skip

    @property
    def log_normaliser(self) -> jax.Array:
        return jax.nn.logsumexp(self.logits, -1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """One uniform number a class drawn, where NumPyro's would take one for each class there is."""
        ends = jnp.cumsum(self.probs, -1)
        uniform = jax.random.uniform(key, (*sample_shape, *self.batch_shape)) * ends[..., -1]
        return (uniform[..., None] >= ends[..., :-1]).sum(-1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        value = jnp.asarray(value)
        shape = jnp.broadcast_shapes(value.shape, self.batch_shape)
        losses = jnp.broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        return jnp.take_along_axis(losses, jnp.broadcast_to(value, shape)[..., None], -1)[..., 0]


class MultiClassHinge(_Classes):
    """log density -weight max_c (cost [c is not y] + score_c - score_y): the loss of Crammer & Singer (2001)."""

    def _logits(self) -> jax.Array:
        return -self.weight * jnp.maximum(0.0, self.cost + _best_other(self.scores) - self.scores)


class OneAgainstAll(_Classes):
    """log density -weight sum_c max(0, cost - sign_c score_c), sign 1 for y and -1 for the others: a hinge a class."""

    def _logits(self) -> jax.Array:
        own, other = (jnp.maximum(0.0, self.cost - sign * self.scores) for sign in (1, -1))
        return -self.weight * (other.sum(-1, keepdims=True) - other + own)


def _best_other(scores: jax.Array) -> jax.Array:
    """For each class the largest score of the others."""
    top, second = jnp.moveaxis(jax.lax.top_k(scores, 2)[0], -1, 0)[..., None]
    first = jnp.arange(scores.shape[-1]) == scores.argmax(-1)[..., None]
    return jnp.where(first, second, top)
