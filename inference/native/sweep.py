"""A call of the C++ sweep from a traced program, with the arrays of :mod:`..kernels.sweep`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .build import TARGET

LANES = 4  # as in sweep.cc


def order(num_topics: int) -> np.ndarray:
    """The topic of each place: member after member of all groups, groups padded to whole vectors by topic ``num_topics``."""
    groups = int(np.ceil(np.sqrt(num_topics)))
    members = -(-num_topics // groups)
    places = np.full((members, -(-groups // LANES) * LANES), num_topics)
    places[:, :groups] = np.minimum(np.arange(groups * members).reshape(groups, members).T, num_topics)
    return places.ravel()


def placed(term_topic: jax.Array) -> jax.Array:
    """beta [terms, topics] with topics in their places, and 0 where there is none."""
    num_topics = term_topic.shape[1]
    return jnp.pad(term_topic, ((0, 0), (0, 1)))[:, order(num_topics)]


def sweep_shard(
    key: jax.Array, shard: tuple, document_topic: jax.Array, beta: jax.Array, proportions: jax.Array,
    first_term: jax.Array | None, response: tuple[jax.Array, jax.Array, jax.Array] | None, *, collapsed: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """New topics of a shard, counts of its lanes and numbers of proposals.

    ``beta`` is what :func:`placed` gives; ``response`` coefficients [topics], and slope and curvature of the log density of
    each document's response in its predictor, [documents].
    """
    topics, terms, start, _, rows, lengths = shard
    nothing = jnp.zeros(0, jnp.float32)
    eta, slope, curvature = response or (nothing, nothing, nothing)
    out = (
        jax.ShapeDtypeStruct(topics.shape, jnp.int32),
        jax.ShapeDtypeStruct((*lengths.shape, document_topic.shape[1]), jnp.float32),
        jax.ShapeDtypeStruct(lengths.shape, jnp.float32),
    )
    whole = (terms, topics, start, rows, lengths)
    words = jax.random.key_data(key).ravel()[:2]
    numbers = (document_topic, beta, proportions)
    first = jnp.zeros(0, jnp.int32) if first_term is None else first_term
    call = jax.ffi.ffi_call(TARGET, out, vmap_method="sequential")
    topics, counts, proposed = call(
        words.astype(jnp.uint32), *(part.astype(jnp.int32) for part in whole),
        *(part.astype(jnp.float32) for part in numbers), first.astype(jnp.int32),
        *(part.astype(jnp.float32) for part in (eta, slope, curvature)), collapsed=collapsed,
    )  # fmt: skip
    return topics, counts, proposed
