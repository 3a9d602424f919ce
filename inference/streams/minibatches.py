"""Documents in minibatches of one size, with their responses, from a stream or from a corpus in memory.

A story is read on a sample, the first batch; all else about documents comes with each batch. The last batch of a pass is
filled up with documents without words, so that one program serves all. Documents without words say nothing: their
responses are taken for missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from topiczoo.corpora import Corpus
from topiczoo.corpora.streams import Batch, Stream

from ..story.bound import BoundGraph
from ..story.reading import MissingAbove, checked, read, refuse_missing_above
from ..story.response import Response
from ..story.validation import check_corpus, check_counts

SIZE = 1024  # documents of a batch, unless said otherwise


class Minibatch(NamedTuple):
    """Documents, as many as in any other batch, and their responses."""

    corpus: Corpus
    response: Response
    number: int  # of documents that are none to fill up


@dataclass(frozen=True)
class InMemory:
    """A corpus in memory as a stream."""

    corpus: Corpus
    response: Response
    batch_size: int
    seed: int

    @property
    def num_documents(self) -> int:
        return len(self.corpus)

    @property
    def num_batches(self) -> int:
        return -(-len(self.corpus) // self.batch_size)

    def batches(self, number: int = 0, start: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng((self.seed, number)).permutation(len(self.corpus))
        for first in range(start * self.batch_size, len(order), self.batch_size):
            rows = order[first : first + self.batch_size]
            yield Batch(self.corpus[rows], self.response.take(rows) if self.response else None)


class Minibatches:
    """The batches of a stream or of a corpus in memory."""

    def __init__(self, corpus: Corpus | Stream, y: Any, batch_size: int | None, seed: int) -> None:
        self.source: Stream | InMemory
        if batch_size is not None:
            check_counts(batch_size=batch_size)
        if isinstance(corpus, Stream):
            if y is not None:
                raise TypeError(
                    "y is given beside a stream, which names its column itself: corpora.stream(..., y='y')."
                )
            if batch_size is not None and batch_size != corpus.batch_size:
                raise ValueError(
                    f"batch_size is {batch_size}, and the stream's batches are of {corpus.batch_size}; leave it out, or "
                    "give it to corpora.stream."
                )
            self.source = corpus
        else:
            check_corpus(corpus)
            size = min(batch_size or SIZE, len(corpus))
            self.source = InMemory(corpus, Response.of(corpus, y), size, seed)
        self.size = min(self.source.batch_size, self.source.num_documents)
        self.num_documents, self.num_batches = self.source.num_documents, self.source.num_batches

    @property
    def scale(self) -> float:
        """How many documents one of a batch stands for."""
        return self.num_documents / self.size

    @cached_property
    def sample(self) -> Batch:
        """The first batch, without documents that have no words."""
        corpus, y = next(iter(self.source.batches()))
        rows = np.flatnonzero(corpus.lengths)
        if not len(rows):
            raise ValueError(
                f"None of the first {len(corpus)} documents holds a term of the vocabulary; check the vocabulary and how "
                "texts are split."
            )
        return Batch(corpus[rows], _taken(y, rows))

    def read(self, story: str | Callable, arguments: Mapping[str, Any]) -> BoundGraph:
        """The story, read on the sample; responses may be missing in any batch."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "corpus holds document")  # one that is long among few is not among many
            graph = read(story, *self.sample, arguments)
        if not graph.response:
            return graph
        graph = checked(replace(graph, story=replace(graph.story, masked=True)))
        try:
            refuse_missing_above(graph)
        except MissingAbove:
            raise ValueError(
                f"The story {graph.story.name!r} draws something given y, which documents without words lack in a "
                "minibatch; fit it to a corpus in memory, by another engine or without batch_size."
            ) from None
        return graph

    def of_all(self, graph: BoundGraph) -> BoundGraph:
        """The graph for a checkpoint, which holds the documents where they are in memory."""
        if isinstance(self.source, Stream):
            return graph
        return replace(graph, corpus=self.source.corpus, response=self.source.response)

    def of_pass(self, graph: BoundGraph, number: int, start: int = 0) -> Iterator[Minibatch]:
        """The batches of a pass from one on, for a story that was read on the sample."""
        for corpus, y in self.source.batches(number, start):
            yield self.as_read(graph, corpus, y)

    def as_read(self, graph: BoundGraph, corpus: Corpus, y: Any) -> Minibatch:
        """Documents filled up to the size of a batch, and responses with the codes of the sample's."""
        response = Response({})
        if graph.response:
            response = y if isinstance(y, Response) else graph.response.like_this(corpus, y)
        number, size = len(corpus), self.size
        rows = np.minimum(np.arange(size), number - 1)
        response = response.take(rows)
        if number < size:
            counts = corpus.counts
            indptr = np.concatenate([counts.indptr, np.full(size - number, counts.indptr[-1])])
            filled = sparse.csr_array((counts.data, counts.indices, indptr), shape=(size, counts.shape[1]))
            corpus = replace(corpus[rows], counts=filled)
        empty = corpus.lengths == 0
        parts = {name: part.copy() for name, part in response.parts.items()}
        for part in parts.values():
            part[empty] = np.nan
        return Minibatch(corpus, replace(response, parts=parts), number)


def _taken(y: Any, rows: np.ndarray) -> Any:
    """The responses of some documents, in whatever form they are."""
    if y is None:
        return None
    if isinstance(y, Response):
        return y.take(rows)
    return {name: part[rows] for name, part in y.items()} if isinstance(y, dict) else y[rows]
