"""Uniform random numbers: those that belong to a token, and many at once.

A token's follow from a key, its document and its position there, and from nothing else: where a document stands in a
layout, which device draws its topics and how many documents there are beside it make no difference. Threefry is a
counter-based generator (Salmon et al. 2011): document and position are its counter.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)  # bits, of every other four rounds
PARITY = 0x1BD11BDA
BULK = 0x5EED0001  # the first word of a bulk number's counter; keys are split with a small one


def threefry(key: tuple[jax.Array, jax.Array], first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two random words for each counter of two, by 20 rounds: JAX's own numbers, in two thirds of its time on a CPU, where
    it makes loops of the rounds."""
    keys = *key, key[0] ^ key[1] ^ jnp.uint32(PARITY)
    first, second = first + keys[0], second + keys[1]
    for turn in range(5):
        for bits in ROTATIONS[turn % 2]:
            first = first + second
            second = first ^ ((second << bits) | (second >> (32 - bits)))
        first = first + keys[(turn + 1) % 3]
        second = second + keys[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return first, second


def _words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    first, second = jax.random.key_data(key).ravel()[:2]
    return first, second


def shard_uniforms(key: jax.Array, start: jax.Array, depth: jax.Array, rows: jax.Array, positions: int) -> tuple:
    """The same for all positions of a shard, each [positions, width]: many at once take half the time."""
    return token_uniforms(key, *tokens_of_positions(start, depth, rows, positions))


def tokens_of_positions(
    start: jax.Array, depth: jax.Array, rows: jax.Array, positions: int
) -> tuple[jax.Array, jax.Array]:
    """The documents of a shard's positions, [positions, width], and which of their tokens stand there, [positions, 1]."""
    position = jnp.arange(positions)
    batch = jnp.minimum(jnp.searchsorted(start + depth, position, side="right"), len(start) - 1)
    return rows[batch], (position - start[batch])[:, None]


def token_uniforms(key: jax.Array, document: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two numbers from [0, 1) for each token, in the shape that ``document`` and ``position`` have together."""
    shape = jnp.broadcast_shapes(jnp.shape(document), jnp.shape(position))
    counter = [jnp.broadcast_to(part, shape).astype(jnp.uint32) for part in (document, position)]
    first, second = threefry(_words(key), *counter)
    return _unit(first), _unit(second)


def _unit(bits: jax.Array) -> jax.Array:
    """The leading 23 bits as the digits of a number from [1, 2), less 1."""
    return jax.lax.bitcast_convert_type((bits >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1.0


def inside_unit(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Midpoints of the generator's 2^23 cells: neither end is reached, and no draw is farther out than its cell.

    NB: ``jax.random.uniform`` gives 0 once in eight million draws, and ``minval=tiny`` puts a draw 13 deviations out there.
    It also draws two words for each number, where one does.
    """
    number = math.prod(shape)
    counter = jnp.arange((number + 1) // 2, dtype=jnp.uint32)
    words = jnp.concatenate(threefry(_words(key), jnp.full_like(counter, BULK), counter))[:number]
    words = jax.lax.optimization_barrier(words)
    return _unit(words).reshape(shape) + jnp.finfo(jnp.float32).eps / 2
