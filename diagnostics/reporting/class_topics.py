"""Topics by class: what each class's documents are made of, and whether classes lie apart.

A margin draws the documents of a class into few topics of their own (Zhu, Ahmed & Xing 2012, figures 2 and 3); how few,
figure 4, is what :func:`.entropy` of the proportions says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.inference import Fit

from ..plotting.style import COLOURS


@dataclass(frozen=True, eq=False)
class ClassTopics:
    """Proportions of documents, by class.

    Attributes
    ----------
    proportions
        E[theta] of each document, [documents, topics].
    labels
        The class of each document.
    words
        The leading words of each topic.
    """

    proportions: np.ndarray
    labels: np.ndarray
    words: list[str]

    @property
    def shares(self) -> pd.DataFrame:
        """Mean proportions of each class's documents: one row a class, one column a topic."""
        return (
            pd.DataFrame(self.proportions)
            .groupby(pd.Index(self.labels, name="class"))
            .mean()
            .rename_axis("topic", axis=1)
        )

    def leading(self, most: int = 3) -> pd.DataFrame:
        """The largest topics of each class: class, topic, share, words."""
        rows = [
            {"class": name, "topic": topic, "share": share, "words": self.words[topic]}
            for name, own in self.shares.iterrows()
            for topic, share in own.nlargest(most).items()
        ]
        return pd.DataFrame(rows)

    def plot(self) -> Any:
        """Bars of every class's mean proportions, one panel a class; a matplotlib figure."""
        import matplotlib.pyplot as plt

        shares = self.shares
        columns = min(4, len(shares))
        rows = -(-len(shares) // columns)
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(3 * columns, 1.6 * rows),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for axis in axes.flat[len(shares) :]:
            axis.set_axis_off()
        for axis, (name, own) in zip(axes.flat, shares.iterrows(), strict=False):
            axis.bar(own.index, own, width=1.0, color=COLOURS[0])
            axis.set_title(str(name), fontsize=9)
        figure.supxlabel("topic")
        figure.supylabel("mean share")
        return figure

    def plot_documents(self, most: int = 2000, seed: int = 0) -> Any:
        """Documents in the plane by t-SNE of their proportions, coloured by class; a matplotlib figure.

        Of more than ``most`` documents as many are drawn at random.
        """
        import matplotlib.pyplot as plt
        from sklearn.manifold import TSNE

        rows = np.random.default_rng(seed).permutation(len(self.labels))[:most]
        perplexity = min(30.0, max(1.0, (len(rows) - 1) / 3))
        # square roots: distances between them are Hellinger's
        method = TSNE(2, perplexity=perplexity, init="random", random_state=seed)
        places = method.fit_transform(np.sqrt(self.proportions[rows]))
        figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
        names = np.unique(self.labels)
        for i, name in enumerate(names):
            own = places[self.labels[rows] == name]
            colour, marker = COLOURS[i % len(COLOURS)], "o^sD"[i // len(COLOURS) % 4]
            axis.scatter(own[:, 0], own[:, 1], s=6, color=colour, marker=marker, label=str(name))
        axis.set_axis_off()
        figure.legend(loc="outside right upper", fontsize=8, markerscale=2)
        return figure


def class_topics(fit: Fit, corpus: Corpus, labels: Any, *, seed: int = 0, n: int = 6) -> ClassTopics:
    """Proportions of documents given their words alone, with a class for each.

    Parameters
    ----------
    labels
        One class a document, of any kind; documents whose label is missing are left out.
    n
        How many words stand for a topic.

    With several chains the first is used: topics of different chains are different topics.
    """
    labels = np.asarray(labels)
    if labels.shape != (len(corpus),):
        raise ValueError(f"labels has shape {labels.shape} for {len(corpus)} documents; give one class a document.")
    known = ~pd.isna(labels)
    if not known.any():
        raise ValueError("labels are all missing; give some documents a class.")
    words = fit.topics(n, chain=0).groupby("topic", sort=False)["term"].agg(" ".join).tolist()
    return ClassTopics(fit.transform(corpus[np.flatnonzero(known)], seed=seed), labels[known], words)
