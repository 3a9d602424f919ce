"""Do chains predict alike? The expected responses of some documents of the corpus, followed through every chain.

A prediction is a mean over draws and chains. What counts is how far it would move were the chains run anew, measured in
standard deviations of the response itself: an error of e adds e^2 to the mean squared error, whatever topics the chains
have. Chains in different modes may well predict alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from topiczoo.inference import Fit
from topiczoo.inference.predictive.expected_responses import Expected, expected_responses

DOCUMENTS = 100  # followed at the most
DRAWS = 200  # of each chain at the most
CERTAIN = 0.01  # of a response's whole variance: predictions surer than that are not asked to agree any closer
CLOSE = 0.1  # of the squared error that a fit expects: chains below it all predict well


class Followed(NamedTuple):
    """Some documents of the corpus, and what a fit expects of one response of theirs."""

    documents: np.ndarray  # their rows in the corpus
    expected: Expected
    told: np.ndarray | None  # their responses where the fit has them, as ``expected`` has them, [documents, parts]

    @property
    def error(self) -> float:
        """Monte Carlo error of the predictions averaged over chains, in predictive standard deviations (root mean square).

        Two or more chains: their means differ by how far each has come and by the modes they are in, and both count.
        """
        means = self.expected.values.mean(1)
        moved = means.var(0, ddof=1).mean(0) / len(means)
        return float(np.sqrt((moved / np.maximum(self._variance, 1e-30)).max()))

    @property
    def _variance(self) -> np.ndarray:
        """The response's variance given the words, averaged over documents, [parts]."""
        given_words = self.expected.variance.mean(0)
        whole = given_words + self.expected.values.mean((0, 1)).var(0)
        if self.expected.of_classes:  # all probabilities of a class are judged as one
            given_words, whole = np.full_like(whole, given_words.mean()), np.full_like(whole, whole.mean())
        return np.maximum(given_words, CERTAIN * whole)

    @property
    def losses(self) -> np.ndarray | None:
        """Squared errors of each chain's own predictions, of classes Brier's, [chain, documents]; NaN where y is missing.

        In units of the variance expected. The fit has seen these responses: only differences between chains mean something.
        """
        if self.told is None or np.isnan(self.told).all():
            return None
        return ((self.expected.values.mean(1) - self.told) ** 2 / self._variance).sum(-1)


def follow(fit: Fit, number: int = DOCUMENTS, seed: int = 0) -> dict[str, Followed]:
    """What the fit expects of so many documents drawn at random, by the name of the response."""
    if not number or fit.y is None:
        return {}
    # a fit with a weight of the response has held documents out: what it says of others it has learned by heart
    among = np.asarray(fit.info.get("held_out") or np.arange(len(fit.corpus)))
    rows = np.sort(np.random.default_rng(seed).choice(among, min(number, len(among)), replace=False))
    found = expected_responses(fit, fit.corpus[rows], most_draws=DRAWS, seed=seed)
    return {name: Followed(rows, part, _told(fit.y, name, rows, part)) for name, part in found.items()}


def _told(y: Any, name: str, rows: np.ndarray, expected: Expected) -> np.ndarray | None:
    values = y.get(name) if isinstance(y, Mapping) else y
    if values is None:
        return None
    values = np.asarray(values, float)[rows].reshape(len(rows), -1)
    if not expected.of_classes:
        return values if values.shape == expected.variance.shape else None
    codes = np.arange(expected.values.shape[-1])
    return np.where(np.isnan(values), np.nan, values == codes) if values.shape[1] == 1 else None


def prediction_checks(followed: Mapping[str, Followed], limits: Mapping[str, float]) -> list[dict[str, Any]]:
    """Whether chains predict alike, and whether any of them predicts worse than another."""
    if not followed:
        return []
    alike = {"check": "chains predict alike", "about": "predictions", "threshold": limits["prediction_error"]}
    num_chains = len(next(iter(followed.values())).expected.values)
    if num_chains == 1:
        reason = "one chain: whether another would predict the same cannot be known"
        return [{**alike, "value": None, "passes": None, "meaning": reason}]
    name, worst = max(followed.items(), key=lambda item: item[1].error)
    meaning = (
        f"how far another run would move the predicted {name} of {len(worst.documents)} documents, averaged over chains, in "
        "standard deviations of the prediction"
    )
    checks = [{**alike, "value": worst.error, "passes": worst.error <= limits["prediction_error"], "meaning": meaning}]
    scored = {name: part.losses for name, part in followed.items()}
    gaps = {name: _gap(losses) for name, losses in scored.items() if losses is not None}
    if gaps:
        name, (excess, noise, chain) = max(gaps.items(), key=lambda item: item[1][0] - item[1][1])
        limit = limits["score_gap"]
        passes = bool(excess - noise <= limit)
        meaning = f"the mean squared error of chain {chain} is {1 + excess:.2f} times that of the best chain"
        if passes and excess > limit:
            meaning += f", and chance alone makes it {1 + noise:.2f} times"
        checks.append({
            "check": "chains score alike", "about": "predictions", "value": excess, "threshold": limit, "passes": passes,
            "meaning": meaning,
        })  # fmt: skip
    return checks


def _gap(losses: np.ndarray) -> tuple[float, float, int]:
    """The worst chain's excess loss over the best, as a share of the best's; two standard errors of it; which chain."""
    losses = losses[:, ~np.isnan(losses[0])]
    means = losses.mean(1)
    worst, best = int(means.argmax()), int(means.argmin())
    difference = losses[worst] - losses[best]
    scale = max(float(means[best]), CLOSE)
    noise = 2 * float(difference.std()) / len(difference) ** 0.5
    return float(difference.mean()) / scale, noise / scale, worst
