"""A map of topics: near each other if they use the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topiczoo.inference import Fit
from topiczoo.inference.posterior.naming import topic_labels
from topiczoo.inference.posterior.tables import topic_terms

from .coefficients import panels_of
from .style import DIVERGING, GREY, INK, PALETTE, canvas, checked, finished, short, signed, styled, titles, usage

MOST_TERMS = 4000  # that distances are computed from; what is left of a topic counts as one term
LARGEST, SMALLEST = 1500.0, 60.0  # areas of circles, in square points
MARGIN = 3  # pixels between a circle and its words
REACH = (0, 14, 30, 48)  # pixels that words may be farther off, with a line


def topic_distances(beta: np.ndarray) -> np.ndarray:
    """Jensen-Shannon distances (square roots of divergences in bits, from 0 to 1) between topics, [topics, topics]."""
    beta = np.asarray(beta, float)
    if beta.shape[1] > MOST_TERMS + 1:
        kept = beta[:, np.argpartition(-beta.max(0), MOST_TERMS)[:MOST_TERMS]]
        beta = np.concatenate([kept, np.maximum(1 - kept.sum(1, keepdims=True), 0)], axis=1)
    beta = beta / beta.sum(1, keepdims=True)

    def entropy(shares: np.ndarray) -> np.ndarray:
        return -(shares * np.log2(np.where(shares > 0, shares, 1.0))).sum(-1)

    own, found = entropy(beta), np.zeros((len(beta), len(beta)))
    for k in range(1, len(beta)):
        found[k, :k] = entropy((beta[k] + beta[:k]) / 2) - (own[k] + own[:k]) / 2
    return np.sqrt(np.clip(found + found.T, 0, 1))


def classical_scaling(distances: np.ndarray) -> tuple[np.ndarray, float]:
    """Places in the plane whose distances are near the given ones (classical MDS), and the share of variance they keep.

    The sign of each axis is such that its largest coordinate is positive.
    """
    number = len(distances)
    centring = np.eye(number) - 1 / number
    values, vectors = np.linalg.eigh(-centring @ distances**2 @ centring / 2)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    places = np.zeros((number, 2))
    places[:, : min(2, number)] = (vectors * np.sqrt(values))[:, :2]
    largest = places[np.abs(places).argmax(0), np.arange(2)]
    return places * np.where(largest < 0, -1, 1), float(values[:2].sum() / max(values.sum(), 1e-300))


def plot_topic_map(
    fit: Fit, *, var_names: str | None = None, n: int = 2, chain: int = 0, ax: Any = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Topics of a chain in the plane: near if they use the same words, large if many words are theirs.

    Places follow from Jensen-Shannon distances by classical multidimensional scaling; the title says how much of them the
    plane keeps. The colour is the coefficient's posterior mean; with several outputs the one that is largest for the topic.
    Words stand where there is room, the largest topics first; a topic without room has its number or name alone, or none.

    Parameters
    ----------
    var_names
        What the colour is: a column of coefficients, as ``"eta"`` or ``"eta[good]"``.
    n
        How many words stand beside a topic.
    """
    checked(fit, chain)
    beta = topic_terms(fit, chain)
    if len(beta) < 2:
        raise ValueError("A map shows how far topics are apart, and the fit has one; plot_topics shows its words.")
    panels = {name: value[chain].mean(0) for name, value in panels_of(fit).items()}
    if var_names is not None and var_names not in panels:
        known = ", ".join(map(repr, panels)) or "none"
        raise ValueError(
            f"var_names is {var_names!r}; the columns of coefficients are {known}: name one, or leave it out."
        )
    if var_names is not None:
        panels = {var_names: panels[var_names]}
    size, (places, kept) = usage(fit, chain), classical_scaling(topic_distances(beta))
    areas = SMALLEST + (LARGEST / max(1.0, len(beta) / 12) - SMALLEST) * size / size.max()
    with styled() as plt:
        side = 5.4 if len(beta) <= 30 else 8.0
        (axis,) = canvas(plt, ax, figure_kwargs, 1, 1, (side + 1.2, side))
        order = np.argsort(-areas, kind="stable")  # small circles over large ones
        colours = _coloured(axis, fit, panels, order)
        axis.scatter(*places[order].T, s=areas[order], c=colours, edgecolors=INK, linewidths=0.7)
        axis.set(xticks=[], yticks=[])
        axis.set_xlabel("topics that are near use the same words (Jensen-Shannon distance)")
        axis.set_title(
            f"{len(beta)} topics, area by share of words; the plane keeps {kept:.0%} of their spread", loc="left"
        )
        labels = [short(label, 20) for label in topic_labels(fit, len(beta))]
        _frame(axis, places)
        _label(axis, places, areas, titles(fit, chain, n) if n else labels, labels)
        return finished(np.array([axis], object))


