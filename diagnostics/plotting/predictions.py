"""Observed responses beside what was predicted: numbers with their intervals, classes by how often they come true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import norm

from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.inference.story.validation import check_seed, check_share

from ..checks.response_checks import CLASS, kind, labelled, observed_parts, take
from .style import GREY, INK, PALE, PALETTE, canvas, finished, short, styled

MOST_SHOWN = 250  # documents with an interval
MOST_CLASSES = 8  # panels
BINS, LEAST = 10, 12  # bins of probabilities, and documents in one
HIGHEST = 0.2  # of the panel: the most frequent of the predicted probabilities


def plot_predictions(
    fit: Fit | Prediction, corpus: Corpus | None = None, y: Any = None, *, probability: float = 0.9, seed: int = 0,
    ax: Any = None, figure_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Observed responses against predicted ones, with predictive intervals; for classes their calibration.

    Numbers: one point a document, the line is its predictive interval, and it holds the response where it meets the
    diagonal; at most 250 documents are drawn, the title counts all. Classes: documents of like predicted probability of a
    class together, and how many of them are of it, with 90% intervals (Wilson's); calibrated probabilities lie on the
    diagonal.

    Parameters
    ----------
    fit
        A Fit, or a Prediction (of ``corpus``, which is then left out).
    corpus, y
        Documents and their responses; those of the fit by default, whose responses the fit has seen: documents that were
        held out say more. Unlabelled documents are left out.
    probability
        Of the intervals of numbers.

    Returns
    -------
    The axes, one a response or class.
    """
    check_share(probability=probability)
    check_seed(seed)
    prediction, y, units = _predicted(fit, corpus, y, seed)
    panels = []
    for name, (part, values) in observed_parts(prediction, y).items():
        panels += (_classes if kind(part) == CLASS else _columns)(
            name, part, np.asarray(values, float), probability, units
        )
    with styled() as plt:
        axes = canvas(plt, ax, figure_kwargs, len(panels), 4, (4.2, 4.0) if len(panels) == 1 else (3.0, 3.1))
        for axis, draw in zip(axes, panels, strict=True):
            draw(axis)
        return finished(axes)


def _predicted(fit: Any, corpus: Any, y: Any, seed: int) -> tuple[Any, Any, tuple[float, float]]:
    """A prediction of documents with responses, these, and the shift and scale of the data's own units."""
    if isinstance(fit, Prediction | Mapping):
        if corpus is not None or y is None:
            raise ValueError("A prediction has its documents; give their responses as y=..., and no corpus.")
        return fit, _codes(fit, y), (0.0, 1.0)
    if not isinstance(fit, Fit):
        raise TypeError(f"fit is a {type(fit).__name__}; give a Fit, or a Prediction with y=... .")
    if (corpus is None) != (y is None):
        raise ValueError("corpus and y belong together; give both, or neither for the documents of the fit.")
    if fit.y is None:
        raise ValueError(f"The story {fit.story.name!r} was fitted without a response; there is none to compare with.")
    corpus, y = (fit.corpus, fit.y) if corpus is None else (corpus, fit.response.encode(y))
    rows = labelled(y)
    if not len(rows):
        raise ValueError("y is NaN for every document; give responses to compare the predictions with.")
    shift, scale = fit.info.get("standardised", (0.0, 1.0))
    return fit.predict(corpus[rows], seed=seed), take(y, rows), (float(shift), float(scale))


def _codes(prediction: Any, y: Any) -> Any:
    """Responses of a prediction as numbers; classes by their place among its names."""
    if isinstance(y, Mapping) or isinstance(prediction, Mapping) or prediction.classes is None:
        return y
    given = np.asarray(y)
    if given.dtype.kind in "fiu":
        return given
    codes = {str(name): code for code, name in enumerate(prediction.classes)}
    if unknown := [label for label in given if str(label) not in codes]:
        raise ValueError(f"y has {unknown[0]!r}, which is none of the classes {list(codes)}; leave such documents out.")
    return np.array([codes[str(label)] for label in given], float)


