"""Topics of all tokens with their tables of counts, and sums over the tokens of documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import Documents, LongDocuments, PaddedBatches

from ..native.build import registered
from ..native.sweep import count_terms
from ..samplers.uniforms import tokens_of_positions


class Assignments(NamedTuple):
    """Every token's topic and the counts that follow from them."""

    topics: Any  # [shards, positions, width] int32, as PaddedBatches.terms; where these lie in files, whatever stands for it
    document_topic: Any  # [documents, topics] float32; None where a sweep is to count them
    topic_term: Any = None  # as beta, [topics, terms] or [labels, topics, terms] float32; None where nobody reads it
    long: Any = None  # topics of documents that are laid out alone, as LongDocuments.terms
    proposed: Any = None  # share of tokens for which the words alone proposed another topic in the last sweep
    moved: Any = None  # share of tokens with another topic since then, where terms lie in files
    given_prior: Any = None  # log-density of documents' counts, theta integrated out, where nobody has them together
    # where words of a sentence share their topic:
    taken: Any = None  # as topics, 1 where a new topic is taken from theta
    new: Any = None  # [documents, topics] float32, how often each is

    @property
    def from_theta(self) -> Any:
        """How often theta gave each topic, [documents, topics]."""
        return self.document_topic if self.new is None else self.new

    # To NumPyro, which checks values against plates, the whole is one value outside all plates.
    @property
    def ndim(self) -> int:
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Labels:
    """The label of each document, where topics are those of a label: the terms of each label are terms of their own."""

    first: jax.Array  # [documents] where the terms of the document's label begin: label * terms
    number: int = field(metadata={"static": True})

    @classmethod
    def of(cls, label: jax.Array | None, beta_shape: tuple[int, ...]) -> Labels | None:
        """None where all documents share their topics, so that nothing is added to their terms."""
        if label is None:
            return None
        number, _, num_terms = beta_shape
        return cls(jnp.clip(label, 0, number - 1).astype(jnp.int32) * num_terms, number)


def count(
    topics: jax.Array, batches: PaddedBatches, num_topics: int, num_terms: int, long: Any = None,
    labels: Labels | None = None,
) -> Assignments:  # fmt: skip
    """The tables of counts of given topics."""
    rows = num_terms if labels is None else labels.number * num_terms
    document_topic = document_counts(topics, batches, num_topics)
    topic_term = _count_terms(_own_terms(batches, num_terms, labels), topics, num_topics, rows)
    if batches.long is not None:
        terms = batches.long.terms
        if labels is not None:
            terms = jnp.where(terms < num_terms, terms + labels.first[long_tokens(batches.long)[0]], rows)
        topic_term = topic_term + _count_terms(terms, long, num_topics, rows)
        document_topic = document_topic.at[batches.long.rows].set(long_counts(long, batches.long, num_topics))
    if labels is not None:
        topic_term = jnp.swapaxes(topic_term.reshape(num_topics, labels.number, num_terms), 0, 1)
    return Assignments(topics, document_topic, topic_term, long, jnp.zeros(()))


def _count_terms(terms: jax.Array, topics: jax.Array, num_topics: int, num_terms: int) -> jax.Array:
    """[topics, terms]; what is no token has the term ``num_terms``."""
    if registered():
        return count_terms(terms, topics, num_topics, num_terms)
    counts = jnp.zeros((num_terms + 1, num_topics), jnp.float32).at[terms, topics].add(1.0)
    return counts[:num_terms].T


def _own_terms(batches: PaddedBatches, num_terms: int, labels: Labels | None) -> jax.Array:
    """Terms of the batches as terms of their documents' labels; what is no token comes last."""
    if labels is None:
        return batches.terms
    first = labels.first[documents_of_positions(batches)]
    return jnp.where(batches.terms < num_terms, batches.terms + first, labels.number * num_terms)


def documents_of_positions(batches: PaddedBatches) -> jax.Array:
    """The document of every position, as ``batches.terms``."""
    of_positions = jax.vmap(partial(tokens_of_positions, positions=batches.terms.shape[1]))
    return of_positions(batches.start, batches.depth, batches.rows)[0]


def long_counts(topics: jax.Array, long: LongDocuments, num_topics: int) -> jax.Array:
    """[long documents, topics]"""
    own = jnp.searchsorted(long.start, jnp.arange(len(topics)), side="right")[:, None] - 1
    inside = (long_tokens(long)[1] < long.lengths[own]).astype(jnp.float32)
    return jnp.zeros((len(long.rows), num_topics)).at[own, topics].add(inside)


def long_tokens(long: LongDocuments) -> tuple[jax.Array, jax.Array]:
    """The document of each position, [positions, 1], and which of its tokens stand there, [positions, width]."""
    position, width = jnp.arange(long.terms.shape[0]), long.terms.shape[1]
    own = jnp.searchsorted(long.start, position, side="right") - 1
    return long.rows[own][:, None], (position - long.start[own])[:, None] * width + jnp.arange(width)


def document_sums(of_tokens: Callable, documents: Documents, z: Assignments) -> jax.Array:
    """sum_n f(d, w_dn, z_dn) of each document, [documents], for f = ``of_tokens`` of documents, terms and topics."""
    batches = documents.laid_out
    parts = [(documents_of_positions(batches), batches.terms, z.topics)]
    if (long := batches.long) is not None:
        parts.append((jnp.broadcast_to(long_tokens(long)[0], long.terms.shape), long.terms, z.long))
    total = jnp.zeros(documents.num_documents)
    for document, term, topic in parts:
        inside = term < documents.num_terms
        total = total.at[document].add(jnp.where(inside, of_tokens(document, jnp.where(inside, term, 0), topic), 0.0))
    return total


def document_counts(topics: jax.Array, batches: PaddedBatches, num_topics: int) -> jax.Array:
    """[documents, topics]; used once, at the start: the sweep keeps its own."""
    shards, num_batches, width = batches.lengths.shape

    def one_shard(shard: tuple) -> jax.Array:
        topics, *own = shard
        return jax.lax.map(lambda batch: batch_counts(topics, batch[0], batch[1], batch[2], num_topics).T, tuple(own))

    counts = jax.lax.map(one_shard, (topics, batches.start, batches.depth, batches.lengths))
    return counts.reshape(shards * num_batches * width, num_topics)[batches.lane]


def batch_counts(
    topics: jax.Array, start: jax.Array, depth: jax.Array, lengths: jax.Array, num_topics: int
) -> jax.Array:
    """Those of a batch, [topics, width], given the topics of its shard."""
    width = len(lengths)

    def position(n: jax.Array, counts: jax.Array) -> jax.Array:
        return counts.at[topics[start + n], jnp.arange(width)].add(n < lengths)

    return jax.lax.fori_loop(0, depth, position, jnp.zeros((num_topics, width)))


def mean_topics(z: Assignments, corpus: Documents) -> jax.Array:
    """zbar, [documents, topics]; zero for a document without words."""
    return z.document_topic / jnp.maximum(corpus.lengths, 1.0)[:, None]
