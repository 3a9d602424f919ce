"""The compiled part of :mod:`.evidence`: topics of documents that move side by side, theta integrated out.

A lane is one copy (a particle, a repeat) of one document; copies of a document are neighbours. Arrays have lanes in
their last axis. Loops run to the longest document of the batch, not to the padded depth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.inference.programs.compiling import jitted


class Batch(NamedTuple):
    """Some documents, padded to the same depth."""

    terms: jax.Array  # [places, documents]; num_terms where there is no token
    lengths: jax.Array  # [documents]
    starts: jax.Array  # [documents] tokens before this place are given
    alpha: jax.Array  # [topics, documents]


class Walkers(NamedTuple):
    """The topics of every lane."""

    counts: jax.Array  # [topics, lanes]
    topics: jax.Array  # [places, lanes]


class Walk:
    """What all moves of a batch's lanes share."""

    def __init__(self, term_topic: jax.Array, batch: Batch, copies: int) -> None:
        self.term_topic, self.batch, self.copies = term_topic, batch, copies
        self.num_topics = term_topic.shape[1]
        self.places, self.documents = batch.terms.shape
        self.lanes = jnp.arange(self.documents * copies)
        self.document = self.lanes // copies
        self.lengths = batch.lengths[self.document]
        self.alpha = jnp.repeat(batch.alpha, copies, axis=1)

    def begin(self, key: jax.Array, given: jax.Array) -> Walkers:
        """Uniformly random topics of the first ``given`` [lanes] tokens."""
        topics = jax.random.randint(key, (self.places, self.lanes.size), 0, self.num_topics, jnp.int32)

        def one(n: jax.Array, counts: jax.Array) -> jax.Array:
            return self.add(counts, topics[n], n < given)

        return Walkers(jax.lax.fori_loop(0, given.max(), one, jnp.zeros((self.num_topics, self.lanes.size))), topics)

    def add(self, counts: jax.Array, topic: jax.Array, step: jax.Array) -> jax.Array:
        step = step.astype(counts.dtype)
        return counts.at[topic, self.lanes].add(step, mode="promise_in_bounds", unique_indices=True)

    def weights(self, counts: jax.Array, place: jax.Array) -> jax.Array:
        """beta_{k, w} (n_k + alpha_k) for the token at a place (one for all lanes, or one a lane), [topics, lanes]."""
        if place.ndim:
            beta = self.term_topic[self.batch.terms[place, self.document]].T
        else:
            beta = self.term_topic[self.batch.terms[place]].T
            beta = jnp.broadcast_to(beta[:, :, None], (*beta.shape, self.copies)).reshape(self.num_topics, -1)
        return beta * (counts + self.alpha)

    def draw(self, key: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A topic from each column of weights, and the columns' sums: first a group of topics, then one of the group."""
        groups = int(np.ceil(np.sqrt(self.num_topics)))
        members = -(-self.num_topics // groups)
        table = jnp.pad(weights, ((0, groups * members - self.num_topics), (0, 0))).reshape(groups, members, -1)
        table = jax.lax.optimization_barrier(table)  # computed once, not again for each use below
        sums = table.sum(1)
        total = sums.sum(0)
        target = jax.random.uniform(key, self.lanes.shape) * total
        group, before = _passed(sums, target)
        member, _ = _passed(table[group, :, self.lanes].T, target - before)
        return jnp.minimum(group * members + member, self.num_topics - 1), total

    def move(self, key: jax.Array, walkers: Walkers, place: jax.Array, inside: jax.Array) -> Walkers:
        """A Gibbs move of the token at a place, the same for all lanes; of lanes that have it ``inside``."""
        counts = self.add(walkers.counts, walkers.topics[place], -inside.astype(jnp.float32))
        topic, _ = self.draw(key, self.weights(counts, place))
        return Walkers(self.add(counts, topic, inside), walkers.topics.at[place].set(topic))


def _passed(weights: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many running sums of each column its target has passed (all but the last at the most), and the last passed.

    The running sum as a product: XLA's own is slow.
    """
    size = len(weights)
    running = jnp.matmul(np.tril(np.ones((size, size), np.float32)), weights, precision="highest")[:-1]
    passed = running <= target
    return passed.sum(0, dtype=jnp.int32), jnp.where(passed, running, 0.0).max(0, initial=0.0)


@jitted(long=True, static_argnames=("repeats", "particles"))
def particle_walk(
    key: jax.Array, term_topic: jax.Array, batch: Batch, moves: Any, num_burn: Any, *, repeats: int, particles: int
) -> jax.Array:
    """log of the estimated factors p(w_n | w_<n), [places, documents, repeats]; 0 where no token is new."""
    walk = Walk(term_topic, batch, repeats * particles)
    starts = batch.starts[walk.document]
    total_alpha = walk.alpha.sum(0)
    clouds = walk.documents, repeats, particles
    begin_key, burn_key, step_key = jax.random.split(key, 3)

    def burn(i: jax.Array, walkers: Walkers) -> Walkers:
        def one(n: jax.Array, walkers: Walkers) -> Walkers:
            return walk.move(jax.random.fold_in(jax.random.fold_in(burn_key, i), n), walkers, n, n < starts)

        return jax.lax.fori_loop(0, batch.starts.max(), one, walkers)

    walkers = jax.lax.fori_loop(0, num_burn, burn, walk.begin(begin_key, starts))
    stride = 1 + batch.lengths.max() // 100  # of long documents, weights are looked at every few tokens

    def one_token(n: jax.Array, carry: tuple) -> tuple:
        walkers, log_weights, factors = carry
        move_key, place_key, draw_key, resample_key = jax.random.split(jax.random.fold_in(step_key, n), 4)

        # (1) earlier tokens move
        offset = jax.random.randint(place_key, (), 0, jnp.maximum(n, 1))

        def one_move(i: jax.Array, walkers: Walkers) -> Walkers:
            place = (offset + i) % n
            return walk.move(jax.random.fold_in(move_key, i), walkers, place, place < walk.lengths)

        walkers = jax.lax.fori_loop(0, jnp.minimum(n, moves), one_move, walkers)

        # (2) the new token weighs the particles and gets a topic
        new = (n >= starts) & (n < walk.lengths)
        topic, total = walk.draw(draw_key, walk.weights(walkers.counts, n))
        log_factor = jnp.where(new, jnp.log(total) - jnp.log(n + total_alpha), 0.0).reshape(clouds)
        log_weights = log_weights + log_factor
        factor = jax.nn.logsumexp(log_weights, -1)
        log_weights = log_weights - factor[..., None]
        topics = walkers.topics.at[n].set(jnp.where(new, topic, walkers.topics[n]))
        counts = walk.add(walkers.counts, topic, new)

        # (3) particles are drawn anew where they have become unequal
        unequal = (jnp.exp(-jax.nn.logsumexp(2 * log_weights, -1)) < particles / 2) & ((n + 1) % stride == 0)
        parent = jax.lax.cond(unequal.any(), lambda: _parents(resample_key, log_weights, unequal), lambda: walk.lanes)
        log_weights = jnp.where(unequal[..., None], -jnp.log(particles), log_weights)
        counts = jax.lax.cond(unequal.any(), lambda counts: counts[:, parent], lambda counts: counts, counts)
        rows = jnp.where(unequal.any(), n + 1, 0)  # a loop, not a cond: XLA would copy all topics
        topics = jax.lax.fori_loop(0, rows, lambda row, topics: topics.at[row].set(topics[row][parent]), topics)
        return Walkers(counts, topics), log_weights, factors.at[n].set(factor)

    weights = jnp.full(clouds, -jnp.log(particles))
    start = walkers, weights, jnp.zeros((walk.places, *clouds[:2]))
    return jax.lax.fori_loop(batch.starts.min(), batch.lengths.max(), one_token, start)[2]


def _parents(key: jax.Array, log_weights: jax.Array, chosen: jax.Array) -> jax.Array:
    """The lane each particle continues: by systematic resampling in the ``chosen`` clouds, its own in the others."""
    particles = log_weights.shape[-1]
    running = jnp.cumsum(jnp.exp(log_weights), -1)
    comb = (jax.random.uniform(key, (*chosen.shape, 1)) + jnp.arange(particles)) / particles * running[..., -1:]
    parent = (running[..., None, :] <= comb[..., :, None]).sum(-1, dtype=jnp.int32)
    parent = jnp.where(chosen[..., None], jnp.minimum(parent, particles - 1), jnp.arange(particles))
    cloud = jnp.arange(chosen.size).reshape(chosen.shape)
    return (cloud[..., None] * particles + parent).ravel()


@jitted(long=True, static_argnames=("repeats",))
def chib_walk(
    key: jax.Array,
    term_topic: jax.Array,
    batch: Batch,
    num_burn: Any,
    num_greedy: Any,
    num_sweeps: Any,
    *,
    repeats: int,
) -> tuple[jax.Array, jax.Array]:
    """z* [places, documents, repeats] and log (1/S) sum_s T(z* <- z^(s)) [documents, repeats]."""
    walk = Walk(term_topic, batch, repeats)
    depth, lengths = batch.lengths.max(), walk.lengths
    begin_key, burn_key, place_key, first_key, chain_key = jax.random.split(key, 5)

    def sweep(key: jax.Array, walkers: Walkers, forward: jax.Array) -> Walkers:
        """A Gibbs sweep from the first token to the last, or in the lanes that are not ``forward`` back."""

        def one(n: jax.Array, walkers: Walkers) -> Walkers:
            place = jnp.where(forward, n, jnp.maximum(lengths - 1 - n, 0))
            inside = (n < lengths).astype(jnp.float32)
            old = walkers.topics[place, walk.lanes]
            counts = walk.add(walkers.counts, old, -inside)
            topic, _ = walk.draw(jax.random.fold_in(key, n), walk.weights(counts, place))
            topic = jnp.where(n < lengths, topic, old)
            return Walkers(walk.add(counts, topic, inside), walkers.topics.at[place, walk.lanes].set(topic))

        return jax.lax.fori_loop(0, depth, one, walkers)

    def greedy(_: Any, walkers: Walkers) -> Walkers:
        def one(n: jax.Array, walkers: Walkers) -> Walkers:
            counts = walk.add(walkers.counts, walkers.topics[n], -(n < lengths).astype(jnp.float32))
            topic = walk.weights(counts, n).argmax(0).astype(jnp.int32)
            return Walkers(walk.add(counts, topic, n < lengths), walkers.topics.at[n].set(topic))

        return jax.lax.fori_loop(0, depth, one, walkers)

    def log_transition(walkers: Walkers) -> jax.Array:
        """log T(z* <- z): the probability that a sweep from z makes every choice as in z*."""

        def one(n: jax.Array, carry: tuple) -> tuple:
            counts, total = carry
            inside = n < lengths
            counts = walk.add(counts, walkers.topics[n], -inside.astype(jnp.float32))
            weights = walk.weights(counts, n)
            share = weights[star.topics[n], walk.lanes] / weights.sum(0)
            return walk.add(counts, star.topics[n], inside), total + jnp.where(inside, jnp.log(share), 0.0)

        return jax.lax.fori_loop(0, depth, one, (walkers.counts, jnp.zeros(walk.lanes.size)))[1]

    always = jnp.ones(walk.lanes.size, bool)
    walkers = walk.begin(begin_key, lengths)
    walkers = jax.lax.fori_loop(
        0, num_burn, lambda i, walkers: sweep(jax.random.fold_in(burn_key, i), walkers, always), walkers
    )
    star = jax.lax.fori_loop(0, num_greedy, greedy, walkers)

    # z* stands before state s; first a reversed sweep from it, then S - 1 - s sweeps onward, then s sweeps back
    s = jax.random.randint(place_key, walk.lanes.shape, 0, num_sweeps)
    first = sweep(first_key, star, ~always)

    def one_state(i: jax.Array, carry: tuple) -> tuple:
        walkers, total = carry
        turn = i == num_sweeps - s  # the onward part is done: back to the first state
        walkers = jax.tree.map(lambda here, there: jnp.where(turn, there, here), walkers, first)
        walkers = sweep(jax.random.fold_in(chain_key, i), walkers, i < num_sweeps - s)
        return walkers, jnp.logaddexp(total, log_transition(walkers))

    _, total = jax.lax.fori_loop(1, num_sweeps, one_state, (first, log_transition(first)))
    shape = walk.documents, repeats
    return star.topics.reshape(-1, *shape), (total - jnp.log(num_sweeps)).reshape(shape)
