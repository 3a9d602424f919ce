"""Can this posterior be trusted? Numbers against named thresholds first, a verdict in plain words second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from topiczoo.inference import Fit
from topiczoo.inference.border import check_seed

from .alignment import AlignedFit, align
from .quantities import Series, series
from .variational import check_bound, check_svi

THRESHOLDS: dict[str, float] = {
    "r_hat": 1.01,  # rank-normalised split R-hat at most this (Vehtari et al. 2021)
    "ess_per_chain": 100,  # bulk and tail effective draws a chain at least this
    "agreement": 1.0,  # share of words in topics that all chains have
    "divergences": 0.0,  # share of divergent transitions of NUTS
    "moved": 0.001,  # share of words that change their topic in a sweep at least this, in every chain
    "prediction_gap": 0.1,  # difference of chains' mean predictions, in predictive standard deviations, at most this
    "pareto_k": 0.7,  # of importance ratios of a variational fit at most this
    "documents_k": 0.05,  # share of documents whose own Pareto k is above it at most this
    "loss_slope": 2.0,  # fall of the loss over the last quarter, in its standard errors, at most this
    "draws": 50,  # draws a chain from which convergence can be judged at all
}


@dataclass(frozen=True)
class Diagnosis:
    """What is known of a fit's convergence.

    Attributes
    ----------
    numbers
        One row a quantity: kind, topic, mean, sd, mcse, r_hat, ess_bulk, ess_tail, passes. What cannot be known is missing.
    checks
        One row a question: value, threshold, passes (True, False, or None where it cannot be known), meaning.
    verdict
        The same in plain words.
    fit
        The fit with its topics aligned; its numbers of topics are the ones used here.
    """

    numbers: pd.DataFrame
    checks: pd.DataFrame
    verdict: str
    fit: AlignedFit = field(repr=False)

    @property
    def passes(self) -> bool:
        """Whether every check that could be made passed, and none was impossible."""
        return all(value is True for value in self.checks["passes"])

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, e.g. for JSON."""
        return {
            "verdict": self.verdict,
            "passes": self.passes,
            "checks": self.checks.reset_index().to_dict("records"),
            "numbers": self.numbers.reset_index().to_dict("records"),
        }

    def __str__(self) -> str:
        return self.verdict


def diagnose(
    fit: Fit, *, predictions: int = 10, seed: int = 0, thresholds: Mapping[str, float] | None = None
) -> Diagnosis:
    """Judge whether a fit has converged.

    Topics are aligned first. Convergence is then judged on quantities that do not depend on the numbering of topics, on
    parameters and coefficients, and on the leading terms of every topic.

    Parameters
    ----------
    predictions
        Documents of the corpus whose expected response is followed; 0 leaves predictions out.
    thresholds
        Replacements for some of ``diagnosis.THRESHOLDS``.
    """
    check_seed(seed)
    unknown = set(thresholds or ()) - set(THRESHOLDS)
    if unknown:
        raise ValueError(f"thresholds names {sorted(unknown)[0]!r}; choose from {', '.join(THRESHOLDS)}.")
    limits = {**THRESHOLDS, **(thresholds or {})}
    aligned = fit if isinstance(fit, AlignedFit) else align(fit)
    sampled, unpredicted = fit.engine in ("gibbs", "nuts"), None
    try:
        found = series(aligned, predictions=predictions if sampled else 0, seed=seed)
    except ValueError as error:  # the story does not let new documents be folded in
        found, unpredicted = series(aligned), str(error)
    if sampled:
        numbers = _numbers(found, limits)
        checks = _chain_checks(aligned, found, numbers, limits)
    else:
        numbers = _numbers(found, limits, independent=True)
        checks = check_svi(aligned, limits) if fit.engine == "svi" else check_bound(aligned)
    if unpredicted:
        reason = f"cannot be known: {unpredicted}"
        checks.append(_check("chains predict alike", None, limits["prediction_gap"], None, reason))
    if fit.info.get("interrupted"):
        checks.append(
            _check("ran to its end", None, None, False, "the run was interrupted: it has fewer draws or steps")
        )
    frame = pd.DataFrame(checks, columns=["check", "value", "threshold", "passes", "meaning"]).set_index("check")
    frame["passes"] = frame["passes"].astype(object)
    return Diagnosis(numbers, frame, _verdict(aligned, frame), aligned)


def _check(name: str, value: Any, threshold: Any, passes: bool | None, meaning: str) -> dict[str, Any]:
    return {"check": name, "value": value, "threshold": threshold, "passes": passes, "meaning": meaning}