def _coloured(axis: Any, fit: Fit, panels: Mapping[str, np.ndarray], order: np.ndarray) -> Any:
    """A colour for each topic, in that order, and on the axis what they mean."""
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    if not panels:
        return [PALETTE[4]] * len(order)
    if len(panels) == 1:
        ((name, value),) = panels.items()
        scale = mpl.cm.ScalarMappable(signed(np.abs(value).max()), DIVERGING)
        bar = axis.figure.colorbar(scale, ax=axis, shrink=0.6, pad=0.02)
        bar.set_label(f"coefficient {name}")
        bar.outline.set_visible(False)
        return scale.to_rgba(value[order])
    names = list(panels)
    largest = np.stack(list(panels.values())).argmax(0)
    for place, name in enumerate(names[: len(PALETTE)]):
        axis.add_line(Line2D([], [], marker="o", linestyle="", color=PALETTE[place], label=short(name, 24)))
    others = len(names) > len(PALETTE)
    if others:
        axis.add_line(Line2D([], [], marker="o", linestyle="", color=GREY, label="others"))
    axis.legend(title="largest coefficient", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    return [PALETTE[k] if k < len(PALETTE) else GREY for k in largest[order]]


def _frame(axis: Any, places: np.ndarray) -> None:
    """Limits that hold all circles with room for words, a step in one direction as long as in the other."""
    axis.figure.canvas.draw()  # constrained layout gives axes their size when they are drawn
    box = axis.get_window_extent()
    inner = np.array([box.width * 0.76, box.height * 0.84])
    span, middle = np.ptp(places, axis=0), (places.max(0) + places.min(0)) / 2
    unit = max((span / inner).max(), 1e-9)  # of the data in a pixel
    half = unit * np.array([box.width, box.height]) / 2
    axis.set(xlim=middle[0] + half[0] * np.array([-1, 1]), ylim=middle[1] + half[1] * np.array([-1, 1]))
    axis.set_aspect("equal", adjustable="box")


def _label(axis: Any, places: np.ndarray, areas: np.ndarray, texts: Sequence[str], labels: Sequence[str]) -> None:
    """Words beside circles where there is room, the largest topics first; else the number or name alone, or nothing."""
    figure = axis.figure
    renderer, point = figure.canvas.get_renderer(), figure.dpi / 72
    centres, radii = axis.transData.transform(places), np.sqrt(areas / np.pi) * point
    circles = np.column_stack([centres - radii[:, None], centres + radii[:, None]])
    taken: list[np.ndarray] = []
    for k in np.argsort(-areas, kind="stable"):
        for text in (texts[k], labels[k]):
            drawn = axis.annotate(
                text, places[k], (0, 0), textcoords="offset points", fontsize=8, color=INK, ha="left", va="bottom"
            )
            box = drawn.get_window_extent(renderer)
            frame = axis.get_window_extent(renderer)
            found = free_place(
                centres[k], radii[k], box.width, box.height, circles, np.array(taken).reshape(-1, 4), frame
            )
            if found is not None:
                corner, line = found
                drawn.set_position((corner - centres[k]) / point)
                taken.append(np.array([*corner, *(corner + (box.width, box.height))]))
                if len(line):
                    taken += [np.tile(place, 2) for place in line]
                    ends = axis.transData.inverted().transform(np.array([centres[k], line[-1]]))
                    axis.plot(*ends.T, color=INK, linewidth=0.5, zorder=0.5)
                break
            drawn.remove()


def free_place(
    centre: np.ndarray, radius: float, width: float, height: float, circles: np.ndarray, texts: np.ndarray, frame: Any
) -> tuple[np.ndarray, np.ndarray] | None:
    """The lower left corner of a place for a text beside a circle where it touches nothing, and the line that leads there.

    Boxes are rows of left, bottom, right, top; a line is places on it, and none where the text is near.
    """
    size = np.array([width, height])
    for away in REACH:
        for angle in np.arange(0, 2 * np.pi, np.pi / 8):
            direction = np.array([np.cos(angle), np.sin(angle)])
            # the text's nearest edge or corner touches a circle around the topic's
            corner = centre + (radius + MARGIN + away) * direction + size * (direction - 1) / 2
            own = np.array([*corner, *(corner + size)])
            inside = (own[:2] >= frame.min).all() and (own[2:] <= frame.max).all()
            if not inside or _touch(own, circles).any() or _touch(own, texts).any():
                continue
            line = np.linspace(centre, np.clip(centre, own[:2] - 2, own[2:] + 2), 12) if away else np.zeros((0, 2))
            if not any(_touch(np.tile(place, 2), texts).any() for place in line):
                return corner, line
    return None


def _touch(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of the other boxes a box overlaps."""
    return np.all((box[:2] <= others[:, 2:]) & (box[2:] >= others[:, :2]), axis=1)
