"""Topic assignments as one site: what the Gibbs engine makes of ``draw_words``.

The site ``z`` holds the topic of every token, laid out in blocks, together with the two tables of counts that every other
conditional needs. Its density is that of the explicit sites ``z`` and ``w`` together:
log p(z, w | theta, beta) = sum_dk n_dk log theta_dk + sum_kv n_kv log beta_kv.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import xlogy
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import Blocks, Documents, LongDocuments

from ..kernels.uniforms import token_uniforms, tokens_of_places


class Assignments(NamedTuple):
    """Every token's topic and the counts that follow from them."""

    topics: jax.Array  # [shards, places, width] int32, as Blocks.terms
    document_topic: jax.Array  # [documents, topics] float32
    topic_term: Any = None  # [topics, terms] float32; None where nobody reads it
    long: Any = None  # topics of documents that are laid out alone, as LongDocuments.terms
    proposed: Any = None  # share of tokens for which the words alone proposed another topic in the last sweep

    # To NumPyro, which checks values against plates, the whole is one value outside all plates.
    @property
    def ndim(self) -> int:
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


def count(topics: jax.Array, blocks: Blocks, num_topics: int, num_terms: int, long: Any = None) -> Assignments:
    """The tables of counts of given topics."""
    term_topic = jnp.zeros((num_terms + 1, num_topics), jnp.float32).at[blocks.terms, topics].add(1.0)
    document_topic = document_counts(topics, blocks, num_topics)
    if blocks.long is not None:
        term_topic = term_topic.at[blocks.long.terms, long].add(1.0)
        document_topic = document_topic.at[blocks.long.rows].set(long_counts(long, blocks.long, num_topics))
    return Assignments(topics, document_topic, term_topic[:num_terms].T, long, jnp.zeros(()))


def long_counts(topics: jax.Array, long: LongDocuments, num_topics: int) -> jax.Array:
    """[long documents, topics]"""
    own = jnp.searchsorted(long.start, jnp.arange(len(topics)), side="right")[:, None] - 1
    inside = (long_tokens(long)[1] < long.lengths[own]).astype(jnp.float32)
    return jnp.zeros((len(long.rows), num_topics)).at[own, topics].add(inside)


def long_tokens(long: LongDocuments) -> tuple[jax.Array, jax.Array]:
    """The document of each place, [places, 1], and which of its tokens stand there, [places, width]."""
    place, width = jnp.arange(long.terms.shape[0]), long.terms.shape[1]
    own = jnp.searchsorted(long.start, place, side="right") - 1
    return long.rows[own][:, None], (place - long.start[own])[:, None] * width + jnp.arange(width)


def document_counts(topics: jax.Array, blocks: Blocks, num_topics: int) -> jax.Array:
    """[documents, topics]; used once, at the start: the sweep keeps its own."""
    shards, num_blocks, width = blocks.lengths.shape

    def one_block(topics: jax.Array, start: jax.Array, depth: jax.Array, lengths: jax.Array) -> jax.Array:
        def place(n: jax.Array, counts: jax.Array) -> jax.Array:
            return counts.at[topics[start + n], jnp.arange(width)].add(n < lengths)

        return jax.lax.fori_loop(0, depth, place, jnp.zeros((num_topics, width))).T

    def one_shard(shard: tuple) -> jax.Array:
        topics, *blocks_of_shard = shard
        return jax.lax.map(lambda block: one_block(topics, *block), tuple(blocks_of_shard))

    counts = jax.lax.map(one_shard, (topics, blocks.start, blocks.depth, blocks.lengths))
    return counts.reshape(shards * num_blocks * width, num_topics)[blocks.lane]


class TopicAssignments(dist.Distribution):
    """p(z, w | theta, beta) as a distribution of :class:`Assignments`; a draw is a uniformly random start."""

    support = constraints.nonnegative_integer
    pytree_data_fields = ("theta", "beta", "blocks")
    pytree_aux_fields = ("counted",)

    def __init__(self, theta: jax.Array, beta: jax.Array, blocks: Blocks, counted: bool = True) -> None:
        self.theta, self.beta, self.blocks, self.counted = theta, beta, blocks, counted
        super().__init__(validate_args=False)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> Assignments:
        num_topics, num_terms = self.beta.shape
        blocks, long = self.blocks, None

        def drawn(document: jax.Array, place: jax.Array) -> jax.Array:
            return jnp.floor(token_uniforms(key, document, place)[0] * num_topics).astype(jnp.int32)

        of_places = jax.vmap(partial(tokens_of_places, places=blocks.terms.shape[1]))
        topics = drawn(*of_places(blocks.start, blocks.depth, blocks.rows))
        if blocks.long is not None:
            long = drawn(*long_tokens(blocks.long))
        return count(topics, blocks, num_topics, num_terms, long)

    def log_prob(self, value: Assignments) -> jax.Array:
        if not self.counted:
            return jnp.zeros(())
        return xlogy(value.document_topic, self.theta).sum() + xlogy(value.topic_term, self.beta).sum()


class Assigned(Messenger):
    """Answers ``draw_words`` with the site ``z``; zbar follows from its counts.

    ``counted=False`` leaves out the density of words and topics, for conditionals that do not depend on it.
    """

    def __init__(self, counted: bool = True) -> None:
        super().__init__(None)
        self.counted = counted

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "draw_words":
            return
        corpus, theta, beta, _ = msg["args"]
        z = numpyro.sample("z", TopicAssignments(theta, beta, corpus.blocks, self.counted))
        msg["value"] = mean_topics(z, corpus)


def mean_topics(z: Assignments, corpus: Documents) -> jax.Array:
    """zbar, [documents, topics]; zero for a document without words."""
    return z.document_topic / jnp.maximum(corpus.lengths, 1.0)[:, None]
