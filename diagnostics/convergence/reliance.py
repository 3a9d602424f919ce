"""What can be relied on: topics, coefficients and predictions judged apart, each with a grade and a reason.

Chains in different modes have other topics and may still predict alike, which is the common case in large corpora. A
coefficient belongs to a topic, and is worth no more than it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from .alignment import MOST, AlignedFit

RELY, CARE, UNKNOWN, NOT = "rely", "with care", "cannot be known", "do not rely"  # the later outdoes the earlier
NEARLY_MIXED = 1.1  # R-hat up to which a coefficient's first digits can be read
FEW = 0.25  # of the effective draws asked for, from which they can be read
FAR = 2.5  # times the error allowed in predictions, from which they cannot be relied on
MANY_DIVERGENCES = 0.05

Reason = tuple[str, str]  # a grade and why


def rely(fit: AlignedFit, checks: pd.DataFrame, limits: Mapping[str, float]) -> pd.DataFrame:
    """One row for topics, coefficients (or parameters) and predictions as far as the story has them: grade, why."""
    rows = {}
    of_sites = "coefficients" if fit.coefficients else "parameters"
    sampled, spoken = fit.engine in ("gibbs", "nuts"), set(checks["about"])
    if fit.has_topics:
        rows["topics"] = _topics(fit, checks, limits) if sampled else _approximate(checks) + _starts(fit, limits)
    if fit.coefficients or of_sites in spoken or not fit.has_topics:
        rows[of_sites] = (
            _coefficients(of_sites, fit, checks, limits) if sampled else _approximate(checks) + _starts(fit, limits)
        )
    if "predictions" in spoken or (fit.y is not None and not sampled):
        alike = sampled or "chains predict alike" in checks.index
        rows["predictions"] = (_predictions(checks) if alike else []) + ([] if sampled else _approximate(checks))
    return frame_of(rows)


def frame_of(rows: Mapping[str, Iterable[Reason]]) -> pd.DataFrame:
    """The worst grade of each, with the reasons for it."""
    order, found = [RELY, CARE, UNKNOWN, NOT], []
    for what, reasons in rows.items():
        grade = max((grade for grade, _ in reasons), key=order.index)
        why = "; ".join(dict.fromkeys(why for given, why in reasons if given == grade))
        found.append({"what": what, "grade": grade, "why": why})
    return pd.DataFrame(found, columns=["what", "grade", "why"]).set_index("what")


def those(checks: pd.DataFrame, about: str, outcome: bool | None = False) -> pd.DataFrame:
    """The checks that speak for something and have an outcome: False, they failed; None, they cannot be known."""
    return checks[(checks["about"] == about) & np.array([value is outcome for value in checks["passes"]], bool)]


def _topics(fit: AlignedFit, checks: pd.DataFrame, limits: Mapping[str, float]) -> list[Reason]:
    agreement = fit.alignment.agreement
    if agreement is None:
        return [(UNKNOWN, checks.loc["chains found the same topics", "meaning"]), *_sampler(checks, NOT)]
    shared = fit.alignment.shared.rstrip(".")
    shared = shared[0].lower() + shared[1:]
    if agreement < limits["agreement"] - 1e-9:
        return [(CARE if agreement >= MOST else NOT, shared), *_sampler(checks, NOT, mixing=False)]
    # a topic that all chains have can be read even where its probabilities are not known to the last digit
    reasons = [(RELY, shared), *((CARE, why) for _, why in _mixing(checks, "topics"))]
    unknown = those(checks, "topics", None)
    return reasons + [(CARE, f"{name} {row['meaning']}") for name, row in unknown.iterrows()] + _sampler(checks, NOT)


def _coefficients(part: str, fit: AlignedFit, checks: pd.DataFrame, limits: Mapping[str, float]) -> list[Reason]:
    agreement, reasons, other_modes = fit.alignment.agreement, [(RELY, f"chains agree on {part}")], False
    if len(fit.alignment.permutations) == 1:
        reasons.append((UNKNOWN, "one chain: whether another would agree cannot be known"))
    elif part == "coefficients" and agreement is not None and agreement < limits["agreement"] - 1e-9:
        if agreement < MOST:
            return [(NOT, "a coefficient belongs to a topic, and topics differ from chain to chain")]
        reasons.append((CARE, "only those of topics that all chains have mean the same in each"))
        other_modes = True
    reasons += _mixing(checks, part)
    reasons += [(UNKNOWN, f"{name} {row['meaning']}") for name, row in those(checks, part, None).iterrows()]
    return reasons + _sampler(checks, NOT, mixing=not other_modes)


def _predictions(checks: pd.DataFrame) -> list[Reason]:
    alike = checks.loc["chains predict alike"]
    if alike["passes"] is None:
        return [(UNKNOWN, alike["meaning"])]
    return prediction_reasons(checks) + _sampler(checks, CARE, mixing=False)


def prediction_reasons(checks: pd.DataFrame) -> list[Reason]:
    """Of chains that predict: how far another run would move their mean, and whether one of them is worse."""
    alike, passes = checks.loc["chains predict alike"], checks.loc["chains predict alike", "passes"]
    moved = f"another run would move them by about {alike['value']:.2g} of their standard deviation"
    if passes:
        reasons = [(RELY, f"chains predict alike: {moved}")]
    else:
        far = alike["value"] > FAR * alike["threshold"]
        reasons = [(NOT if far else CARE, f"chains predict differently: {moved}")]
    if "chains score alike" in checks.index and checks.loc["chains score alike", "passes"] is False:
        reasons.append((CARE, checks.loc["chains score alike", "meaning"]))
    return reasons


def _sampler(checks: pd.DataFrame, stuck: str, mixing: bool = True) -> list[Reason]:
    """What the sampler's own troubles mean for all that it drew."""
    reasons = [(CARE, why) for _, why in _mixing(checks, "sampler")] if mixing else []
    failed = those(checks, "sampler")
    if "topics move" in failed.index:
        row = failed.loc["topics move"]
        reasons.append((stuck, f"topics of words hardly move ({row['value']:.2g}, {row['meaning']})"))
    if "no divergences" in failed.index:
        share = failed.loc["no divergences", "value"]
        reasons.append((stuck if share > MANY_DIVERGENCES else CARE, f"{share:.2%} of NUTS's transitions diverged"))
    return reasons