def _numbers(found: list[Series], limits: Mapping[str, float], independent: bool = False) -> pd.DataFrame:
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
            enough = min(row["ess_bulk"], row["ess_tail"]) >= limits["ess_per_chain"] * len(values)
            row["passes"] = bool(row["r_hat"] <= limits["r_hat"] and enough)
        rows.append(row)
    columns = ["quantity", "kind", "topic", "mean", "sd", "mcse", "r_hat", "ess_bulk", "ess_tail", "passes"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["topic"] = frame["topic"].astype("Int64")
    return frame.set_index("quantity")


def _chain_checks(
    fit: AlignedFit, found: list[Series], numbers: pd.DataFrame, limits: Mapping[str, float]
) -> list[dict[str, Any]]:
    chains = len(fit.alignment.permutations)
    checks = []
    agreement = fit.alignment.agreement
    if fit.has_topics and agreement is None:
        meaning = "one chain: whether another would find the same topics cannot be known; run two or more"
        checks.append(_check("chains found the same topics", None, limits["agreement"], None, meaning))
    elif agreement is not None:
        enough = agreement >= limits["agreement"] - 1e-9
        meaning = "share of words in topics that all chains have, after renumbering"
        checks.append(_check("chains found the same topics", agreement, limits["agreement"], enough, meaning))
    names = {
        "label-invariant": "label-invariant quantities", "prediction": "predictions", "parameter": "parameters",
        "coefficient": "coefficients", "term": "leading terms of topics",
    }  # fmt: skip
    for kind, name in names.items():
        part = numbers[numbers["kind"] == kind]
        if not len(part):
            continue
        known = part.dropna(subset=["r_hat"])
        if not len(known):
            stored = max(s.values.shape[1] for s in found if s.kind == kind)
            reason = (
                f"cannot be known from {stored} draws a chain; draw at least {limits['draws']:.0f}"
                if stored < limits["draws"]
                else "cannot be known: the draws do not vary"
            )
            checks.append(_check(f"R-hat of {name}", None, limits["r_hat"], None, reason))
            continue
        worst = known["r_hat"].idxmax()
        r_hat = float(known["r_hat"].max())
        meaning = f"largest R-hat, of {worst}" + ("; one chain split in halves" if chains == 1 else "")
        checks.append(_check(f"R-hat of {name}", r_hat, limits["r_hat"], r_hat <= limits["r_hat"], meaning))
        ess = float(known[["ess_bulk", "ess_tail"]].min().min())
        least = limits["ess_per_chain"] * chains
        meaning = f"smallest number of effective draws, of {known[['ess_bulk', 'ess_tail']].min(axis=1).idxmin()}"
        checks.append(_check(f"effective draws of {name}", ess, least, ess >= least, meaning))
    predictions = [s for s in found if s.kind == "prediction"]
    if predictions and chains > 1:
        gap = float(np.median([np.ptp(s.values.mean(1)) / s.predictive_sd for s in predictions]))
        meaning = "median difference of chains' mean predictions, in standard deviations of the prediction"
        limit = limits["prediction_gap"]
        checks.append(_check("chains predict alike", gap, limit, gap <= limit, meaning))
    if "moved" in fit.statistics:
        share = float(np.mean(fit.statistics["moved"], axis=1).min())
        meaning = "share of words that change their topic in a sweep, in the slowest chain"
        checks.append(_check("topics move", share, limits["moved"], share >= limits["moved"], meaning))
    if "diverging" in fit.statistics:
        share = float(np.mean(fit.statistics["diverging"]))
        meaning = "share of divergent transitions of NUTS"
        limit = limits["divergences"]
        checks.append(_check("no divergences", share, limit, share <= limit, meaning))
    return checks


def _verdict(fit: AlignedFit, checks: pd.DataFrame) -> str:
    """The checks as sentences, what is wrong first."""
    failed = [name for name in checks.index if checks.loc[name, "passes"] is False]
    unknown = [name for name in checks.index if checks.loc[name, "passes"] is None]
    alignment = fit.alignment
    sentences = []
    if not failed and not unknown:
        sentences.append("Nothing speaks against this posterior: every check passed.")
    elif not failed:
        sentences.append("Nothing speaks against this posterior, but not everything can be known.")
    else:
        sentences.append("Do not rely on everything in this posterior.")
    if fit.engine in ("gibbs", "nuts"):
        sentences.append(alignment.verdict)
        alike = checks["passes"].get("chains predict alike")
        if alike is not None:
            sentences.append("Predictions agree." if alike else "Predictions of the chains differ.")
    for start, sentence in _GROUPED.items():
        those = [name for name in failed if name.startswith(start)]
        if those:
            worst = [f"{checks.loc[name, 'value']:.3g} for {name.removeprefix(start)}" for name in those]
            sentences.append(sentence.format(checks.loc[those[0], "threshold"], "; ".join(worst)))
    for name in failed:
        if not name.startswith(("chains", *_GROUPED)):
            sentences.append(f"Not so: {name} ({checks.loc[name, 'meaning']}).")
    for name in unknown:
        if name != "chains found the same topics":
            sentences.append(f"{name[0].upper()}{name[1:]}: {checks.loc[name, 'meaning']}.")
    return " ".join(sentences)


_GROUPED = {
    "R-hat of ": "R-hat is above {:g}: {}; the chains have not mixed.",
    "effective draws of ": "Fewer than {:g} effective draws: {}; run longer.",
}
