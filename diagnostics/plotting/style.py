"""What figures have in common: their look, where they are drawn, and what topics are called in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from topiczoo.inference import Fit
from topiczoo.inference.describing import check_chain, check_topics, num_chains, shares
from topiczoo.inference.posterior.naming import topic_labels, topic_number
from topiczoo.inference.posterior.tables import leading_words

from ..convergence.alignment import topic_usage

COLOURS = ("#0550ae", "#bc4c00", "#1a7f37", "#8250df", "#9a6700", "#bf3989", "#116329", "#57606a")  # one a chain
# Okabe and Ito's colours, which people who do not see red or green tell apart; black and grey are for other things
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK, GREY, PALE = "#24292f", "#57606a", "#d0d7de"
DIVERGING = "RdBu_r"  # from blue over white to red: safe for all kinds of sight
STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8c959f",
    "axes.prop_cycle": "cycler('color', ['" + "', '".join(COLOURS) + "'])",
    "text.parse_math": False,  # a term with a dollar sign is no formula
    "figure.constrained_layout.use": True,
    "lines.linewidth": 1.0,
    "svg.fonttype": "path",
}
LONGEST_TERM, LONGEST_LABEL = 18, 42  # characters


def short(text: Any, most: int = LONGEST_LABEL) -> str:
    """A text on one line and not too long."""
    text = " ".join(str(text).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def titles(fit: Fit, chain: int, n: int = 3) -> list[str]:
    """What each topic is called in a figure: its number or name, and a few words; of long words their beginnings."""
    labels = topic_labels(fit)
    words = leading_words(fit, n, chain=chain) if n else [""] * len(labels)
    found = []
    for label, own in zip(labels, words, strict=True):
        few = " ".join(short(word, LONGEST_TERM) for word in own.split(" "))
        found.append(short(f"{short(label, LONGEST_LABEL // 2)}: {few}" if n else label))
    return found


def checked(fit: Any, chain: Any) -> Fit:
    """A fit with topics, and a chain that it has."""
    if not isinstance(fit, Fit):
        raise TypeError(f"fit is a {type(fit).__name__}; give a Fit, as inference.gibbs or inference.load returns it.")
    check_topics(fit)
    check_chain(fit, chain)
    return fit


def chains_shown(fit: Fit, chain: int | None) -> list[int]:
    """The chains of which topics are shown: the one asked for, all whose topics are matched, or the first."""
    if chain is not None:
        check_chain(fit, chain)
        return [chain]
    return list(range(num_chains(fit))) if fit.topics_are_matched else [0]


def usage(fit: Fit, chain: int) -> np.ndarray:
    """The share of words in each topic by a chain, [topics]."""
    found = topic_usage(fit)
    own = found[chain].mean(0) if found is not None else fit.corpus.lengths @ shares(fit, chain)
    return own / own.sum()


def chosen_topics(fit: Fit, topics: Any, number: int, most: int, size: np.ndarray) -> np.ndarray:
    """Numbers of the topics to show: those asked for in their order, or the ``most`` largest by number."""
    if topics is None:
        return np.sort(np.argsort(-size, kind="stable")[:most])
    asked = [topics] if isinstance(topics, str | int | np.integer) else list(topics)
    if not asked:
        raise ValueError("topics is empty; name one at least, or leave it out.")
    return np.array([topic_number(fit, topic, number) for topic in asked])


@contextmanager
def styled() -> Iterator[Any]:
    """matplotlib in the look of these figures; what the caller has set stays as it is."""
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        yield plt


def canvas(
    plt: Any, ax: Any, figure_kwargs: Mapping[str, Any] | None, number: int, columns: int, panel: tuple[float, float],
    beside: tuple[float, float] = (0.0, 0.0), **grid: Any,
) -> np.ndarray:  # fmt: skip
    """As many axes as there are panels: those given, or those of a new figure in rows of so many columns.

    ``panel`` is the size of one, ``beside`` what the figure needs for labels and legends, in inches.
    """
    if ax is not None:
        if figure_kwargs:
            raise ValueError(
                "figure_kwargs is given with ax, which is of a figure that is there; leave one of them out."
            )
        given = np.atleast_1d(np.asarray(ax, object)).ravel()
        if len(given) != number:
            raise ValueError(f"ax has {len(given)} axes for {number} panels; give as many, or leave ax out.")
        return given
    columns = min(columns, number)
    rows = -(-number // columns)
    settings = {
        "figsize": (panel[0] * columns + beside[0], panel[1] * rows + beside[1]),
        **grid,
        **(figure_kwargs or {}),
    }
    _, axes = plt.subplots(rows, columns, squeeze=False, **settings)
    for axis in axes.ravel()[number:]:
        axis.set_axis_off()
    return axes.ravel()[:number]


def finished(axes: np.ndarray) -> Any:
    """The axes as they are given back, one alone or an array; no text on them is taken for a formula when it is drawn."""
    from matplotlib.text import Text

    for axis in axes.ravel():
        axis.get_xticklabels(), axis.get_yticklabels()  # made now, not when they are drawn
    for text in axes.ravel()[0].figure.findobj(Text):
        text.set_parse_math(False)
    return axes.ravel()[0] if axes.size == 1 else axes


def signed(bound: float) -> Any:
    """Colours of numbers from -bound to bound, white at 0."""
    from matplotlib.colors import Normalize

    return Normalize(-max(bound, 1e-12), max(bound, 1e-12))
