"""The map of topics as SVG: near if they use the same words, large if many words are theirs, coloured by a coefficient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from ..plotting.topic_map import classical_scaling, free_place, topic_distances
from .charts import COLOURS, element, plain, short

WIDTH, HEIGHT = 640, 440
EDGE = 62  # room for words beside the outermost circles
COVERED = 0.09  # of the map, by all circles together
LEAST, MOST = 4.0, 40.0  # radii: of a topic that hardly has a word, and of the largest
LETTER = 7.0  # width of a letter of a label, on average
MOST_WORDED = 60  # topics that are given words, the largest first
STEPS = 9  # of the key's colours


class Frame(NamedTuple):
    """The corners of the map."""

    min: np.ndarray
    max: np.ndarray


class Map(NamedTuple):
    """The picture, a line of the page that explains its colours, and the share of topics' spread that the plane keeps."""

    svg: str
    key: str
    kept: float


def topic_map(
    beta: np.ndarray, usage: np.ndarray, labels: Sequence[str], words: Sequence[str], columns: Mapping[str, np.ndarray]
) -> Map:
    """Topics in the plane, by classical scaling of Jensen-Shannon distances.

    Parameters
    ----------
    beta, usage
        Probabilities of terms [topics, terms], and the share of words that each topic has.
    labels, words
        What a topic is called, and a few of its words.
    columns
        Coefficients by their names, [topics]: one is a shade from blue over none (see :func:`centre`) to red; of several the
        largest of a topic gives its colour. Without any a topic has the colour that its words have in documents.
    """
    places, kept = classical_scaling(topic_distances(beta))
    centres = _fitted(places)
    share = np.asarray(usage, float) / max(float(np.sum(usage)), 1e-300)
    unit = min(COVERED * WIDTH * HEIGHT / np.pi, MOST**2 / max(float(share.max()), 1e-300))
    radii = np.maximum(np.sqrt(unit * share), LEAST)
    looks, key = _coloured(columns, share)
    order = np.argsort(-radii, kind="stable")  # small circles over large ones
    parts: list[str] = []
    names: list[str] = []  # over all circles
    for k in order:
        (x, y), r = centres[k], radii[k]
        told = f"{plain(labels[k], 60)}: {plain(words[k], 120)} ({share[k]:.1%} of words)"
        number = plain(labels[k], 12)
        if r >= LETTER * len(number) / 2 + 3:
            names.append(
                f'<text class="inside" x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{escape(number)}</text>'
            )
        parts.append(
            f'<g class="node" data-topic="{k}"><title>{escape(told)}</title>'
            f'<circle class="base" cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
            f'<circle {looks[k]} cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/></g>'
        )
    parts += names + _worded(centres, radii, labels, words)
    told = f"Map of {len(radii)} topics; the table of topics has their words and numbers."
    return Map(element("map", told, WIDTH, HEIGHT, "".join(parts)), key, kept)


def _fitted(places: np.ndarray) -> np.ndarray:
    """Places in the picture, a step in one direction as long as in the other."""
    room = np.array([WIDTH - 2 * EDGE, HEIGHT - 1.4 * EDGE])
    span = np.maximum(np.ptp(places, axis=0), 1e-12)
    middle = (places.max(0) + places.min(0)) / 2
    return (places - middle) * (room / span).min() + np.array([WIDTH, HEIGHT]) / 2


def _coloured(columns: Mapping[str, np.ndarray], usage: np.ndarray) -> tuple[list[str], str]:
    """Attributes of each topic's circle, and a key to the colours."""
    if not columns:
        return [f'class="topic t{k}"' for k in range(len(usage))], ""
    names, values = list(columns), np.stack(list(columns.values()))
    if len(names) == 1:
        middle = centre(values[0], usage)
        most = max(float(np.abs(values - middle).max()), 1e-12)
        return [_shade((value - middle) / most) for value in values[0]], _shades(names[0], middle, most)
    largest = values.argmax(0)
    shown = names[: COLOURS - 1]
    looks = [f'class="f{min(int(k), COLOURS - 1)}"' for k in largest]
    shown += ["others"] if len(names) > len(shown) else []
    parts = [
        f'<span><svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"><circle class="f{place}" cx="6" cy="6" '
        f'r="5"/></svg></span><span><bdi>{escape(plain(name, 30))}</bdi></span>'
        for place, name in enumerate(shown)
    ]
    return looks, f'<p class="key"><span>largest coefficient:</span>{"".join(parts)}</p>'


def _shade(value: float) -> str:
    """Red above 0, blue below, the paler the nearer."""
    return f'class="{"warm" if value >= 0 else "cool"}" fill-opacity="{abs(float(value)):.2f}"'


def centre(value: np.ndarray, usage: np.ndarray) -> float:
    """The coefficient without a colour: 0, or their mean by words where all have one sign and 0 says nothing."""
    return 0.0 if value.min() < 0 < value.max() else float(np.average(value, weights=np.maximum(usage, 1e-12)))


def _shades(name: str, middle: float, most: float) -> str:
    """A strip of colours from the least to the largest coefficient."""
    strip = "".join(
        f'<rect {_shade(value)} x="{14 * step}" y="0" width="14" height="12"/>'
        for step, value in enumerate(np.linspace(-1, 1, STEPS))
    )
    low, high = (short(float(f"{middle + end:.2g}")) for end in (-most, most))
    return (
        f'<p class="key"><span><bdi>coefficient {escape(plain(name, 40))}:</bdi></span><span>{low}</span>'
        f'<svg width="{14 * STEPS}" height="12" viewBox="0 0 {14 * STEPS} 12" aria-hidden="true">{strip}</svg>'
        f"<span>{high}</span></p>"
    )


def _worded(centres: np.ndarray, radii: np.ndarray, labels: Sequence[str], words: Sequence[str]) -> list[str]:
    """Words beside circles where there is room, the largest topics first."""
    circles = np.column_stack([centres - radii[:, None], centres + radii[:, None]])
    frame = Frame(np.zeros(2), np.array([WIDTH, HEIGHT]))
    taken: list[np.ndarray] = []
    parts = []
    for k in np.argsort(-radii, kind="stable")[:MOST_WORDED]:
        # the number stands in the circle where there is room for it
        number = plain(labels[k], 12)
        bare = radii[k] < LETTER * len(number) / 2 + 3
        text = plain(f"{number} {words[k]}" if bare else words[k], 26)
        size = LETTER * len(text), 13.0
        found = free_place(centres[k], radii[k], *size, circles, np.array(taken).reshape(-1, 4), frame)
        if found is None:
            continue
        corner, lead = found
        taken.append(np.array([*corner, *(corner + size)]))
        if len(lead):
            taken += [np.tile(place, 2) for place in lead]
            (x, y), (to_x, to_y) = lead[0], lead[-1]
            parts.append(f'<path class="grid words" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>')
        x, y = corner[0] + size[0] / 2, corner[1] + 10
        parts.append(f'<text class="words" x="{x:.0f}" y="{y:.0f}" text-anchor="middle">{escape(text)}</text>')
    return parts
