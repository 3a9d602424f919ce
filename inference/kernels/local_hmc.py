"""Short Hamiltonian trajectories of many documents at once, each with a scale, a step and an acceptance of its own.

Given everything else documents are independent, so that one reading of a density serves all of them. A trajectory needs to
know how far a document's numbers can move. It is told by a curvature that depends on what is held fixed alone, never on
where the numbers are: then the update leaves the conditional as it is (Neal 2011, section 5.4).

Why not elliptical slices (Murray, Adams & MacKay 2010): of 20 logits of 2225 documents of 170 words a trajectory of four
steps left one effective draw of theta in 40 ms, an elliptical slice from the prior 0.05 in 48 ms (the document that shrinks
its bracket longest is waited for), and one from a Laplace approximation 0.3 in 67 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

LEAPS = 4  # steps of a trajectory
FLATTEST = 1e-6  # a curvature below has no scale to tell
POWERS = 6  # products that find the largest curvature
JITTER = 0.3  # a step is longer or shorter by so much of itself, lest trajectories close
SHORTEST = -5.0  # logarithm to base 2 of the shortest step of a cautious trajectory
AT_ONCE = 8  # columns of the curvature that are computed together


class Metric(NamedTuple):
    """How far the numbers of a document move."""

    scale: jax.Array  # one standard deviation, the other numbers held, [documents, numbers]
    step: jax.Array  # that is stable in units of these, [documents, 1]


def metric(product: Callable[[jax.Array], jax.Array], like: jax.Array) -> Metric:
    """The scales and steps that suit a curvature, given as its product with a vector for each document."""
    size = like.shape[1]

    def own(unit: jax.Array) -> jax.Array:
        return product(jnp.broadcast_to(unit, like.shape)) @ unit

    diagonal = jax.lax.map(own, jnp.eye(size), batch_size=min(size, AT_ONCE)).T
    scale = jax.lax.rsqrt(jnp.where(diagonal > FLATTEST, diagonal, 1.0))

    def power(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        vector = carry[0]
        vector = scale * product(scale * vector)
        length = jnp.sqrt(jnp.square(vector).sum(1, keepdims=True))
        return vector / jnp.maximum(length, FLATTEST), length

    start = jnp.broadcast_to(1.0 + 0.5 * jnp.cos(jnp.arange(size)), like.shape) / jnp.sqrt(size)
    _, largest = jax.lax.fori_loop(0, POWERS, power, (start, jnp.ones((len(like), 1))))
    return Metric(scale, jax.lax.rsqrt(jnp.maximum(largest, 1.0)))


class Position(NamedTuple):
    """Numbers of every document with the log-density there and its slope."""

    x: jax.Array  # [documents, numbers]
    log_density: jax.Array  # [documents]
    slope: jax.Array  # [documents, numbers]


def position(log_density: Callable[[jax.Array], jax.Array], x: jax.Array) -> Position:
    """A place and what the density says of it."""
    value, pull = jax.vjp(log_density, x)
    return Position(x, value, pull(jnp.ones_like(value))[0])


def leapfrog(
    log_density: Callable[[jax.Array], jax.Array], start: Position, momentum: jax.Array, step: jax.Array
) -> tuple[Position, jax.Array]:
    """The end of a trajectory and its momentum. Turned round there, it leads back to its start."""

    def leap(_: int, carry: tuple[Position, jax.Array]) -> tuple[Position, jax.Array]:
        here, momentum = carry
        momentum = momentum + 0.5 * step * here.slope
        there = position(log_density, here.x + step * momentum)
        return there, momentum + 0.5 * step * there.slope

    return jax.lax.fori_loop(0, LEAPS, leap, (start, momentum))


def trajectories(
    key: jax.Array, x: jax.Array, log_density: Callable[[jax.Array], jax.Array], metric: Metric, updates: int
) -> jax.Array:
    """The numbers of all documents after so many pairs of trajectories.

    ``log_density`` gives one number a document, which only that document's numbers enter. Of a pair the second has steps
    that are shorter by a random factor: where the curvature is far from that of the density, and every ordinary step is
    refused, a document still moves.
    """

    def update(i: jax.Array, start: Position) -> Position:
        momentum_key, step_key, accept_key = jax.random.split(jax.random.fold_in(key, i), 3)
        uniform = jax.random.uniform(step_key, (len(x), 1))
        factor = jnp.where(i % 2 == 0, 1.0 + JITTER * (2 * uniform - 1), 2.0 ** (SHORTEST * uniform))
        step = metric.step * factor * metric.scale
        momentum = jax.random.normal(momentum_key, x.shape)

        end, last = leapfrog(log_density, start, momentum, step)
        energy = 0.5 * jnp.square(last).sum(1) - end.log_density
        gain = 0.5 * jnp.square(momentum).sum(1) - start.log_density - energy
        # a place of no density may only be left, and what is not a number is refused
        accepted = jnp.log(jax.random.uniform(accept_key, (len(x),))) < gain
        kept = [
            jnp.where(accepted if a.ndim == 1 else accepted[:, None], a, b) for a, b in zip(end, start, strict=True)
        ]
        return Position(*kept)

    return jax.lax.fori_loop(0, 2 * updates, update, position(log_density, x)).x
