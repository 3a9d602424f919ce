"""Tables of documents from files, as DataFrames: CSV and TSV, JSON lines, Parquet, and folders of text files."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from .guessing import REPLACED, check_encoding, delimiter_of, encoding_of, opened
from .wording import first_few

MISSING = ["", "NA", "N/A", "NaN", "nan", "null"]
ENDINGS = {
    ".csv": "csv", ".csv.gz": "csv", ".tsv": "tsv", ".tsv.gz": "tsv", ".tab": "tsv", ".parquet": "parquet",
    ".pq": "parquet", ".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".ndjson": "jsonl", ".dat": "ldac", ".ldac": "ldac",
}  # fmt: skip
FORMATS = ("csv", "tsv", "parquet", "jsonl", "ldac", "folder")
CALLED = {
    "csv": "CSV",
    "tsv": "TSV",
    "parquet": "Parquet",
    "jsonl": "JSON lines",
    "ldac": "LDA-C",
    "folder": "a folder",
}
TEXT_FILES = (".txt", ".text", ".md")
_DECIMAL_COMMA = r"[+-]?\d+(?:,\d+)?"
_SPELT = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are asked for: texts and names are read as they stand, in others blanks are missing."""

    text: str
    y: str | None = None
    names: str | None = None
    covariates: Sequence[str] = ()

    @property
    def as_they_stand(self) -> list[str]:
        return [column for column in (self.text, self.names) if column is not None]

    @property
    def values(self) -> list[str]:
        found = [column for column in (self.y, *self.covariates) if column is not None]
        return [column for column in found if column not in self.as_they_stand]


def format_of(path: Path, said: str | None) -> str:
    """How documents are written: as said, or as the name's ending says; a folder is one."""
    if said is not None:
        if said not in FORMATS:
            raise ValueError(f"format is {said!r}: choose from {', '.join(map(repr, FORMATS))}")
        if path.exists() and (said == "folder") != path.is_dir():
            what = "a folder" if path.is_dir() else "a file"
            raise ValueError(f"format is {said!r} and path {str(path)!r} is {what}: give another format or path")
        return said
    if path.is_dir():
        return "folder"
    for ending, name in ENDINGS.items():
        if path.name.lower().endswith(ending):
            return name
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise ValueError(f"path {str(path)!r} is a spreadsheet: save it as CSV")
    raise ValueError(
        f"path {str(path)!r} ends in none of {' '.join(ENDINGS)}: rename or convert it, or say its format, one of "
        f"{', '.join(FORMATS)}"
    )


def check_delimiter(delimiter: str) -> str:
    """One character, or the name of one."""
    found = _SPELT.get(delimiter.lower(), delimiter)
    if len(found) != 1 or found in '"\n\r\0':
        raise ValueError(f"delimiter is {delimiter!r}: give one character, or one of {', '.join(_SPELT)}")
    return found


def read_separated(
    path: Path, columns: Columns, delimiter: str | None, encoding: str | None, first: str
) -> tuple[pd.DataFrame, str | None]:
    """A table in which a row is a document, and a sentence on what was guessed."""
    chosen = encoding_of(path) if encoding is None else check_encoding(encoding)
    wanted = [*columns.as_they_stand, *columns.values]
    divided = delimiter_of(path, chosen, wanted, first) if delimiter is None else check_delimiter(delimiter)
    guessed = []
    if delimiter is None:
        guessed.append(f"delimiter {divided!r}")
    if encoding is None:
        guessed.append(f"encoding {chosen}")
    try:
        with opened(path) as file:
            frame = pd.read_csv(
                file,
                sep=divided,
                encoding=chosen,
                encoding_errors="strict" if encoding else "replace",
                dtype=dict.fromkeys(columns.as_they_stand, str),
                keep_default_na=False,
                na_values=dict.fromkeys(columns.values, MISSING),
            )
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows have more cells than its header")
    except UnicodeError as error:
        raise ValueError(
            f"path {str(path)!r} is no text in encoding {chosen} ({_short(error)}): give another, such as cp1252"
        ) from None
    except ValueError as error:
        raise ValueError(f"path {str(path)!r} is not a readable table ({_short(error)}): mend the file") from None
    if encoding is None and columns.text in frame:
        guessed += _damage(frame[columns.text])
    with_commas = _decimal_commas(frame, columns.values) if divided != "," else []
    if with_commas:
        guessed.append(f"decimal commas in {first_few(map(repr, with_commas))}")
    return frame, ", ".join(guessed) or None


