"""Tables to files that a spreadsheet opens without taking a text for a formula."""

from __future__ import annotations

import csv
import os
import re
from typing import Any

import pandas as pd

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str], *, raw: bool = False) -> None:
    """Write a table, such as `Prediction.frame()`, as CSV with its index as first column.

    A spreadsheet runs a text that begins with = + - @, a tab or a carriage return as a formula, whoever wrote it. Such
    texts, in cells, in the index and among the names of columns, get an apostrophe before them; numbers stay as they
    are. With `raw` all texts are written as they stand, for programs that read them back.
    """
    table = frame.reset_index()
    if not raw:
        table = table.map(_as_text).rename(columns=_as_text)
    broken = table.map(lambda cell: isinstance(cell, str) and "\r" in cell).any(axis=None)  # csv would not quote these
    table.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC if broken else csv.QUOTE_MINIMAL)


def _as_text(cell: Any) -> Any:
    formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell
