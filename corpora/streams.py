"""Documents from Parquet files that are never all in memory: minibatches in an order that repeats itself.

A pass goes through all row groups of all files, in an order that follows from the seed and the number of the pass. Of the
rows as they come, windows of some batches are shuffled each in itself. So any batch of any pass is found again without
those before it: row groups before its window are left out by what the files say of their sizes.
"""

from __future__ import annotations

import glob
import hashlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from scipy import sparse

from .checks import check_vocabulary, nearest, numbered, strings
from .corpus import Corpus

WINDOW = 16  # batches that are shuffled together
AHEAD = 2  # batches made before they are asked for
ROW = "~row"  # the number of a row in all files
READ = 4096  # rows that are decoded at once

Item = TypeVar("Item")


class Batch(NamedTuple):
    """Some documents, and their responses where columns of them were named: an array, or a dict of arrays."""

    corpus: Corpus
    y: Any


class Group(NamedTuple):
    """A row group of a file, and the number of its first row in all files."""

    path: str
    number: int
    rows: int
    first: int


@dataclass(frozen=True)
class Columns:
    """The columns that a stream reads: texts, or lists of terms with or without their counts."""

    text: str | None
    terms: str | None
    counts: str | None
    y: str | tuple[str, ...] | None
    names: str | None
    covariates: tuple[str, ...]

    @property
    def responses(self) -> tuple[str, ...]:
        return () if self.y is None else (self.y,) if isinstance(self.y, str) else self.y

    def wanted(self) -> dict[str, tuple[str, ...]]:
        """By argument, the columns that it asks for."""
        named = {"text": self.text, "terms": self.terms, "counts": self.counts, "names": self.names}
        found = {argument: (column,) for argument, column in named.items() if column is not None}
        return {**found, "y": self.responses, "covariates": self.covariates}

    def all(self) -> list[str]:
        return list(dict.fromkeys(column for columns in self.wanted().values() for column in columns))


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
    groups, numbers = _groups(_paths(files), columns)
    known, vectorizer = _words(vocabulary, columns, numbers, vectorizer_options)
    if numbers and (largest := _largest(groups, columns)) >= len(known):
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
            lengths, held = _lists(table[columns.terms])
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
        own, repeats = _lists(table[self.columns.counts])
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


def _paths(files: Any) -> list[str]:
    """The files behind names, folders and patterns, each once."""
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    found: list[str] = []
    for one in (os.fspath(name) for name in given):
        here = sorted(glob.glob(os.path.join(glob.escape(one), "*.parquet")) if Path(one).is_dir() else glob.glob(one))
        if not here:
            raise FileNotFoundError(f"files has {one!r}, where there is no Parquet file: check the name and the folder")
        found += here
    if not found:
        raise FileNotFoundError("files is an empty list: name at least one Parquet file")
    return list(dict.fromkeys(found))


def _groups(paths: Iterable[str], columns: Columns) -> tuple[list[Group], bool]:
    """The row groups of all files, whose columns are there and of a kind that serves, and whether terms are numbers."""
    try:
        from pyarrow import parquet, types
    except ImportError:
        raise ImportError(
            "corpora.stream reads Parquet, which needs pyarrow: pip install 'topiczoo[parquet]'"
        ) from None
    groups: list[Group] = []
    kinds: set[bool] = set()
    first = 0
    for path in paths:
        try:
            with parquet.ParquetFile(path) as file:
                schema, told = file.schema_arrow, file.metadata
        except (ValueError, OSError) as error:
            short = str(error).splitlines()[0][:100]
            raise ValueError(f"files has {path!r}, which is no readable Parquet ({short}): write it again") from None
        for argument, wanted in columns.wanted().items():
            for column in wanted:
                if column not in schema.names:
                    near = nearest(column, schema.names) or f": the columns are {schema.names[:30]}"
                    raise ValueError(f"{argument} asks for column {column!r}, which {path!r} has not{near}")
                _check_kind(argument, column, schema.field(column).type, path, types)
        if columns.terms is not None:
            kinds.add(types.is_integer(schema.field(columns.terms).type.value_type))
        for number in range(told.num_row_groups):
            rows = told.row_group(number).num_rows
            if rows:
                groups.append(Group(path, number, rows, first))
                first += rows
    if not groups:
        raise ValueError(f"files has {first} rows: give files that hold documents")
    if len(kinds) > 1:
        raise ValueError(f"terms are numbers in some files and words in others ({columns.terms!r}): write them alike")
    return groups, kinds == {True}


def _check_kind(argument: str, column: str, kind: Any, path: str, types: Any) -> None:
    def is_text(kind: Any) -> bool:
        inner = kind.value_type if types.is_dictionary(kind) else kind
        return types.is_string(inner) or types.is_large_string(inner)

    def is_number(kind: Any) -> bool:
        return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)

    inner = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else None
    serves, wanted = {
        "text": (is_text(kind), "strings"),
        "terms": (
            inner is not None and (is_text(inner) or types.is_integer(inner)),
            "lists of strings or whole numbers",
        ),
        "counts": (inner is not None and (types.is_integer(inner) or types.is_floating(inner)), "lists of numbers"),
        "y": (is_text(kind) or is_number(kind), "numbers or labels"),
    }.get(argument, (inner is None, "one value a document"))
    if not serves:
        raise ValueError(f"{argument} names column {column!r}, which holds {kind} in {path!r}: give one of {wanted}")


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


def _largest(groups: Iterable[Group], columns: Columns) -> int:
    """The largest number of a term that the files tell of without being read; -1 where they tell none."""
    from pyarrow import parquet

    found = -1
    for path, own in [(group.path, group.number) for group in groups]:
        told = parquet.read_metadata(path).row_group(own)
        for place in range(told.num_columns):
            column = told.column(place)
            if column.path_in_schema.split(".")[0] == columns.terms and column.statistics is not None:
                found = max(found, int(column.statistics.max) if column.statistics.has_min_max else -1)
    return found


def _lists(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The length of each list of a column, and all that is in them; a missing list is an empty one."""
    from pyarrow import compute

    lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy()
    return lengths.astype(np.int64), column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
