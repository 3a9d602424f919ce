"""Rows of topics with their coefficients or sizes: labels are text of the page, and bars as wide as there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from .charts import COLOURS, Scale, plain, short, ticks

HEIGHT = 22  # of a row
LONGEST = 80  # characters of a label


def forest(
    panels: Mapping[str, np.ndarray],
    labels: Sequence[str],
    shown: Sequence[int] | np.ndarray,
    told: str,
    probability: float = 0.9,
) -> str:
    """Coefficients of topics, mean and interval of each chain, in rows from the first of ``shown`` down.

    Parameters
    ----------
    panels
        Name of a column of coefficients -> draws [chain, draw, topic].
    labels
        One a topic.
    """
    tails = (1 - probability) / 2
    found = {name: (value.mean(1), *np.quantile(value, [tails, 1 - tails], axis=1)) for name, value in panels.items()}
    scales = {}
    for name, (_, low, high) in found.items():
        least, most = min(float(low[:, shown].min()), 0.0), max(float(high[:, shown].max()), 0.0)
        room = 0.04 * (most - least or 1.0)
        scales[name] = Scale(least - room, most + room, 0, 1000)
    rows = []
    for topic in shown:
        cells = "".join(
            _bar(scales[name], *(part[:, topic] for part in found[name])) for name in found
        )  # fmt: skip
        rows.append(f'<div class="row"><span class="label">{_label(labels[topic])}</span>{cells}</div>')
    head = "".join(f'<span class="name">{_label(name)}</span>' for name in panels) if len(panels) > 1 else ""
    head = f'<div class="row head"><span></span>{head}</div>' if head else ""
    axis = "".join(_axis(scale) for scale in scales.values())
    made = (
        f'<div class="forest p{len(panels)}" role="img" aria-label="{escape(plain(told))}">{head}{"".join(rows)}'
        f'<div class="row axis"><span></span>{axis}</div></div>'
    )
    # several columns are moved sideways in a narrow window, by the keyboard too
    return made if len(panels) == 1 else f'<div class="sideways" tabindex="0">{made}</div>'


def _label(text: str) -> str:
    return f"<bdi>{escape(plain(text, LONGEST))}</bdi>"


def _bar(scale: Scale, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Intervals of all chains, one over the other; strokes keep their width however wide the picture is."""
    gap = HEIGHT / (len(mean) + 1)
    zero = float(scale(0.0))
    parts = [f'<path class="grid" d="M{zero:.0f} 0V{HEIGHT}"/>']
    for chain in range(len(mean)):
        y, look = gap * (chain + 1), f"c{chain % COLOURS}"
        left, middle, right = (float(scale(part[chain])) for part in (low, mean, high))
        parts.append(f'<path class="span {look}" d="M{left:.0f} {y:.1f}H{right:.0f}"/>')
        parts.append(f'<path class="dots {look}" stroke-width="6" d="M{middle:.0f} {y:.1f}h0"/>')
    return f'<svg viewBox="0 0 1000 {HEIGHT}" preserveAspectRatio="none" height="{HEIGHT}">{"".join(parts)}</svg>'


def _axis(scale: Scale) -> str:
    """Numbers below the bars, by rows of cells so that they need no style of their own."""
    marks = "".join(
        f'<text x="{float(scale(value)) / 10:.1f}%" y="12" text-anchor="middle">{short(value)}</text>'
        for value in ticks(scale.low, scale.high, 4)
        if 30 < scale(value) < 970
    )
    return f'<svg class="chart" height="16">{marks}</svg>'


def sizes(values: np.ndarray, labels: Sequence[str], shown: Sequence[int] | np.ndarray, told: str) -> str:
    """Shares of topics as bars in the topics' own colours."""
    most, rows = max(float(values.max()), 1e-12), []
    for topic in shown:
        width = 1000 * float(values[topic]) / most
        bar = (
            f'<svg viewBox="0 0 1000 {HEIGHT}" preserveAspectRatio="none" height="{HEIGHT}">'
            f'<path class="topic t{topic}" d="M0 4H{width:.0f}V{HEIGHT - 4}H0Z"/></svg>'
        )
        rows.append(
            f'<div class="row"><span class="label">{_label(labels[topic])}</span>'
            f'<span class="bar">{bar}<span>{100 * float(values[topic]):.1f}%</span></span></div>'
        )
    return f'<div class="forest p1" role="img" aria-label="{escape(plain(told))}">{"".join(rows)}</div>'
