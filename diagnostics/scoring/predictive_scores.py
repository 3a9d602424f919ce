"""Scores of predictions of the response of documents that the fit has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from topiczoo.corpora import Corpus
from topiczoo.inference.predictive.pointwise import pointwise
from topiczoo.inference.predictive.predicting import by_fitted

if TYPE_CHECKING:
    from topiczoo.inference import Fit

TINY = 1e-30  # a probability that is not told from 0
MEANINGS = {
    "r2": "1 - squared error of the predictive mean / that of the mean of these responses",
    "rmse": "root of the mean squared error of the predictive mean",
    "mae": "mean absolute error of the predictive median",
    "log_score": "mean log predictive density of the response given the words; higher is better",
    "crps": "continuous ranked probability score, in units of the response; lower is better",
    "coverage_50": "share of responses inside the central 50% interval",
    "coverage_90": "share of responses inside the central 90% interval",
    "accuracy": "share of responses that are the most probable class",
    "brier": "squared distance of the classes' probabilities from the outcome; lower is better",
}


def scores(
    fit: Fit, test: Corpus, y_test: Any, *, most_draws: int = 100, num_burn: int = 2, seed: int = 0
) -> pd.DataFrame:
    """How good the predictions of ``y_test`` from the words of ``test`` are.

    Rows are r2, rmse, mae, log_score, crps, coverage_50 and coverage_90 for a number, accuracy, brier and log_score for
    a class; with several responses, or one of several parts, the index has the response in front. Columns are the value,
    its standard error over documents (R^2: jackknife; NaN where one document cannot tell) and the meaning. Unlabelled
    documents are skipped. R^2 of responses that do not vary is NaN: there is nothing to explain. The log score is the
    logarithm of the mean density over draws and topics; that of a class and its Brier score are of the probabilities that
    ``fit.predict`` gives.
    """
    settings: dict[str, Any] = {"most_draws": most_draws, "num_burn": num_burn, "seed": seed}
    found = pointwise(fit, test, y_test, inner=None, predictions=True, **settings)
    frames = {}
    for name, own in found.predictions.items():
        if name not in found.observed:  # y_test need not have all of them
            continue
        truth, prediction = found.observed[name], by_fitted(fit, own, seed=seed)
        logs = found.log_likelihood[name]
        log_density = logsumexp(logs, axis=(0, 1)) - np.log(logs.shape[0] * logs.shape[1])
        if prediction.probabilities is not None and prediction.probabilities.ndim == 2:
            frames[name] = class_scores(truth, prediction.code, prediction.probabilities)
        elif truth.ndim == 1:
            frames[name] = real_scores(truth, prediction.mean, prediction.draws, log_density)
        else:
            for part in np.ndindex(truth.shape[1:]):
                at = (slice(None), *part)
                label = f"{name}[{', '.join(map(str, part))}]"
                # the density is of all parts together
                frames[label] = real_scores(truth[at], prediction.mean[at], prediction.draws[(slice(None), *at)], None)
    if len(frames) == 1:
        return next(iter(frames.values()))
    return pd.concat(frames, names=["response", "score"])


def real_scores(y: np.ndarray, mean: np.ndarray, draws: np.ndarray, log_density: np.ndarray | None) -> pd.DataFrame:
    """Scores of a number: y and mean [documents], draws [draws, documents]."""
    labelled = _labelled(y)
    y, mean, draws = y[labelled], mean[labelled].astype(float), draws[:, labelled].astype(float)
    squared = (y - mean) ** 2
    mse, mse_error = _mean(squared)
    root = np.sqrt(mse)
    rows = {
        "r2": r_squared(y, mean),
        "rmse": (root, mse_error / (2 * root) if root > 0 else mse_error),
        "mae": _mean(np.abs(y - np.median(draws, axis=0))),
    }
    if log_density is not None:
        rows["log_score"] = _mean(log_density[labelled])
    rows["crps"] = _mean(crps(y, draws))
    for level in (50, 90):
        low, high = np.quantile(draws, [0.5 - level / 200, 0.5 + level / 200], axis=0)
        rows[f"coverage_{level}"] = _share((low <= y) & (y <= high))
    frame = _frame(rows)
    if np.ptp(y) == 0:
        frame.loc["r2", "meaning"] = "not defined: these responses do not vary"
    return frame


def class_scores(y: np.ndarray, code: np.ndarray, probabilities: np.ndarray) -> pd.DataFrame:
    """Scores of a class: y and the class decided on [documents] counted from 0, probabilities [documents, classes]."""
    labelled = _labelled(y)
    label, probabilities = y[labelled].astype(int), probabilities[labelled].astype(float)
    outcome = np.eye(probabilities.shape[1])[label]
    return _frame({
        "accuracy": _share(code[labelled] == label),
        "brier": _mean(((probabilities - outcome) ** 2).sum(1)),
        "log_score": _mean(np.log(np.maximum(probabilities[np.arange(len(label)), label], TINY))),
    })  # fmt: skip


def r_squared(y: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    """1 - SSE / SST and its jackknife error over documents; NaN where y does not vary."""
    n, errors, distances = len(y), (y - mean) ** 2, (y - y.mean()) ** 2
    if np.ptp(y) == 0:
        return np.nan, np.nan
    if n < 3:
        return float(1 - errors.sum() / distances.sum()), np.nan
    # without document i: SST - n / (n - 1) (y_i - mean)^2
    rest = distances.sum() - n / (n - 1) * distances
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.where(rest > 1e-9 * distances.sum(), 1 - (errors.sum() - errors) / rest, np.nan)
    return float(1 - errors.sum() / distances.sum()), float(np.sqrt((n - 1) * left_out.var()))


def crps(y: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """E|x - y| - E|x - x'| / 2 for independent x and x' from the prediction, [documents]; unbiased from draws."""
    n = len(draws)
    if n < 2:
        return np.full(len(y), np.nan)
    # sum over pairs of |x_i - x_j| = sum_i (2 i - n + 1) x_(i), i counted from 0
    pairs = (2 * np.arange(n) - n + 1) @ np.sort(draws, axis=0)
    return np.abs(draws - y).mean(0) - pairs / (n * (n - 1))


def _labelled(y: np.ndarray) -> np.ndarray:
    labelled = ~np.isnan(y)
    if not labelled.any():
        raise ValueError("y_test is NaN for every document; give some responses to score the predictions by.")
    return labelled


def _mean(values: np.ndarray) -> tuple[float, float]:
    n = len(values)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan


def _share(hits: np.ndarray) -> tuple[float, float]:
    """A share and its standard error, with two hits and two misses added to it: never 0 (Agresti & Coull 1998)."""
    n, centre = len(hits), (hits.sum() + 2) / (len(hits) + 4)
    return float(hits.mean()), float(np.sqrt(centre * (1 - centre) / (n + 4)))


def _frame(rows: dict[str, tuple[float, float]]) -> pd.DataFrame:
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "error"]).rename_axis("score")
    return frame.assign(meaning=[MEANINGS[name] for name in frame.index])
