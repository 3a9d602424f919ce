"""What a corpus takes and refuses: each fault in one sentence that names the argument, the value and the mend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from .files.wording import first_few, nearest

_LARGEST_COUNT = np.iinfo(np.int32).max


def require_columns(frame: pd.DataFrame, **wanted: Sequence[str]) -> None:
    """Refuse columns that the frame lacks; each keyword is an argument and the columns it asks for."""
    for argument, columns in wanted.items():
        for column in columns:
            if column not in frame.columns:
                names = [str(name) for name in frame.columns]
                near = nearest(column, names)
                shown = [name if len(name) <= 40 else f"{name[:40]}..." for name in names]
                raise ValueError(
                    f"{argument} asks for column {column!r}, which is not there{near}: the columns are {shown[:30]}"
                    + (f" and {len(shown) - 30} more" if len(shown) > 30 else "")
                )


def canonical_counts(counts: Any) -> sparse.csr_array:
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


def labelled_counts(
    frame: pd.DataFrame, vocabulary: Iterable[str] | None, names: Iterable[Any] | None
) -> tuple[Any, Iterable[str], Iterable[Any] | None]:
    """The counts of a DataFrame, with its columns as vocabulary and its index as names where none are given.

    An index that only numbers the rows is no list of names.
    """
    kinds = list(frame.dtypes)
    table: Any = frame
    if kinds and all(isinstance(kind, pd.SparseDtype) and kind.fill_value == 0 for kind in kinds):
        table = frame.sparse.to_coo()
    elif all(pd.api.types.is_numeric_dtype(kind) for kind in kinds):
        table = frame.to_numpy(np.float64, na_value=np.nan)  # also of pandas' own integers, with their missing values
    if names is None and not frame.index.equals(pd.RangeIndex(len(frame))):
        names = frame.index
    return table, [str(column) for column in frame.columns] if vocabulary is None else vocabulary, names


def numbered(size: int) -> np.ndarray:
    """The names "0", "1", ... of what has none."""
    return strings(map(str, range(size)))


def strings(values: Iterable[str]) -> np.ndarray:
    """An array of str of any length: in numpy's own array of strings every one takes the room of the longest."""
    return np.array([str(value) for value in values], dtype=object)


def _refuse_unwritable(values: Sequence[str], argument: str) -> None:
    """No file holds a string with a NUL or half of a surrogate pair."""
    if "\0" not in (text := "".join(values)) and text.encode(errors="replace").decode() == text:
        return
    for position, value in enumerate(values):
        if "\0" in value or value.encode(errors="replace").decode() != value:
            what = "a NUL character" if "\0" in value else "half of a surrogate pair, which is no character"
            raise ValueError(f"{argument}[{position}] is {value!r}, which holds {what}: replace it")


def check_list(values: Any, argument: str, wanted: str) -> list[Any]:
    """A list, unless it would come from splitting a string or from something without an order."""
    scattered = (str, bytes, Mapping, Set, pd.DataFrame)
    if isinstance(values, scattered) or not isinstance(values, Iterable):
        shown = f" {values[:40]!r}" if isinstance(values, str) else ""
        raise TypeError(f"{argument} is a {type(values).__name__}{shown}: give {wanted}")
    return list(values)


def check_vocabulary(vocabulary: Iterable[str], size: int | None = None) -> np.ndarray:
    """Unique terms, as many as there are columns."""
    terms = check_list(vocabulary, "vocabulary", "a list of unique terms")
    if not terms:
        raise ValueError("vocabulary is empty: give at least one term")
    for position, term in enumerate(terms):
        if not isinstance(term, str):
            raise TypeError(f"vocabulary[{position}] is {term!r}: every term must be a string")
    if size is not None and len(terms) != size:
        raise ValueError(f"vocabulary has {len(terms)} terms for {size} columns of counts: give one a column")
    _refuse_unwritable(terms, "vocabulary")
    index = pd.Index(terms)
    if not index.is_unique:
        repeated = first_few(index[index.duplicated()].unique())
        raise ValueError(f"vocabulary holds duplicate terms ({repeated}): give each term one column")
    return strings(terms)


def check_names(names: Iterable[Any], size: int) -> np.ndarray:
    """One name a document."""
    labels = check_list(names, "names", "a list of document names")
    if len(labels) != size:
        raise ValueError(f"names has {len(labels)} entries for {size} documents: give one name a document")
    found = strings(labels)
    _refuse_unwritable(found.tolist(), "names")
    # those of another corpus are read-only: they repeat where rows were picked twice, or were told of once
    others = isinstance(names, np.ndarray) and not names.flags.writeable
    if not others and (repeated := pd.Index(found).duplicated()).any():
        warnings.warn(
            f"names holds duplicates ({first_few(dict.fromkeys(found[repeated]))}): give each document a name of its own, "
            "or tell documents apart by their rows",
            stacklevel=3,
        )
    return found


def check_covariates(covariates: Any, names: np.ndarray) -> pd.DataFrame:
    """One row a document, under its name."""
    if not isinstance(covariates, pd.DataFrame | Mapping):
        raise TypeError(f"covariates is a {type(covariates).__name__}: give a DataFrame, one row a document")
    frame = pd.DataFrame(covariates)
    if len(frame) != len(names):
        raise ValueError(f"covariates has {len(frame)} rows for {len(names)} documents: give one row each")
    return frame.set_axis(names, axis=0).copy()


def check_texts(texts: Any, argument: str) -> list[str]:
    """A list of strings."""
    documents = check_list(texts, argument, "a list of strings, one a document")
    for row, text in enumerate(documents):
        if isinstance(text, str):
            continue
        if pd.api.types.is_scalar(text) and pd.isna(text):
            raise ValueError(f"{argument} is missing ({text!r}) in row {row}: drop that row or fill it")
        raise TypeError(f"{argument} is a {type(text).__name__} in row {row}: every text must be a string")
    return documents


def vectorize(
    documents: list[Any], vocabulary: Iterable[str] | None, options: dict[str, Any]
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Counts and terms of documents, by scikit-learn's vectoriser."""
    if not documents:
        raise ValueError("the corpus is empty, it holds no documents: give at least one")
    from sklearn.feature_extraction.text import CountVectorizer  # half a second of start-up

    allowed = set(CountVectorizer().get_params()) - {"vocabulary", "input"}
    if unknown := sorted(set(options) - allowed):
        raise TypeError(f"no vectorizer option is called {unknown[0]!r}: choose from {sorted(allowed)}")
    terms = None if vocabulary is None else check_vocabulary(vocabulary)
    vectorizer = CountVectorizer(vocabulary=terms, **options)
    try:
        counts = vectorizer.fit_transform(documents)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"texts cannot be counted with options {options} ({reason}): change either") from None
    return counts, vectorizer.get_feature_names_out()


def analyser(options: dict[str, Any]) -> Callable[[str], list[str]]:
    """What `vectorize` makes words of a text with."""
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(**options).build_analyzer()
