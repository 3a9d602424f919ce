"""Chains weighted by how well they predict: stacking (Yao, Vehtari & Gelman 2022).

Chains that sit in different modes are not draws of one posterior, and there is no reason that they count alike. Stacking
weighs them so that their mixture predicts best:

    w  =  argmax  sum_d log sum_c w_c p_dc  +  PRIOR sum_c log w_c,    w_c >= 0,  sum_c w_c = 1,

p_dc the density that chain c gives the response of document d, which it should not have seen. The sum is concave in w; its
maximum is found by EM for the weights of a mixture, which never falls and has no step to choose. The second term is worth a
document for each chain: chains that documents do not tell apart keep weights about alike.

Of a fitted document p_dc is the density with its response left out: the harmonic mean of p(y_d | w_d, draw) over the draws
of the chain, where the ratios 1 / p are cut at sqrt(draws) times their mean (Ionides 2008). A fit with a weight of the
response has held documents out, which it has not seen: chains are weighed by these.
"""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from scipy.special import logsumexp

from topiczoo.corpora import Corpus

from .posterior.posterior import Posterior
from .predictive.pointwise import pointwise
from .predictive.probabilities import LEAST, MOST

PRIOR = 1.0  # documents for each chain
MOST_DRAWS = 50  # of a chain
LOWEST = -1e4  # of a log-density: what a chain holds for impossible counts against it, and no more
LIMITS = 1e-9, 10_000  # of EM: change of a weight, and steps


def chain_weights(fit: Posterior, chains: Any) -> np.ndarray | None:
    """How much each chain counts in predictions: None for all alike.

    ``chains`` is "equal"; "stacked", by the fitted documents, each as if its response had been left out (found once for a
    fit); documents that the fit has not seen and their responses, ``(corpus, y)``; or the weights themselves.
    """
    number = len(next(iter(fit.global_draws(1).values())))
    if isinstance(chains, str):
        if chains not in ("equal", "stacked"):
            raise ValueError(f"chains is {chains!r}; give 'equal', 'stacked', (corpus, y) or one weight a chain.")
        if chains == "equal":
            return None
        if "stacked" not in fit.compiled:
            fit.compiled["stacked"] = _by_fitted(fit, number)
        return fit.compiled["stacked"]
    if isinstance(chains, tuple) and len(chains) == 2 and isinstance(chains[0], Corpus):
        logs = _log_densities(fit, *chains)
        return stacked(logsumexp(logs, axis=1) - np.log(logs.shape[1]))
    return _given(chains, number)


def stacked(log_densities: np.ndarray) -> np.ndarray:
    """Weights of chains from the logarithms of p_dc, [chains, documents]: those whose mixture predicts best."""
    chains, documents = log_densities.shape
    scaled = np.exp(log_densities - log_densities.max(0))
    weights = np.full(chains, 1 / chains)
    tolerance, steps = LIMITS
    for _ in range(steps):
        shares = weights[:, None] * scaled
        new = ((shares / shares.sum(0)).sum(1) + PRIOR) / (documents + chains * PRIOR)
        change, weights = np.abs(new - weights).max(), new
        if change < tolerance:
            break
    return weights


def left_out(logs: np.ndarray) -> np.ndarray:
    """log p_dc with the response of document d left out, [chains, documents].

    ``logs`` is log p(y_d | w_d, draw), [chain, draw, documents].
    """
    draws = logs.shape[1]
    most = logsumexp(-logs, axis=1, keepdims=True) - np.log(draws) / 2
    ratios = np.minimum(-logs, most)
    return logsumexp(ratios + logs, axis=1) - logsumexp(ratios, axis=1)


def _by_fitted(fit: Posterior, number: int) -> np.ndarray:
    """By documents of the fit, some hundreds of them at the most."""
    if number == 1:
        return np.ones(1)
    if not fit.response:
        raise ValueError(
            f"chains is 'stacked', and the story {fit.story.name!r} was fitted without a response to weigh them by; give "
            "(corpus, y), or 'equal'."
        )
    if held_out := fit.info.get("held_out"):  # documents whose responses the fit does not know
        logs = _log_densities(fit, fit.corpus[held_out], fit.response.take(np.asarray(held_out)).y)
        return stacked(logsumexp(logs, axis=1) - np.log(logs.shape[1]))
    seen = [~np.isnan(part.reshape(len(part), -1)).any(1) for part in fit.response.parts.values()]
    rows = np.flatnonzero(np.any(seen, axis=0) & (fit.corpus.lengths > 0))
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST])
    return stacked(left_out(_log_densities(fit, fit.corpus[rows], fit.response.take(rows).y)))


def _log_densities(fit: Posterior, corpus: Corpus, y: Any) -> np.ndarray:
    """log p(y_d | w_d, draw), [chain, draw, responses]: documents with a response, those of several one after the other."""
    found = pointwise(fit, corpus, y, inner=None, most_draws=MOST_DRAWS).log_likelihood
    logs = np.concatenate([part[..., ~np.isnan(part).any((0, 1))] for part in found.values()], axis=-1)
    if logs.shape[-1] < LEAST:
        raise ValueError(
            f"chains are weighed by {logs.shape[-1]} documents with a response; give {LEAST} at least as (corpus, y), or "
            "chains='equal'."
        )
    return np.maximum(logs, LOWEST)


def _given(chains: Any, number: int) -> np.ndarray:
    try:
        weights = np.asarray(chains, float)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    if weights.shape != (number,) or not (weights >= 0).all() or not np.isclose(weights.sum(), 1, atol=1e-6):
        raise ValueError(
            f"chains is {reprlib.repr(chains)}; give 'equal', 'stacked', (corpus, y), or {number} weights, one a chain, "
            "that sum to 1."
        )
    return weights / weights.sum()
