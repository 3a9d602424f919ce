"""Topics of words where those of a sentence share theirs and sentences follow each other: forward filtering, backward draws.

At the first word of a sentence a new topic is taken from theta with probability epsilon, else the topic stays; within a
sentence it always stays. With b_n = beta[:, w_n] and f_n(k) = p(z_n = k | w_1 ... w_n),

    f_n  is proportional to  b_n * (epsilon theta + (1 - epsilon) f_{n-1})  where n begins a sentence, else  b_n * f_{n-1}

and backwards, given z_{n+1} = k that begins a sentence, the topic had stayed with probability
(1 - epsilon) f_n(k) / ((1 - epsilon) f_n(k) + epsilon theta_k); if not, z_n is a draw from f_n. Documents stand side by
side, as in the topic sweep.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import PaddedBatches

from ..samplers.uniforms import token_uniforms
from .assignments import Assignments, count, documents_of_positions
from .sweep import categorical

LEAST = 1e-30  # what a sum of chances is divided by at the least


class Chain(NamedTuple):
    """What topics of sentences are drawn with."""

    term_topic: jax.Array  # [terms + 1, topics]
    theta: jax.Array  # [documents, topics]
    switch: jax.Array  # epsilon

    def step(self, before: jax.Array, theta: jax.Array, words: jax.Array, begins: jax.Array) -> tuple:
        """f_n, [topics, width], and log p(w_n | the words before it), given f_{n-1}."""
        joint = words * jnp.where(begins, self.switch * theta + (1 - self.switch) * before, before)
        total = jnp.maximum(joint.sum(0), LEAST)
        return joint / total, jnp.log(total)


def log_words(chain: Chain, batches: PaddedBatches) -> jax.Array:
    """log p(w_d | theta_d, epsilon, beta) of each document with its topics summed out, [documents]; it has a derivative."""
    last = batches.terms.shape[1] - 1

    def of_batch(at: tuple) -> jax.Array:
        shard, start, rows, lengths = at
        theta = chain.theta[rows].T

        def step(carry: tuple, n: jax.Array) -> tuple:
            before, total = carry
            place = shard, jnp.minimum(start + n, last)
            words = chain.term_topic[batches.terms[place]].T
            after, log_word = chain.step(before, theta, words, (batches.begins[place] > 0) & (n > 0))
            inside = n < lengths
            return (jnp.where(inside, after, before), total + jnp.where(inside, log_word, 0.0)), None

        return jax.lax.scan(step, (theta, jnp.zeros(len(lengths))), batches.ladder)[0][1]

    return jax.lax.map(of_batch, _of_batches(batches)).reshape(-1)[batches.lane]


def _of_batches(batches: PaddedBatches) -> tuple[jax.Array, ...]:
    """Shard, start, rows and lengths of every batch, one after the other."""
    shards, number, width = batches.lengths.shape
    shard = jnp.repeat(jnp.arange(shards), number)
    return shard, batches.start.reshape(-1), batches.rows.reshape(-1, width), batches.lengths.reshape(-1, width)


def draw_sentences(
    key: jax.Array, chain: Chain, batches: PaddedBatches, kept: jax.Array | None = None, topics: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """A draw of the topics of all words, and whether each takes a new one, 0 or 1, both as ``batches.terms``.

    Words that are ``kept`` keep their ``topics``.
    """
    num_topics, width = chain.theta.shape[-1], batches.terms.shape[-1]
    known = (batches.rows if batches.numbers is None else batches.numbers).reshape(-1, width)

    def of_batch(drawn: tuple, at: tuple) -> tuple:
        (shard, start, rows, lengths), depth, numbers = at
        theta = chain.theta[rows].T

        def forward(n: jax.Array, carry: tuple) -> tuple:
            found, before = carry
            place = shard, start + n
            words = chain.term_topic[batches.terms[place]].T
            if kept is not None and topics is not None:
                words = jnp.where(kept[place], jax.nn.one_hot(topics[place], num_topics, axis=0), words)
            after, _ = chain.step(before, theta, words, (batches.begins[place] > 0) & (n > 0))
            after = jnp.where(n < lengths, after, before)
            return found.at[n].set(after), after

        def backward(i: jax.Array, carry: tuple) -> tuple:
            (topics, taken), after, new = (
                carry  # of the word after this one: its topic, and whether it may be a new one
            )
            n = depth - 1 - i
            place, inside = (shard, start + n), n < lengths
            which, chance = token_uniforms(key, numbers, n)
            stay, leave = (jnp.take_along_axis(part, after[None], 0)[0] for part in (found[n], theta))
            stay, leave = (1 - chain.switch) * stay, chain.switch * leave
            leaves = new & (which * (stay + leave) >= stay)
            here = jnp.where((n == lengths - 1) | leaves, categorical(found[n], chance), after)
            here = jnp.where(inside, here, after)
            taken = taken.at[shard, start + n + 1].set(leaves.astype(jnp.int32), mode="drop")
            begins = inside & (batches.begins[place] > 0) & (n > 0)
            return (
                (topics.at[place].set(here), taken.at[place].set((inside & (n == 0)).astype(jnp.int32))),
                here,
                begins,
            )

        room = jnp.zeros((len(batches.ladder), num_topics, width))
        found, _ = jax.lax.fori_loop(0, depth, forward, (room, theta))
        nothing = jnp.zeros(width, jnp.int32)
        drawn, _, _ = jax.lax.fori_loop(0, depth, backward, (drawn, nothing, nothing > 0))
        return drawn, None

    begin = jnp.zeros_like(batches.terms), jnp.zeros_like(batches.terms)
    given = _of_batches(batches), batches.depth.reshape(-1), known
    return jax.lax.scan(of_batch, begin, given)[0]


def of_sentences(
    topics: jax.Array, taken: jax.Array, batches: PaddedBatches, num_topics: int, num_terms: int
) -> Assignments:
    """The tables of counts of given topics: those of all words, and of those that were taken from theta."""
    z = count(topics, batches, num_topics, num_terms)
    document = documents_of_positions(batches)
    new = jnp.zeros_like(z.document_topic).at[document, topics].add(taken.astype(jnp.float32))
    return z._replace(taken=taken, new=new)


def staying(z: jax.Array, taken: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The topic of each word, where z counts where it is taken and stays from there, and where that is."""
    return z[jax.lax.cummax(jnp.where(taken > 0, jnp.arange(len(z)), 0))], taken.astype(jnp.int32)


