"""Topics of documents whose response is not seen: where they lie, and quick draws of them.

A chain of sweeps forgets its start slowly, so one draw after another is nearly the same. Here every draw starts anew from
the documents' expected counts of topics, found once (:func:`expected_counts`): the first sweep takes tokens in one after the
other, those still to come being present by their share of the expected counts, and exact sweeps may follow it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import PaddedBatches

from ..samplers.uniforms import shard_uniforms
from .sharding import over_shards
from .sweep import Weights, categorical, look_up, room, with_padding

TINY, LEAST = 1e-30, 1e-6
LONGER = 1.9  # steps to the expected counts, in logarithms; below 2 they still arrive


def expected_counts(
    between: tuple, counts: jax.Array, batches: PaddedBatches, weights: Weights, iterations: int, deepest: int
) -> jax.Array:
    """E[n_dk | w, beta] to a good approximation, from counts to start with, in the lanes of the shards between two.

    Collapsed variational Bayes to zeroth order (Asuncion et al. 2009), a token's own share left in: its probabilities are
    those of the sweep, with expected counts in the place of counts. Steps are taken nearly twice as long as they come,
    which such steps bear (Salakhutdinov & Roweis 2003): 10 long ones reach what 20 plain ones do. ``deepest`` is the depth
    of the deepest batch.
    """
    num_topics = counts.shape[1]

    def one_shard(shard: tuple, counts: jax.Array, weights: Weights) -> jax.Array:
        terms, start, depth, rows, lengths = shard
        terms = with_padding(terms, _num_terms(weights))

        def one_batch(beta: jax.Array, batch: jax.Array) -> tuple:
            prior = _proportions(weights, rows[batch])
            beta = look_up(beta, weights.term_topic, terms, start[batch], depth[batch], weights.first(rows[batch]))

            def once(_: Any, counts: jax.Array) -> jax.Array:
                every = counts + prior

                def one_position(n: jax.Array, total: jax.Array) -> jax.Array:
                    weight = jax.lax.optimization_barrier(beta[n] * every)
                    return total + weight * ((n < lengths[batch]) / jnp.maximum(weight.sum(0), TINY))

                step = jax.lax.fori_loop(0, depth[batch], one_position, jnp.zeros_like(counts))
                longer = counts * jnp.clip((step + LEAST) / (counts + LEAST), 0.01, 100.0) ** LONGER
                return longer * (lengths[batch] / jnp.maximum(longer.sum(0), TINY))

            return beta, jax.lax.fori_loop(0, iterations, once, counts[rows[batch]].T).T

        return jax.lax.scan(one_batch, room(deepest, num_topics, rows.shape[1]), jnp.arange(rows.shape[0]))[1]

    shards = batches.terms, batches.start, batches.depth, batches.rows, batches.lengths
    return over_shards(one_shard, shards, (counts, weights), between)


def expected_counts_of_long(batches: PaddedBatches, weights: Weights, iterations: int) -> jax.Array:
    """The same for the documents that are laid out alone, [long documents, topics], by steps of EM for theta."""
    long = batches.long
    assert long is not None
    lane = jnp.arange(long.terms.shape[1])

    def one_document(i: jax.Array) -> jax.Array:
        prior = weights.proportions[long.rows[i] if len(weights.proportions) > 1 else 0]
        of_label = 0 if weights.labels is None else weights.labels.first[long.rows[i]]

        def once(_: Any, counts: jax.Array) -> jax.Array:
            theta = (counts + prior)[:, None]

            def one_position(n: jax.Array, total: jax.Array) -> jax.Array:
                weight = weights.term_topic[long.terms[long.start[i] + n] + of_label].T * theta
                present = n * len(lane) + lane < long.lengths[i]
                return total + weight @ (present / jnp.maximum(weight.sum(0), TINY))

            return jax.lax.fori_loop(0, long.depth[i], one_position, jnp.zeros_like(counts))

        return jax.lax.fori_loop(0, iterations, once, jnp.full(len(prior), long.lengths[i] / len(prior)))

    return jax.lax.map(one_document, jnp.arange(len(long.rows)))


def soft_sweeps(
    key: jax.Array,
    counts: jax.Array,
    batches: PaddedBatches,
    weights: Weights,
    exact: int,
    deepest: int,
) -> tuple[jax.Array, jax.Array]:
    """A draw of all topics from the expected counts: one soft sweep and so many exact ones.

    Returns topics, laid out as ``batches.terms``, and their counts [documents, topics].
    """
    num_topics = counts.shape[1]

    def one_shard(shard: tuple, keys: jax.Array, counts: jax.Array, weights: Weights) -> tuple:
        terms, start, depth, rows, lengths, numbers = shard
        begin = jnp.zeros(terms.shape, jnp.int32), jnp.zeros((*rows.shape, num_topics))
        uniform = jax.vmap(lambda key: shard_uniforms(key, start, depth, numbers, len(begin[0]))[0])(keys)
        terms = with_padding(terms, _num_terms(weights))
        lanes = jnp.arange(rows.shape[1])

        def one_batch(batch: jax.Array, carry: tuple) -> tuple:
            topics, drawn, beta = carry
            prior = _proportions(weights, rows[batch])
            beta = look_up(beta, weights.term_topic, terms, start[batch], depth[batch], weights.first(rows[batch]))

            def one_sweep(i: jax.Array, carry: tuple) -> tuple:
                topics, here = carry
                soft = (i == 0).astype(jnp.float32)
                share = soft * here / jnp.maximum(lengths[batch], 1)

                def one_position(n: jax.Array, carry: tuple) -> tuple:
                    topics, here = carry
                    position, present = start[batch] + n, (n < lengths[batch]).astype(jnp.float32)
                    here = jnp.maximum(here - present * share, 0.0)
                    here = here.at[topics[position], lanes].add((soft - 1) * present, mode="promise_in_bounds")
                    topic = categorical(beta[n] * (here + prior), uniform[i, position])
                    return topics.at[position].set(topic), here.at[topic, lanes].add(present, mode="promise_in_bounds")

                topics, here = jax.lax.fori_loop(0, depth[batch], one_position, (topics, here))
                # what rounding has left of the expected counts must not stay
                return topics, jnp.where(lengths[batch] > 0, jnp.round(here), 0.0)

            topics, here = jax.lax.fori_loop(0, 1 + exact, one_sweep, (topics, counts[rows[batch]].T))
            return topics, drawn.at[batch].set(here.T), beta

        beta = room(deepest, num_topics, rows.shape[1])
        return jax.lax.fori_loop(0, rows.shape[0], one_batch, (*begin, beta))[:2]

    keys = jax.random.split(key, 1 + exact)
    numbers = batches.rows if batches.numbers is None else batches.numbers
    shards = batches.terms, batches.start, batches.depth, batches.rows, batches.lengths, numbers
    topics, drawn = over_shards(one_shard, shards, (keys, counts, weights))
    return topics, drawn.reshape(-1, num_topics)[batches.lane]


def _proportions(weights: Weights, rows: jax.Array) -> jax.Array:
    """alpha of some documents, [topics, width]."""
    return (weights.proportions if weights.proportions.shape[0] == 1 else weights.proportions[rows]).T


def _num_terms(weights: Weights) -> int:
    return (weights.term_topic.shape[0] - 1) // (1 if weights.labels is None else weights.labels.number)
