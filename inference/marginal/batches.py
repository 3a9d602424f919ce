"""Minibatches as stochastic variational inference takes them: slices of a corpus, or batches of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, Pairs, documents, on_device, rounded_up

from ..story.bound import BoundGraph
from ..streams.minibatches import Minibatches

Slice = tuple[Documents, Any, jax.Array]  # documents, their responses, and their rows


def padded(corpus: Corpus, places: int) -> Pairs:
    """The pairs of some documents, and others that count nothing, so many in all."""
    counts = corpus.counts
    pad = (0, places - counts.nnz)
    document = np.repeat(np.arange(len(corpus)), np.diff(counts.indptr))
    return Pairs(
        on_device(np.pad(document, pad), np.int32),
        on_device(np.pad(counts.indices, pad), np.int32),
        on_device(np.pad(counts.data, pad), np.float32),
    )


class Batches:
    """Slices of a corpus as the story sees them, with pairs padded to one length so that one program serves."""

    def __init__(
        self, corpus: Corpus, y: Any, size: int, held_out: Sequence[int] = (), arguments: dict[str, Any] | None = None
    ) -> None:
        """``arguments`` are the story's numbers."""
        self.corpus, self.y, self.size, self.arguments = corpus, y, size, arguments or {}
        self.counted = ~np.isin(np.arange(len(corpus)), held_out) if held_out else None  # as responses
        pairs = np.diff(corpus.counts.indptr)
        self.most = rounded_up(int(np.sort(pairs)[-size:].sum()))
        usual = int(np.ceil(size * pairs.mean() + 4 * np.sqrt(size) * pairs.std()))
        self.usual = min(self.most, rounded_up(usual))

    def take(self, rows: np.ndarray) -> Slice:
        """The documents at some rows, their responses, and the rows."""
        part = self.corpus[rows]
        number = part.counts.nnz
        pairs = padded(part, self.usual if number <= self.usual else max(self.most, number))
        counted = None if self.counted is None else on_device(self.counted[rows], np.float32)
        return (
            replace(documents(part), pairs=pairs, counted=counted, arguments=self.arguments),
            jax.tree.map(lambda leaf: on_device(leaf[rows]), self.y),
            on_device(rows, np.int32),
        )

    def random(self, rng: np.random.Generator, start: int = 0) -> Iterator[Slice]:
        """Random slices without end, from number ``start`` on: the corpus is shuffled and dealt out, what is left over waits
        for the next shuffle."""
        everything = self.take(np.arange(len(self.corpus))) if self.size == len(self.corpus) else None
        each, shuffles, rows = len(self.corpus) // self.size, 0, np.arange(0)
        for number in count(start):
            if everything is not None:
                yield everything
                continue
            while shuffles <= number // each:
                rows, shuffles = rng.permutation(len(self.corpus)), shuffles + 1
            first = number % each * self.size
            yield self.take(np.sort(rows[first : first + self.size]))

    def in_order(self) -> Iterator[Slice]:
        """The whole corpus, slice by slice."""
        for first in range(0, len(self.corpus), self.size):
            yield self.take(np.arange(first, min(first + self.size, len(self.corpus))))


class StreamBatches:
    """The batches of a stream, pass after pass, likewise padded; where there is no room there is then half as much more."""

    def __init__(self, graph: BoundGraph, source: Minibatches) -> None:
        self.graph, self.source, self.places = graph, source, 0

    def random(self, rng: np.random.Generator, start: int = 0) -> Iterator[Slice]:
        """Batches without end, from number ``start`` on; the order is the stream's own."""
        first, rows = start % self.source.num_batches, jnp.arange(self.source.size, dtype=jnp.int32)
        for number in count(start // self.source.num_batches):
            for corpus, response, _ in self.source.of_pass(self.graph, number, first):
                if corpus.counts.nnz > self.places:
                    self.places = 3 * corpus.counts.nnz // 2
                laid = replace(documents(corpus), arguments=self.graph.story.given)
                yield replace(laid, pairs=padded(corpus, self.places)), response.on_device(), rows
            first = 0
