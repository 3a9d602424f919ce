"""What Parquet files hold, by what they say of themselves: row groups, columns and their kinds. Needs pyarrow to be read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .wording import nearest


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


def files_behind(files: Any) -> list[str]:
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


def row_groups(paths: Iterable[str], columns: Columns) -> tuple[list[Group], bool]:
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


def largest_number(groups: Iterable[Group], columns: Columns) -> int:
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


def list_parts(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The length of each list of a column, and all that is in them; a missing list is an empty one."""
    from pyarrow import compute

    lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy()
    return lengths.astype(np.int64), column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
