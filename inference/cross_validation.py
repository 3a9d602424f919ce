"""Predictions of every document by a fit that has not seen it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from topiczoo.corpora import Corpus

from .prediction import Prediction


def cross_predict(
    engine: Callable, story: Callable, corpus: Corpus, y: Any, *, folds: int = 5, seed: int = 0,
    predict: Mapping[str, Any] | None = None, **settings: Any,
) -> Any:  # fmt: skip
    """Fit a story so many times, each time without one of ``folds`` parts of the documents, and predict that part.

    Parameters
    ----------
    engine, story, corpus, y, settings
        As in ``engine(story, corpus, y, **settings)``, e.g. ``cross_predict(gibbs, slda, corpus, y, num_topics=20)``.
    predict
        Keyword arguments of ``Fit.predict``.

    Returns a :class:`Prediction` of all documents in their order, or a dict of them where the story has several responses.
    Given to ``fit.predict(new, calibrate=(prediction, y))`` it makes intervals hold what they promise.
    """
    if not 2 <= folds <= len(corpus):
        raise ValueError(f"folds is {folds!r}; give a whole number from 2 to the number of documents, {len(corpus)}.")
    parts = np.array_split(np.random.default_rng(seed).permutation(len(corpus)), folds)
    found = []
    for left_out in parts:
        kept = np.setdiff1d(np.arange(len(corpus)), left_out)
        seen = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], y)
        fit = engine(story, corpus[kept], seen, seed=seed, **settings)
        found.append(fit.predict(corpus[left_out], **{"seed": seed, **(predict or {})}))
    order = np.argsort(np.concatenate(parts))
    if not isinstance(found[0], dict):
        return _together(found, order)
    return {name: _together([part[name] for part in found], order) for name in found[0]}


def _together(parts: list[Prediction], order: np.ndarray) -> Prediction:
    def join(what: str, axis: int = 0) -> Any:
        if getattr(parts[0], what) is None:
            return None
        return np.take(np.concatenate([getattr(part, what) for part in parts], axis), order, axis)

    return replace(
        parts[0], names=join("names"), mean=join("mean"), draws=join("draws", 1), expected=join("expected", 2),
        probabilities=join("probabilities"),
    )  # fmt: skip
