"""Documents from Parquet files that are never all in memory: minibatches in an order that repeats itself.

A pass goes through all row groups of all files, in an order that follows from the seed and the number of the pass. Of the
rows as they come, windows of some batches are shuffled each in itself. So any batch of any pass is found again without
those before it: row groups before its window are left out by what the files say of their sizes.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from scipy import sparse

from .checks import check_vocabulary, numbered, strings
from .corpus import Corpus
from .files.parquet import Columns, Group, files_behind, largest_number, list_parts, row_groups

WINDOW = 16  # batches that are shuffled together
AHEAD = 2  # batches made before they are asked for
ROW = "~row"  # the number of a row in all files
READ = 4096  # rows that are decoded at once

Item = TypeVar("Item")


class Batch(NamedTuple):
    """Some documents, and their responses where columns of them were named: an array, or a dict of arrays."""

    corpus: Corpus
    y: Any


def stream(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], text: str | None = None, *,
    vocabulary: Any, terms: str | None = None, counts: str | None = None, y: str | Sequence[str] | None = None,
    names: str | None = None, covariates: Sequence[str] = (), batch_size: int = 1024, seed: int = 0, shuffle: bool = True,
    window: int = WINDOW, **vectorizer_options: Any,
) -> Stream:  # fmt: skip
    """Documents of Parquet files in minibatches, for corpora beyond memory; needs pyarrow.

    Parameters
    ----------
    files : a file, a folder, a pattern such as ``"folder/*.parquet"``, or a list of these.
    text : the column of texts; "text" where `terms` is not given. A missing text is a document without words.
    vocabulary : the terms to count, in their order; a fitted `CountVectorizer`, which then counts texts; or, for numbers in
        `terms`, how many terms there are.
    terms, counts : instead of texts a column of lists, of terms or of their numbers in the vocabulary, and one of lists of
        their counts; without `counts` each stands for one word. Terms that are not in the vocabulary are left out.
    y : the column of the response, or a list of columns: the batches then have a dict of responses.
    names : the column of document names; by default the number of the row in all files.
    covariates : columns to carry along.
    batch_size : documents in a batch; the last one of a pass has what is left.
    seed, shuffle, window : a pass goes through row groups in an order of its own and shuffles `window` batches at a time, so
        that files should have many row groups where neighbours are alike. `shuffle=False`: as they stand.
    vectorizer_options : of `CountVectorizer` (`lowercase`, `ngram_range`, ...), for texts.

    Documents without a word of the vocabulary stay, so that every row has its place; engines learn nothing from them.
    """
    for name, value in (("batch_size", batch_size), ("window", window)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} is {value!r}: give a whole number of at least 1")
    if text is not None and terms is not None:
        raise ValueError(f"text is {text!r} and terms is {terms!r}: documents are one or the other, leave one out")
    if counts is not None and terms is None:
        raise ValueError(f"counts is {counts!r} and terms is not given: name the column of terms that they count")
    if isinstance(covariates, str):
        raise TypeError(f"covariates is the bare string {covariates!r}: give a list, [{covariates!r}]")
    text = "text" if text is None and terms is None else text
    responses = y if y is None or isinstance(y, str) else tuple(y)
    columns = Columns(text, terms, counts, responses, names, tuple(covariates))
    groups, numbers = row_groups(files_behind(files), columns)
    known, vectorizer = _words(vocabulary, columns, numbers, vectorizer_options)
    if numbers and (largest := largest_number(groups, columns)) >= len(known):
        raise ValueError(f"terms has the number {largest}, and vocabulary has {len(known)} terms: give one a number")
    return Stream(tuple(groups), columns, known, vectorizer, int(batch_size), seed, shuffle, int(window))


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """Minibatches of documents that are read when they are asked for; made by `corpora.stream`."""

    groups: tuple[Group, ...]
    columns: Columns
    vocabulary: np.ndarray
    vectorizer: Any
    batch_size: int
    seed: int
    shuffle: bool
    window: int

    def __repr__(self) -> str:
        files = len({group.path for group in self.groups})
        sizes = f"{self.num_documents} documents in {files} files, {len(self.vocabulary)} terms"
        return f"Stream({sizes}, batches of {self.batch_size})"

    @property
    def num_documents(self) -> int:
        """Rows of all files."""
        return sum(group.rows for group in self.groups)

    @property
    def num_batches(self) -> int:
        """Batches of a pass; the last may be smaller."""
        return -(-self.num_documents // self.batch_size)

    def told(self) -> str:
        """What the batches follow from, in few letters: for checkpoints, which hold no documents of a stream."""
        files = [(os.path.basename(group.path), group.number, group.rows) for group in self.groups]
        words = "" if self.vectorizer is None else self.vectorizer.get_params()
        all_of_it = files, vars(self.columns), self.batch_size, self.seed, self.shuffle, self.window, str(words)
        return f"{self!r}, {hashlib.sha256(repr(all_of_it).encode()).hexdigest()[:12]}"

    def in_order(self) -> Stream:
        """The same documents as they stand."""
        return replace(self, shuffle=False)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, number: int = 0, start: int = 0) -> Iterator[Batch]:
        """The batches of a pass from one on, made in another thread before they are asked for."""
        return ahead(self._batches(number, start), AHEAD)

    def _batches(self, number: int, start: int) -> Iterator[Batch]:
        window, skip = start // self.window, start % self.window
        for table in self._windows(number, window):
            if self.shuffle:
                table = table.take(np.random.default_rng((self.seed, number, window)).permutation(len(table)))
            for first in range(skip * self.batch_size, len(table), self.batch_size):
                yield self._batch(table.slice(first, self.batch_size))
            window, skip = window + 1, 0

    def _windows(self, number: int, window: int) -> Iterator[Any]:
        """Tables of so many rows as are shuffled together, from a window on."""
        import pyarrow

        size, parts, held = self.window * self.batch_size, [], 0
        for part in self._rows(number, window * size):
            parts.append(part)
            held += len(part)
            while held >= size:
                whole = pyarrow.concat_tables(parts)
                yield whole.slice(0, size)
                parts, held = [whole.slice(size)], held - size
        if held:
            yield pyarrow.concat_tables(parts)

    def _rows(self, number: int, skip: int) -> Iterator[Any]:
        """Rows of a pass as they come, without some at the beginning, each with its number in all files."""
        import pyarrow
        from pyarrow import parquet

        order = np.arange(len(self.groups))
        if self.shuffle:
            order = np.random.default_rng((self.seed, number)).permutation(order)
        for place in order:
            path, own, rows, first = self.groups[place]
            if skip >= rows:
                skip -= rows
                continue
            with parquet.ParquetFile(path, pre_buffer=False) as file:
                for part in file.iter_batches(READ, row_groups=[own], columns=self.columns.all()):
                    numbers = pyarrow.array(np.arange(first, first := first + len(part)))
                    table = pyarrow.Table.from_batches([part]).append_column(ROW, numbers)
                    yield table.slice(skip)
                    skip = max(skip - len(part), 0)

    def _batch(self, table: Any) -> Batch:
        columns = self.columns
        counts = self._counts(table)
        rows = table[ROW].to_numpy()
        labels = strings(rows.tolist() if columns.names is None else table[columns.names].to_pylist())
        carried = pd.DataFrame({name: table[name].to_pandas() for name in columns.covariates}, index=range(len(rows)))
        corpus = Corpus(counts, self.vocabulary, labels, rows, carried.set_axis(labels))
        y = {name: table[name].to_pandas().to_numpy() for name in columns.responses}
        return Batch(corpus, y[columns.y] if isinstance(columns.y, str) else y or None)

    def _counts(self, table: Any) -> sparse.csr_array:
        columns, shape = self.columns, (len(table), len(self.vocabulary))
        if columns.terms is None:
            texts = [text or "" for text in table[columns.text].to_pylist()]
            found = self.vectorizer.transform(texts)
        else:
            lengths, held = list_parts(table[columns.terms])
            repeats = np.ones(len(held)) if columns.counts is None else self._repeats(table, lengths)
            rows = np.repeat(np.arange(len(table)), lengths)
            if held.dtype.kind not in "iu":
                held = pd.Index(self.vocabulary).get_indexer(held)
                rows, held, repeats = rows[held >= 0], held[held >= 0], repeats[held >= 0]
            found = sparse.coo_array((repeats, (rows, held)), shape=shape)
        matrix = sparse.csr_array(found, shape=shape).astype(np.int32)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return matrix

    def _repeats(self, table: Any, lengths: np.ndarray) -> np.ndarray:
        own, repeats = list_parts(table[self.columns.counts])
        if (other := own != lengths).any():
            row = int(np.argmax(other))
            raise ValueError(
                f"counts has {own[row]} numbers in row {table[ROW][row]}, where terms has {lengths[row]}: give one a term"
            )
        if len(repeats) and not ((repeats >= 0) & (repeats == np.floor(repeats))).all():
            raise ValueError(
                f"counts holds {repeats[~(repeats >= 0) | (repeats % 1 != 0)][0]}: give whole numbers from 0"
            )
        return repeats


def ahead(items: Iterator[Item], most: int) -> Iterator[Item]:
    """The items, made in another thread, so many of them before they are asked for."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(most)
    over = threading.Event()

    def put(kind: str, what: Any) -> None:
        while not over.is_set():
            try:
                return made.put((kind, what), timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put("item", item)
                if over.is_set():
                    return
            put("end", None)
        except BaseException as error:  # told to the one who asks
            put("error", error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (told := made.get())[0] == "item":
            yield told[1]
        if told[0] == "error":
            raise told[1]
    finally:
        over.set()
        thread.join()


def _words(vocabulary: Any, columns: Columns, numbers: bool, options: Mapping[str, Any]) -> tuple[np.ndarray, Any]:
    """The terms, and for texts what counts them."""
    if isinstance(vocabulary, int | np.integer) and not isinstance(vocabulary, bool):
        if not numbers:
            raise TypeError(
                f"vocabulary is {vocabulary!r}, how many terms there are, and terms are no numbers: list them"
            )
        return numbered(int(vocabulary)), None
    if columns.terms is not None:
        if options:
            raise TypeError(f"{next(iter(options))} is for texts, and terms are counted already: leave it out")
        return check_vocabulary(getattr(vocabulary, "get_feature_names_out", lambda: vocabulary)()), None
    from sklearn.feature_extraction.text import CountVectorizer  # half a second of start-up

    if isinstance(vocabulary, CountVectorizer):
        if options:
            raise TypeError(f"{next(iter(options))} is given, and vocabulary is a CountVectorizer: set it there")
        vocabulary._validate_vocabulary()  # one that was given its terms needs no fit
        if not hasattr(vocabulary, "vocabulary_"):
            raise ValueError("vocabulary is a CountVectorizer without terms: fit it to some texts first")
        return check_vocabulary(vocabulary.get_feature_names_out()), vocabulary
    known = check_vocabulary(vocabulary)
    allowed = set(CountVectorizer().get_params()) - {"vocabulary", "input", "min_df", "max_df", "max_features"}
    if unknown := sorted(set(options) - allowed):
        raise TypeError(
            f"no vectorizer option for a fixed vocabulary is called {unknown[0]!r}: choose from {sorted(allowed)}"
        )
    vectorizer = CountVectorizer(vocabulary=known, **options)
    vectorizer._validate_vocabulary()
    return known, vectorizer
