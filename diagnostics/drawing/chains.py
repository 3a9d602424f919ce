"""Pictures of chains: draws in their order, ranks of chains among each other, and what a variational engine climbs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import rankdata

from .charts import COLOURS, Mark, band, chart, dots, line, plain, span_of

MOST_DRAWN = 300  # draws of a chain in a picture
SIZE = (340, 120)


def trace(name: str, values: np.ndarray) -> str:
    """Draws [chain, draw] in their order, a colour a chain."""
    number = values.shape[1]
    shown = np.unique(np.linspace(0, number - 1, min(number, MOST_DRAWN)).astype(int))
    marks = [line(shown, chain[shown], f"c{place % COLOURS}") for place, chain in enumerate(np.asarray(values, float))]
    told = f"Trace of {plain(name, 100)}; the table below has the numbers."
    return chart(marks, told, x=(0, max(number - 1, 1)), y=span_of(values), size=SIZE, y_ticks=3)


def ranks(name: str, values: np.ndarray) -> str:
    """Whether each chain visits all ranks of the pooled draws alike: ECDF of its ranks minus that of uniform ones.

    NB: not arviz-plots' ``plot_rank``: in 0.8 it divides ranks by each chain's own largest, which hides chains that live
    apart, and its band for two chains holds everything.
    """
    grid, half = rank_band(*values.shape)
    found = rank_differences(values, grid)
    marks: list[Mark] = [band(grid, -half, half)]
    marks += [line(grid, difference, f"c{place % COLOURS}") for place, difference in enumerate(found)]
    told = f"Ranks of {plain(name, 100)}; the table below has the numbers."
    return chart(marks, told, x=(0, 1), y=span_of(found, half, -half), size=SIZE, y_ticks=3)


def rank_differences(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """For each chain the ECDF of its draws' ranks among all draws, minus the uniform one, [chain, grid]."""
    pooled = rankdata(values).reshape(values.shape) / values.size
    return np.stack([np.searchsorted(np.sort(chain), grid, side="right") / len(chain) for chain in pooled]) - grid


@lru_cache
def rank_band(num_chains: int, num_draws: int, probability: float = 0.99) -> tuple[np.ndarray, np.ndarray]:
    """A grid and half the width of the band that holds all chains' differences, were draws independent and chains alike.

    The width follows the standard deviation at each point; its factor is found by dealing ranks out at random.
    """
    total = num_chains * num_draws
    grid = np.arange(1, 100) / 100
    deviation = np.sqrt(grid * (1 - grid) / num_draws * (total - num_draws) / (total - 1))
    rng, largest = np.random.default_rng(0), []
    for _ in range(400):
        dealt = rank_differences(rng.permutation(total).reshape(num_chains, num_draws), grid)
        largest.append((np.abs(dealt) / deviation).max())
    return grid, np.quantile(largest, probability) * deviation


def objective(values: Any, name: str, unit: str) -> list[str]:
    """What a variational engine climbs or descends, step by step, and its last half by itself."""
    values = np.asarray(values, float)
    found = []
    for start in (0, len(values) // 2):
        part = np.unique(np.linspace(start, len(values) - 1, MOST_DRAWN).astype(int))
        told = f"The {name} by {unit}{', its second half' if start else ''}."
        marks = [line(part, values[part])]
        ends = (start, max(len(values) - 1, start + 1))
        found.append(chart(marks, told, x=ends, y=span_of(values[part]), x_name=unit, size=(340, 150)))
    return found


def curve(x: Any, y: Any, x_name: str, told: str, mark: int) -> str:
    """One curve from 0 up with a place on it marked."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    marks = [line(x, y), dots(x[[mark]], y[[mark]], "f1", 4)]
    return chart(marks, told, x=span_of(x, room=0), y=(0, span_of(y)[1]), x_name=x_name, size=(560, 180), x_ticks=8)
