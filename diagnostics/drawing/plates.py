"""A story's plate diagram as SVG, drawn from its graph: no other program is needed.

Sites stand in three columns: those of no plate, those of documents with the plate of words inside, those of topics (or
labels). A site stands below all that its density reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from topiczoo.inference.story.graph import BETA, DOCUMENT, LABEL, OF_LABEL, THETA, TOPIC, ZBAR, StoryGraph

RADIUS, WIDE, GAP, ROW, MARGIN = (
    22,
    34,
    80,
    84,
    30,
)  # of a circle, of a long name; between circles, between rows, around
SHORT, LONGEST = 3, 10  # letters that a circle holds, and a wide one
LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho ~ sigma tau upsilon phi chi "
    "psi omega"
)
GREEK = {name: chr(code) for code, name in enumerate(LETTERS.split(), ord("α"))}
GLOBAL, OF_DOCUMENTS, OF_WORDS, OF_TOPICS, OF_LABELS = range(5)
COLUMNS = ((GLOBAL,), (OF_DOCUMENTS, OF_WORDS), (OF_TOPICS,), (OF_LABELS,))
NAMES = {OF_DOCUMENTS: "documents", OF_WORDS: "words", OF_TOPICS: "topics", OF_LABELS: "labels"}


class Node(NamedTuple):
    """A circle: where it belongs, and what it follows from."""

    plate: int
    observed: bool
    above: frozenset[str]


def nodes(graph: StoryGraph) -> dict[str, Node]:
    """The circles of a story: its sites, and the topics and words of ``draw_words``."""
    found: dict[str, Node] = {}
    for name, site in graph.sites.items():
        read = graph.parents.get(name, frozenset()) - {name}
        above = frozenset(other for other in read if other in graph.sites) | ({"z"} if ZBAR in read else set())
        if DOCUMENT in site.axes or (site.observed and site.density_axis is not None):
            plate = OF_DOCUMENTS
        elif TOPIC in site.axes:
            plate = OF_TOPICS
        else:
            plate = OF_LABELS if OF_LABEL in site.axes else GLOBAL
        found[name] = Node(plate, site.observed, above)
    if graph.has_words:
        theta, beta, label = (
            frozenset(graph.parents.get(part, ())) & set(graph.sites) for part in (THETA, BETA, LABEL)
        )
        found["z"] = Node(OF_WORDS, False, theta)
        found["w"] = Node(OF_WORDS, True, frozenset({"z"}) | beta | label)
    return found


def rows(drawn: Mapping[str, Node]) -> dict[str, int]:
    """The row of every circle: one below the lowest that it follows from."""
    found: dict[str, int] = {}

    def row(name: str, on_the_way: frozenset[str] = frozenset()) -> int:
        if name not in found:
            above = [other for other in drawn[name].above if other in drawn and other not in on_the_way]
            found[name] = 1 + max((row(other, on_the_way | {name}) for other in above), default=-1)
        return found[name]

    for name in drawn:
        row(name)
    below = defaultdict(list)
    for name, node in drawn.items():
        for other in node.above:
            below[other].append(found[name])
    # what nothing is above stands just over the first that reads it, so that arrows are short; responses of topics stand
    # below the words, so that arrows to them do not cross these
    last = max((found[name] for name, node in drawn.items() if node.plate == OF_WORDS), default=-1)
    topics = {name for name, node in drawn.items() if node.plate == OF_WORDS}
    for name, node in drawn.items():
        if not node.above and below[name]:
            found[name] = max(found[name], min(below[name]) - 1)
        elif node.above & topics and node.plate != OF_WORDS:
            found[name] = max(found[name], last + 1)
    return found


def places(drawn: Mapping[str, Node]) -> dict[str, tuple[float, float]]:
    """The middle of every circle."""
    level, left, found = rows(drawn), float(MARGIN), {}
    for plates in COLUMNS:
        members = [name for name in drawn if drawn[name].plate in plates]
        if not members:
            continue
        by_row = defaultdict(list)
        for name in sorted(members, key=lambda name: not drawn[name].above):  # what reads sites of the left comes first
            by_row[level[name]].append(name)
        others = {row: [n for n in names if drawn[n].plate != OF_WORDS] for row, names in by_row.items()}
        room = max(map(len, others.values()))
        inside = any(drawn[name].plate == OF_WORDS for name in members)  # on the right: words read topics
        width = (room + inside) * GAP
        for row, names in by_row.items():
            for name in names:
                if drawn[name].plate == OF_WORDS:
                    x = left + width - GAP / 2
                else:
                    x = left + (others[row].index(name) + 0.5 + (room - len(others[row])) / 2) * GAP
                found[name] = x, MARGIN + GAP / 2 + row * ROW
        left += width + MARGIN
    return found


def diagram(graph: StoryGraph) -> str:
    """The plate diagram as an SVG element; it takes its colours from the page."""
    drawn = nodes(graph)
    where = places(drawn)
    width = max(x for x, _ in where.values()) + GAP / 2 + MARGIN
    height = max(y for _, y in where.values()) + RADIUS + 2 * MARGIN
    parts = [_plate(plate, drawn, where) for plate in NAMES if any(node.plate == plate for node in drawn.values())]
    parts += [_arrow(other, name, where) for name, node in drawn.items() for other in sorted(node.above)]
    parts += [_circle(name, node, *where[name]) for name, node in drawn.items()]
    tips = '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tips = f'<defs>{tips}<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    told = f"Plate diagram: {'; '.join(map(_in_words, drawn, drawn.values()))}."
    return (
        f'<svg class="plates" role="img" aria-label="{escape(told)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-size="15" '
        f'font-family="inherit">{tips}{"".join(parts)}</svg>'
    )


def _in_words(name: str, node: Node) -> str:
    kind = "observed" if node.observed else "latent"
    return f"{name} ({kind}) from {', '.join(sorted(node.above)) or 'its prior'}"


def _plate(plate: int, drawn: Mapping[str, Node], where: Mapping[str, tuple[float, float]]) -> str:
    """A frame around the circles of a plate; that of documents holds the words' too."""
    held = {plate, OF_WORDS} if plate == OF_DOCUMENTS else {plate}
    xs, ys = zip(*(where[name] for name, node in drawn.items() if node.plate in held), strict=True)
    beside, over = (4, 8) if plate == OF_WORDS else (8, 14)
    x, right = min(xs) - WIDE - beside, max(xs) + WIDE + beside
    y, bottom = min(ys) - RADIUS - over, max(ys) + RADIUS + over + 14
    words = [where[name][1] for name, node in drawn.items() if node.plate == OF_WORDS]
    if plate == OF_DOCUMENTS and words and max(words) == max(ys):
        bottom += 16  # below the frame of words
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{right - x:.0f}" height="{bottom - y:.0f}" rx="6" fill="none" '
        f'stroke="currentColor" opacity="0.45"/><text x="{right - 6:.0f}" y="{bottom - 6:.0f}" text-anchor="end" '
        f'font-size="11" fill="currentColor">{NAMES[plate]}</text>'
    )


