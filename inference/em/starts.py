"""Where variational EM starts.

From topics that are all alike but for noise, as in the paper, the words decide what topics become, for there are hundreds of
them to one response, and no topic may ever tell documents of high and low response apart; which run does is left to the
seed. Started at the words of documents ordered by their response, topics tell them apart from the beginning.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.special import ndtri

from topiczoo.corpora import Corpus

FARTHEST, WIDTH = 2.0, 0.3  # where the outermost topics lie and how wide a topic is, in normal scores of the response


def topics_by_response(counts: Any, y: Any, num_topics: int) -> tuple[np.ndarray, np.ndarray]:
    """Expected counts [topics, terms] and shares of documents [documents, topics], topics in the order of y.

    Only the order of y counts: documents are placed by normal scores. Unlabelled ones belong to all topics alike.
    """
    columns, labelled = _columns(y, counts.shape[0])
    ranks = np.mean([pd.Series(column).rank().to_numpy() for column in columns[labelled].T], axis=0)
    scores = ndtri((ranks - 0.5) / max(labelled.sum(), 1))
    places = np.linspace(-FARTHEST, FARTHEST, num_topics) if num_topics > 1 else np.zeros(1)
    shares = np.full((len(columns), num_topics), 1.0 / num_topics)
    width = max(WIDTH, FARTHEST / num_topics)
    shares[labelled] = np.exp(-0.5 * ((np.clip(scores, -FARTHEST, FARTHEST)[:, None] - places) / width) ** 2)
    shares /= shares.sum(1, keepdims=True)
    return np.asarray(counts.T @ shares).T, shares


def coefficients_by_response(y: Any, shares: np.ndarray, outputs: int) -> np.ndarray:
    """For several predictors [topics, outputs]: how much more of each output a topic's documents have, in [-1, 1]."""
    columns, labelled = _columns(y, len(shares))
    columns, shares = columns[labelled], shares[labelled]
    if columns.shape[1] != outputs:  # codes of classes
        columns = np.asarray(columns[:, :1] == np.arange(outputs), float)
    mean = shares.T @ columns / shares.sum(0)[:, None]
    away = mean - columns.mean(0)
    return away / np.maximum(np.abs(away).max(), 1e-6)


def _columns(y: Any, num_documents: int) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of y, [documents, numbers], and which documents have them all."""
    columns = np.concatenate([np.asarray(leaf, float).reshape(num_documents, -1) for leaf in jax.tree.leaves(y)], 1)
    return columns, ~np.isnan(columns).any(1)


def dealt_counts(
    rng: np.random.Generator, corpus: Corpus, num_topics: int, label_shares: np.ndarray | None = None
) -> np.ndarray:
    """Counts [topics, terms] of documents dealt to topics by chance; with shares of labels [labels, documents] for each."""
    owner = rng.integers(0, num_topics, corpus.num_documents)
    dealt = (owner == np.arange(num_topics)[:, None]).astype(np.float32)
    if label_shares is None:
        return counts_of(dealt, corpus)
    return np.stack([counts_of(dealt * shares, corpus) for shares in label_shares])


def counts_of(shares: np.ndarray, corpus: Corpus) -> np.ndarray:
    """Expected counts [components, terms] of documents that belong to components by ``shares`` [components, documents]."""
    return np.asarray((corpus.counts.T @ shares.T).T, np.float64)