def laid_sentences(
    z: jax.Array, taken: jax.Array, batches: PaddedBatches, num_topics: int, num_terms: int
) -> Assignments:
    """The same of words one after the other, as the story draws them."""
    empty, place = jnp.zeros(batches.terms.shape, jnp.int32), batches.positions()
    topics, new = staying(z, taken)
    return of_sentences(empty.at[place].set(topics), empty.at[place].set(new), batches, num_topics, num_terms)


def log_draw(chain: Chain, batches: PaddedBatches, z: Assignments) -> jax.Array:
    """The logarithm of the chance that :func:`draw_sentences` gives these topics, for checking against the story."""
    last = batches.terms.shape[1] - 1

    def of_batch(at: tuple) -> jax.Array:
        shard, start, rows, lengths = at
        theta = chain.theta[rows].T

        def step(carry: tuple, n: jax.Array) -> tuple:
            before, topic, total = carry
            place = shard, jnp.minimum(start + n, last)
            begins, here, inside = (batches.begins[place] > 0) & (n > 0), z.topics[place], n < lengths
            stay, leave, ended = (jnp.take_along_axis(part, which[None], 0)[0]
                                  for part, which in ((before, here), (theta, here), (before, topic)))  # fmt: skip
            stay, leave = (1 - chain.switch) * stay, chain.switch * leave
            new = jnp.where(z.taken[place] > 0, jnp.log(leave) + jnp.log(ended), jnp.log(stay))
            total = total + jnp.where(inside & begins, new - jnp.log(stay + leave), 0.0)
            words = chain.term_topic[batches.terms[place]].T
            after, _ = chain.step(before, theta, words, begins)
            after = jnp.where(inside, after, before)
            final = jnp.log(jnp.take_along_axis(after, here[None], 0)[0])
            total = total + jnp.where(n == lengths - 1, final, 0.0)
            return (after, jnp.where(inside, here, topic), total), None

        begin = theta, jnp.zeros(len(lengths), jnp.int32), jnp.zeros(len(lengths))
        return jax.lax.scan(step, begin, batches.ladder)[0][2]

    return jax.lax.map(of_batch, _of_batches(batches)).sum()
