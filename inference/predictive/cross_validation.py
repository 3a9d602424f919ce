"""Predictions of every document by a fit that has not seen it, and settings chosen by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from topiczoo.corpora import Corpus

from ..programs.progress import tqdm
from ..story.response import codes_of, in_order
from ..story.validation import check_seed
from .pointwise import pointwise
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
    parts, found = [], []
    for fit, left_out in _without_each(engine, story, corpus, in_order(corpus, y), folds, seed, settings):
        parts.append(left_out)
        found.append(fit.predict(corpus[left_out], **{"seed": seed, **(predict or {})}))
    order = np.argsort(np.concatenate(parts))
    if not isinstance(found[0], dict):
        return _together(found, order)
    return {name: _together([part[name] for part in found], order) for name in found[0]}


def _without_each(
    engine: Callable, story: str | Callable, corpus: Corpus, y: Any, folds: int, seed: int, settings: Mapping[str, Any]
) -> Iterator[tuple[Any, np.ndarray]]:
    """A fit without each part of the documents, and the rows of that part."""
    check_seed(seed)
    if not 2 <= folds <= len(corpus):
        raise ValueError(f"folds is {folds!r}; give a whole number from 2 to the number of documents, {len(corpus)}.")
    for left_out in np.array_split(np.random.default_rng(seed).permutation(len(corpus)), folds):
        kept = np.setdiff1d(np.arange(len(corpus)), left_out)
        yield engine(story, corpus[kept], rows_of(y, kept), seed=seed, **settings), left_out


def log_score(
    engine: Callable, story: str | Callable, corpus: Corpus, y: Any, *, folds: int = 5, seed: int = 0, **settings: Any
) -> float:
    """The mean logarithm of the density that fits which have not seen a document give its response, by cross-validation.

    The density is that of all chains and draws together (:func:`.pointwise.pointwise`); documents without a response do not
    count.
    """
    y, logs = in_order(corpus, y), []
    for fit, left_out in _without_each(engine, story, corpus, y, folds, seed, settings):
        found = pointwise(fit, corpus[left_out], rows_of(y, left_out), inner=None, seed=seed).log_likelihood
        if len(found) > 1:
            raise ValueError(f"The story observes {', '.join(map(repr, found))}; a search needs one response.")
        (each,) = found.values()
        logs.append(logsumexp(each, axis=(0, 1)) - np.log(each.shape[0] * each.shape[1]))
    return float(np.nanmean(np.concatenate(logs)))


def grid_search(
    engine: Callable, story: str | Callable, corpus: Corpus, y: Any, grid: Mapping[str, Sequence], *, folds: int = 5,
    seed: int = 0, score: str = "error", predict: Mapping[str, Any] | None = None, progress_bar: bool = True,
    **settings: Any,
) -> pd.DataFrame:  # fmt: skip
    """Errors or log scores of all combinations of some settings, by cross-validation, the best first.

    Parameters
    ----------
    engine, story, corpus, y, settings
        As in ``engine(story, corpus, y, **settings)``.
    grid
        Names of settings, of the engine or the story, and the values to try:
        ``grid_search(vem, medlda, corpus, y, {"weight": [1, 4, 16], "cost": [4, 16]}, margin="binary")``.
    score
        "error", or "log_score": the mean log-density of responses that the fit has not seen (:func:`log_score`), by which
        a fit that is too sure loses.
    folds, predict
        As in :func:`cross_predict`; ``predict`` is for the error.

    One column a setting and one of the score. ``error`` is the share of wrong classes or the mean squared error
    (``attrs["error"]`` says which) on documents that the fit has not seen. The first row as a dict is
    ``found.drop(columns="error").iloc[0].to_dict()``.
    """
    if not grid or any(isinstance(values, str) or not len(values) for values in grid.values()):
        raise ValueError(f"grid is {dict(grid)!r}; give lists of values, e.g. {{'weight': [1, 4, 16]}}.")
    if both := sorted(set(grid) & set(settings)):
        raise ValueError(f"{both[0]} is in the grid and given beside it; leave one of them out.")
    if score not in ("error", "log_score"):
        raise ValueError(f"score is {score!r}; choose from 'error', 'log_score'.")
    if score == "log_score" and predict is not None:
        raise ValueError("predict is given, and score='log_score' makes no predictions; leave one of them out.")
    rows, of_classes = [], False
    from sklearn.model_selection import ParameterGrid  # half a second of start-up

    combinations = list(ParameterGrid({name: list(values) for name, values in grid.items()}))
    for tried in tqdm(combinations, desc="settings", disable=not progress_bar):
        quiet = {"progress_bar": False, **settings, **tried}
        if score == "log_score":
            rows.append({**tried, score: log_score(engine, story, corpus, y, folds=folds, seed=seed, **quiet)})
            continue
        found = cross_predict(engine, story, corpus, y, folds=folds, seed=seed, predict=predict, **quiet)
        if isinstance(found, dict):
            raise ValueError(f"The story observes {', '.join(map(repr, found))}; a search needs one response.")
        of_classes = found.probabilities is not None or found.yes_or_no
        rows.append({**tried, "error": error(found, np.asarray(codes_of(found.classes, y), float))})
    table = pd.DataFrame(rows, columns=[*grid, score])
    table = table.sort_values(score, ascending=score == "error", kind="stable", ignore_index=True)
    if score == "error":
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