def _mixing(checks: pd.DataFrame, part: str) -> list[Reason]:
    """R-hats and effective draws that failed; too few draws are said of what has no worse fault."""
    reasons, failed = [], those(checks, part)
    for name, row in failed.iterrows():
        start, what = name.split(" of ", 1) if " of " in name else (name, "")
        if start == "R-hat" and not pd.isna(row["value"]):
            why = f"R-hat of {what} is {row['value']:.2f}, above {row['threshold']:.2f}"
            reasons.append((CARE if row["value"] <= NEARLY_MIXED else NOT, why))
        elif start == "effective draws":
            grade = CARE if row["value"] >= FEW * row["threshold"] else NOT
            if f"R-hat of {what}" not in failed.index:
                reasons.append((grade, f"{what} have {row['value']:.0f} effective draws, below {row['threshold']:.0f}"))
    return reasons


def _starts(fit: AlignedFit, limits: Mapping[str, float]) -> list[Reason]:
    """Of a variational fit from several starts: whether they found the same topics."""
    agreement = fit.alignment.agreement
    if agreement is None or agreement >= limits["agreement"] - 1e-9:
        return []
    shared = fit.alignment.shared.rstrip(".")
    return [(CARE if agreement >= MOST else NOT, shared[0].lower() + shared[1:])]


def _approximate(checks: pd.DataFrame) -> list[Reason]:
    """A variational fit: whether it has arrived, then how far from the posterior that is."""
    checks = checks[checks["about"] != "predictions"]
    reasons = [(RELY, "the optimum is reached, and importance ratios find it close to the posterior")]
    for name, passes in checks["passes"].items():
        if name in ("the loss rests", "the bound rests", "the bound never fell", "ran to its end"):
            if passes is False:
                reasons.append((NOT, f"not so: {name} ({checks.loc[name, 'meaning']})"))
            elif passes is None:
                reasons.append((UNKNOWN, f"{name}: {checks.loc[name, 'meaning']}"))
        elif passes is not True:
            told = "the approximation is rough: means can be read, intervals are too narrow"
            if passes is None:
                told = "a point or an approximation: means can be read, how good intervals are cannot be known"
            reasons.append((CARE, told))
    return reasons
