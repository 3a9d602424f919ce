"""A fit with a weight of the response: what it is judged by.

Its topics and coefficients are no draws of the posterior: the response counts for more (or less) there than the story says.
They serve the predictions, and are not judged; neither are R-hat and effective draws, since many short chains that differ
are what is averaged. Predictions are judged by documents that the fit has held out, and by how far another run would move
the mean of the chains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from topiczoo.inference import Fit
from topiczoo.inference.posterior.posterior import serving

from .followed import Followed
from .reliance import CARE, NOT, RELY, UNKNOWN, Reason, frame_of, prediction_reasons, those

FEW_CHAINS = 8  # below it advice is to average more
HELD_OUT = "held-out responses are predicted"


def held_out_check(fit: Fit, followed: Mapping[str, Followed]) -> list[dict[str, Any]]:
    """How much of the variance of held-out responses, of classes by Brier's score, the mean of chains explains."""
    check = {"check": HELD_OUT, "about": "predictions", "value": None, "threshold": 0.0}
    told = {name: part for name, part in followed.items() if part.told is not None}
    if not fit.info.get("held_out"):
        meaning = "cannot be known: no documents were held out, for which 40 with a response are needed"
        return [{**check, "passes": None, "meaning": meaning}]
    if not told:
        return []
    name = min(told, key=lambda name: explained(told[name]))
    part = told[name]
    value, alone = explained(part), [explained(part, chain) for chain in range(len(part.expected.values))]
    meaning = (
        f"share of the variance of {len(part.documents)} responses held out that the mean of {len(alone)} chains explains"
        + (f"; each alone {min(alone):.2f} to {max(alone):.2f}" if len(alone) > 1 else "")
    )
    return [{**check, "value": value, "passes": value > 0, "meaning": meaning}]


def explained(part: Followed, chain: int | None = None) -> float:
    """1 less squared error over variance, of the mean of all chains or of one."""
    values = part.expected.values.mean(1)
    mean, told = values.mean(0) if chain is None else values[chain], np.asarray(part.told)
    known = ~np.isnan(told).any(1)
    whole = ((told[known] - told[known].mean(0)) ** 2).sum()
    return float(1 - ((mean - told)[known] ** 2).sum() / max(whole, 1e-30))


def rely_on_weighed(fit: Fit, checks: pd.DataFrame) -> pd.DataFrame:
    """One row for topics, coefficients (or parameters) and predictions as far as the story has them: grade, why."""
    why = serving(fit.info)
    rows: dict[str, list[Reason]] = {}
    if fit.has_topics:
        rows["topics"] = [(NOT, why)]
    of_sites = "coefficients" if fit.coefficients else "parameters"
    rows[of_sites] = [(NOT, f"a coefficient belongs to a topic, and {why}" if fit.coefficients else why)]
    if "predictions" in set(checks["about"]):
        rows["predictions"] = _predictions(fit, checks)
    return frame_of(rows)


def _predictions(fit: Fit, checks: pd.DataFrame) -> list[Reason]:
    reasons: list[Reason] = []
    if HELD_OUT in checks.index:
        row = checks.loc[HELD_OUT]
        told = "held-out responses are predicted no better than by their mean"
        if row["passes"]:
            told = f"the mean of chains explains {row['value']:.0%} of the variance of responses held out"
        grade = RELY if row["passes"] else NOT
        reasons.append((UNKNOWN, row["meaning"]) if row["passes"] is None else (grade, told))
    if "chains predict alike" in checks.index:
        alike = checks.loc["chains predict alike"]
        unknown = CARE if reasons else UNKNOWN  # of a single chain held-out documents tell something
        reasons += [(unknown, alike["meaning"])] if alike["passes"] is None else prediction_reasons(checks)
    for name in ("the loss rests", "the bound rests", "ran to its end"):
        if name in checks.index and checks.loc[name, "passes"] is False:
            reasons.append((CARE, f"not so: {name} ({checks.loc[name, 'meaning']})"))
    if "no divergences" in those(checks, "sampler").index:
        reasons.append((CARE, f"{checks.loc['no divergences', 'value']:.2%} of NUTS's transitions diverged"))
    return reasons


def more_chains(fit: Fit, num_chains: int) -> list[str]:
    """Advice on how many to average."""
    if fit.engine not in ("gibbs", "nuts") or num_chains >= FEW_CHAINS:
        return []
    return [f"Give num_chains={FEW_CHAINS} or more, as short as you like: their mean predicts better than any of them."]
