"""Calls of the C++ sweep from a traced program, with the arrays of :mod:`..kernels.sweep`."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from .build import COUNT, SWEEP

LANES = 8  # numbers of a vector, kLanes of sweep.cc


def arranged(term_topic: jax.Array) -> jax.Array:
    """beta, [terms, topics], with topics in the places where sweep.cc adds them up: member after member of all groups."""
    terms, topics = term_topic.shape
    groups = math.ceil(math.sqrt(topics))
    members = -(-topics // groups)
    whole = jnp.pad(term_topic, ((0, 0), (0, groups * members - topics))).reshape(terms, groups, members)
    return jnp.pad(jnp.swapaxes(whole, 1, 2), ((0, 0), (0, 0), (0, -groups % LANES))).reshape(terms, -1)


def sweep_shards(
    key: jax.Array, shards: tuple, document_topic: jax.Array | None, beta: jax.Array, proportions: jax.Array,
    first_term: jax.Array | None, response: tuple[jax.Array, jax.Array, jax.Array] | None, *, collapsed: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """New topics of all shards, counts of their lanes and numbers of proposals; threads share out the batches.

    Topics of documents are counted where ``document_topic`` is not known. ``beta`` is :func:`arranged`;
    ``response`` coefficients [topics], and slope and curvature of the log density of each
    document's response in its predictor, [documents].
    """
    topics, terms, start, _, rows, lengths = shards
    nothing = jnp.zeros(0, jnp.float32)
    eta, slope, curvature = response or (nothing, nothing, nothing)
    out = (
        jax.ShapeDtypeStruct(topics.shape, jnp.int32),
        jax.ShapeDtypeStruct((*lengths.shape, proportions.shape[1]), jnp.float32),
        jax.ShapeDtypeStruct(lengths.shape, jnp.float32),
    )
    whole = (terms, topics, start, rows, lengths)
    words = jax.random.key_data(key).ravel()[:2]
    numbers = (jnp.zeros(0) if document_topic is None else document_topic, beta, proportions)
    first = jnp.zeros(0, jnp.int32) if first_term is None else first_term
    call = jax.ffi.ffi_call(SWEEP, out, vmap_method="sequential")
    topics, counts, proposed = call(
        words.astype(jnp.uint32), *(part.astype(jnp.int32) for part in whole),
        *(part.astype(jnp.float32) for part in numbers), first.astype(jnp.int32),
        *(part.astype(jnp.float32) for part in (eta, slope, curvature)), collapsed=collapsed,
    )  # fmt: skip
    return topics, counts, proposed


def count_terms(terms: jax.Array, topics: jax.Array, num_topics: int, num_terms: int) -> jax.Array:
    """How often each term has each topic, [topics, terms]; a term that is none, ``num_terms`` or more, is left out."""
    out = jax.ShapeDtypeStruct((num_topics, num_terms), jnp.float32)
    call = jax.ffi.ffi_call(COUNT, out, vmap_method="sequential")
    return call(terms.astype(jnp.int32), topics.astype(jnp.int32))
