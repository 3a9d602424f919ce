"""Additive components, log beta_k = log_softmax(rest_k + deviation_k): the Newton step of Eisenstein, Ahmed & Xing (2011).

A sparse prior of a deviation is a normal one with a variance tau of its own. Given E[1/tau] the objective is quadratic in
the prior's part (equation 3); since that lies below the log prior and touches it where the deviation stands, a step that
raises the one raises the other. So tau never appears: a :class:`Penalty` gives the log prior and E[1/tau].

``rest`` is whatever else is added: the background, or the background and deviations of other facets. All components move at
once, each in O(terms).

A component may be part of several sums (that of a topic, of one for each label): ``owner`` says of each sum which component
is in it. Its objective is then a sum over them, with the negative Hessian D - sum_j C_j beta_j beta_j', where D = diag(sum_j
C_j beta_j + 1/tau). The paper puts sum_j C_j beta_j in the place of C beta in equation 5, which is not definite. With
betabar, the mean of the beta_j by their counts, D - C betabar betabar' is: it lies above the negative Hessian by Jensen's
inequality, so that steps are a little short, is of rank one beside its diagonal, and exact where the beta_j are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ..programs.compiling import jitted

WIDTH = 1e-4  # the priors' cusp at 0 is rounded off within this, so that E[1/tau] stays a float32 number
FARTHEST = 2.0  # a term's log-probability moves no farther in one step: far below its optimum Newton would overshoot
HALVINGS = 20


class Penalty(Protocol):
    """A sparse prior, term by term, and its logarithm at 0."""

    @property
    def at_zero(self) -> jax.Array | float: ...
    def log_prior(self, deviation: jax.Array, step: jax.Array) -> jax.Array:
        """What a step adds to the log prior: a difference of logarithms would lose it."""
        ...

    def weight(self, deviation: jax.Array) -> jax.Array: ...


# Named tuples: JAX holds two registered dataclasses of one field for the same structure, and now and then runs the program
# that it compiled for the other.
class LaplacePenalty(NamedTuple):
    """Laplace(0, scale): tau given the deviation is generalised inverse Gaussian, E[1/tau] = 1 / (scale |deviation|)."""

    scale: jax.Array

    @property
    def at_zero(self) -> jax.Array:
        return -jnp.log(2 * self.scale)

    def log_prior(self, deviation: jax.Array, step: jax.Array) -> jax.Array:
        old, new = (jnp.sqrt(value**2 + WIDTH**2) for value in (deviation, deviation + step))
        return -step * (2 * deviation + step) / ((old + new) * self.scale)

    def weight(self, deviation: jax.Array) -> jax.Array:
        return 1.0 / (self.scale * jnp.sqrt(deviation**2 + WIDTH**2))


@jax.tree_util.register_static
@dataclass(frozen=True)
class JeffreysPenalty:
    """p(deviation) proportional to 1 / |deviation|, E[1/tau] = 1 / deviation^2. Improper: its density is put to 1 at 0."""

    at_zero: ClassVar[float] = 0.0

    def log_prior(self, deviation: jax.Array, step: jax.Array) -> jax.Array:
        return -0.5 * jnp.log1p(step * (2 * deviation + step) / (deviation**2 + WIDTH**2))

    def weight(self, deviation: jax.Array) -> jax.Array:
        return 1.0 / (deviation**2 + WIDTH**2)


class NormalPenalty(NamedTuple):
    """A normal prior: what sparse components start under, for 0 is absorbing under the Jeffreys prior.

    Under a wide one terms said once start far from 0 and may stay there, under a narrow one they start so near to 0 that
    they end there.
    """

    variance: jax.Array | float

    @property
    def at_zero(self) -> float:
        return 0.0

    def log_prior(self, deviation: jax.Array, step: jax.Array) -> jax.Array:
        return -0.5 * step * (2 * deviation + step) / self.variance

    def weight(self, deviation: jax.Array) -> jax.Array:
        return jnp.broadcast_to(1 / self.variance, deviation.shape)


class Climb(NamedTuple):
    """Where the components stand."""

    deviation: jax.Array  # [components, terms]
    moving: jax.Array  # [components], whether the last step added enough to the objective
    steps: jax.Array


def direction(deviation: jax.Array, counts: jax.Array, beta: jax.Array, weight: jax.Array) -> jax.Array:
    """Equation 6, for all components: minus the inverse Hessian times the gradient.

    With D = C beta + 1/tau the negative Hessian is D - C beta beta', and 1 - C beta' D^-1 beta = sum beta (1/tau) / D, which
    loses no digits. Where a step would be too long 1/tau is raised in the Hessian, which stays positive definite.
    """
    total = counts.sum(-1, keepdims=True)
    gradient = counts - total * beta - weight * deviation  # (4)
    weight = jnp.maximum(weight, jnp.abs(gradient) / FARTHEST - total * beta)
    diagonal = total * beta + weight
    own, shared = gradient / diagonal, beta / diagonal
    left = jnp.maximum((shared * weight).sum(-1, keepdims=True), 1e-30)  # 0 for a component that is in no sum
    return own + total * shared * (beta * own).sum(-1, keepdims=True) / left


@jitted
def newton(
    deviation: jax.Array, counts: jax.Array, rest: jax.Array, penalty: Penalty, num_steps: int, tolerance: float = 0.0,
    owner: jax.Array | None = None,
) -> Climb:  # fmt: skip
    """Newton steps, each with E[1/tau] anew and halved for each component until its objective does not fall.

    ``counts`` [sums, terms] are expected counts, ``rest`` [sums, terms] or [terms]; ``owner`` [sums] is the component in
    each sum, ``len(deviation)`` for none; without it each component has the sum in its own place. Ends after
    ``num_steps``, or when no component gains more than ``tolerance`` for each of its words.
    """
    own = gathered(counts, owner, len(deviation))
    total = counts.sum(-1)
    enough = tolerance * (1.0 + own.sum(-1))

    def step(state: Climb) -> Climb:
        deviation = state.deviation
        beta = jax.nn.softmax(rest + spread(deviation, owner))
        mean = gathered(beta * total[:, None], owner, len(deviation))
        mean = beta if owner is None else mean / jnp.maximum(mean.sum(-1, keepdims=True), 1e-30)
        whole = direction(deviation, own, mean, penalty.weight(deviation))

        def gain(size: jax.Array) -> jax.Array:
            tried = size[:, None] * whole
            normaliser = total * jnp.log1p((beta * jnp.expm1(spread(tried, owner))).sum(-1))
            found = rise(tried, deviation, own, gathered(normaliser, owner, len(deviation)), penalty)
            return jnp.where(jnp.isfinite(found), found, -jnp.inf)

        def halve(tried: tuple) -> tuple:
            i, size, gained = tried
            size = jnp.where(gained >= 0, size, size / 2)
            return i + 1, size, gain(size)

        size = jnp.where(state.moving, 1.0, 0.0)
        tried = 0, size, gain(size)
        _, size, gained = jax.lax.while_loop(lambda tried: (tried[0] < HALVINGS) & (tried[2] < 0).any(), halve, tried)
        size = jnp.where(gained >= 0, size, 0.0)
        return Climb(deviation + size[:, None] * whole, gained > enough, state.steps + 1)

    begin = Climb(deviation, jnp.ones(len(deviation), bool), jnp.int32(0))
    return jax.lax.while_loop(lambda state: (state.steps < num_steps) & state.moving.any(), step, begin)


def rise(
    step: jax.Array, deviation: jax.Array, counts: jax.Array, normaliser: jax.Array, penalty: Penalty
) -> jax.Array:
    """What a step adds to each component's objective, sum_w c_w log beta_w + log p(deviation): without large sums.

    ``normaliser`` is what it adds to the logarithm of the sums' normalisers, times their counts.
    """
    return (counts * step + penalty.log_prior(deviation, step)).sum(-1) - normaliser


def gathered(of_sums: jax.Array, owner: jax.Array | None, number: int) -> jax.Array:
    """Added up for each component, [components, ...]."""
    return of_sums if owner is None else jax.ops.segment_sum(of_sums, owner, number)


def spread(of_components: jax.Array, owner: jax.Array | None) -> jax.Array:
    """The component in each sum, [sums, terms]; nothing where there is none."""
    if owner is None:
        return of_components
    return jnp.pad(of_components, ((0, 1), (0, 0)))[owner]


def first_deviation(counts: jax.Array, rest: jax.Array, owner: jax.Array | None, number: int) -> jax.Array:
    """Terms above what else says of them at their own frequency, others where it has them: Newton descends from there."""
    expected = gathered(jax.nn.softmax(rest) * counts.sum(-1, keepdims=True), owner, number)
    own = gathered(counts, owner, number)
    ratio = jnp.maximum(own, 1e-30) / jnp.maximum(expected, 1e-30)
    return jnp.where(own.sum(-1, keepdims=True) > 0, jnp.maximum(jnp.log(ratio), 0.0), 0.0)
