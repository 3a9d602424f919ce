"""What a file does not say of itself: in which encoding its bytes are text, and by what the cells of a row are divided."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

REPLACED = "\N{REPLACEMENT CHARACTER}"
DAMAGED = 20  # times as many characters as places that are none: then it is UTF-8 all the same
_BEYOND_ASCII = bytes(range(128, 256))
HEAD = 1 << 18  # bytes that are looked at where the whole would take long
DELIMITERS = (",", ";", "\t", "|")
_BINARY = {
    b"PK\x03\x04": "a zip archive or a workbook", b"PK\x05\x06": "a zip archive", b"%PDF": "a PDF", b"PAR1": "Parquet",
    b"\x89HDF": "HDF5 or netCDF", b"SQLite format 3": "a database", b"\x1f\x8b": "gzipped", b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture", b"BZh": "compressed", b"\xfd7zXZ": "compressed", b"\x28\xb5\x2f\xfd": "compressed",
    b"\xd0\xcf\x11\xe0": "an old workbook or document", b"\x7fELF": "a program", b"\x80\x04\x95": "a pickle",
}  # fmt: skip
# the longer marks first: that of UTF-32 begins with that of UTF-16
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1a\x1b"))


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file; those within, where its name ends in .gz."""
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def head_of(path: Path) -> bytes:
    """The first bytes of a file."""
    try:
        with opened(path) as file:
            return file.read(HEAD)
    except (gzip.BadGzipFile, EOFError):
        raise ValueError(f"path {str(path)!r} ends in .gz and is not gzipped: rename it, or compress it anew") from None


def check_encoding(name: str) -> str:
    """An encoding that Python knows; the marks that files of these begin with are no part of the text."""
    try:
        found = codecs.lookup(name).name
        codecs.decode(b"", found)
        "".encode(found)
    except (LookupError, TypeError, ValueError):
        raise ValueError(
            f"encoding is {name!r}, which Python does not know: give one such as utf-8, utf-16, cp1252 or latin-1"
        ) from None
    return "utf-8-sig" if found == "utf-8" else found


def encoding_of(path: Path) -> str:
    """The encoding of a text file: by its mark, else UTF-16 by its zeros, else UTF-8, else cp1252.

    UTF-8 may be damaged here and there, as by cutting texts at so many bytes. Bytes that cp1252 has no character for make it
    latin-1, which has one for every byte. What is no text is refused.
    """
    head = head_of(path)
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    for start, kind in _BINARY.items():
        if head.startswith(start):
            raise ValueError(f"path {str(path)!r} is {kind}, no text: export it as CSV, or name its kind by format")
    zeros = head.count(0)
    if zeros:
        ends = {"utf-16-be": head[0::2].count(0), "utf-16-le": head[1::2].count(0)}
        likely = max(ends, key=lambda name: ends[name])
        if ends[likely] < 0.4 * len(head) / 2 or zeros - ends[likely] > 0.05 * zeros:
            raise ValueError(f"path {str(path)!r} is a binary file, no text: export it as CSV or another text")
        return likely
    if len(head.translate(None, _CONTROL)) < 0.98 * len(head):
        raise ValueError(f"path {str(path)!r} is a binary file, no text: export it as CSV or another text")
    good, bad = _characters(path)
    if good >= DAMAGED * bad:
        return "utf-8"
    return "cp1252" if _decodes(path, "cp1252") else "latin-1"


def _characters(path: Path) -> tuple[int, int]:
    """How many characters beyond ASCII a file has in UTF-8, and how many places that are none."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    good = bad = 0
    with opened(path) as file:
        while block := file.read(1 << 22):
            if not block.isascii() or decoder.getstate()[0]:
                text = decoder.decode(block)
                broken = text.count(REPLACED)
                good, bad = good + len(text) - len(block.translate(None, _BEYOND_ASCII)) - broken, bad + broken
    return good, bad + len(decoder.decode(b"", final=True))


def _decodes(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with opened(path) as file:
            while block := file.read(1 << 22):
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def delimiter_of(path: Path, encoding: str, wanted: Iterable[str], first: str) -> str:
    """By what the cells of a table are divided: that under which its header has the columns that are ``wanted``.

    Where several do, or none, it is that under which the most rows are as long as the header; and where that is all the
    same, ``first``.
    """
    head = head_of(path)
    whole = len(head) < HEAD
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head)
    if not whole:
        text = text[: text.rfind("\n") + 1]
    columns = set(wanted)
    order = [first, *(mark for mark in DELIMITERS if mark != first)]

    def merit(delimiter: str) -> tuple[int, float, bool]:
        rows = _rows(text, delimiter, whole)
        if not rows:
            return 0, 0.0, False
        alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
        return len(columns & set(rows[0])), alike, len(rows[0]) > 1

    return max(order, key=merit)  # the first of equals


def _rows(text: str, delimiter: str, whole: bool) -> Sequence[list[str]]:
    rows = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row:
                rows.append(row)
    except csv.Error:  # a cell longer than the module takes
        pass
    return rows if whole or len(rows) < 2 else rows[:-1]  # the last may be cut within its quotes
