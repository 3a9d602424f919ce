"""Predictions of every document by a fit that has not seen it, and settings chosen by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from topiczoo.corpora import Corpus

from ..story.response import codes_of, in_order
from ..story.validation import check_seed
from .prediction import Prediction
from .selection import error


def cross_predict(
    engine: Callable, story: str | Callable, corpus: Corpus, y: Any, *, folds: int = 5, seed: int = 0,
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
    check_seed(seed)
    if not 2 <= folds <= len(corpus):
        raise ValueError(f"folds is {folds!r}; give a whole number from 2 to the number of documents, {len(corpus)}.")
    y = in_order(corpus, y)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(corpus)), folds)
    found = []
    for left_out in parts:
        kept = np.setdiff1d(np.arange(len(corpus)), left_out)
        seen = rows_of(y, kept)
        fit = engine(story, corpus[kept], seen, seed=seed, **settings)
        found.append(fit.predict(corpus[left_out], **{"seed": seed, **(predict or {})}))
    order = np.argsort(np.concatenate(parts))
    if not isinstance(found[0], dict):
        return _together(found, order)
    return {name: _together([part[name] for part in found], order) for name in found[0]}


def grid_search(
    engine: Callable, story: str | Callable, corpus: Corpus, y: Any, grid: Mapping[str, Sequence], *, folds: int = 5,
    seed: int = 0, predict: Mapping[str, Any] | None = None, progress_bar: bool = True, **settings: Any,
) -> pd.DataFrame:  # fmt: skip
    """Errors of all combinations of some settings, by cross-validation, the best first.

    Parameters
    ----------
    engine, story, corpus, y, settings
        As in ``engine(story, corpus, y, **settings)``.
    grid
        Names of settings, of the engine or the story, and the values to try:
        ``grid_search(vem, medlda, corpus, y, {"weight": [1, 4, 16], "cost": [4, 16]}, margin="binary")``.
    folds, predict
        As in :func:`cross_predict`.

    One column a setting and ``error``, the share of wrong classes or the mean squared error (``attrs["error"]`` says which)
    on documents that the fit has not seen. The first row as a dict is ``found.drop(columns="error").iloc[0].to_dict()``.
    """
    if not grid or any(isinstance(values, str) or not len(values) for values in grid.values()):
        raise ValueError(f"grid is {dict(grid)!r}; give lists of values, e.g. {{'weight': [1, 4, 16]}}.")
    if both := sorted(set(grid) & set(settings)):
        raise ValueError(f"{both[0]} is in the grid and given beside it; leave one of them out.")
    rows, of_classes = [], False
    from sklearn.model_selection import ParameterGrid  # half a second of start-up

    combinations = list(ParameterGrid({name: list(values) for name, values in grid.items()}))
    for tried in tqdm(combinations, desc="settings", disable=not progress_bar):
        quiet = {"progress_bar": False, **settings, **tried}
        found = cross_predict(engine, story, corpus, y, folds=folds, seed=seed, predict=predict, **quiet)
        if isinstance(found, dict):
            raise ValueError(f"The story observes {', '.join(map(repr, found))}; a search needs one response.")
        of_classes = found.probabilities is not None or found.yes_or_no
        rows.append({**tried, "error": error(found, np.asarray(codes_of(found.classes, y), float))})
    table = pd.DataFrame(rows, columns=[*grid, "error"]).sort_values("error", kind="stable", ignore_index=True)
    table.attrs["error"] = "share of wrong classes" if of_classes else "mean squared error"
    return table


def rows_of(y: Any, kept: np.ndarray) -> Any:
    """Some documents' responses; categories keep their order, and those that none of these has."""
    if y is None or isinstance(y, dict):
        return y and {name: rows_of(part, kept) for name, part in y.items()}
    y = y.array if isinstance(y, pd.Series) else y
    return y[kept] if isinstance(y, pd.Categorical) else np.asarray(y)[kept]


def _together(parts: list[Prediction], order: np.ndarray) -> Prediction:
    def join(what: str, axis: int = 0) -> Any:
        if getattr(parts[0], what) is None:
            return None
        return np.take(np.concatenate([getattr(part, what) for part in parts], axis), order, axis)

    return replace(
        parts[0], names=join("names"), mean=join("mean"), draws=join("draws", 1), expected=join("expected", 2),
        probabilities=join("probabilities"), losses=join("losses"),
        evidence=join("evidence"), weights=None,
    )  # fmt: skip
