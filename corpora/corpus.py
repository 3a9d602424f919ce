"""`Corpus`: documents as bags of words, with their vocabulary, names and covariates.

Whatever form the documents come in, they are checked once, here. Everything downstream may then rely on
whole, positive, 32-bit counts in canonical order, on at least one document and on at least one term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

if TYPE_CHECKING:
    from .layouts import Pairs

_LARGEST_COUNT = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """An immutable bag of words that slices like an array of documents.

    Build one with a `from_...` method: these check what they are given, the bare constructor does not.

    Attributes
    ----------
    counts : csr_array of int32, [documents, terms]; sorted, no duplicates, no stored zeros.
    vocabulary : array of str, the unique term behind each column.
    names : array of str, one a document.
    source_rows : array of int, for each document its row in the input. After `empty="drop"` or after
        slicing, `y[corpus.source_rows]` are the responses that belong to the documents still here.
    """

    counts: sparse.csr_array
    vocabulary: np.ndarray
    names: np.ndarray
    source_rows: np.ndarray
    _covariates: pd.DataFrame

    def __post_init__(self) -> None:
        stored = (self.counts.data, self.counts.indices, self.counts.indptr)
        for array in (*stored, self.vocabulary, self.names, self.source_rows):
            array.flags.writeable = False

    @classmethod
    def from_counts(
        cls,
        counts: Any,
        vocabulary: Iterable[str] | None = None,
        *,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Take a document-term matrix, dense or any scipy sparse format; the matrix is copied.

        Parameters
        ----------
        counts : [documents, terms], whole numbers of any numeric type.
        vocabulary : the term behind each column; by default the column numbers "0", "1", ...
        names : one a document; by default the row numbers "0", "1", ...
        covariates : a DataFrame, or a mapping from column name to values, with one row a document.
        empty : what to do with documents without tokens: "error", "drop" or "keep".
        """
        if empty not in ("error", "drop", "keep"):
            raise ValueError(f"empty is {empty!r}: choose 'error', 'drop' or 'keep'")
        matrix = _canonical_counts(counts)
        num_documents, num_terms = matrix.shape
        terms = _numbered(num_terms) if vocabulary is None else _check_vocabulary(vocabulary, num_terms)
        labels = _numbered(num_documents) if names is None else _check_names(names, num_documents)
        frame = pd.DataFrame(index=labels) if covariates is None else _check_covariates(covariates, labels)
        corpus = cls(matrix, terms, labels, np.arange(num_documents), frame)
        filled = corpus.lengths > 0
        if empty == "keep" or filled.all():
            return corpus
        if empty == "error":
            raise ValueError(
                f"{(~filled).sum()} of {num_documents} documents hold no term of the vocabulary "
                f"({_first_few(corpus.names[~filled])}): pass empty='drop' to leave them out or "
                "empty='keep' to keep them"
            )
        if not filled.any():
            raise ValueError(
                f"all {num_documents} documents are empty, so empty='drop' leaves none: check the "
                "counts or texts, and the vocabulary"
            )
        return corpus[filled]

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        *,
        vocabulary: Iterable[str] | None = None,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
        **vectorizer_options: Any,
    ) -> Corpus:
        """Count the words of raw texts with scikit-learn's `CountVectorizer`.

        Its options (`min_df`, `max_df`, `stop_words`, `max_features`, `ngram_range`, ...) pass through.
        With a `vocabulary` only its terms are counted, in its order. The rest is as in `from_counts`.
        """
        documents = _check_texts(texts, "texts")
        counts, terms = _vectorize(documents, vocabulary, vectorizer_options)
        return cls.from_counts(counts, terms, names=names, covariates=covariates, empty=empty)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        text: str = "text",
        *,
        names: str | None = None,
        covariates: Sequence[str] | None = None,
        vocabulary: Iterable[str] | None = None,
        empty: str = "error",
        **vectorizer_options: Any,
    ) -> Corpus:
        """Count the words of a DataFrame's `text` column, as `from_texts` does.

        `names` is the column of document names, `covariates` the list of columns to carry along.
        """
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame is a {type(frame).__name__}: give a pandas DataFrame, or use from_texts")
        if isinstance(covariates, str):
            raise TypeError(f"covariates is the bare string {covariates!r}: give a list, [{covariates!r}]")
        carried = list(covariates or [])
        require_columns(frame, text=[text], names=[] if names is None else [names], covariates=carried)
        return cls.from_texts(
            _check_texts(frame[text], f"frame[{text!r}]"),
            vocabulary=vocabulary,
            names=None if names is None else frame[names],
            covariates=frame[carried],
            empty=empty,
            **vectorizer_options,
        )

    @classmethod
    def from_tokens(
        cls,
        tokens: Iterable[Iterable[str]],
        *,
        vocabulary: Iterable[str] | None = None,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Count documents that are already lists of tokens; the tokens are taken as they stand.

        The vocabulary is the sorted set of tokens, or the one given, whose absent tokens are dropped.
        """
        documents = [
            check_list(document, f"tokens[{row}]", "a list of strings")
            for row, document in enumerate(check_list(tokens, "tokens", "a list of lists of strings"))
        ]
        for row, document in enumerate(documents):
            for position, token in enumerate(document):
                if not isinstance(token, str):
                    raise TypeError(
                        f"tokens[{row}][{position}] is {token!r} of type {type(token).__name__}: "
                        "every token must be a string, so convert it with str() or drop it"
                    )
        if vocabulary is None and documents and not any(documents):
            raise ValueError(f"tokens is empty in all {len(documents)} documents: give at least one token")
        counts, terms = _vectorize(documents, vocabulary, {"analyzer": list, "token_pattern": None})
        return cls.from_counts(counts, terms, names=names, covariates=covariates, empty=empty)

    @classmethod
    def from_bags(
        cls,
        bags: Iterable[Iterable[tuple[int, int]]],
        vocabulary: Iterable[str] | Mapping[int, str] | None = None,
        *,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Take gensim's bags of words: for each document a list of `(term_id, count)`.

        `vocabulary` lists the terms by id, or maps ids to terms as gensim's `Dictionary` does. Without
        it there are as many terms as the largest id asks for.
        """
        terms: list[str] | None = None
        if isinstance(vocabulary, Mapping):
            missing = set(range(len(vocabulary))) - set(vocabulary)
            if missing:
                raise ValueError(
                    f"vocabulary maps {len(vocabulary)} ids but not id {min(missing)}: number the terms "
                    "0, 1, 2, ... without gaps (gensim: dictionary.compactify())"
                )
            terms = [vocabulary[column] for column in range(len(vocabulary))]
        elif vocabulary is not None:
            terms = check_list(vocabulary, "vocabulary", "a list of terms")
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        documents = check_list(bags, "bags", "a list of documents, each a list of (term_id, count)")
        for row, bag in enumerate(documents):
            for pair in check_list(bag, f"bags[{row}]", "a list of (term_id, count)"):
                if not (isinstance(pair, Sequence | np.ndarray) and len(pair) == 2):
                    raise TypeError(f"bags[{row}] holds {pair!r}: give pairs (term_id, count)")
                term, count = pair
                if not isinstance(term, int | np.integer) or term < 0 or (terms is not None and term >= len(terms)):
                    limit = "" if terms is None else f" below {len(terms)}, the size of the vocabulary"
                    raise ValueError(f"bags[{row}] holds term id {term!r}: ids must be whole numbers from 0{limit}")
                rows.append(row)
                columns.append(int(term))
                values.append(count)
        num_terms = max(columns, default=-1) + 1 if terms is None else len(terms)
        counts = sparse.coo_array((np.asarray(values), (rows, columns)), shape=(len(documents), num_terms))
        return cls.from_counts(counts, terms, names=names, covariates=covariates, empty=empty)

    @property
    def covariates(self) -> pd.DataFrame:
        """One row a document, indexed by name; a copy, so that changing it leaves the corpus alone."""
        return self._covariates.copy()

    @property
    def num_documents(self) -> int:
        """Rows of `counts`, empty documents included."""
        return self.counts.shape[0]

    @property
    def num_terms(self) -> int:
        """Columns of `counts`, terms that never occur included."""
        return self.counts.shape[1]

    @property
    def num_tokens(self) -> int:
        """Sum of `counts`."""
        return int(self.lengths.sum())

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each document, int64 [documents]."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))

    @property
    def pairs(self) -> Pairs:
        """The distinct (document, term) pairs with their counts, as stories read them."""
        from .layouts import distinct_pairs

        return distinct_pairs(self)

    def __len__(self) -> int:
        return self.num_documents

    def __repr__(self) -> str:
        sizes = f"{self.num_documents} documents, {self.num_terms} terms, {self.num_tokens} tokens"
        columns = list(self._covariates.columns)
        return f"Corpus({sizes}, covariates {columns})" if columns else f"Corpus({sizes})"

    def __getitem__(self, rows: Any) -> Corpus:
        """The documents at `rows`: an integer, a slice, integers (repeats allowed) or a boolean mask.

        The result is always a `Corpus`, over the same vocabulary, and holds at least one document.
        """
        if not isinstance(rows, slice | tuple):
            rows = np.asarray(rows)
            rows = rows.astype(np.intp) if rows.size == 0 and rows.dtype != bool else rows
        try:
            chosen = np.atleast_1d(np.arange(self.num_documents)[rows])
        except IndexError as error:
            raise IndexError(
                f"rows does not index {self.num_documents} documents ({error}): give an integer, a slice, "
                "a list of integers or a mask of one boolean a document"
            ) from None
        if chosen.ndim != 1:
            raise IndexError(f"rows picks an array of shape {chosen.shape}: give a flat list of documents")
        if not len(chosen):
            raise ValueError(f"rows selects none of the {self.num_documents} documents: select at least one")
        return replace(
            self,
            counts=self.counts[chosen],
            names=self.names[chosen],
            source_rows=self.source_rows[chosen],
            _covariates=self._covariates.iloc[chosen],
        )

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """Every occurrence of every term, as `(document [T], term [T])`, both int32.

        Documents come in order, the terms of a document in column order, repeats next to each other.
        """
        pairs_per_document = np.diff(self.counts.indptr)
        document = np.repeat(np.arange(self.num_documents, dtype=np.int32), pairs_per_document)
        repeats = self.counts.data
        return np.repeat(document, repeats), np.repeat(self.counts.indices.astype(np.int32), repeats)

    def with_vocabulary(self, vocabulary: Iterable[str]) -> Corpus:
        """The same documents over another vocabulary, as prediction needs them.

        Terms it does not know are dropped, terms new to this corpus get columns of zeros, and documents
        that become empty are kept, so that predictions line up with the documents asked for.
        """
        terms = _check_vocabulary(vocabulary)
        column_of = pd.Index(terms).get_indexer(pd.Index(self.vocabulary))
        pairs = self.counts.tocoo()
        column = column_of[pairs.col]
        known = column >= 0
        counts = sparse.coo_array(
            (pairs.data[known], (pairs.row[known], column[known])), shape=(self.num_documents, len(terms))
        )
        return replace(self, counts=_canonical_counts(counts), vocabulary=terms)


def require_columns(frame: pd.DataFrame, **wanted: Sequence[str]) -> None:
    """Refuse columns that the frame lacks; each keyword is an argument and the columns it asks for."""
    for argument, columns in wanted.items():
        for column in columns:
            if column not in frame.columns:
                raise ValueError(
                    f"{argument} asks for column {column!r}, which is not there: the columns are {list(frame.columns)}"
                )


def _canonical_counts(counts: Any) -> sparse.csr_array:
    """A checked int32 copy in canonical CSR. Float64 on the way: it holds every valid count exactly."""
    try:
        table = counts if sparse.issparse(counts) else np.asarray(counts)
    except ValueError:
        raise ValueError("counts has rows of different lengths: give a rectangular table") from None
    if table.dtype.kind not in "buif":
        raise TypeError(f"counts has dtype {table.dtype}: give numbers, for example counts.astype(int)")
    if table.ndim != 2:
        raise ValueError(
            f"counts has {table.ndim} dimension(s), shape {table.shape}: give a table [documents, terms], "
            "for one document counts.reshape(1, -1)"
        )
    if 0 in table.shape:
        what = "documents" if table.shape[0] == 0 else "terms, so the vocabulary is empty"
        raise ValueError(f"counts of shape {table.shape} holds no {what}: give at least one")
    matrix = sparse.csr_array(table.astype(np.float64))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    values = matrix.data
    for bad, problem, mend in (
        (~np.isfinite(values), "not a finite number", "replace missing counts by 0 or drop the document"),
        (values < 0, "negative", "counts start at 0"),
        (values != np.floor(values), "not a whole number", "give raw counts, not weights such as tf-idf"),
        (values > _LARGEST_COUNT, f"above {_LARGEST_COUNT}, the largest 32-bit count", "rescale the counts"),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            row = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
            where = f"counts[{row}, {matrix.indices[first]}]"
            raise ValueError(f"{where} is {values[first]:.15g}, which is {problem}: {mend}")
    return matrix.astype(np.int32)


def _numbered(size: int) -> np.ndarray:
    return np.arange(size).astype(str)


def _first_few(values: Iterable[Any]) -> str:
    shown = [str(value) for value in values]
    return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "")


def check_list(values: Any, argument: str, wanted: str) -> list[Any]:
    """A list, unless it would come from splitting a string or from something without an order."""
    scattered = (str, bytes, Mapping, Set, pd.DataFrame)
    if isinstance(values, scattered) or not isinstance(values, Iterable):
        shown = f" {values[:40]!r}" if isinstance(values, str) else ""
        raise TypeError(f"{argument} is a {type(values).__name__}{shown}: give {wanted}")
    return list(values)


def _check_vocabulary(vocabulary: Iterable[str], size: int | None = None) -> np.ndarray:
    terms = check_list(vocabulary, "vocabulary", "a list of unique terms")
    if not terms:
        raise ValueError("vocabulary is empty: give at least one term")
    for position, term in enumerate(terms):
        if not isinstance(term, str):
            raise TypeError(f"vocabulary[{position}] is {term!r}: every term must be a string")
    if size is not None and len(terms) != size:
        raise ValueError(f"vocabulary has {len(terms)} terms for {size} columns of counts: give one a column")
    index = pd.Index(terms)
    if not index.is_unique:
        repeated = _first_few(index[index.duplicated()].unique())
        raise ValueError(f"vocabulary holds duplicate terms ({repeated}): give each term one column")
    return np.asarray(terms, dtype=np.str_)


def _check_names(names: Iterable[Any], size: int) -> np.ndarray:
    labels = check_list(names, "names", "a list of document names")
    if len(labels) != size:
        raise ValueError(f"names has {len(labels)} entries for {size} documents: give one name a document")
    return np.asarray([str(label) for label in labels], dtype=np.str_)


def _check_covariates(covariates: Any, names: np.ndarray) -> pd.DataFrame:
    if not isinstance(covariates, pd.DataFrame | Mapping):
        raise TypeError(f"covariates is a {type(covariates).__name__}: give a DataFrame, one row a document")
    frame = pd.DataFrame(covariates)
    if len(frame) != len(names):
        raise ValueError(f"covariates has {len(frame)} rows for {len(names)} documents: give one row each")
    return frame.set_axis(names, axis=0).copy()


def _check_texts(texts: Any, argument: str) -> list[str]:
    documents = check_list(texts, argument, "a list of strings, one a document")
    for row, text in enumerate(documents):
        if isinstance(text, str):
            continue
        if pd.api.types.is_scalar(text) and pd.isna(text):
            raise ValueError(f"{argument} is missing ({text!r}) in row {row}: drop that row or fill it")
        raise TypeError(f"{argument} is a {type(text).__name__} in row {row}: every text must be a string")
    return documents


def _vectorize(
    documents: list[Any], vocabulary: Iterable[str] | None, options: dict[str, Any]
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Counts and terms of documents, by scikit-learn's vectoriser."""
    if not documents:
        raise ValueError("the corpus is empty, it holds no documents: give at least one")
    allowed = set(CountVectorizer().get_params()) - {"vocabulary", "input"}
    if unknown := sorted(set(options) - allowed):
        raise TypeError(f"no vectorizer option is called {unknown[0]!r}: choose from {sorted(allowed)}")
    terms = None if vocabulary is None else _check_vocabulary(vocabulary)
    vectorizer = CountVectorizer(vocabulary=terms, **options)
    try:
        counts = vectorizer.fit_transform(documents)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"texts cannot be counted with options {options} ({reason}): change either") from None
    return counts, vectorizer.get_feature_names_out()
