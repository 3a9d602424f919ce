"""What documents are made of: shares of topics as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.describing import shares

from .style import PALE, PALETTE, canvas, checked, finished, short, styled, titles

FEW = 15  # documents that are shown where none are named


def plot_documents(
    fit: Fit, documents: Any = None, *, corpus: Corpus | None = None, n: int = 3, chain: int = 0, ax: Any = None,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Shares of topics in some documents, one bar a document; topics are those of a chain.

    The seven topics that these documents have most of have a colour each, the rest is grey.

    Parameters
    ----------
    documents
        Rows or names of documents; by default the first 15. ``fit.documents("food")["row"]`` are those of a topic.
    corpus
        Other documents than those of the fit; their topics are told from their words.

    Returns
    -------
    The axes.
    """
    checked(fit, chain)
    source = fit.corpus if corpus is None else corpus
    rows = _rows(source, documents)
    theta = shares(fit, chain)[rows] if corpus is None else fit.transform(corpus[rows], chain=chain)
    leading = np.argsort(-theta.sum(0), kind="stable")[: len(PALETTE)]
    names = titles(fit, chain, n)
    parts = [(names[k], theta[:, k], PALETTE[place]) for place, k in enumerate(leading)]
    if theta.shape[1] > len(leading):
        parts.append((f"{theta.shape[1] - len(leading)} other topics", 1 - theta[:, leading].sum(1), PALE))
    with styled() as plt:
        (axis,) = canvas(plt, ax, figure_kwargs, 1, 1, (7.4, max(2.2, 0.7 + 0.24 * len(rows))))
        start = np.zeros(len(rows))
        places = np.arange(len(rows))
        for name, share, colour in parts:
            axis.barh(places, share, left=start, height=0.8, color=colour, edgecolor="white", linewidth=0.5, label=name)
            start = start + share
        axis.set_yticks(places, [short(source.names[row], 28) for row in rows])
        axis.set(
            xlim=(0, 1),
            ylim=(len(rows) - 0.5, -0.5),
            xlabel="share of the document's words by topic",
            ylabel="document",
        )
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        return finished(np.array([axis], object))


def _rows(corpus: Corpus, documents: Any) -> np.ndarray:
    if documents is None:
        return np.arange(min(FEW, len(corpus)))
    asked = [documents] if isinstance(documents, str | int | np.integer) else list(documents)
    names = {str(name): row for row, name in reversed(list(enumerate(corpus.names)))}
    found = []
    for one in asked:
        row = names.get(one) if isinstance(one, str) else one
        if not isinstance(row, int | np.integer) or isinstance(row, bool) or not 0 <= row < len(corpus):
            raise ValueError(
                f"documents has {one!r}; give rows from 0 to {len(corpus) - 1}, or names of documents of the corpus."
            )
        found.append(int(row))
    if not found:
        raise ValueError("documents is empty; name one at least, or leave it out.")
    return np.array(found)
