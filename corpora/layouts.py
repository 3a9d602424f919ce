"""Layouts of a corpus for engines: what a story may read, distinct pairs, and batches of tokens.

All are JAX pytrees, so that an engine passes them to compiled code as arguments and never as constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from .corpus import Corpus
from .pairs import Pairs, distinct_pairs

WIDTH = 64  # documents of a batch: 64 x 50 topics of float32 stay in a core's first cache
SHARDS = 8  # parts of a corpus that threads share out: so many on any machine, so that results are the same on all
LEAST_SHARED = 50_000  # positions: fewer are not worth the threads
LONG, LONGER = 4096, 8  # tokens of a document that is laid out alone, and how many times those of nearly all others
SMALL = 2**15  # numbers in an array of which twice as many cost next to nothing
LEAST_POSITIONS = 64  # that documents are given: sentences are all of one size
LEAST_OF_FEW = 512  # the same of documents on which a story is tried out
WIDTH_OF_ACCELERATORS = 4096  # they would rather have many documents side by side than few steps


def rounded_up(size: int, each: int = 1) -> int:
    """One of few sizes, at least this one, for an axis along which ``each`` numbers stand: shapes that recur are compiled
    once. Small arrays are as long as a power of 2, larger ones at most an eighth too long."""
    power = 1 << max(size - 1, 0).bit_length()
    step = max(power // (16 if size * each > SMALL else 1), 1)
    return -(-size // step) * step


def on_device(array: Any, dtype: Any = None) -> jax.Array:
    """NumPy's numbers as JAX's; ``jnp.asarray`` would compile something for every shape."""
    array = np.asarray(array, dtype)
    return jax.device_put(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))


class LongDocuments(NamedTuple):
    """Documents much longer than others, one after the other, the tokens of a document side by side.

    In a batch each would make all others as deep as itself. Token n of document ``rows[i]`` is
    ``terms[start[i] + n // width, n % width]``.
    """

    terms: jax.Array  # [positions, width] int32; num_terms where there is no token
    start: jax.Array  # [long documents] first position
    depth: jax.Array  # [long documents] number of positions
    rows: jax.Array  # [long documents]
    lengths: jax.Array  # [long documents]


class PaddedBatches(NamedTuple):
    """Documents sorted by length, side by side in batches of equal width; each batch as deep as its longest.

    ``terms[s, start[s, b] + n, lane]`` is the n-th token of document ``rows[s, b, lane]``, for n below ``lengths[s, b,
    lane]``. The batches are dealt to shards s of equal shape, which threads share out, so that one compiled loop serves
    all batches whatever their depth; padding stays small because neighbours are alike. Positions and batches are rounded up
    to few numbers, so that other documents have the same shapes. The layout follows from the corpus alone, never from the
    machine.
    """

    terms: Any  # [shards, positions, width] int32; num_terms where there is no token; None where they lie in files
    start: jax.Array  # [shards, batches] first position of a batch
    depth: jax.Array  # [shards, batches] number of its positions
    rows: jax.Array  # [shards, batches, width] document of a lane (0 where there is none)
    lengths: jax.Array  # [shards, batches, width] tokens of that document (0 where there is none)
    lane: jax.Array  # [documents] position of a document in the flattened lanes
    long: LongDocuments | None = None  # documents that have no tokens in the batches
    numbers: jax.Array | None = None  # [shards, batches, width] by which random numbers know a document: else its row
    begins: Any = None  # as terms, 1 for the first word of a sentence, where words are in their order
    ladder: Any = None  # with them 0, 1, ... for each position of the deepest batch

    def known_by_words(self, corpus: Corpus) -> PaddedBatches:
        """The same, where random numbers know a document by its words, wherever it stands and whatever beside it."""
        return self._replace(numbers=on_device(corpus.fingerprints[np.asarray(self.rows)]))

    def of_tokens(self, topics: Any, long_topics: Any = None) -> np.ndarray:
        """What stands in the positions of every token, in the order of ``Corpus.tokens``."""
        found = np.asarray(topics)[self.positions()]
        if self.long is None:
            return found
        lengths = np.asarray(self.lengths).reshape(-1)[np.asarray(self.lane)]
        long, width = jax.tree.map(np.asarray, self.long), self.long.terms.shape[1]
        parts = np.split(found, np.cumsum(lengths)[:-1])
        flat = np.asarray(long_topics).reshape(-1)
        for row, first, length in zip(long.rows, long.start, long.lengths, strict=True):
            parts[row] = flat[first * width : first * width + length]
        return np.concatenate(parts)

    def positions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where every token of the batches stands, in the order of ``Corpus.tokens``: shard, position, lane."""
        shard, batch, lane = np.unravel_index(np.asarray(self.lane), self.lengths.shape)
        lengths = np.asarray(self.lengths)[shard, batch, lane]
        first = np.asarray(self.start)[shard, batch]
        position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(shard, lengths), np.repeat(first, lengths) + position, np.repeat(lane, lengths)

    @property
    def padding(self) -> float:
        """Stored positions a token: 1 is perfect."""
        return float(self.terms.size / max(np.asarray(self.lengths).sum(), 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Documents:
    """What a story sees of a corpus inside an engine: the attributes of a Corpus that are numbers."""

    lengths: jax.Array  # [D] float32
    covariates: dict[str, jax.Array]  # each [D]
    pairs: Pairs | None = None
    batches: PaddedBatches | None = None
    token_document: jax.Array | None = None
    token_term: jax.Array | None = None
    token_begins: jax.Array | None = None  # whether a token is the first of a sentence, where words are in their order
    in_sentences: bool = field(default=False, metadata={"static": True})
    counted: jax.Array | None = None  # [D] how far the response of each counts; wholly where this is None
    # numbers among the arguments of a story, for compiled code, which must not hold them
    arguments: dict[str, Any] = field(default_factory=dict)
    num_terms: int = field(default=0, metadata={"static": True})

    @property
    def num_documents(self) -> int:
        return self.lengths.shape[0]

    def __len__(self) -> int:
        return self.num_documents

    @property
    def laid_out(self) -> PaddedBatches:
        """The batches, where words have topics of their own."""
        assert self.batches is not None
        return self.batches

    def tokens(self) -> tuple[jax.Array, jax.Array]:
        """Document and term of every token, as ``Corpus.tokens``."""
        assert self.token_document is not None and self.token_term is not None
        return self.token_document, self.token_term

    def take(self, rows: jax.Array) -> Documents:
        """The same documents in other positions, without their words: for evaluating responses inside a sweep."""
        covariates = {name: column[rows] for name, column in self.covariates.items()}
        return replace(
            self, lengths=self.lengths[rows], covariates=covariates,
            counted=None if self.counted is None else self.counted[rows],
            pairs=None, batches=None, token_document=None, token_term=None, token_begins=None,
        )  # fmt: skip


def documents(
    corpus: Corpus, *, pairs: bool = False, tokens: bool = False, batches: bool = False, processes: int = 1
) -> Documents:
    """The numbers of a corpus as a pytree, with the layouts asked for; batches for so many processes to share out."""
    layout: dict[str, Any] = {}
    if pairs:
        layout["pairs"] = distinct_pairs(corpus.counts, rounded_up(corpus.counts.nnz))
    if tokens:
        layout["token_document"], layout["token_term"] = map(on_device, corpus.tokens())
        layout["token_begins"] = None if corpus.sentences is None else on_device(corpus.sentences.begins)
    if batches:
        layout["batches"] = token_batches(corpus, long=True, processes=processes)
    return Documents(
        lengths=on_device(corpus.lengths, np.float32),
        covariates=_numeric(corpus.covariates),
        num_terms=corpus.num_terms,
        in_sentences=corpus.sentences is not None,
        **layout,
    )


def few_documents(corpus: Corpus, *, batches: bool = False) -> Documents:
    """Documents on which a story is tried out, in shapes that recur: pairs of no document are added, which nobody counts."""
    laid = documents(corpus)
    if batches:
        laid = replace(laid, batches=token_batches(corpus, long=True, least=LEAST_OF_FEW))
    return replace(laid, pairs=distinct_pairs(corpus.counts, rounded_up(max(corpus.counts.nnz, LEAST_OF_FEW))))


def _numeric(frame: pd.DataFrame) -> dict[str, jax.Array]:
    """Columns a story can compute with; categories as their codes."""
    columns = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            columns[str(name)] = on_device(column.cat.codes.to_numpy())
        elif pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            columns[str(name)] = on_device(column.to_numpy())
    return columns


def token_batches(
    corpus: Corpus, shards: int | None = None, *, long: bool = False, least: int = LEAST_POSITIONS, processes: int = 1
) -> PaddedBatches:
    """Blocks of documents of like length, the longest first, each dealt to the shard that has least to do so far.

    With ``long`` documents that are much longer than others are laid out beside the batches, on a host: it has no time for
    positions without a token. There are ``least`` positions at the least. A corpus that is worth it has as many shards for
    each of so many ``processes``.
    """
    lengths = corpus.lengths
    alone = long_ones(lengths) if long and jax.default_backend() == "cpu" else np.zeros(len(lengths), bool)
    if corpus.sentences is not None:  # one word after the other
        alone = np.zeros(len(lengths), bool)
    lengths = np.where(alone, 0, lengths)
    if shards is None:
        shards = SHARDS if jax.default_backend() == "cpu" else 1
        shards = -(-shards // processes) * processes if lengths.sum() >= LEAST_SHARED else 1
    batches, num_positions = arranged(lengths, shards, least)
    terms = np.stack([terms_of(corpus, batches, shard, num_positions) for shard in range(shards)])
    apart = _long_documents(corpus, np.flatnonzero(alone)) if alone.any() else None
    arrays = batches._replace(terms=terms)
    if corpus.sentences is not None:
        deepest = rounded_up(max(int(batches.depth.max()), LEAST_POSITIONS))
        begins = np.stack([_begins_of(corpus, batches, shard, num_positions) for shard in range(shards)])
        arrays = arrays._replace(begins=begins, ladder=np.arange(deepest))
    return jax.tree.map(lambda array: on_device(array, np.int32), arrays)._replace(long=apart)


def long_ones(lengths: np.ndarray) -> np.ndarray:
    """Which documents are much longer than others, given how many tokens each has."""
    return lengths > max(LONG, LONGER * np.quantile(lengths, 0.9))


def arranged(lengths: np.ndarray, shards: int, least: int = LEAST_POSITIONS) -> tuple[PaddedBatches, int]:
    """Where documents of such lengths stand in batches, in NumPy's arrays without terms, and the positions of a shard."""
    number = len(lengths)
    width = batch_width(number / shards)
    order = np.full(-(-number // width) * width, -1)
    order[:number] = np.argsort(-lengths, kind="stable")
    in_batches = order.reshape(-1, width)
    of_shard = _dealt(lengths[in_batches[:, 0]], shards)
    rows = np.full((shards, rounded_up(max(map(len, of_shard)), each=SMALL // 8), width), -1)
    for position, own in enumerate(of_shard):
        rows[position, : len(own)] = in_batches[own]
    inside = rows >= 0
    in_lane = np.where(inside, lengths[rows], 0)
    depth = in_lane.max(2)
    positions = rounded_up(max(int(depth.sum(1).max()), least), each=shards * width)
    lane_of = np.zeros(number)
    lane_of[rows[inside]] = np.flatnonzero(inside)
    arrays = np.cumsum(depth, 1) - depth, depth, np.where(inside, rows, 0), in_lane, lane_of
    without_terms: list[Any] = [None, *(array.astype(np.int32) for array in arrays)]
    return PaddedBatches(*without_terms), positions


def terms_of(corpus: Corpus, batches: PaddedBatches, shard: int, positions: int) -> np.ndarray:
    """The terms of a shard, [positions, width]: a shard at a time, since all tokens of a large corpus are a lot."""
    rows, places = _places(batches, shard)
    terms = np.full((positions, batches.lengths.shape[2]), corpus.num_terms, np.int32)
    if corpus.sentences is None:
        own = corpus.counts[rows]
        terms[places] = np.repeat(own.indices, own.data)
    else:
        terms[places] = corpus.sentences.take(rows).terms
    return terms


def _begins_of(corpus: Corpus, batches: PaddedBatches, shard: int, positions: int) -> np.ndarray:
    """Which words of a shard are the first of a sentence, [positions, width], where they are in their order."""
    assert corpus.sentences is not None
    rows, places = _places(batches, shard)
    begins = np.zeros((positions, batches.lengths.shape[2]), np.int32)
    begins[places] = corpus.sentences.take(rows).begins
    return begins


def _places(batches: PaddedBatches, shard: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """The documents of a shard, and where their words stand: position and lane of each, document after document."""
    lengths = np.asarray(batches.lengths[shard])
    batch, lane = np.nonzero(lengths)
    repeats = lengths[batch, lane]
    position = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    place = np.repeat(np.asarray(batches.start[shard])[batch], repeats) + position
    return np.asarray(batches.rows[shard])[batch, lane], (place, np.repeat(lane, repeats))


def batch_width(num_documents: float) -> int:
    """Documents side by side in a batch of a shard that has so many."""
    width = WIDTH if jax.default_backend() == "cpu" else WIDTH_OF_ACCELERATORS
    return min(width, 2 ** int(np.ceil(np.log2(max(num_documents, 1)))))


def num_places(corpus: Corpus) -> int:
    """Places of the batches of a corpus in one shard, with and without a token."""
    width = batch_width(corpus.num_documents)
    depth = int(np.sort(corpus.lengths)[::-1][::width].sum())
    return width * rounded_up(max(depth, LEAST_POSITIONS), each=width)


def _long_documents(corpus: Corpus, rows: np.ndarray) -> LongDocuments:
    lengths = corpus.lengths[rows]
    depth = -(-lengths // WIDTH)
    start = np.cumsum(depth) - depth
    positions = rounded_up(int(depth.sum()), each=SMALL)
    terms, (_, term) = np.full((positions, WIDTH), corpus.num_terms), corpus.tokens()
    ends = np.cumsum(corpus.lengths)[rows]
    for first, length, end in zip(start * WIDTH, lengths, ends, strict=True):
        terms.reshape(-1)[first : first + length] = term[end - length : end]
    return LongDocuments(*(on_device(array, np.int32) for array in (terms, start, depth, rows, lengths)))


def _dealt(depths: np.ndarray, shards: int) -> list[list[int]]:
    """For each shard its batches. A thread takes neighbouring shards: of equal ones the first are of different threads,
    however many threads there are."""
    turn = sorted(range(shards), key=lambda shard: f"{shard:b}".zfill(shards.bit_length() - 1)[::-1])
    given = np.zeros(shards, int)
    own: list[list[int]] = [[] for _ in range(shards)]
    for batch, depth in enumerate(depths.tolist()):
        shard = min(turn, key=given.__getitem__)
        own[shard].append(batch)
        given[shard] += depth
    return own
