"""A prediction: the predictive distribution of a response for some documents."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from ..story.validation import check_share
from .conformal import Calibration, bounds, calibrated


def by_weight(draws: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """As many of the draws, each as often as its weight says: evenly spaced on the running sum, nothing left to chance."""
    places = (np.arange(len(draws)) + 0.5) / len(draws)
    return draws[np.minimum(np.searchsorted(np.cumsum(weights) / np.sum(weights), places), len(draws) - 1)]


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution of a response for some documents."""

    names: np.ndarray
    mean: np.ndarray  # [documents, ...]
    draws: np.ndarray  # [draws, documents, ...], chain after chain
    expected: np.ndarray  # E[y | draw] (the draw itself where it has no closed form), [chain, draw, documents, ...]
    probabilities: np.ndarray | None = None  # [documents, classes], for classes
    classes: np.ndarray | None = None  # names of the classes, where y came with names
    lowest: float = -np.inf  # the response is never below
    whole: bool = False  # whether it is a whole number
    yes_or_no: bool = False  # whether it is 0 or 1
    calibration: Calibration | None = None
    losses: np.ndarray | None = None  # expected loss of each class, [documents, classes], under a margin
    site: str = "y"  # of the response in the story
    evidence: np.ndarray | None = None  # the model's own word on each class in logarithms, where it is no probability
    temperature: float | None = None  # that made probabilities of the evidence, see :mod:`.probabilities`
    weights: np.ndarray | None = None  # of the chains, where they do not count alike; they sum to 1
    unsaid: list[str] = field(default_factory=list)  # warnings of raw intervals, each said once

    @property
    def code(self) -> np.ndarray:
        """The class decided on, as a number: the most probable, or under a margin that of the least expected loss."""
        if self.probabilities is None:
            raise ValueError("The response is not a class; use .mean or .draws.")
        return self.probabilities.argmax(-1) if self.losses is None else self.losses.argmin(-1)

    @property
    def label(self) -> np.ndarray:
        """The class decided on, by its name where y came with names."""
        return self.code if self.classes is None else self.classes[self.code]

    def take(self, places: np.ndarray) -> Prediction:
        """The prediction of some of its documents."""
        return replace(
            self, names=self.names[places], mean=self.mean[places], draws=self.draws[:, places],
            expected=self.expected[:, :, places],
            probabilities=None if self.probabilities is None else self.probabilities[places],
            losses=None if self.losses is None else self.losses[places],
            evidence=None if self.evidence is None else self.evidence[places],
        )  # fmt: skip

    def interval(self, probability: float = 0.9) -> np.ndarray:
        """Central predictive interval, [documents, ..., 2]; calibrated where the prediction is."""
        check_share(probability=probability)
        if self.calibration is None:
            while self.unsaid and self.probabilities is None:
                warnings.warn(self.unsaid.pop(), stacklevel=2)
            return np.stack(bounds(self.draws, probability), -1)
        support: dict[str, Any] = {"lowest": self.lowest, "whole": self.whole}
        return np.stack(calibrated(self.draws, probability, self.calibration, **support), -1)

    def frame(self, probability: float = 0.9) -> pd.DataFrame:
        """One row a document: mean, low, high; for classes the label and the probability of each.

        Where the model's own numbers are no probabilities and are not calibrated, their columns are share(class).
        """
        check_share(probability=probability)
        index = pd.Index(self.names, name="document")
        if self.probabilities is not None and self.probabilities.ndim == 2:
            names = range(self.probabilities.shape[1]) if self.classes is None else self.classes
            word = "p" if self.evidence is None or self.temperature is not None else "share"
            shares = {f"{word}({name})": share for name, share in zip(names, self.probabilities.T, strict=True)}
            return pd.DataFrame({"label": self.label, **shares}, index=index)
        if self.mean.ndim > 1:
            raise ValueError("The response has several parts; use .mean and .interval().")
        low, high = self.interval(probability).T
        return pd.DataFrame({"mean": self.mean, "low": low, "high": high}, index=index)
