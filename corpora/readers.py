"""Corpora from files: `read` finds out how they are written, `read_csv` reads tables of text alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from .checks import require_columns
from .corpus import Corpus
from .files.tables import (
    CALLED,
    ENDINGS,
    Columns,
    format_of,
    read_folder,
    read_json_lines,
    read_parquet,
    read_separated,
)
from .ldac import as_responses, existing_file, lines_of, read_ldac, read_values

PathLike = str | os.PathLike[str]
Tell = Callable[[str], Any]


def read(
    path: PathLike,
    text: str = "text",
    *,
    y: str | None = None,
    names: str | None = None,
    covariates: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    vocabulary: PathLike | Iterable[str] | None = None,
    responses: PathLike | None = None,
    empty: str = "error",
    tell: Tell | None = None,
    **vectorizer_options: Any,
) -> Corpus | tuple[Corpus, np.ndarray]:
    """Read documents from a file or a folder, by the ending of its name or by `format`.

    ==================================  ==============================================================================
    csv (.csv .csv.gz), tsv (.tsv ...)  a row a document; delimiter and encoding are guessed where they are not given
    parquet (.parquet .pq)              the same, where pyarrow is installed
    jsonl (.jsonl .ndjson .jsonl.gz)    a JSON object a line
    ldac (.dat .ldac)                   Blei's LDA-C, counts without texts; `vocabulary` and `responses` are its files
    folder                              a text file a document; its columns are id, text and folder, and ids are names
    ==================================  ==============================================================================

    Parameters
    ----------
    text, y, names, covariates : columns, as in `read_csv`.
    format, delimiter, encoding : as said above; each is found out where it is not given.
    vocabulary : a file with one term a line, or the terms: the only ones to count, or those that LDA-C numbers.
    responses : for LDA-C, a file with one response a line, blank where there is none.
    empty : as in `Corpus.from_counts`.
    tell : called with a sentence on what was guessed, such as `print`.

    Returns
    -------
    The corpus, or with `y` or `responses` the pair of corpus and responses, as `read_csv` gives them.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"path {str(path)!r} is not there: check the name and the folder")
    kind = format_of(place, format)
    for argument, value, use in (("delimiter", delimiter, ("csv", "tsv")), ("responses", responses, ("ldac",))):
        if value is not None and kind not in use:
            raise ValueError(f"{argument} is {str(value)!r}, and path {str(path)!r} is {CALLED[kind]}: leave it out")
    if kind == "ldac":
        if given := [name for name, value in (("y", y), ("names", names), ("covariates", covariates)) if value]:
            raise ValueError(f"{given[0]} names a column, and path {str(path)!r} is LDA-C without any: leave it out")
        if vectorizer_options:
            name = next(iter(vectorizer_options))
            raise ValueError(f"{name} chooses words of texts, and path {str(path)!r} is LDA-C, counted already")
        corpus = read_ldac(path, vocabulary, empty=empty, encoding=encoding)
        if responses is None:
            return corpus
        values = read_values(responses, len(corpus) + corpus.num_dropped, encoding)
        return corpus, values[corpus.source_rows]
    if isinstance(vocabulary, str | os.PathLike):
        vocabulary = [term for term in lines_of(vocabulary, "vocabulary", encoding) if term]
    if kind == "folder":
        names = "id" if names is None else names
    columns = Columns(text, y, names, _listed(covariates))
    options = {"vocabulary": vocabulary, "empty": empty, **vectorizer_options}
    return _from_table(place, kind, columns, delimiter, encoding, tell, options)


@overload
def read_csv(
    path: PathLike,
    text: str = "text",
    *,
    y: None = None,
    names: str | None = None,
    covariates: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
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
    delimiter: str | None = None,
    encoding: str | None = None,
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
    delimiter: str | None = None,
    encoding: str | None = None,
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
    delimiter, encoding : guessed where they are not given. Where the delimiter is no comma, numbers may have decimal commas.

    Returns
    -------
    The corpus, or with `y` the pair of corpus and responses, one for each document kept. Numeric
    responses are floats in which NaN marks an unlabelled document; any others are an array of strings, or, where some
    are blank, of objects in which None marks an unlabelled document.
    """
    file = existing_file(path, "path")
    endings = [ending for ending, kind in ENDINGS.items() if kind in ("csv", "tsv")]
    if not file.name.lower().endswith(tuple(endings)):
        raise ValueError(f"path {str(path)!r} does not end in {' or '.join(endings)}: convert or rename it")
    columns = Columns(text, y, names, _listed(covariates))
    options = {"empty": empty, **vectorizer_options}
    return _from_table(file, format_of(file, None), columns, delimiter, encoding, None, options)


def _listed(covariates: Sequence[str] | None) -> Sequence[str]:
    if isinstance(covariates, str):
        raise TypeError(f"covariates is the bare string {covariates!r}: give a list, [{covariates!r}]")
    return list(covariates or [])


def _from_table(
    path: Path, kind: str, columns: Columns, delimiter: str | None, encoding: str | None, tell: Tell | None, options: dict
) -> Corpus | tuple[Corpus, np.ndarray]:  # fmt: skip
    if kind == "folder":
        frame, guessed = read_folder(path, encoding)
    elif kind == "parquet":
        frame, guessed = read_parquet(path, columns)
    elif kind == "jsonl":
        frame, guessed = read_json_lines(path, columns, encoding)
    else:
        frame, guessed = read_separated(path, columns, delimiter, encoding, "\t" if kind == "tsv" else ",")
    require_columns(
        frame, text=[columns.text], y=[] if columns.y is None else [columns.y],
        names=[] if columns.names is None else [columns.names], covariates=columns.covariates,
    )  # fmt: skip
    if frame.empty:
        raise ValueError(f"path {str(path)!r} holds a header and no rows: give at least one document")
    if guessed and tell is not None:
        tell(f"{path}: {CALLED[kind]}, {guessed} (guessed)")
    corpus = Corpus.from_frame(
        frame, columns.text, names=columns.names, covariates=list(columns.covariates), **options
    )  # fmt: skip
    return corpus if columns.y is None else (corpus, as_responses(frame[columns.y])[corpus.source_rows])
