"""Can this posterior be trusted? Numbers against named thresholds first, a verdict in plain words second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from topiczoo.inference import Fit
from topiczoo.inference.posterior.posterior import serving
from topiczoo.inference.story.validation import check_seed

from .alignment import AlignedFit, align
from .chain_checks import chain_checks, divergences, numbers_of
from .followed import DOCUMENTS, Followed, follow, prediction_checks
from .quantities import series
from .reliance import rely
from .variational import check_bound, check_svi, starts_of
from .weighed import held_out_check, rely_on_weighed
from .wording import verdict

# what each guards against and what it costs: docs/verdict.md
THRESHOLDS: dict[str, float] = {
    "r_hat": 1.01,  # rank-normalised split R-hat at most this, and what chance adds to the largest of several
    "ess_per_chain": 100,  # bulk and tail effective draws a chain at least this (Vehtari et al. 2021)
    "ess_to_mix": 25,  # the same for label-invariant quantities, which tell whether chains mix and are not reported
    "short": 0.05,  # share of the quantities of a kind that may have fewer
    "draws": 50,  # draws a chain from which R-hat and effective draws can be judged at all
    "agreement": 0.95,  # share of words in topics that all chains have at least this
    "prediction_error": 0.2,  # Monte Carlo error of pooled predictions, in predictive standard deviations, at most this
    "score_gap": 0.1,  # excess of the worst chain's mean squared error over the best's, beyond chance, at most this
    "accepted": 0.02,  # share of the moves words ask for that the response lets through, in every chain, at least this
    "moved": 0.001,  # share of words that change their topic in a sweep at least this, where the former is not stored
    "divergences": 0.0,  # share of divergent transitions of NUTS at most this
    "pareto_k": 0.7,  # of importance ratios of a variational fit at most this
    "documents_k": 0.05,  # share of documents whose own Pareto k is above it at most this
    "loss_slope": 2.0,  # fall of the loss over the last quarter, in its standard errors, at most this
}


@dataclass(frozen=True)
class Diagnosis:
    """What is known of a fit's convergence.

    Attributes
    ----------
    numbers
        One row a quantity: kind, topic, mean, sd, mcse, r_hat, ess_bulk, ess_tail, passes. What cannot be known is missing.
    checks
        One row a question: about (which of the judgements it speaks for, or the sampler), value, threshold, passes (True,
        False, or None where it cannot be known), meaning.
    reliance
        One row for topics, coefficients and predictions as far as the story has them: grade ("rely", "with care", "do not
        rely" or "cannot be known") and why.
    verdict
        The same in plain words: what to rely on, what holds and what does not, what to do.
    fit
        The fit with its topics aligned; its numbers of topics are the ones used here.
    """

    numbers: pd.DataFrame
    checks: pd.DataFrame
    reliance: pd.DataFrame
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
            "reliance": self.reliance.reset_index().to_dict("records"),
            "checks": self.checks.reset_index().to_dict("records"),
            "numbers": self.numbers.reset_index().to_dict("records"),
        }

    def __str__(self) -> str:
        return self.verdict


def diagnose(
    fit: Fit, *, predictions: int = DOCUMENTS, seed: int = 0, thresholds: Mapping[str, float] | None = None
) -> Diagnosis:
    """Judge what of a fit can be relied on.

    Topics are aligned first. Topics, coefficients and predictions are then judged apart: topics by how far chains share them
    and by their leading terms, coefficients by R-hat and effective draws, predictions by how far another run would move
    them.

    Parameters
    ----------
    predictions
        Documents of the corpus whose expected response is followed, drawn at random, through at most 200 draws a chain;
        0 leaves predictions out.
    thresholds
        Replacements for some of ``diagnosis.THRESHOLDS``.
    """
    check_seed(seed)
    unknown = set(thresholds or ()) - set(THRESHOLDS)
    if unknown:
        raise ValueError(f"thresholds names {sorted(unknown)[0]!r}; choose from {', '.join(THRESHOLDS)}.")
    limits = {**THRESHOLDS, **(thresholds or {})}
    aligned = fit if isinstance(fit, AlignedFit) else align(fit)
    checks: list[dict[str, Any]]
    if fit.engine in ("gibbs", "nuts"):
        followed, predicted = _predictions(aligned, predictions, seed, limits)
        found = series(aligned, followed)
        numbers = numbers_of(found, limits)
        if serving(fit.info):  # chains that differ are averaged: R-hat is told, and judges nothing
            numbers["passes"] = None
            alike = [check for check in predicted if check["check"] == "chains predict alike"]
            checks = divergences(aligned, limits) + alike + held_out_check(aligned, followed)
        else:
            checks = chain_checks(aligned, found, numbers, limits) + predicted
        by = "sampler"
    else:
        numbers = numbers_of(series(aligned), limits, independent=True)
        checks = check_svi(aligned, limits) if fit.engine == "svi" else check_bound(aligned)
        by = "approximation"
        if starts_of(fit) > 1:
            checks += _predictions(aligned, predictions, seed, limits)[1]
        if serving(fit.info):
            rests = ("the loss rests", "the bound rests")  # there is no posterior to be near to
            checks = [check for check in checks if check["check"] in rests]
            checks += held_out_check(aligned, follow(aligned, predictions, seed))
    if fit.info.get("interrupted"):
        meaning = "the run was interrupted: it has fewer draws or steps"
        checks.append({"check": "ran to its end", "passes": False, "meaning": meaning})
    frame = pd.DataFrame(checks, columns=["check", "about", "value", "threshold", "passes", "meaning"]).set_index(
        "check"
    )
    frame["about"] = frame["about"].astype(object).fillna(by)
    frame["passes"] = frame["passes"].astype(object)
    reliance = rely_on_weighed(aligned, frame) if serving(fit.info) else rely(aligned, frame, limits)
    return Diagnosis(numbers, frame, reliance, verdict(aligned, frame, reliance, limits), aligned)


def _predictions(
    aligned: AlignedFit, number: int, seed: int, limits: Mapping[str, float]
) -> tuple[dict[str, Followed], list[dict[str, Any]]]:
    """What is expected of documents in each chain, and whether chains agree on it."""
    try:
        followed = follow(aligned, number, seed)
        return followed, prediction_checks(followed, limits)
    except ValueError as error:  # the story does not let new documents be folded in
        return {}, [{
            "check": "chains predict alike", "about": "predictions", "value": None,
            "threshold": limits["prediction_error"], "passes": None, "meaning": f"cannot be known: {error}",
        }]  # fmt: skip