def read_json_lines(path: Path, columns: Columns, encoding: str | None) -> tuple[pd.DataFrame, str | None]:
    """A JSON object a line; an object without a key has nothing there."""
    chosen = encoding_of(path) if encoding is None else check_encoding(encoding)
    rows = []
    try:
        with opened(path) as file:
            for number, line in enumerate(
                io.TextIOWrapper(file, chosen, "strict" if encoding else "replace", newline="\n"), start=1
            ):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}, line {number}: no JSON ({error.msg}): give one object a line") from None
                if not isinstance(row, dict):
                    raise ValueError(f"{path}, line {number}: no JSON object, but {line.strip()[:40]}: give one a line")
                rows.append(row)
    except UnicodeError as error:
        raise ValueError(
            f"path {str(path)!r} is no text in encoding {chosen} ({_short(error)}): give another"
        ) from None
    if not rows:
        raise ValueError(f"path {str(path)!r} is an empty file: it holds no documents")
    frame = _plain(pd.DataFrame(rows), columns)
    return frame, None if encoding is not None or chosen == "utf-8" else f"encoding {chosen}"


def read_parquet(path: Path, columns: Columns) -> tuple[pd.DataFrame, str | None]:
    """A table in Parquet, by pyarrow where that is installed."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError(
            f"path {str(path)!r} is Parquet, which needs pyarrow: pip install 'topiczoo[parquet]', or save it as CSV"
        ) from None
    try:
        there = parquet.read_schema(path).names
        wanted = [column for column in dict.fromkeys([*columns.as_they_stand, *columns.values]) if column in there]
        frame = parquet.read_table(path, columns=wanted).to_pandas()
    except (ValueError, OSError) as error:
        raise ValueError(f"path {str(path)!r} is no readable Parquet ({_short(error)}): write it again") from None
    # columns that nobody asked for are named, so that a mistyped one can be set beside them
    rest = {column: None for column in there if column not in wanted}
    return _plain(frame.assign(**rest), columns), None


def read_folder(path: Path, encoding: str | None) -> tuple[pd.DataFrame, str | None]:
    """A text file a document, below a folder, in the order of their names; hidden files are left out.

    Columns: id (the name below the folder), text, folder (the folder it lies in, as a class may).
    """
    files = sorted(
        file for file in path.rglob("*")
        if file.is_file() and file.suffix.lower() in TEXT_FILES
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )  # fmt: skip
    if not files:
        raise ValueError(f"path {str(path)!r} is a folder without a file that ends in {' or '.join(TEXT_FILES)}")
    encodings: dict[str, int] = {}
    rows = []
    for file in files:
        chosen = encoding_of(file) if encoding is None else check_encoding(encoding)
        encodings[chosen] = encodings.get(chosen, 0) + 1
        try:
            text = file.read_text(encoding=chosen, errors="strict" if encoding else "replace")
        except UnicodeError as error:
            raise ValueError(f"{str(file)!r} is no text in encoding {chosen} ({_short(error)}): give another") from None
        below = file.relative_to(path)
        rows.append({"id": below.as_posix(), "text": text, "folder": below.parent.name})
    strange = {name: number for name, number in encodings.items() if name != "utf-8"}
    guessed = ", ".join(f"encoding {name} of {number} files" for name, number in strange.items())
    return pd.DataFrame(rows), guessed if guessed and encoding is None else None


def _plain(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Texts and names as strings, nothing as an empty one; responses without lists or objects."""
    for column in columns.as_they_stand:
        if column in frame:
            held = frame[column].astype(object)
            frame[column] = ["" if _nothing(cell) else cell if column == columns.text else str(cell) for cell in held]
    for column in columns.values:
        if column in frame and not pd.api.types.is_numeric_dtype(frame[column]):
            held = frame[column].astype(object)
            kinds = {type(cell) for cell in held if not _nothing(cell)}
            if kinds & {list, dict, tuple, np.ndarray}:
                raise ValueError(f"column {column!r} holds lists or objects: give one number or label a document")
            frame[column] = pd.Series(
                [None if _nothing(cell) or cell in MISSING else cell for cell in held], dtype=object
            )
            if kinds <= {int, float, bool}:
                frame[column] = pd.to_numeric(frame[column])
    return frame


def _damage(texts: pd.Series) -> list[str]:
    """How many texts hold bytes that are no characters."""
    damaged = int(texts.str.contains(REPLACED, regex=False).sum())
    return [f"{damaged} texts with bytes that are no characters"] if damaged else []


def _nothing(cell: object) -> bool:
    return cell is None or (pd.api.types.is_scalar(cell) and bool(pd.isna(cell)))


def _decimal_commas(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Turn columns of numbers such as 3,5 into numbers; which they were."""
    found = []
    for column in columns:
        if column in frame and not pd.api.types.is_numeric_dtype(frame[column]):
            held = frame[column].dropna().astype(str).str.strip()
            if len(held) and held.str.fullmatch(_DECIMAL_COMMA).all():
                frame[column] = pd.to_numeric(frame[column].str.strip().str.replace(",", "."))
                found.append(column)
    return found


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
