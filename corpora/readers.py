"""Corpora from files: tables with a text column, and the sparse counts of Blei's LDA-C."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pandas as pd

from .checks import check_list, require_columns
from .corpus import Corpus

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null"]
_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_PAIR = re.compile(r"(\d+):(\d+)", re.ASCII)

PathLike = str | os.PathLike[str]


@overload
def read_csv(
    path: PathLike,
    text: str = "text",
    *,
    y: None = None,
    names: str | None = None,
    covariates: Sequence[str] | None = None,
    empty: str = "error",
    **vectorizer_options: Any,
) -> Corpus: ...


@overload
def read_csv(
    path: PathLike,
    text: str = "text",
    *,
    y: str,
    names: str | None = None,
    covariates: Sequence[str] | None = None,
    empty: str = "error",
    **vectorizer_options: Any,
) -> tuple[Corpus, np.ndarray]: ...


def read_csv(
    path: PathLike,
    text: str = "text",
    *,
    y: str | None = None,
    names: str | None = None,
    covariates: Sequence[str] | None = None,
    empty: str = "error",
    **vectorizer_options: Any,
) -> Corpus | tuple[Corpus, np.ndarray]:
    """Read a .csv or .tsv table, possibly gzipped, with one document a row.

    Texts and names are read as they stand: a document that says "NA" is one word long, and a blank cell
    is an empty document that `empty` decides about. In `y` and `covariates` both mean a missing value.

    Parameters
    ----------
    text, names, covariates : columns, as in `Corpus.from_frame`; the options go to the vectoriser.
    y : the column of responses, if there is one.

    Returns
    -------
    The corpus, or with `y` the pair of corpus and responses, one for each document kept. Numeric
    responses are floats in which NaN marks an unlabelled document; any others are an array of strings, or, where some
    are blank, of objects in which None marks an unlabelled document.
    """
    file = _existing_file(path, "path")
    endings = [ending for ending in _SEPARATORS if file.name.lower().endswith(ending)]
    if not endings:
        raise ValueError(f"path {str(path)!r} does not end in {' or '.join(_SEPARATORS)}: convert or rename it")
    try:
        frame = pd.read_csv(
            file,
            sep=_SEPARATORS[endings[0]],
            dtype={column: str for column in (text, names) if column is not None},
            keep_default_na=False,
            na_values={column: _MISSING for column in (y, *(covariates or ())) if column is not None},
        )
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows have more cells than its header")
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"path {str(path)!r} is not a readable table ({reason}): mend the file") from None
    require_columns(frame, text=[text], y=[] if y is None else [y])
    if frame.empty:
        raise ValueError(f"path {str(path)!r} holds a header and no rows: give at least one document")
    corpus = Corpus.from_frame(frame, text, names=names, covariates=covariates, empty=empty, **vectorizer_options)
    return corpus if y is None else (corpus, _responses(frame[y])[corpus.source_rows])


def read_ldac(path: PathLike, vocabulary: PathLike | Iterable[str] | None = None, *, empty: str = "error") -> Corpus:
    """Read Blei's LDA-C format: one document a line, `M term:count term:count ...` with M pairs.

    Parameters
    ----------
    vocabulary : a file with one term a line, or the terms themselves; by default "0", "1", ...
    empty : as in `Corpus.from_counts`; in this format an empty document is the line "0".
    """
    file = _existing_file(path, "path")
    terms: list[str] | None = None
    if isinstance(vocabulary, str | os.PathLike):
        terms = _existing_file(vocabulary, "vocabulary").read_text(encoding="utf-8").splitlines()
    elif vocabulary is not None:
        terms = check_list(vocabulary, "vocabulary", "a list of terms or a file with one a line")
    bags = []
    for number, line in enumerate(file.read_text(encoding="utf-8").rstrip().splitlines(), start=1):
        try:
            bags.append(_ldac_pairs(line, None if terms is None else len(terms)))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
    if not bags:
        raise ValueError(f"path {str(path)!r} is an empty file: it holds no documents")
    return Corpus.from_bags(bags, terms, empty=empty)


def _existing_file(path: PathLike, argument: str) -> Path:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{argument} {str(path)!r} is not a file: check the name and the folder")
    return Path(path)


def _responses(column: pd.Series) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=float)
    blank = column.isna().to_numpy()
    if not blank.any():
        return column.to_numpy().astype(np.str_)
    labels = np.full(len(column), None, object)
    labels[~blank] = column[~blank].astype(str)
    return labels


def _ldac_pairs(line: str, num_terms: int | None) -> list[tuple[int, int]]:
    """The `(term, count)` pairs of one line; what is wrong with a malformed one is the error's text."""
    fields = line.split()
    if not fields or not fields[0].isdecimal():
        shown = repr(fields[0]) if fields else "a blank line"
        raise ValueError(f"starts with {shown}, not with its number of pairs (0 for an empty document)")
    pairs = []
    for field in fields[1:]:
        match = _PAIR.fullmatch(field)
        if match is None:
            raise ValueError(f"{field!r} is not a pair term:count of whole numbers from 0, such as 17:2")
        term, count = int(match[1]), int(match[2])
        if num_terms is not None and term >= num_terms:
            raise ValueError(f"term {term} lies outside the vocabulary of {num_terms} terms, numbered from 0")
        pairs.append((term, count))
    if len(pairs) != int(fields[0]):
        raise ValueError(f"announces {fields[0]} pairs but holds {len(pairs)}: the line is truncated or damaged")
    return pairs
