"""Random numbers that belong to a token: they follow from a key, its document and its position there, and from nothing else.

Where a document stands in a layout, which device draws its topics and how many documents there are beside it then make no
difference. Threefry is a counter-based generator (Salmon et al. 2011): document and position are its counter.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.extend.random import threefry2x32_p


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
    words = jax.random.key_data(key).ravel()[:2]
    counter = jnp.stack([jnp.broadcast_to(part, shape).astype(jnp.uint32) for part in (document, position)])
    first, second = threefry2x32_p.bind(*(jnp.broadcast_to(word, shape) for word in words), *counter)
    return _unit(first), _unit(second)


def _unit(bits: jax.Array) -> jax.Array:
    """The leading 23 bits as the digits of a number from [1, 2), less 1."""
    return jax.lax.bitcast_convert_type((bits >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1.0


def inside_unit(key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = jnp.float32) -> jax.Array:
    """Midpoints of the generator's 2^23 cells: neither end is reached, and no draw is farther out than its cell.

    NB: ``jax.random.uniform`` gives 0 once in eight million draws, and ``minval=tiny`` puts a draw 13 deviations out there.
    """
    return jax.random.uniform(key, shape, dtype) + jnp.finfo(dtype).eps / 2
