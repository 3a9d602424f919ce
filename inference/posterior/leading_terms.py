"""Which terms stand for a topic: the most probable ones, or those that tell it from the others.

The most probable terms of a topic are often those of every topic. With p(w | k) the topic and p(w) the share of term w among
all words of the fitted documents,

    relevance     lambda log p(w | k)  +  (1 - lambda) log [p(w | k) / p(w)]        (Sievert & Shirley 2014)
    frex          1 / [a / rank of exclusivity  +  (1 - a) / rank of frequency]     (Airoldi & Bischof 2016)

exclusivity being p(w | k) / sum_j p(w | j), frequency p(w | k), and ranks the shares of a topic's terms that are not larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WEIGHTS = {"relevance": 0.6, "frex": 0.5, "probability": None}  # orders of terms, and their weights
UNSEEN = 0.5  # occurrences that a term of the vocabulary without any is taken for
TINY = 1e-300  # a probability that a posterior mean in few digits has lost


def check_order(by: Any, weight: Any) -> float | None:
    """The weight of an order of terms: the one given, or the order's own."""
    if by not in WEIGHTS:
        raise ValueError(f"by is {by!r}; choose from {', '.join(map(repr, WEIGHTS))}.")
    if weight is None:
        return WEIGHTS[by]
    if WEIGHTS[by] is None:
        raise ValueError(f"weight is {weight!r}, and by={by!r} has none; leave it out, or choose by='relevance'.")
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight!r}; give a number from 0 to 1.")
    return float(weight)


def term_scores(beta: np.ndarray, counts: np.ndarray, by: str = "relevance", weight: Any = None) -> np.ndarray:
    """How far each term stands for each topic, larger is more, [topics, terms].

    Parameters
    ----------
    beta
        Probabilities of terms, [topics, terms].
    counts
        How often each term occurs in the documents, [terms].
    by, weight
        "relevance" and its lambda: 1 orders by p(w | k), 0 by how much more frequent a term is in the topic than elsewhere;
        "frex" and the weight of exclusivity; "probability" has none.
    """
    weight = check_order(by, weight)
    beta = np.asarray(beta, float)
    if weight is None:
        return beta
    if by == "relevance":
        share = np.maximum(counts, UNSEEN) / max(np.sum(counts), 1)
        return np.log(np.maximum(beta, TINY)) - (1 - weight) * np.log(share)
    from scipy.stats import rankdata  # half a second of start-up

    exclusive = beta / np.maximum(beta.sum(0), TINY)
    most = beta.shape[1]
    exclusivity, frequency = (rankdata(values, "max", axis=1) / most for values in (exclusive, beta))
    return 1 / (weight / exclusivity + (1 - weight) / frequency)


def leading(scores: np.ndarray, n: int) -> np.ndarray:
    """The n terms of the largest scores of each topic, the first first, [topics, n]; of equal ones the first in order."""
    n, found = min(n, scores.shape[1]), []
    for row in scores:
        few = np.flatnonzero(row >= np.partition(row, -n)[-n]) if 0 < n < len(row) else np.arange(len(row))
        found.append(few[np.argsort(-row[few], kind="stable")[:n]])
    return np.array(found, int).reshape(len(scores), n)
