"""What can be relied on: topics, coefficients and predictions judged apart, each with a grade and a reason.

Chains in different modes have other topics and may still predict alike, which is the common case in large corpora. A
coefficient belongs to a topic, and is worth no more than it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from topiczoo.inference import Fit

from .alignment import MOST, AlignedFit

RELY, CARE, UNKNOWN, NOT = "rely", "with care", "cannot be known", "do not rely"  # the later outdoes the earlier
NEARLY_MIXED = 1.1  # R-hat up to which a coefficient's first digits can be read
FEW = 0.25  # of the effective draws asked for, from which they can be read
FAR = 2.5  # times the error allowed in predictions, from which they cannot be relied on
MANY_DIVERGENCES = 0.05

Reason = tuple[str, str]  # a grade and why


def rely(fit: AlignedFit, checks: pd.DataFrame, limits: Mapping[str, float]) -> pd.DataFrame:
    """One row for topics, coefficients (or parameters) and predictions as far as the story has them: grade, why."""
    if fit.engine not in ("gibbs", "nuts"):
        return _frame({part: _approximate(checks) for part in _parts(fit, checks)})
    topics, rows = _topics(fit, checks, limits), {}
    for part in _parts(fit, checks):
        if part == "topics":
            rows[part] = topics
        elif part == "predictions":
            rows[part] = _predictions(checks)
        else:
            rows[part] = [*(_of_topics(topics, fit) if part == "coefficients" else []), *_coefficients(part, fit, checks)]
    return _frame(rows)


def _parts(fit: Fit, checks: pd.DataFrame) -> list[str]:
    """What the fit says anything of."""
    of_sites = "coefficients" if fit.coefficients else "parameters"
    there = {
        "topics": fit.has_topics, of_sites: bool(fit.coefficients) or of_sites in set(checks["about"]),
        "predictions": fit.y is not None if fit.engine not in ("gibbs", "nuts") else "predictions" in set(checks["about"]),
    }  # fmt: skip
    if not any(there.values()):
        return ["parameters"]
    return [part for part, given in there.items() if given]


def _frame(rows: Mapping[str, Iterable[Reason]]) -> pd.DataFrame:
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
    if not fit.has_topics:
        return []
    agreement, words = fit.alignment.agreement, fit.alignment.shared if len(fit.alignment.chains) else ""
    words = words[:1].lower() + words[1:].rstrip(".")
    if agreement is None:
        reasons = [(UNKNOWN, "one chain: whether another would find the same topics cannot be known")]
    elif agreement >= limits["agreement"] - 1e-9:
        reasons = [(RELY, words)]
    else:
        reasons = [(CARE if agreement >= MOST else NOT, words)]
    # a topic that all chains have can be read even where its probabilities have not mixed to the last digit
    reasons += [(CARE, _short(name, row)) for name, row in those(checks, "topics").iterrows() if "same" not in name]
    unknown = those(checks, "topics", None)
    reasons += [(CARE, f"{name} {row['meaning']}") for name, row in unknown.iterrows() if "same" not in name]
    return reasons + _sampler(checks, NOT)


def _of_topics(topics: list[Reason], fit: AlignedFit) -> list[Reason]:
    """What follows for coefficients from topics that differ."""
    agreement = fit.alignment.agreement
    if agreement is None or not fit.alignment.unmatched:
        return []
    if agreement < MOST:
        return [(NOT, "a coefficient belongs to a topic, and topics differ from chain to chain")]
    if any(grade == CARE for grade, _ in topics):
        return [(CARE, "only those of topics that all chains have mean the same in each")]
    return []


def _coefficients(part: str, fit: AlignedFit, checks: pd.DataFrame) -> list[Reason]:
    reasons = [(RELY, f"chains agree on {part}")]
    if len(fit.alignment.permutations) == 1:
        reasons.append((UNKNOWN, "one chain: whether another would agree cannot be known"))
    for name, row in those(checks, part).iterrows():
        if row["value"] is None or pd.isna(row["value"]):
            continue  # no shared topics, which has been said
        mild = row["value"] <= NEARLY_MIXED if name.startswith("R-hat") else row["value"] >= FEW * row["threshold"]
        reasons.append((CARE if mild else NOT, _short(name, row)))
    reasons += [(UNKNOWN, f"{name} {row['meaning']}") for name, row in those(checks, part, None).iterrows()]
    return reasons + _sampler(checks, NOT)


def _predictions(checks: pd.DataFrame) -> list[Reason]:
    alike = checks.loc["chains predict alike"]
    if alike["passes"] is None:
        return [(UNKNOWN, alike["meaning"])]
    moved = f"another run would move them by about {alike['value']:.2g} of their standard deviation"
    if alike["passes"]:
        reasons = [(RELY, f"chains predict alike: {moved}")]
    else:
        far = alike["value"] > FAR * alike["threshold"]
        reasons = [(NOT if far else CARE, f"chains predict differently: {moved}")]
    for _, row in those(checks.drop(index="chains predict alike"), "predictions").iterrows():
        reasons.append((CARE, f"some chains predict worse: {row['meaning']}"))
    return reasons + [reason for reason in _sampler(checks, CARE) if "mixed" not in reason[1]]


def _sampler(checks: pd.DataFrame, stuck: str) -> list[Reason]:
    """What the sampler's own troubles mean for all that it drew."""
    reasons = []
    for name, row in those(checks, "sampler").iterrows():
        if name == "topics move":
            reasons.append((stuck, f"topics of words hardly move ({row['value']:.2g}, {row['meaning']})"))
        elif name == "no divergences":
            grade = stuck if row["value"] > MANY_DIVERGENCES else CARE
            reasons.append((grade, f"{row['value']:.2%} of NUTS's transitions diverged"))
        elif name.startswith(("R-hat", "effective")):
            reasons.append((CARE, _short(name, row)))
    return reasons


def _short(name: str, row: pd.Series) -> str:
    """A check of mixing that failed, in a few words."""
    if name.startswith("R-hat"):
        if row["value"] is None or pd.isna(row["value"]):
            return str(row["meaning"])
        what = name.removeprefix("R-hat of ")
        return f"{what} have not mixed (R-hat {row['value']:.2f}, above {row['threshold']:.2f})"
    what = name.removeprefix("effective draws of ")
    return f"{what} have mixed in too few effective draws ({row['value']:.0f} of {row['threshold']:.0f})"


def _approximate(checks: pd.DataFrame) -> list[Reason]:
    """A variational fit: whether it has arrived, then how far from the posterior that is."""
    reasons = [(RELY, "the optimum is reached, and importance ratios find it close to the posterior")]
    for name, row in checks.iterrows():
        passes = row["passes"]
        if name in ("the loss rests", "the bound rests", "the bound never fell", "ran to its end"):
            if passes is False or passes is np.False_:
                reasons.append((NOT, f"not so: {name} ({row['meaning']})"))
            elif passes is None:
                reasons.append((UNKNOWN, f"{name}: {row['meaning']}"))
        elif passes is not True:
            told = "the approximation is rough: means can be read, intervals are too narrow"
            if passes is None:
                told = "a point or an approximation: means can be read, how good intervals are cannot be known"
            reasons.append((CARE, told))
    return reasons
