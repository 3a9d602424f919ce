"""Correlations of topics as a table of colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from topiczoo.inference import Fit
from topiczoo.inference.posterior.naming import topic_labels

from .style import DIVERGING, INK, canvas, checked, chosen_topics, finished, short, signed, styled, titles

WRITTEN = 12  # up to so many topics the numbers are written


def plot_correlations(
    fit: Fit, topics: Any = None, *, n: int = 3, chain: int = 0, ax: Any = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Which topics share documents: ``fit.correlations`` as colours, like topics beside each other.

    Parameters
    ----------
    topics
        Numbers or names of topics, in the order in which they are shown; by default all, ordered by hierarchical clustering.
    n
        How many words stand beside a topic's number or name.

    Returns
    -------
    The axes.
    """
    checked(fit, chain)
    found = fit.correlations(chain=chain).to_numpy()
    number = len(found)
    if number < 2:
        raise ValueError("Correlations are of two topics at least, and the fit has one; plot_topics shows its words.")
    shown = _ordered(found) if topics is None else chosen_topics(fit, topics, number, number, np.ones(number))
    values = found[np.ix_(shown, shown)].copy()
    values[shown[:, None] == shown] = np.nan
    words, names = titles(fit, chain, n), [short(label, 18) for label in topic_labels(fit, number)]
    words, names = [words[k] for k in shown], [names[k] for k in shown]
    turned = max(map(len, names)) > 3 or len(shown) > 40
    with styled() as plt:
        side = max((0.3 if len(shown) <= WRITTEN else 0.18) * len(shown), 1.6)
        left, under = 0.07 * max(map(len, words)), 0.07 * max(map(len, names)) if turned else 0.0
        (axis,) = canvas(plt, ax, figure_kwargs, 1, 1, (side, side), (1.1 + left, 0.6 + under))
        norm = signed(float(np.nanmax(np.abs(values), initial=0.0)))
        image = axis.imshow(values, cmap=DIVERGING, norm=norm)
        bar = axis.figure.colorbar(image, ax=axis, shrink=0.7, pad=0.02)
        bar.set_label("correlation")
        bar.outline.set_visible(False)
        small = 8 if len(shown) <= 30 else 7
        axis.set_yticks(np.arange(len(shown)), words, fontsize=small)
        axis.set_xticks(np.arange(len(shown)), names, fontsize=small, rotation=90 if turned else 0)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_xlabel("topic")
        if len(shown) <= WRITTEN:
            for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
                value = values[row, column]
                dark = abs(value) > 0.65 * norm.vmax
                axis.text(
                    column, row, f"{value:.2f}".replace("0.", ".", 1), ha="center", va="center", fontsize=7,
                    color="white" if dark else INK,
                )  # fmt: skip
        return finished(np.array([axis], object))


def _ordered(found: np.ndarray) -> np.ndarray:
    """Topics in an order in which those that go together stand together."""
    if len(found) < 3:
        return np.arange(len(found))
    apart = squareform(1 - np.nan_to_num(found), checks=False)
    return np.asarray(leaves_list(optimal_leaf_ordering(linkage(apart, "average"), apart)))
