"""Convergence of the engines that approximate: the loss and importance ratios of SVI, the bound of variational EM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from topiczoo.inference import Fit

ONE_OPTIMUM = "other starts predict alike"


def check_svi(fit: Fit, limits: Mapping[str, float]) -> list[dict[str, Any]]:
    """Whether the loss rests, and how far the approximation is from the posterior (Pareto k, Yao et al. 2018)."""
    losses = np.asarray(fit.info["losses"], float)
    checks = [loss_slope(losses, limits["loss_slope"])]
    ratios = fit.importance_ratios() if fit.importance_ratios is not None else None
    names = "importance ratios of the global sites", "importance ratios of documents"
    if ratios is None:
        meaning = "cannot be known from a saved fit, which has no guide; diagnose it before saving"
        return [
            *checks,
            *(
                {"check": n, "value": None, "threshold": limits["pareto_k"], "passes": None, "meaning": meaning}
                for n in names
            ),
        ]
    from arviz_stats.base import array_stats

    # ArviZ turns the sign round: it expects log-likelihoods, whose ratios are their inverse
    of_globals, of_documents = ratios
    k = float(array_stats.psislw(-of_globals)[1])
    checks.append({
        "check": names[0], "value": k, "threshold": limits["pareto_k"], "passes": k <= limits["pareto_k"],
        "meaning": "Pareto k of p/q for all sites that are not of documents: above it the approximation is far off",
    })  # fmt: skip
    if of_documents is not None:
        each = array_stats.psislw(-of_documents.T)[1]
        share = float(np.mean(each > limits["pareto_k"]))
        checks.append({
            "check": names[1], "value": share, "threshold": limits["documents_k"], "passes": share <= limits["documents_k"],
            "meaning": f"share of {len(each)} documents whose own Pareto k is above {limits['pareto_k']:g}",
        })  # fmt: skip
    return checks


def loss_slope(losses: np.ndarray, limit: float) -> dict[str, Any]:
    """How much the loss still fell over the last quarter of the steps, in standard errors of that fall."""
    check = {"check": "the loss rests", "threshold": limit}
    last = losses[-max(1, len(losses) // 4) :]
    if len(last) < 20:
        return {
            **check,
            "value": None,
            "passes": None,
            "meaning": f"cannot be known from {len(losses)} steps; take more",
        }
    batches = np.array([part.mean() for part in np.array_split(last, 10)])
    place = np.arange(10) - 4.5
    slope = (place * batches).sum() / (place**2).sum()
    left = batches - batches.mean() - slope * place
    error = np.sqrt((left**2).sum() / 8 / (place**2).sum())
    fall = float(-slope / max(error, 1e-12 * abs(batches.mean())))
    share = -slope * 9 / max(abs(losses[0] - last.mean()), 1e-12)
    meaning = f"fall of the loss over the last quarter in standard errors; it is {share:.2%} of the whole fall"
    return {**check, "value": fall, "passes": bool(fall <= limit or share < 1e-3), "meaning": meaning}


def starts_of(fit: Fit) -> int:
    """From how many starts variational EM has come: each is a chain."""
    return len(next(iter(fit.draws.values())))


def check_bound(fit: Fit) -> list[dict[str, Any]]:
    """Whether variational EM ended because the bound rested, and whether it ever fell."""
    bound = np.asarray(fit.info["bound"], float)
    rises = np.diff(bound) / np.abs(bound[:-1])
    last = float(rises[-1]) if len(rises) else None
    converged = bool(fit.info.get("converged"))
    turns, more = ("passes", "passes") if "passes" in fit.info else ("iterations", "num_iterations")
    checks: list[dict[str, Any]] = [
        {
            "check": "the bound rests", "value": last, "threshold": None, "passes": converged,
            "meaning": f"relative rise of the bound in the last of {len(rises)} {turns}"
            + ("" if converged else f"; give more {more}"),
        },
        {
            "check": "the bound never fell", "value": float(rises.min()) if len(rises) else None, "threshold": 0.0,
            "passes": "warning" not in fit.info, "meaning": "smallest relative rise of the bound",
        },
        {
            "check": "distance from the posterior", "value": None, "threshold": None, "passes": None,
            "meaning": "cannot be known: variational EM gives no measure of it; compare with gibbs or nuts",
        },
    ]  # fmt: skip
    if "support_vectors" in fit.info and starts_of(fit) == 1:  # a margin
        meaning = (
            "cannot be known: a margin has many optima, and this is one; several, or gibbs, predict better together"
        )
        checks.append({
            "check": ONE_OPTIMUM, "value": None, "threshold": None, "passes": None, "meaning": meaning
        })  # fmt: skip
    return checks
