"""Do the leading terms of a topic belong together, do topics differ, and are documents about few of them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus

if TYPE_CHECKING:
    from topiczoo.inference import Fit

MEASURES = ("npmi", "c_v")
EPSILON = 1e-12  # Röder et al.'s, for terms that never occur together


def coherence(
    topics: Fit | Sequence[Sequence[str]], corpus: Corpus, measure: str = "npmi", n: int = 10, *, chain: int = 0
) -> pd.DataFrame:
    """How far the n leading terms of each topic occur together in the documents of ``corpus``.

    With p(u, v) the share of documents that hold both terms,

        NPMI(u, v) = log[(p(u, v) + e) / (p(u) p(v))] / -log(p(u, v) + e),    e = 1e-12,

    from -1 (never together) over 0 (independent) to 1 (always together). "npmi" is its mean over the pairs of a topic's
    terms. "c_v" is C_V of Röder, Both & Hinneburg (2015): each term i has the vector of its NPMI with all n terms
    (itself: 1), and the measure is the mean cosine of these vectors with their sum.

    NB: C_V counts in sliding windows of 110 words. A bag of words has no order, so here the window is the document.

    Parameters
    ----------
    topics
        A Fit (the most probable terms of topics of one ``chain``), or lists of terms.
    corpus
        The documents to count in. Terms it does not hold are left out; a topic with fewer than two has NaN.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}; choose from {', '.join(map(repr, MEASURES))}.")
    leading = _leading(topics, n, chain)
    terms = sorted({term for topic in leading for term in topic})
    present = (corpus.with_vocabulary(terms).counts > 0).astype(np.int64)
    together = np.asarray((present.T @ present).todense()) / len(corpus)
    column = {term: i for i, term in enumerate(terms)}
    values = []
    for topic in leading:
        rows = np.array([column[term] for term in topic if together[column[term], column[term]] > 0], int)
        values.append(_MEASURES[measure](npmi(together[np.ix_(rows, rows)])) if len(rows) > 1 else np.nan)
    index = pd.RangeIndex(len(leading), name="topic")
    return pd.DataFrame({"coherence": values, "terms": [" ".join(topic) for topic in leading]}, index=index)


def npmi(together: np.ndarray) -> np.ndarray:
    """NPMI of all pairs of terms from p(u, v), whose diagonal is p(u). Two terms in every document tell nothing: 0."""
    share = np.diag(together)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log((together + EPSILON) / np.outer(share, share)) / -np.log(together + EPSILON)
    value = np.where(together == 1, 0.0, value)
    np.fill_diagonal(value, 1.0)
    return value


def _mean_of_pairs(table: np.ndarray) -> float:
    return float(table[np.triu_indices(len(table), 1)].mean())


def _mean_cosine(table: np.ndarray) -> float:
    whole = table.sum(0)
    lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(whole)
    return float(np.mean(table @ whole / np.maximum(lengths, EPSILON)))


_MEASURES = {"npmi": _mean_of_pairs, "c_v": _mean_cosine}


def diversity(topics: Fit | Sequence[Sequence[str]], n: int = 25, *, chain: int = 0) -> float:
    """The share of different terms among the n leading terms of all topics (Dieng et al. 2020): 1 if none is shared."""
    terms = [term for topic in _leading(topics, n, chain) for term in topic]
    return len(set(terms)) / len(terms)


def entropy(theta: Any) -> np.ndarray:
    """-sum_k theta_k log theta_k / log K of proportions [..., topics]: 0 for one topic alone, 1 for all alike."""
    theta = np.asarray(theta, float)
    if (theta < 0).any() or not np.allclose(theta.sum(-1), 1, atol=1e-3):
        raise ValueError("theta's last axis does not hold proportions; give numbers from 0 to 1 that sum to 1.")
    if theta.shape[-1] == 1:
        return np.zeros(theta.shape[:-1])
    return -(theta * np.log(np.where(theta > 0, theta, 1.0))).sum(-1) / np.log(theta.shape[-1])


def _leading(topics: Any, n: int, chain: int) -> list[list[str]]:
    """The n most probable terms of each topic."""
    if n < 2:
        raise ValueError(f"n is {n!r}; give at least 2 terms a topic.")
    if hasattr(topics, "topics"):
        table = topics.topics(n, by="probability", chain=chain)  # what published figures are of
        return [list(terms) for _, terms in table.groupby("topic", sort=False)["term"]]
    if isinstance(topics, str) or not topics or any(isinstance(topic, str) for topic in topics):
        raise TypeError("topics is no list of lists of terms; give a Fit, or the terms of each topic as a list.")
    return [list(topic)[:n] for topic in topics]