def _classes(name: str, part: Prediction, values: np.ndarray, *_: Any) -> list[Callable[[Any], None]]:
    """A panel for each class, or for the second of two."""
    assert part.probabilities is not None
    if part.probabilities.ndim != 2:
        raise ValueError("The response is several classes a document; plot one of them.")
    names = np.arange(part.probabilities.shape[1]) if part.classes is None else part.classes
    codes = range(len(names))[:MOST_CLASSES] if len(names) > 2 else [1]
    word = "share" if part.evidence is not None and part.temperature is None else "probability"
    known = ~np.isnan(values)
    return [
        partial(_calibration, f"{name} = {names[code]}", word, values[known] == code, part.probabilities[known, code])
        for code in codes
    ]


def _columns(
    name: str, part: Prediction, values: np.ndarray, probability: float, units: tuple[float, float]
) -> list[Callable[[Any], None]]:
    """A panel for each column of numbers."""
    shift, scale = units
    mean, low, high, observed = (
        (numbers * scale + shift).reshape(len(values), -1)
        for numbers in (part.mean, *np.moveaxis(part.interval(probability), -1, 0), values)
    )
    found: list[Callable[[Any], None]] = []
    for column in range(mean.shape[1]):
        known = ~np.isnan(observed[:, column])
        label = name if values.ndim == 1 else f"{name}[{column}]"
        found.append(
            partial(_numbers, label, probability, *(each[known, column] for each in (mean, low, high, observed)))
        )
    return found


def _numbers(
    name: str, probability: float, mean: np.ndarray, low: np.ndarray, high: np.ndarray, observed: np.ndarray, axis: Any
) -> None:
    inside = (low <= observed) & (observed <= high)
    some = np.sort(np.random.default_rng(0).permutation(len(observed))[:MOST_SHOWN])
    for held, colour, label in ((True, PALETTE[0], "interval holds it"), (False, PALETTE[5], "interval misses it")):
        own = some[inside[some] == held]
        axis.hlines(observed[own], low[own], high[own], color=colour, alpha=0.25, linewidth=0.9)
        marker = "o" if held else "D"
        axis.plot(mean[own], observed[own], marker, color=colour, markersize=3.2, markeredgewidth=0, label=label)
    ends = [min(low[some].min(), observed[some].min()), max(high[some].max(), observed[some].max())]
    axis.plot(ends, ends, color=INK, linewidth=0.8, zorder=0)
    spread = np.sum((observed - observed.mean()) ** 2)
    told = f"R² {1 - np.sum((observed - mean) ** 2) / spread:.2f}; " if spread > 0 else ""
    axis.set_title(f"{told}{inside.mean():.0%} of {len(observed)} inside their {probability:.0%} interval", loc="left")
    axis.set(xlabel=f"predicted {short(name)}", ylabel=f"observed {short(name)}")
    axis.legend(frameon=False, fontsize=8, loc="upper left")


def _calibration(name: str, word: str, truth: np.ndarray, chance: np.ndarray, axis: Any) -> None:
    alike = np.array_split(np.argsort(chance, kind="stable"), int(np.clip(len(chance) // LEAST, 1, BINS)))
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, zorder=1)
    predicted = np.array([chance[own].mean() for own in alike])
    share = np.array([truth[own].mean() for own in alike])
    low, high = wilson(share, np.array([len(own) for own in alike]))
    number, edges = np.histogram(chance, np.linspace(0, 1, 21))
    axis.bar(edges[:-1], number / number.max() * HIGHEST, width=0.05, align="edge", color=PALE, zorder=0)
    axis.vlines(predicted, low, high, color=PALETTE[0], linewidth=1.4)
    axis.plot(predicted, share, "o-", color=PALETTE[0], markersize=4, linewidth=0.8)
    axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axis.set(xlabel=f"predicted {word} (grey: how often)", ylabel="observed share")
    axis.set_title(f"{short(name, 30)} ({int(truth.sum())} of {len(truth)})", loc="left")


def wilson(share: np.ndarray, number: np.ndarray, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a binomial probability from the share of successes in so many trials."""
    z = norm.ppf((1 + probability) / 2)
    centre, width = share + z**2 / (2 * number), z * np.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    return (centre - width) / (1 + z**2 / number), (centre + width) / (1 + z**2 / number)
