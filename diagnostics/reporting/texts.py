"""Where the counted terms stand in a document as it was written.

How a text was cut into terms is not kept, so that terms are looked for: runs of letters and digits, several of them for a
term of several words, whatever their case and accents. In scripts that put no spaces between words, within runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

RUN = re.compile(r"\w+")
# Thai and Lao, Burmese, Khmer, Chinese and Japanese
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


class Mark(NamedTuple):
    """A term in a text: from a character to one after its last, and its place among the terms."""

    start: int
    end: int
    place: int


def marks(text: str, terms: Sequence[str]) -> list[Mark]:
    """Where terms stand in a text, in its order, the longest first where several could be meant; none overlap."""
    known: dict[tuple[str, ...], int] = {}
    for number, term in enumerate(terms):
        known.setdefault(tuple(folded(run) for run in RUN.findall(term)), number)
    known.pop((), None)
    longest = max(map(len, known), default=0)
    whole = {runs[0]: place for runs, place in known.items() if len(runs) == 1 and UNSPACED.search(runs[0])}
    runs = [(found.start(), found.end(), folded(found.group())) for found in RUN.finditer(text)]
    made, at = [], 0
    while at < len(runs):
        for length in range(min(longest, len(runs) - at), 0, -1):
            if (place := known.get(tuple(run for *_, run in runs[at : at + length]))) is not None:
                made.append(Mark(runs[at][0], runs[at + length - 1][1], place))
                at += length
                break
        else:
            made += _within(runs[at][0], text[runs[at][0] : runs[at][1]], whole)
            at += 1
    return made


def _within(start: int, run: str, terms: Mapping[str, int]) -> Iterable[Mark]:
    """Terms inside of a run, for scripts without spaces."""
    if not terms or not UNSPACED.search(run):
        return
    longest, at = max(map(len, terms)), 0
    while at < len(run):
        for length in range(min(longest, len(run) - at), 0, -1):
            if (place := terms.get(folded(run[at : at + length]))) is not None:
                yield Mark(start + at, start + at + length, place)
                at += length
                break
        else:
            at += 1


@lru_cache(100_000)
def folded(word: str) -> str:
    """A word without case and accents."""
    if word.isascii():
        return word.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(c))
