"""Small charts as SVG elements of a page: they take their colours from it, and follow it into the dark.

A chart is a frame with axes around marks; a mark is a function from the two scales to SVG. Looks are classes of the page's
style: c0, c1, ... colour a line, f0, f1, ... fill a shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

COLOURS = 8  # looks that there are: c0 to c7
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 20  # room around the frame
HIDDEN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # turn the direction of what comes after them
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Scale(NamedTuple):
    """From numbers to places of the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, values: Any) -> np.ndarray:
        share = (np.asarray(values, float) - self.low) / ((self.high - self.low) or 1.0)
        return self.start + (self.end - self.start) * share


Mark = Callable[[Scale, Scale], str]


def plain(text: Any, most: int | None = None) -> str:
    """A text on one line without marks that turn or end lines, not too long; for names inside of pictures."""
    text = " ".join(CONTROL.sub(" ", HIDDEN.sub("", str(text))).split())
    return text if most is None or len(text) <= most else text[: most - 1].rstrip() + "…"


def chart(
    marks: Sequence[Mark], told: str, *, x: tuple[float, float], y: tuple[float, float], x_name: str = "", y_name: str = "",
    size: tuple[int, int] = (340, 150), x_ticks: int = 5, y_ticks: int = 4,
) -> str:  # fmt: skip
    """A framed chart; ``told`` says what it shows to those who do not see it."""
    width, height = size
    bottom, left = height - BOTTOM - (14 if x_name else 0), LEFT + (14 if y_name else 0)
    across, up = Scale(*_apart(*x), left, width - RIGHT), Scale(*_apart(*y), bottom, TOP)
    parts = [f'<path class="frame" d="M{left} {TOP}V{bottom}H{width - RIGHT}"/>']
    for value in ticks(across.low, across.high, x_ticks):
        place = float(across(value))
        parts.append(f'<path class="frame" d="M{place:.1f} {bottom}v4"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 15}" text-anchor="middle">{short(value)}</text>')
    for value in ticks(up.low, up.high, y_ticks):
        place = float(up(value))
        parts.append(f'<path class="grid" d="M{left} {place:.1f}H{width - RIGHT}"/>')
        parts.append(f'<text x="{left - 5}" y="{place + 4:.1f}" text-anchor="end">{short(value)}</text>')
    parts += [mark(across, up) for mark in marks]
    if x_name:
        middle = (left + width - RIGHT) / 2
        parts.append(f'<text x="{middle:.0f}" y="{height - 4}" text-anchor="middle">{escape(plain(x_name, 60))}</text>')
    if y_name:
        middle = (TOP + bottom) / 2
        name = escape(plain(y_name, height // 6))
        parts.append(
            f'<text x="11" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 11 {middle:.0f})">{name}</text>'
        )
    return element("chart", told, width, height, "".join(parts))


def element(look: str, told: str, width: float, height: float, inside: str) -> str:
    """An SVG element with words for those who do not see it."""
    return (
        f'<svg class="{look}" role="img" aria-label="{escape(plain(told))}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">{inside}</svg>'
    )


def line(x: Any, y: Any, look: str = "c0") -> Mark:
    return lambda across, up: f'<path class="line {look}" d="{_path(across(x), up(y))}"/>'


def band(x: Any, low: Any, high: Any, look: str = "band") -> Mark:
    """The room between two lines."""

    def mark(across: Scale, up: Scale) -> str:
        places, back = across(x), across(x)[::-1]
        there, home = _path(places, up(high)), _path(back, up(low)).replace("M", "L", 1)
        return f'<path class="{look}" d="{there}{home}Z"/>'

    return mark


def dots(x: Any, y: Any, look: str = "f0", radius: float = 2.5) -> Mark:
    def mark(across: Scale, up: Scale) -> str:
        # a line of no length with round ends: half the size of a circle
        drawn = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(across(x), up(y), strict=True))
        return f'<path class="dots {look.replace("f", "c")}" stroke-width="{2 * radius:g}" d="{drawn}"/>'

    return mark


def spans(x: Any, low: Any, high: Any, look: str = "c0", upright: bool = True) -> Mark:
    """Intervals, upright or level (``x`` is then their height)."""

    def mark(across: Scale, up: Scale) -> str:
        if upright:
            ends = zip(across(x), up(low), up(high), strict=True)
            drawn = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in ends)
        else:
            ends = zip(up(x), across(low), across(high), strict=True)
            drawn = "".join(f"M{b:.1f} {a:.1f}H{c:.1f}" for a, b, c in ends)
        return f'<path class="span {look}" d="{drawn}"/>'

    return mark


def bars(left: Any, right: Any, height: Any, look: str = "f0") -> Mark:
    """Bars that stand on 0."""

    def mark(across: Scale, up: Scale) -> str:
        foot = float(up(max(up.low, 0.0)))
        ends = zip(across(left), across(right), up(height), strict=True)
        drawn = "".join(f"M{a:.1f} {foot:.1f}V{c:.1f}H{b:.1f}V{foot:.1f}Z" for a, b, c in ends)
        return f'<path class="{look}" d="{drawn}"/>'

    return mark


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """A line through places; it stops where a number is missing."""
    drawn, pen = [], "M"
    for a, b in zip(x, y, strict=True):
        if not (math.isfinite(a) and math.isfinite(b)):
            pen = "M"
            continue
        drawn.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L"
    return "".join(drawn)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Ends that are numbers and not the same."""
    low, high = (float(end) if math.isfinite(end) else 0.0 for end in (low, high))
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-12):
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    return low, high


def span_of(*arrays: Any, room: float = 0.04) -> tuple[float, float]:
    """The least and the largest of all numbers, with some room."""
    values = np.concatenate([np.asarray(array, float).ravel() for array in arrays])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = _apart(values.min(), values.max())
    return low - room * (high - low), high + room * (high - low)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most so many round numbers between two."""
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if power * factor >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def short(value: float) -> str:
    """A tick's number."""
    text = f"{value:.0f}" if value == round(value) and abs(value) < 1e5 else f"{value:.4g}"
    text = re.sub(r"e([+-])0*(\d)", r"e\1\2", text).replace("e+", "e")
    return "0" if text in ("-0", "0") else text.replace("-", "−")
