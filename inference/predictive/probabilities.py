"""Probabilities of classes where the model's own numbers are none.

A margin says exp(-weight loss) of a class, and Bayes' rule with words taken for independent counts the same evidence many
times: both are far surer of a class than they are right. One number, a temperature T, fixes that and changes no decision:

    p(c)  proportional to  exp(evidence_c / T)

(Guo et al. 2017; Platt 1999 with the intercept left out). It is fitted by maximum likelihood to documents of known class.
Without documents set aside they are those of the fit, predicted from their words alone. The fit has learned from them, so
that the temperature that suits them is too low for new ones: it is taken 1.5 times as high under a margin, 2 times for a
class above the words, which all words have learned from. (In fits of MedLDA to newsgroups, news, blogs and simulated
documents the best for new documents was 0.6 to 3.4 times that of the fitted ones, in the median 1.5; in fits of SAGE and
DiscLDA 1.4 to 4.7 times, in the median 2.2. One that is somewhat too high costs little, one that is too low much.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from .prediction import Prediction

LEAST = 20  # documents of known class
MOST = 500  # of the fit
UNDER_A_MARGIN, ABOVE_THE_WORDS = 1.5, 2.0  # times the temperature of fitted documents
REACH = -4.0, 8.0  # of log T


def temperature(evidence: np.ndarray, codes: np.ndarray) -> float:
    """T of the greatest likelihood, [documents, classes] and [documents].

    A class of n documents counts as n + 1 in n + classes (Platt's targets), so that documents that are all told rightly
    do not make it 0.
    """
    num_classes = evidence.shape[1]
    of_class = np.bincount(codes, minlength=num_classes)[codes][:, None]
    target = (of_class * np.eye(num_classes)[codes] + 1) / (of_class + num_classes)

    def loss(log_temperature: float) -> float:
        return -np.sum(target * log_softmax(evidence / np.exp(log_temperature), axis=1))

    from scipy.optimize import minimize_scalar  # a tenth of a second of start-up

    return float(np.exp(minimize_scalar(loss, bounds=REACH, method="bounded").x))


def tempered(prediction: Prediction, degrees: float, seed: int) -> Prediction:
    """The prediction of a class with calibrated probabilities, their mean, and draws from them; decisions stay."""
    shares = softmax(own_evidence(prediction) / degrees, axis=1)
    uniform = np.random.default_rng(seed).random(prediction.draws.shape)[..., None]
    draws = (uniform > shares.cumsum(1)[:, :-1]).sum(-1).astype(prediction.draws.dtype)
    mean = shares @ np.arange(shares.shape[1])
    return replace(prediction, probabilities=shares, temperature=degrees, mean=mean, draws=draws)


def own_evidence(prediction: Prediction) -> np.ndarray:
    """What the model itself says for each class, in logarithms, [documents, classes]."""
    if prediction.evidence is not None:
        return prediction.evidence
    assert prediction.probabilities is not None
    return np.log(np.maximum(prediction.probabilities.astype(float), 1e-30))


def from_aside(prediction: Prediction, y: Any) -> float:
    """The temperature that suits documents that the fit has not seen, and their classes as codes."""
    codes = np.asarray(y, float)
    if codes.shape != prediction.mean.shape:
        raise ValueError(
            f"y of calibrate has shape {codes.shape} and the predictions {prediction.mean.shape}; give one response each."
        )
    labelled = ~np.isnan(codes)
    if labelled.sum() < LEAST:
        raise ValueError(
            f"calibrate has {labelled.sum()} documents with a response; give {LEAST} at least, better some hundreds."
        )
    evidence, codes = own_evidence(prediction)[labelled], codes[labelled].astype(int)
    if codes.min() < 0 or codes.max() >= evidence.shape[1]:
        raise ValueError(
            f"y of calibrate has the class {codes[np.argmax(np.abs(codes))]}; give 0 to {evidence.shape[1] - 1}."
        )
    return temperature(evidence, codes)
