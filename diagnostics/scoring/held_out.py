"""How well a fit predicts the words of documents it has not seen: held-out likelihood and perplexity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from topiczoo.corpora import Corpus
from topiczoo.inference import label_evidence, word_weights
from topiczoo.inference.predictive.evidence import drawn_completion
from topiczoo.inference.programs.progress import tqdm
from topiczoo.inference.story.validation import check_seed

from .evidence import Evidence, chib, completion, jackknife_error, left_to_right, split

if TYPE_CHECKING:
    from topiczoo.inference import Fit

METHODS = ("left_to_right", "chib", "completion")


@dataclass(frozen=True, repr=False)
class HeldOut:
    """Likelihood of the words of held-out documents.

    p(w_d) is the mean of p(w_d | draw) over posterior draws. Errors are those of the computation: they cover the
    estimator's noise, the choice of draws and the bias of the logarithm, by the jackknife over draws, or over chains
    where that says more (chains that disagree); not the choice of documents. NaN: a single draw cannot tell.
    """

    method: str
    names: np.ndarray  # [documents]
    num_tokens: np.ndarray  # [documents] tokens that were scored
    estimates: np.ndarray  # log p(w_d | draw), estimated, [chain, draw, documents]

    @cached_property
    def log_likelihood(self) -> np.ndarray:
        """log p(w_d), [documents]; 0 for a document without known words."""
        return _log_mean(self._draws, self.num_tokens)

    @cached_property
    def error(self) -> np.ndarray:
        """Standard error of each log p(w_d), [documents]."""
        return np.where(self.num_tokens == 0, 0.0, self._error(lambda logs: logs))

    @property
    def per_word(self) -> float:
        """log p(w) a token: the documents' sum over the number of tokens."""
        return float(self.log_likelihood.sum() / self.num_tokens.sum()) if self.num_tokens.sum() else np.nan

    @property
    def perplexity(self) -> float:
        """exp(-log p(w) a token): as many equally likely words would be as hard to guess."""
        return float(np.exp(-self.per_word))

    @property
    def perplexity_error(self) -> float:
        """Standard error of the perplexity. Draws are common to documents, so it is not the sum of theirs."""
        if not np.isfinite(self.perplexity):
            return np.nan
        return float(self.perplexity * self._error(lambda logs: logs.sum(-1)) / self.num_tokens.sum())

    def frame(self) -> pd.DataFrame:
        """One row a document: tokens, log_likelihood, error, perplexity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            perplexity = np.exp(-self.log_likelihood / self.num_tokens)
        columns = {"tokens": self.num_tokens, "log_likelihood": self.log_likelihood, "error": self.error}
        return pd.DataFrame({**columns, "perplexity": perplexity}, index=pd.Index(self.names, name="document"))

    def __repr__(self) -> str:
        chains, draws = self.estimates.shape[:2]
        return (
            f"HeldOut: perplexity {self.perplexity:.5g} ± {self.perplexity_error:.2g} by {self.method}, "
            f"{len(self.names)} documents, {self.num_tokens.sum()} tokens, {chains} chains of {draws} draws"
        )

    @property
    def _draws(self) -> np.ndarray:
        return self.estimates.reshape(-1, self.estimates.shape[-1])

    def _error(self, reduce: Callable) -> np.ndarray:
        """Jackknife error of a function of log p(w_d) over draws, or over chains if that is larger."""
        chains = np.arange(len(self.estimates)).repeat(self.estimates.shape[1])
        found = [np.full_like(reduce(self.log_likelihood), np.nan)]
        for groups in (np.arange(len(chains)), chains):
            kinds = np.unique(groups)
            if len(kinds) > 1:
                left = [reduce(_log_mean(self._draws[groups != kind], self.num_tokens)) for kind in kinds]
                found.append(jackknife_error(reduce(self.log_likelihood), np.stack(left)))
        return np.fmax.reduce(found)


def _log_mean(logs: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
    return np.where(num_tokens == 0, 0.0, logsumexp(logs, axis=0) - np.log(len(logs)))


def perplexity(
    fit: Fit, test: Corpus, method: str = "left_to_right",
    *, most_draws: int = 10, seed: int = 0, progress_bar: bool = False, **settings: Any,
) -> HeldOut:  # fmt: skip
    """Held-out likelihood of the words of ``test``, each document's topics and proportions summed out.

    Parameters
    ----------
    method
        "left_to_right" or "chib": log p(w_d). "completion": log p(second half | first half), halves drawn at random.
        All are described in :mod:`diagnostics.evidence`. For a story with one topic a document all are exact.
    most_draws
        Posterior draws a chain, evenly spaced; each adds a run of the estimator.
    settings
        Of the estimator: ``particles``, ``resample_tokens``, ``num_sweeps``, ``num_burn``, ``repeats`` (1 for each draw);
        ``num_thetas`` and ``num_burn`` of completion where theta is drawn.

    Words that the fit has not seen are left out, and documents without known words count for nothing; a response is
    not looked at. Where theta is no Dirichlet site that only words read, e.g. logistic normal, "completion" is the method
    that works: theta is drawn given the first half (:func:`..inference.predictive.evidence.drawn_completion`).

    NB: under a small gamma nearly every draw gives a term without training tokens a probability near 0, and p(w_d) of a
    document with such a term hangs on draws that are rarely seen: it comes out too low. Leave such terms out.
    """
    check_seed(seed)
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose from {', '.join(map(repr, METHODS))}.")
    if most_draws < 1:
        raise ValueError(f"most_draws is {most_draws!r}; give a whole number of at least 1.")
    if fit.graph.has_sentences:
        raise ValueError(
            f"In the story {fit.story.name!r} words of a sentence share their topic, for which p(w_d) is not known here; "
            "compare stories by what they predict."
        )
    exact = label_evidence(fit, test, most_draws=most_draws)
    known = test.with_vocabulary(fit.vocabulary)
    first, second = split(known, seed) if method == "completion" else (None, known)
    if exact is not None:
        if settings:
            raise TypeError(f"{next(iter(settings))!r} is of no use: p(w_d) of the story {fit.story.name!r} is exact.")
        if first is not None:
            exact = exact - label_evidence(fit, first, most_draws=most_draws)
        return HeldOut(f"{method} (exact)", test.names, second.lengths, exact)

    if first is not None:
        drawn = drawn_completion(fit, first, second, most_draws=most_draws, seed=seed, **settings)
        if drawn is not None:
            return HeldOut(method, test.names, second.lengths, drawn)
    weights = word_weights(fit, known, most_draws=most_draws)
    num_chains, num_draws = weights.beta.shape[:2]
    settings = {"repeats": 1, **settings}
    estimates = np.empty((num_chains, num_draws, settings["repeats"], len(test)))
    with tqdm(total=num_chains * num_draws, disable=not progress_bar, desc=method, unit="draw") as bar:
        for chain, draw in np.ndindex(num_chains, num_draws):
            topics = weights.beta[chain, draw], weights.alpha[chain, draw]
            own = int(np.random.SeedSequence([seed, chain, draw]).generate_state(1)[0])
            estimates[chain, draw] = _estimate(method, topics, first, second, seed=own, **settings).repeats
            bar.update()
    return HeldOut(method, test.names, second.lengths, estimates.reshape(num_chains, -1, len(test)))


def _estimate(
    method: str, topics: tuple[np.ndarray, np.ndarray], first: Corpus | None, second: Corpus, **settings: Any
) -> Evidence:
    if first is not None:
        return completion(*topics, first, second, **settings)
    return (chib if method == "chib" else left_to_right)(*topics, second, **settings)
