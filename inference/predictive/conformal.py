"""Predictive intervals that hold what they promise: conformal prediction around the model's own interval.

With responses y_i of documents that the fit has not seen, and the model's interval [low_i, high_i] for each, the score

    s_i = max(low_i - y_i, y_i - high_i) / (high_i - low_i)

says by how much of its width the interval would have to grow (or could shrink) to just hold y_i. Grown by the score that a
share p of them do not exceed, intervals of new documents hold their response with probability p, whatever is wrong with the
model, as long as new documents are like the old (Romano, Patterson & Candes 2019, with widths in the place of constants).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDING = 1e-6  # by which the end of an interval of counts may miss the count that it has grown for


@dataclass(frozen=True)
class Calibration:
    """Predictive draws of documents that the fit has not seen, and their responses."""

    draws: np.ndarray  # [draws, documents, ...]
    y: np.ndarray  # [documents, ...]

    @classmethod
    def of(cls, draws: np.ndarray, y: Any) -> Calibration:
        """Draws [draws, documents, ...] and responses, NaN where one is missing."""
        y = np.asarray(y, float)
        if y.shape != draws.shape[1:]:
            raise ValueError(
                f"y of calibrate has shape {y.shape} and the predictions {draws.shape[1:]}; give one response each."
            )
        labelled = ~np.isnan(y.reshape(len(y), -1)).any(1)
        if labelled.sum() < 20:
            raise ValueError(
                f"calibrate has {labelled.sum()} documents with a response; give 20 at least, better some hundreds."
            )
        return cls(draws[:, labelled], y[labelled])

    def growth(self, probability: float) -> np.ndarray:
        """By how much of their width intervals must grow on either side, one number for each part of the response."""
        low, high = bounds(self.draws, probability)
        score = np.sort(np.maximum(low - self.y, self.y - high) / widths(low, high), axis=0)
        # the score of the next document is as likely to be in any place among these
        place = int(np.ceil((len(score) + 1) * probability)) - 1
        if place >= len(score):
            raise ValueError(
                f"{len(score)} documents in calibrate are too few for an interval of {probability}; give "
                f"{int(np.ceil(probability / (1 - probability)))} at least, or ask for less."
            )
        return score[place]


def bounds(draws: np.ndarray, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """Central interval of the draws, over their first axis."""
    tail = (1 - probability) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def widths(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """high - low, kept above zero: draws of a count can all be the same."""
    width = high - low
    return np.maximum(width, 1e-3 * np.mean(width, axis=0) + np.finfo(float).tiny)


def calibrated(
    draws: np.ndarray, probability: float, calibration: Calibration, *, lowest: float = -np.inf, whole: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The central interval grown by what the calibration asks for, not below ``lowest``; whole numbers for counts."""
    low, high = bounds(draws, probability)
    step = calibration.growth(probability) * widths(low, high)
    low, high = low - step, high + step
    low, high = np.minimum(low, (low + high) / 2), np.maximum(high, (low + high) / 2)  # shrunk past each other
    if whole:
        low, high = np.ceil(low - ROUNDING), np.floor(high + ROUNDING)
    return np.maximum(low, lowest), high
