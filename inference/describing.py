"""A fit in the words of its reader: documents that show what a topic is about, and topics that go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .posterior.naming import topic_labels, topic_number
from .posterior.posterior import Posterior
from .posterior.tables import made_of_draws
from .predictive.predicting import transform
from .story.validation import check_counts, check_share

MOST_DRAWS = 200  # of a chain, of which correlations are taken


def num_chains(fit: Posterior) -> int:
    """How many chains there are."""
    return len(next(iter({**fit.draws, **fit.snapshots}.values())))


def check_chain(fit: Posterior, chain: Any) -> None:
    """A chain that there is."""
    number = num_chains(fit)
    if not isinstance(chain, int | np.integer) or isinstance(chain, bool) or not 0 <= chain < number:
        raise ValueError(f"chain is {chain!r}; the fit's chains are 0 to {number - 1}.")


def check_topics(fit: Posterior) -> None:
    """A story with topics."""
    if not fit.has_topics:
        raise ValueError(
            f"The story {fit.story.name!r} has no topics; deviations(site) shows the leading terms of its classes."
        )


def shares(fit: Posterior, chain: int = 0) -> np.ndarray:
    """Mean topic proportions of the fitted documents by a chain, [documents, topics].

    They are those of the posterior where it has them, else told from the documents' words as for new documents.
    """
    check_topics(fit)
    check_chain(fit, chain)
    if fit.graph.theta in fit.sites:
        return np.asarray(fit.mean(fit.graph.theta, chain=chain))
    if (made := made_of_draws(fit, "theta", chains=[chain])) is not None:
        return made[0].mean(0)
    return np.asarray(transform(fit, fit.corpus, chain=chain))


def documents(fit: Posterior, topic: Any = None, n: int = 5, *, chain: int = 0) -> pd.DataFrame:
    """The n documents with the largest share of a topic, or of each topic. See :meth:`Fit.documents`."""
    check_counts(n=n)
    theta = shares(fit, chain)
    number = theta.shape[1]
    chosen = range(number) if topic is None else [topic_number(fit, topic, number)]
    labels, lengths = topic_labels(fit, number), fit.corpus.lengths
    parts = []
    for k in chosen:
        rows = np.lexsort([-lengths, -theta[:, k]])[:n]  # of equal shares the longer document says more
        part = pd.DataFrame({
            "chain": chain, "topic": labels[k], "rank": np.arange(1, len(rows) + 1), "row": rows,
            "document": fit.document_names[rows], "share": theta[rows, k],
        })  # fmt: skip
        if fit.corpus.texts is not None:
            part["text"] = fit.corpus.texts[rows]
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def correlations(fit: Posterior, *, interval: float | None = None, chain: int = 0) -> pd.DataFrame:
    """Correlations of topics over documents. See :meth:`Fit.correlations`."""
    if interval is not None:
        check_share(interval=interval)
    check_topics(fit)
    check_chain(fit, chain)
    if not fit.graph.has_words:
        raise ValueError(
            f"The story {fit.story.name!r} gives each document one topic, and topics that exclude each other go with none; "
            "correlations are of stories that mix topics."
        )
    draws = _draws(fit, chain)
    if draws is None:
        if interval is not None:
            raise ValueError(
                "interval is given, and the fit has kept no draws of the documents' proportions, only their means; leave it "
                "out, or fit again with keep= for their site."
            )
        draws = shares(fit, chain)[None]
    found = np.stack([_correlation(theta) for theta in draws])
    mean = found.mean(0)
    labels = pd.Index(topic_labels(fit, len(mean)), name="topic")
    if interval is None:
        return pd.DataFrame(mean, index=labels, columns=labels)
    tails = (1 - interval) / 2
    low, high = np.quantile(found, [tails, 1 - tails], axis=0)
    one, other = np.triu_indices(len(mean), 1)
    same = np.mean(np.sign(found[:, one, other]) == np.sign(mean[one, other]), axis=0)
    return pd.DataFrame({
        "topic": labels[one], "other": labels[other], "mean": mean[one, other], "low": low[one, other],
        "high": high[one, other], "sign_probability": same,
    })  # fmt: skip


def _draws(fit: Posterior, chain: int) -> Any:
    """Draws of the proportions of all documents in a chain, [draw, documents, topics], some of many; None without."""
    stored = {**fit.snapshots, **fit.draws}
    if (theta := fit.graph.theta) in stored:
        draws = stored[theta][chain]
        return draws[np.unique(np.linspace(0, len(draws) - 1, MOST_DRAWS).astype(int))]
    if theta in fit.means:
        return None
    made = made_of_draws(fit, "theta", chains=[chain])
    return None if made is None else made[0]


def _correlation(theta: np.ndarray) -> np.ndarray:
    """Of the columns; a topic that no document has more of than another has none."""
    centred = np.asarray(theta, float) - theta.mean(0, dtype=float)
    size = np.sqrt((centred**2).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = centred.T @ centred / np.outer(size, size)
    found[np.diag_indices_from(found)] = 1.0
    return np.clip(found, -1, 1)