def _half_width(name: str) -> int:
    return RADIUS if len(GREEK.get(name, name)) <= SHORT else WIDE


def _arrow(start: str, end: str, where: Mapping[str, tuple[float, float]]) -> str:
    """From the rim of a circle to the rim of another."""
    (x, y), (to_x, to_y) = where[start], where[end]
    dx, dy = to_x - x, to_y - y

    def rim(name: str) -> float:
        """The share of the way that lies inside."""
        return 1 / max(((dx / _half_width(name)) ** 2 + (dy / RADIUS) ** 2) ** 0.5, 1.0)

    leaves, arrives = rim(start), 1 - rim(end)
    return (
        f'<line x1="{x + leaves * dx:.1f}" y1="{y + leaves * dy:.1f}" x2="{x + arrives * dx:.1f}" '
        f'y2="{y + arrives * dy:.1f}" stroke="currentColor" stroke-width="1.2" marker-end="url(#tip)"/>'
    )


def _circle(name: str, node: Node, x: float, y: float) -> str:
    shown = GREEK.get(name, name)
    size = 15 if len(shown) <= SHORT else 11
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
    fill = "var(--line, #d8dee4)" if node.observed else "var(--paper, #ffffff)"
    return (
        f'<g><title>{escape(name)}</title><ellipse cx="{x:.0f}" cy="{y:.0f}" rx="{_half_width(name)}" ry="{RADIUS}" '
        f'fill="{fill}" stroke="currentColor"/><text x="{x:.0f}" y="{y + size / 3:.0f}" text-anchor="middle" '
        f'font-size="{size}" fill="currentColor">{escape(shown)}</text></g>'
    )
