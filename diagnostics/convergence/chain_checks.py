"""Checks of chains: topics found, R-hat and effective draws of what they are judged by, and how the sampler moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2

from topiczoo.inference import Fit

from .alignment import AlignedFit
from .quantities import Series

FALSE_ALARMS = 0.05  # chance that the largest R-hat of quantities that have converged is above its limit
KINDS = {
    "label-invariant": "label-invariant quantities", "parameter": "parameters", "coefficient": "coefficients",
    "term": "leading terms of topics",
}  # fmt: skip


def least_draws(kind: str, limits: Mapping[str, float]) -> float:
    """Effective draws a chain that a kind of quantity needs."""
    return limits["ess_to_mix" if kind == "label-invariant" else "ess_per_chain"]


def r_hat_limit(num_series: int, num_chains: int, ess_per_chain: float, least: float) -> float:
    """The largest R-hat that chance alone gives so many converged quantities; never below ``least``.

    R-hat^2 - 1 of chains split in halves is the variance of the halves' means over that of the draws: with n effective
    draws a half it is chi^2 / (n degrees of freedom). A converged quantity with 100 effective draws a chain is above 1.01
    one time in three, and the largest of many always. Both R-hats of Vehtari et al., of ranks and of folded ranks, count.
    """
    degrees = 2 * num_chains - 1
    largest = chi2.isf(FALSE_ALARMS / (2 * max(num_series, 1)), degrees) / degrees
    return max(least, float(np.sqrt(1 + largest / (ess_per_chain / 2))))


def about(kind: str, fit: Fit) -> str:
    """Which of the judgements a kind of quantity speaks for."""
    if kind in ("parameter", "coefficient"):
        return "coefficients" if fit.coefficients else "parameters"
    return {"term": "topics", "prediction": "predictions"}.get(kind, "sampler")


def numbers_of(found: list[Series], limits: Mapping[str, float], independent: bool = False) -> pd.DataFrame:
    """R-hat, effective draws and Monte Carlo error of each quantity; missing where too few draws could tell.

    ``independent`` draws, from a variational approximation, have no chain to judge: mean and sd alone.
    """
    from arviz_stats.base import array_stats

    rows = []
    for s in found:
        values = np.asarray(s.values, float)
        row: dict[str, Any] = {
            "quantity": s.quantity, "kind": s.kind, "topic": s.topic,
            "mean": values.mean(), "sd": values.std(ddof=1),
            "mcse": np.nan, "r_hat": np.nan, "ess_bulk": np.nan, "ess_tail": np.nan, "passes": None,
        }  # fmt: skip
        if not independent and values.shape[1] >= limits["draws"] and values.std() > 0:
            row["mcse"] = float(array_stats.mcse(values))
            with np.errstate(invalid="ignore"):  # of two values, folded in the middle, none is left to vary
                row["r_hat"] = float(array_stats.rhat(values))
            row["ess_bulk"] = float(array_stats.ess(values, method="bulk"))
            row["ess_tail"] = float(array_stats.ess(values, method="tail", prob=(0.05, 0.95)))
            least, alike = least_draws(s.kind, limits), sum(other.kind == s.kind for other in found)
            enough = min(row["ess_bulk"], row["ess_tail"]) >= least * len(values)
            row["passes"] = bool(row["r_hat"] <= r_hat_limit(alike, len(values), least, limits["r_hat"]) and enough)
        rows.append(row)
    columns = ["quantity", "kind", "topic", "mean", "sd", "mcse", "r_hat", "ess_bulk", "ess_tail", "passes"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["topic"] = frame["topic"].astype("Int64")
    return frame.set_index("quantity")


def chain_checks(
    fit: AlignedFit, found: list[Series], numbers: pd.DataFrame, limits: Mapping[str, float]
) -> list[dict[str, Any]]:
    """One row a question, of all but predictions."""
    checks = _same_topics(fit, limits)
    lost = set(fit.alignment.unmatched)
    for kind in KINDS:
        part = numbers[numbers["kind"] == kind]
        if not len(part):
            continue
        # what belongs to a topic is compared where all chains have it
        shared = part[~part["topic"].isin(lost)]
        only = " of topics that all chains have" if len(shared) < len(part) else ""
        drawn = max(s.values.shape[1] for s in found if s.kind == kind)
        checks += _mixing(kind, about(kind, fit), shared, only, drawn, len(fit.alignment.permutations), limits)
    return checks + _moves(fit, limits) + divergences(fit, limits)


def _same_topics(fit: AlignedFit, limits: Mapping[str, float]) -> list[dict[str, Any]]:
    if not fit.has_topics:
        return []
    check = {"check": "chains found the same topics", "about": "topics", "threshold": limits["agreement"]}
    agreement = fit.alignment.agreement
    if agreement is None:
        meaning = "one chain: whether another would find the same topics cannot be known"
        return [{**check, "value": None, "passes": None, "meaning": meaning}]
    meaning = "share of words in topics that all chains have, after renumbering"
    return [{**check, "value": agreement, "passes": agreement >= limits["agreement"] - 1e-9, "meaning": meaning}]


def _mixing(
    kind: str, about: str, part: pd.DataFrame, only: str, drawn: int, num_chains: int, limits: Mapping[str, float]
) -> list[dict[str, Any]]:
    """R-hat and effective draws of one kind of quantity."""
    name, least, known = KINDS[kind], least_draws(kind, limits), part.dropna(subset=["r_hat"])
    limit = r_hat_limit(len(known), num_chains, least, limits["r_hat"])
    r_hat = {"check": f"R-hat of {name}", "about": about, "value": None, "threshold": limit}
    if not len(part):
        return [{**r_hat, "passes": False, "meaning": "no topic is in all chains, so there is none to compare"}]
    if not len(known):
        reason = (
            f"cannot be known from {drawn} draws a chain; at least {limits['draws']:.0f} are needed"
            if drawn < limits["draws"]
            else "cannot be known: the draws do not vary"
        )
        return [{**r_hat, "passes": None, "meaning": reason}]
    largest = float(known["r_hat"].max())
    meaning = f"largest R-hat of {len(known)}{only}, of {known['r_hat'].idxmax()}"
    meaning += "; one chain split in halves" if num_chains == 1 else ""
    effective = known[["ess_bulk", "ess_tail"]].min(axis=1).sort_values()
    place = int(limits["short"] * len(effective))
    ess = float(effective.iloc[place])
    all_but = f", but for {place} of {len(effective)}" if place else ""
    return [
        {**r_hat, "value": largest, "passes": largest <= limit, "meaning": meaning},
        {
            "check": f"effective draws of {name}", "about": about, "value": ess, "threshold": least * num_chains,
            "passes": ess >= least * num_chains,
            "meaning": f"smallest number of effective draws{only}{all_but}, of {effective.index[place]}",
        },
    ]  # fmt: skip


def _moves(fit: AlignedFit, limits: Mapping[str, float]) -> list[dict[str, Any]]:
    """Whether topics of words move: as often as the words ask for where that is known."""
    if "moved" not in fit.statistics:
        return []
    check = {"check": "topics move", "about": "sampler"}
    moved = np.mean(fit.statistics["moved"], axis=1)
    if "proposed" not in fit.statistics:
        share = float(moved.min())
        meaning = "share of words that change their topic in a sweep, in the slowest chain"
        return [
            {
                **check,
                "value": share,
                "threshold": limits["moved"],
                "passes": share >= limits["moved"],
                "meaning": meaning,
            }
        ]
    proposed = np.mean(fit.statistics["proposed"], axis=1)
    # where words ask for no move there is none to refuse
    accepted = np.where(proposed > 0, moved / np.maximum(proposed, 1e-30), 1.0)
    slowest = int(accepted.argmin())
    meaning = (
        f"share of the moves asked for by the words that the response lets through, in the slowest chain; words ask for "
        f"{proposed[slowest]:.2g} of their topics to move in a sweep"
    )
    share = float(accepted[slowest])
    return [
        {
            **check,
            "value": share,
            "threshold": limits["accepted"],
            "passes": share >= limits["accepted"],
            "meaning": meaning,
        }
    ]


def divergences(fit: AlignedFit, limits: Mapping[str, float]) -> list[dict[str, Any]]:
    if "diverging" not in fit.statistics:
        return []
    share, limit = float(np.mean(fit.statistics["diverging"])), limits["divergences"]
    meaning = "share of divergent transitions of NUTS"
    return [
        {
            "check": "no divergences",
            "about": "sampler",
            "value": share,
            "threshold": limit,
            "passes": share <= limit,
            "meaning": meaning,
        }
    ]
