"""Values and names as sentences about faults show them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def first_few(values: Iterable[Any]) -> str:
    """Some values for a sentence."""
    shown = [str(value) for value in values]
    return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """ ", the nearest is ..." of the known name that is most like one that is not known; nothing where none is."""
    folded = {other.strip().casefold(): other for other in reversed(list(known))}
    found = difflib.get_close_matches(name.strip().casefold(), folded, 1, cutoff=0.6)
    return f", the nearest is {folded[found[0]]!r}" if found else ""
