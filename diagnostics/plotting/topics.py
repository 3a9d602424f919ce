"""The leading terms of topics as bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from topiczoo.inference import Fit
from topiczoo.inference.posterior.leading_terms import leading, term_scores
from topiczoo.inference.posterior.naming import topic_labels
from topiczoo.inference.posterior.tables import topic_terms

from .style import GREY, LONGEST_TERM, PALE, PALETTE, canvas, checked, chosen_topics, finished, short, styled, usage

MOST = 20  # topics that are shown where none are named
COLUMNS = 4


def plot_topics(
    fit: Fit, topics: Any = None, n: int = 8, *, by: str = "relevance", weight: float | None = None, chain: int = 0,
    ax: Any = None, figure_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Bars of the leading terms of each topic of a chain: their probability in it, and in grey among all words.

    Parameters
    ----------
    topics
        Numbers or names of topics; by default all, or the 20 largest.
    n, by, weight
        How many terms, and which, as in ``fit.topics``.
    ax
        matplotlib axes to draw on, as many as topics; by default a new figure, made with ``figure_kwargs``.

    Returns
    -------
    The axes, one a topic.
    """
    checked(fit, chain)
    frame = fit.topics(n, by=by, weight=weight, chain=chain)  # says what is wrong with n, by and weight
    beta, counts = topic_terms(fit, chain), np.asarray(fit.corpus.counts.sum(0))
    rows = leading(term_scores(beta, counts, by, weight), n)
    size, everywhere = usage(fit, chain), counts / max(counts.sum(), 1)
    shown = chosen_topics(fit, topics, len(beta), MOST, size)
    labels = topic_labels(fit, len(beta))
    means = frame.drop_duplicates("topic").reset_index(drop=True)
    sites = [site for site in fit.coefficients if site in means]
    with styled() as plt:
        panel = 2.6, 0.55 + 0.17 * rows.shape[1]
        axes = canvas(plt, ax, figure_kwargs, len(shown), COLUMNS, panel, (0.0, 0.6), sharex=True)
        places = np.arange(rows.shape[1])
        for axis, k in zip(axes, shown, strict=True):
            axis.barh(places, everywhere[rows[k]], height=0.86, color=PALE, label="among all words")
            axis.barh(places, beta[k, rows[k]], height=0.46, color=PALETTE[0], label="in the topic")
            axis.set_yticks(places, [short(fit.vocabulary[term], LONGEST_TERM) for term in rows[k]])
            axis.set_ylim(len(places) - 0.5, -0.5)
            axis.tick_params(axis="y", length=0)
            axis.spines["left"].set_visible(False)
            told = [f"{size[k]:.0%} of words", *(f"{site} {means[site][k]:+.2f}" for site in sites)]
            axis.set_title(f"{_title(labels[k])}\n", loc="left", fontweight="bold", pad=2)
            axis.text(0, 1.01, ", ".join(told), transform=axis.transAxes, va="bottom", color=GREY, fontsize=8)
        if ax is None:
            figure = axes[0].figure
            figure.supxlabel("probability of the term", fontsize=9)
            handles, names = axes[0].get_legend_handles_labels()
            few = (
                f"the {len(shown)} largest of {len(beta)} topics" if topics is None and len(shown) < len(beta) else None
            )
            figure.legend(
                handles[::-1], names[::-1], loc="outside upper left", ncols=2, frameon=False, fontsize=8, title=few,
                alignment="left",
            )  # fmt: skip
        else:
            for axis in axes:
                axis.set_xlabel("probability of the term")
        return finished(axes)


def _title(label: Any) -> str:
    return short(label, 28) if isinstance(label, str) and not label.isdigit() else f"topic {label}"
