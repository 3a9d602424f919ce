"""What the report's document browser shows: words with the topics they came from, and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.posterior.tables import made_of_draws

from ..checks.response_checks import CLASS, kind, observed_parts

MOST_WORDS = 40_000  # distinct words in all documents together: what keeps the page small
MOST_SHARES = 8  # topics of a document that are told
LEAST_SHARE = 0.01  # of a topic in a document to be told


def browsed(
    fit: Fit, corpus: Corpus, y: Any, rows: np.ndarray, prediction: Any, beta: np.ndarray, *, chains: Sequence[int],
    fitted: bool, scale: Sequence[float] = (0.0, 1.0), seed: int = 0,
) -> tuple[list[dict[str, Any]], dict[str, list[float | None]]]:  # fmt: skip
    """Some documents of a corpus as plain data, and the range of each response over all of them.

    A document has its name, its words as (term, count, topic, the topic's share of it in percent), how many were left out,
    its text or None, its topics' shares, and its responses.

    Parameters
    ----------
    corpus, y, rows, prediction
        Documents, all their responses (or None), which of them are shown, and the prediction of those (or None).
    beta, chains
        The topics [topics, terms], and the chains over which they are averaged.
    fitted
        Whether the corpus is the one that was fitted, so that its proportions are in the posterior.
    scale
        Shift and scale that turn the fit's responses into the units of the data.
    """
    chosen = corpus[rows].with_vocabulary(fit.vocabulary)
    theta = proportions(fit, corpus, rows, chains, fitted, seed)
    one_topic = not fit.graph.has_words  # all words of a document share its topic
    most = max(10, MOST_WORDS // max(len(rows), 1))
    documents = []
    for place in range(len(rows)):
        start, end = chosen.counts.indptr[place : place + 2]
        columns, counts = chosen.counts.indices[start:end], chosen.counts.data[start:end]
        if len(columns) > most:
            kept = np.sort(np.argsort(-counts, kind="stable")[:most])
            columns, counts = columns[kept], counts[kept]
        weights = np.repeat(theta[place][None], len(columns), 0) if one_topic else theta[place] * beta[:, columns].T
        weights = weights / np.maximum(weights.sum(1, keepdims=True), 1e-30)
        topics, told = weights.argmax(1), np.rint(100 * weights.max(1, initial=0)).astype(int)
        words = zip(map(str, fit.vocabulary[columns]), counts.tolist(), topics.tolist(), told.tolist(), strict=True)
        documents.append({
            "name": str(chosen.names[place]), "words": list(words), "left": int(end - start - len(columns)),
            "text": None if corpus.texts is None else str(corpus.texts[rows[place]]), "responses": [],
            "shares": [
                (int(k), float(theta[place, k])) for k in np.argsort(-theta[place], kind="stable")[:MOST_SHARES]
                if theta[place, k] >= LEAST_SHARE
            ],
        })  # fmt: skip
    return documents, _add_responses(documents, y, rows, prediction, scale)


def proportions(
    fit: Fit, corpus: Corpus, rows: np.ndarray, chains: Sequence[int], fitted: bool, seed: int
) -> np.ndarray:
    """Mean topic proportions of some documents, [documents, topics]: the posterior's, or folded in."""
    if fitted and (site := fit.graph.theta) in fit.sites:
        return mean_over(fit, site, chains)[rows]
    if fitted and (theta := made_of_draws(fit, "theta")) is not None:
        return theta[list(chains)].mean((0, 1))[rows]
    return np.asarray(fit.transform(corpus[rows], seed=seed))


def mean_over(fit: Fit, site: str, chains: Sequence[int]) -> np.ndarray:
    """The posterior mean of a site over some chains."""
    if site in fit.means:
        return fit.means[site][list(chains)].mean(0)
    return {**fit.snapshots, **fit.draws}[site][list(chains)].mean((0, 1))


def _add_responses(
    documents: list[dict], y: Any, rows: np.ndarray, prediction: Any, scale: Sequence[float]
) -> dict[str, list[float | None]]:
    """Predictions and what was observed into the documents; the range of each response over all of them."""
    ranges: dict[str, list[float | None]] = {}
    if prediction is None:
        return ranges
    shift, unit = scale
    for name, (part, values) in observed_parts(prediction, y).items():
        shown = None if values is None else values[rows]
        if kind(part) == CLASS and part.probabilities.ndim == 2:
            names = np.arange(part.probabilities.shape[1]) if part.classes is None else part.classes.astype(str)
            for place, (item, code, shares) in enumerate(zip(documents, part.code, part.probabilities, strict=True)):
                truth = None if shown is None or np.isnan(shown[place]) else names[int(shown[place])].item()
                guess, sure = names[code].item(), round(float(shares[code]), 3)
                item["responses"].append({"name": name, "y": truth, "label": guess, "probability": sure})
            continue
        mean, interval = part.mean.reshape(len(documents), -1), part.interval(0.9).reshape(len(documents), -1, 2)
        observed = np.full(mean.shape, np.nan) if shown is None else shown.reshape(len(documents), -1).astype(float)
        for column in range(mean.shape[1]):
            label = name if mean.shape[1] == 1 else f"{name}[{column}]"
            numbers = np.column_stack([observed[:, column], mean[:, column], interval[:, column]]) * unit + shift
            ranges[label] = [_short(np.nanmin(numbers)), _short(np.nanmax(numbers))]
            for item, row in zip(documents, numbers, strict=True):
                fields = zip(("y", "mean", "low", "high"), map(_short, row), strict=True)
                item["responses"].append({"name": label, **dict(fields)})
    return ranges


def _short(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.5g}")
