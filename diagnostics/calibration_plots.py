"""Pictures of calibration: are the ranks uniform?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from .calibration import Calibration


def plot_calibration(calibration: Calibration) -> Any:
    """A column a quantity: the histogram of ranks, and the ECDF minus the diagonal with its simultaneous band."""
    import matplotlib.pyplot as plt

    from .calibration import LEVEL, _null_excursions

    ranks, last = calibration.ranks, calibration.num_draws
    columns = list(ranks.columns)
    figure, axes = plt.subplots(
        2, len(columns), figsize=(2.3 * len(columns), 4), squeeze=False, layout="constrained", sharey="row"
    )
    number = len(ranks)
    # a point of the ECDF leaves the band where its two-sided binomial tail is below what 99% of uniform ranks stay above
    tail = np.quantile(_null_excursions(number, last), LEVEL) / 2
    share = (np.arange(last) + 1) / (last + 1)
    low, high = (stats.binom.ppf(q, number, share) / number - share for q in (tail, 1 - tail))
    bins = np.linspace(-0.5, last + 0.5, min(17, last + 2))
    passes = calibration.table["passes"]
    for above, below, name in zip(*axes, columns, strict=True):
        color = "#3b6ea5" if passes[name] else "#b3402e"
        above.hist(ranks[name], bins=bins, color=color, alpha=0.8)
        above.axhline(number / (len(bins) - 1), color="black", linewidth=0.8)
        above.set_title(name, fontsize=8)
        ecdf = np.array([(ranks[name] <= place).mean() for place in range(last)]) - share
        below.fill_between(share, low, high, color="#dddddd", step="mid")
        below.step(share, ecdf, where="mid", color=color)
        below.set_xlabel("rank", fontsize=8)
    axes[0, 0].set_ylabel("simulations")
    axes[1, 0].set_ylabel("ECDF - uniform")
    figure.suptitle(calibration.title, fontsize=10)
    return figure
