"""The report's pictures, as data URIs that stand in the page itself."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from ..convergence.quantities import Series
from ..plotting.coefficients import draw_forest, leading_rows
from ..plotting.style import COLOURS, STYLE

MOST_IN_FOREST = 60


@contextmanager
def drawing() -> Iterator[Any]:
    """matplotlib without a screen and in the report's style; what the caller has open and set stays as it is."""
    import matplotlib.pyplot as plt

    before = set(plt.get_fignums())
    with plt.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fonts without a glyph of some language, layouts that are a little tight
        try:
            yield plt
        finally:
            for figure in set(plt.get_fignums()) - before:
                plt.close(figure)


def as_image(figure: Any, form: str = "png", dpi: int = 120) -> str:
    """A matplotlib figure as a data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=dpi, bbox_inches="tight", pad_inches=0.06, facecolor="white")
    data = buffer.getvalue()
    if form == "png":
        data = _fewer_colours(data)
    return f"data:image/{'svg+xml' if form == 'svg' else form};base64,{base64.b64encode(data).decode()}"


def _fewer_colours(png: bytes) -> bytes:
    """The same picture with a palette: lines and text need no more, and the file is a third of the size."""
    from PIL import Image  # comes with matplotlib

    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def of_plots(collection: Any, **options: Any) -> str:
    """An arviz-plots PlotCollection as a data URI."""
    return as_image(collection.viz["figure"].item(), **options)


def forest(panels: Mapping[str, np.ndarray], labels: Sequence[str]) -> str:
    """Coefficients of topics, mean and 90% interval of each chain, largest on top.

    Parameters
    ----------
    panels
        Name of a column of coefficients -> draws [chain, draw, topic].
    labels
        One a topic.
    """
    shown = leading_rows(panels, MOST_IN_FOREST)
    with drawing() as plt:
        size = 3.6 + 2.6 * len(panels), 0.6 + 0.21 * len(shown)
        figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False)
        draw_forest(axes[0], panels, labels, shown)
        return as_image(figure, "png", 130)


def traces(found: Sequence[Series]) -> str:
    """Draws in their order, a panel a quantity, a colour a chain; arviz-plots' ``plot_trace``."""
    from arviz_plots import plot_trace

    with drawing():
        columns, _, size = _grid(found)
        grid: dict[str, Any] = {"col_wrap": columns, "figure_kwargs": {"figsize": size}}
        return of_plots(plot_trace(_tree(found), backend="matplotlib", visuals={"xlabel": False}, **grid), dpi=100)


def ranks(found: Sequence[Series]) -> str:
    """Whether each chain visits all ranks of the pooled draws alike: ECDF of its ranks minus that of uniform ones.

    NB: not arviz-plots' ``plot_rank``: in 0.8 it divides ranks by each chain's own largest, which hides chains that live
    apart, and its band for two chains holds everything.
    """
    num_chains = len(found[0].values)
    with drawing() as plt:
        columns, rows, size = _grid(found)
        figure, axes = plt.subplots(rows, columns, figsize=size, sharex=True, squeeze=False)
        for axis in axes.ravel()[len(found) :]:
            axis.set_axis_off()
        for axis, s in zip(axes.ravel(), found, strict=False):
            num_draws = s.values.shape[1]
            grid, half = rank_band(num_chains, num_draws)
            axis.fill_between(grid, -half, half, color="#d0d7de", alpha=0.6, linewidth=0)
            for chain, difference in enumerate(rank_differences(s.values, grid)):
                axis.plot(grid, difference, color=COLOURS[chain % len(COLOURS)])
            axis.set_title(s.quantity)
        return as_image(figure, dpi=100)


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


def objective(values: Any, name: str, unit: str) -> str:
    """What a variational engine climbs or descends, step by step, and its last half by itself."""
    values = np.asarray(values, float)
    with drawing() as plt:
        figure, axes = plt.subplots(1, 2, figsize=(9, 2.4))
        for axis, start in zip(axes, (0, len(values) // 2), strict=True):
            axis.plot(np.arange(start, len(values)), values[start:])
            axis.set_xlabel(unit)
        axes[0].set_ylabel(name)
        axes[1].set_title("the second half")
        return as_image(figure, dpi=100)


def line(x: Any, y: Any, x_name: str, y_name: str, mark: int) -> str:
    """One curve with a place on it marked."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    with drawing() as plt:
        figure, axis = plt.subplots(figsize=(6, 2.4))
        axis.plot(x, y, marker=".", markersize=4)
        axis.plot(x[mark], y[mark], "o", color=COLOURS[1])
        axis.set(xlabel=x_name, ylabel=y_name)
        axis.set_ylim(bottom=0)
        return as_image(figure, dpi=100)


def _tree(found: Sequence[Series]) -> xr.DataTree:
    # xarray takes a slash for a path: the one between numbers looks the same
    variables = {
        s.quantity.replace("/", "\N{DIVISION SLASH}"): (("chain", "draw"), np.asarray(s.values, float)) for s in found
    }
    length = min(value.shape[1] for _, value in variables.values())  # large sites are stored at fewer draws
    thinned = {
        name: (dims, value[:, np.linspace(0, value.shape[1] - 1, length).astype(int)])
        for name, (dims, value) in variables.items()
    }
    coords = {"chain": np.arange(len(found[0].values)), "draw": np.arange(length)}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(thinned, coords=coords)})


def _grid(found: Sequence[Series]) -> tuple[int, int, tuple[float, float]]:
    """Columns and rows of small panels, and the size of them all in inches."""
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    return columns, rows, (3.5 * columns, 1.55 * rows)
