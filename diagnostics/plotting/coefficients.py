"""Coefficients of topics with their intervals: a forest whose rows are the topics' words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topiczoo.inference import Fit
from topiczoo.inference.story.validation import check_share

from .style import COLOURS, GREY, INK, canvas, chains_shown, checked, chosen_topics, finished, short, styled, titles

MOST = 60  # rows where no topics are named
COLUMNS = 6  # of coefficients


def panels_of(fit: Fit, sites: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Columns of coefficients, name -> draws [chain, draw, topic]; classes have their names."""
    found = {}
    for site in fit.coefficients if sites is None else sites:
        value = fit.by_topic(site)
        flat = value.reshape(*value.shape[:3], -1)
        classes = fit.classes if fit.classes is not None and len(fit.classes) == flat.shape[-1] else None
        for column in range(flat.shape[-1]):
            output = column if classes is None else classes[column]
            found[site if value.ndim == 3 else f"{site}[{output}]"] = flat[..., column]
    return found


def leading_rows(panels: Mapping[str, np.ndarray], most: int) -> np.ndarray:
    """The topics of the largest coefficients in any column, in the order of the first column's."""
    first = next(iter(panels.values()))
    size = np.abs(np.stack([value.mean((0, 1)) for value in panels.values()])).max(0)
    shown = np.argsort(-size, kind="stable")[:most]
    return shown[np.argsort(first.mean((0, 1))[shown], kind="stable")]


def draw_forest(
    axes: Sequence[Any] | np.ndarray, panels: Mapping[str, np.ndarray], labels: Sequence[str], shown: np.ndarray,
    probability: float = 0.9, chains: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Mean and interval of each chain, a panel a column of coefficients, the last of ``shown`` on top."""
    tails = (1 - probability) / 2
    for axis, (name, value) in zip(axes, panels.items(), strict=True):
        offsets = np.linspace(0.22, -0.22, len(value)) if len(value) > 1 else [0.0]
        axis.axvline(0, color="#8c959f", linewidth=0.8)
        for place, offset in enumerate(offsets):
            chain = place if chains is None else chains[place]
            low, high = np.quantile(value[place], [tails, 1 - tails], axis=0)[:, shown]
            colour = COLOURS[chain % len(COLOURS)]
            axis.hlines(np.arange(len(shown)) + offset, low, high, color=colour, linewidth=1.6, label=f"chain {chain}")
            axis.plot(value[place].mean(0)[shown], np.arange(len(shown)) + offset, ".", color=colour, markersize=5)
        axis.set_title(name)
        axis.grid(axis="y", color="#eaeef2", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_ylim(-0.7, len(shown) - 0.3)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(np.arange(len(shown)), [labels[k] for k in shown])
    if len(next(iter(panels.values()))) > 1:
        axes[-1].legend(frameon=False, loc="lower right", fontsize=8)


def plot_coefficients(
    fit: Fit, var_names: str | Sequence[str] | None = None, *, topics: Any = None, probability: float = 0.9, n: int = 3,
    chain: int | None = None, ax: Any = None, figure_kwargs: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """A forest of the topics' coefficients, mean and central interval, largest on top; rows are called by topics' words.

    Parameters
    ----------
    var_names
        Sites of coefficients, all by default; a site with several outputs has a panel for each, 6 at the most.
    topics
        Numbers or names of topics; by default all, or the 60 with the largest coefficients.
    chain
        The chain whose topics are shown. By default all chains, a colour each, where topics are matched
        (``diagnostics.align``), else the first.

    Returns
    -------
    The axes, one a column of coefficients.
    """
    check_share(probability=probability)
    checked(fit, 0)
    chains = chains_shown(fit, chain)
    known = fit.coefficients
    if not known:
        raise ValueError(f"The story {fit.story.name!r} has no coefficients of topics; plot_topics shows its topics.")
    sites = known if var_names is None else [var_names] if isinstance(var_names, str) else list(var_names)
    if unknown := [name for name in sites if name not in known]:
        raise ValueError(
            f"var_names has {unknown[0]!r}; the coefficients are {', '.join(map(repr, known))}: name some."
        )
    panels = {name: value[chains] for name, value in list(panels_of(fit, sites).items())[:COLUMNS]}
    number = next(iter(panels.values())).shape[-1]
    shown = leading_rows(panels, MOST)
    if topics is not None:
        shown = chosen_topics(fit, topics, number, MOST, np.ones(number))[::-1]
    with styled() as plt:
        size = 2.6, 0.9 + 0.21 * len(shown)
        axes = canvas(plt, ax, figure_kwargs, len(panels), COLUMNS, size, (2.9, 0.0), sharey=True)
        renamed = {short(name, 28): value for name, value in panels.items()}
        draw_forest(axes, renamed, titles(fit, chains[0], n), shown, probability, chains)
        for axis in axes:
            axis.set_xlabel(f"coefficient, {probability:.0%} interval", color=INK)
        if topics is None and len(shown) < number:
            axes[0].set_ylabel(f"the {len(shown)} of {number} topics with the largest", color=GREY)
        return finished(axes)
