"""The sparse counts of Blei's LDA-C, with terms and responses in files of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from .checks import check_list
from .corpus import Corpus
from .files.guessing import check_encoding, encoding_of
from .files.tables import MISSING

_PAIR = re.compile(r"(\d+):(\d+)", re.ASCII)

PathLike = str | os.PathLike[str]


def read_ldac(
    path: PathLike,
    vocabulary: PathLike | Iterable[str] | None = None,
    *,
    empty: str = "error",
    encoding: str | None = None,
) -> Corpus:
    """Read Blei's LDA-C format: one document a line, `M term:count term:count ...` with M pairs.

    Parameters
    ----------
    vocabulary : a file with one term a line, or the terms themselves; by default "0", "1", ...
    empty : as in `Corpus.from_counts`; in this format an empty document is the line "0".
    encoding : of the files; guessed where it is not given.
    """
    file = existing_file(path, "path")
    terms: list[str] | None = None
    if isinstance(vocabulary, str | os.PathLike):
        terms = lines_of(vocabulary, "vocabulary", encoding)
    elif vocabulary is not None:
        terms = check_list(vocabulary, "vocabulary", "a list of terms or a file with one a line")
    bags = []
    for number, line in enumerate(lines_of(file, "path", encoding, strip=True), start=1):
        try:
            bags.append(_pairs(line, None if terms is None else len(terms)))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
    if not bags:
        raise ValueError(f"path {str(path)!r} is an empty file: it holds no documents")
    return Corpus.from_bags(bags, terms, empty=empty)


def read_values(path: PathLike, size: int, encoding: str | None = None) -> np.ndarray:
    """Responses from a file with one a line, a blank line or NA for none: numbers, or else labels."""
    lines = [line.strip() for line in lines_of(path, "responses", encoding)]
    if len(lines) == size + 1 and not lines[-1]:
        lines.pop()
    if len(lines) != size:
        raise ValueError(f"responses {str(path)!r} has {len(lines)} lines for {size} documents: give one a document")
    column = pd.Series([None if line in MISSING else line for line in lines], dtype=object)
    try:
        return as_responses(pd.to_numeric(column))
    except ValueError:
        return as_responses(column)


def as_responses(column: pd.Series) -> np.ndarray:
    """Numbers with NaN for none, or labels: strings, or objects with None for none."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=float, na_value=np.nan)
    blank = column.isna().to_numpy()
    if not blank.any():
        return column.to_numpy().astype(np.str_)
    labels = np.full(len(column), None, object)
    labels[~blank] = column[~blank].astype(str)
    return labels


def existing_file(path: PathLike, argument: str) -> Path:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{argument} {str(path)!r} is not a file: check the name and the folder")
    return Path(path)


def lines_of(path: PathLike, argument: str, encoding: str | None, *, strip: bool = False) -> list[str]:
    """The lines of a text file, without the blank ones at its end where they are stripped."""
    file = existing_file(path, argument)
    text = file.read_text(encoding=encoding_of(file) if encoding is None else check_encoding(encoding))
    return (text.rstrip() if strip else text).splitlines()


def _pairs(line: str, num_terms: int | None) -> list[tuple[int, int]]:
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
