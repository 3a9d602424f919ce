"""Pictures of responses: observed beside predicted, calibration of numbers and of classes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..plotting.predictions import BINS, LEAST, MOST_SHOWN, wilson
from .charts import Mark, band, bars, chart, dots, line, plain, span_of, spans

GRID = np.arange(1, 100) / 100
SIZE = (340, 220)


def scatter(name: str, observed: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Observed against predicted numbers with predictive intervals; those that miss have another colour."""
    some = np.sort(np.random.default_rng(0).permutation(len(observed))[:MOST_SHOWN])
    observed, mean, low, high = (part[some] for part in (observed, mean, low, high))
    inside = (low <= observed) & (observed <= high)
    ends = np.array(span_of(observed, low, high))
    marks: list[Mark] = [line(ends, ends, "rule")]
    for held, look in ((True, "0"), (False, "1")):
        own = inside == held
        marks.append(spans(observed[own], low[own], high[own], f"c{look} faint", upright=False))
        marks.append(dots(mean[own], observed[own], f"f{look}"))
    told = f"Observed against predicted {plain(name, 80)}."
    return chart(marks, told, x=tuple(ends), y=tuple(ends), x_name="predicted", y_name="observed", size=SIZE)


def distribution(name: str, observed: np.ndarray, draws: np.ndarray) -> str:
    """The share of responses up to a number: observed ones, over the band of 90% of predicted corpora [draw, documents]."""
    ends = span_of(observed, np.quantile(draws, [0.001, 0.999]))
    grid = np.linspace(*ends, 120)
    predicted = np.stack([np.searchsorted(np.sort(row), grid, side="right") for row in draws]) / draws.shape[1]
    low, high = np.quantile(predicted, [0.05, 0.95], axis=0)
    own = np.searchsorted(np.sort(observed), grid, side="right") / len(observed)
    told = f"Share of documents with {plain(name, 80)} up to a number, observed and predicted."
    marks = [band(grid, low, high), line(grid, own)]
    return chart(marks, told, x=ends, y=(0, 1), x_name=name, y_name="share up to", size=SIZE)


def pit(observed: np.ndarray, draws: np.ndarray, seed: int = 0) -> np.ndarray:
    """Where each response falls among its predictive draws [draw, documents], from 0 to 1; equal numbers by lot."""
    below, equal = (draws < observed).mean(0), (draws == observed).mean(0)
    room = 1 / (len(draws) + 1)  # a response beyond all draws is no certainty
    uniform = np.random.default_rng(seed).random(len(observed))
    return np.clip(below * (1 - room) + (equal * (1 - room) + room) * uniform, 0, 1)


@lru_cache
def uniform_band(number: int, probability: float = 0.99) -> np.ndarray:
    """Half the width of a band that holds the ECDF of so many uniform numbers minus the uniform one, at GRID."""
    deviation = np.sqrt(GRID * (1 - GRID) / number)
    rng, largest = np.random.default_rng(0), []
    for _ in range(400):
        made = np.searchsorted(np.sort(rng.random(number)), GRID, side="right") / number - GRID
        largest.append((np.abs(made) / deviation).max())
    return np.quantile(largest, probability) * deviation


def calibration(name: str, places: np.ndarray, coverage: bool = False) -> str:
    """The ECDF of where responses fall, minus the uniform one, in a band for calibrated predictions.

    With ``coverage`` of central intervals: above 0 more responses lie in them than should.
    """
    values = np.abs(2 * places - 1) if coverage else places
    found = np.searchsorted(np.sort(values), GRID, side="right") / len(values) - GRID
    half = uniform_band(len(values))
    what = "Coverage of central intervals" if coverage else "Calibration"
    x_name = "level of the interval" if coverage else "place among the predicted"
    marks = [band(GRID, -half, half), line(GRID, found)]
    told = f"{what} of {plain(name, 80)}: the difference from what it should be."
    return chart(marks, told, x=(0, 1), y=span_of(found, half, -half), x_name=x_name, y_name="difference", size=SIZE)


def of_class(name: str, truth: np.ndarray, chance: np.ndarray) -> str:
    """Documents of like predicted probability together, and how many of them are of the class, with 90% intervals."""
    alike = np.array_split(np.argsort(chance, kind="stable"), int(np.clip(len(chance) // LEAST, 1, BINS)))
    predicted = np.array([chance[own].mean() for own in alike])
    share = np.array([truth[own].mean() for own in alike])
    low, high = wilson(share, np.array([len(own) for own in alike]))
    number, edges = np.histogram(chance, np.linspace(0, 1, 21))
    marks = [
        bars(edges[:-1], edges[1:], 0.2 * number / max(number.max(), 1), "pale"),
        line([0, 1], [0, 1], "rule"), spans(predicted, low, high), line(predicted, share), dots(predicted, share),
    ]  # fmt: skip
    told = f"How often {plain(name, 80)} comes true, by its predicted probability."
    return chart(marks, told, x=(0, 1), y=(0, 1), x_name="predicted probability", y_name="observed share", size=SIZE)
