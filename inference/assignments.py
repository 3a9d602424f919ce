"""Topic assignments as one site: what the Gibbs engine makes of ``draw_words``.

The site ``z`` holds the topic of every token, laid out in blocks, together with the two tables of counts that every other
conditional needs. Its density is that of the explicit sites ``z`` and ``w`` together:
log p(z, w | theta, beta) = sum_dk n_dk log theta_dk + sum_kv n_kv log beta_kv.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import xlogy
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import Blocks, Documents


class Assignments(NamedTuple):
    """Every token's topic and the counts that follow from them."""

    topics: jax.Array  # [shards, places, width] int32, as Blocks.terms
    document_topic: jax.Array  # [documents, topics] float32
    topic_term: Any = None  # [topics, terms] float32; None where nobody reads it
    proposed: Any = (
        None  # share of tokens for which the words alone proposed another topic in the sweep that made these
    )

    # To NumPyro, which checks values against plates, the whole is one value outside all plates.
    @property
    def ndim(self) -> int:
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


def count(topics: jax.Array, blocks: Blocks, num_topics: int, num_terms: int) -> Assignments:
    """The tables of counts of given topics."""
    term_topic = jnp.zeros((num_terms + 1, num_topics), jnp.float32).at[blocks.terms, topics].add(1.0)[:num_terms]
    return Assignments(topics, document_counts(topics, blocks, num_topics), term_topic.T, jnp.zeros(()))


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
        topics = jax.random.randint(key, self.blocks.terms.shape, 0, num_topics, jnp.int32)
        return count(topics, self.blocks, num_topics, num_terms)

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
