"""Which topics count: a sparse summary of a fit's coefficients, by a rule that the result names.

A posterior draw of a coefficient is never exactly 0, whatever its prior, so that "selected" is a decision made after the
fit. Three rules are offered. Each orders the topics, and every number of kept topics has coefficients of its own, so that
the price of sparsity, error against the number kept, can be looked at before a number is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus

from ..posterior.naming import topic_labels
from ..posterior.posterior import Posterior
from ..posterior.tables import leading_words
from ..story.tracing import Values
from ..story.validation import check_seed, check_share
from .fold_in import FoldIn
from .predicting import LEAST_RESPONSES, as_prediction, plug_in, plug_in_topics
from .prediction import Prediction
from .projection import LogScore, project, squared, yes_or_no

RULES = {
    "largest": "the largest posterior means",
    "interval": "central intervals that exclude 0",
    "projection": "steps towards the fit's own predictions",
}
ENOUGH = 0.95  # share of what all topics explain of the fit's own predictions at which "projection" stops by itself


@dataclass(frozen=True, eq=False)
class Selection:
    """Some topics of one chain and the coefficients they are left with; all others have one number in common.

    Attributes
    ----------
    rule
        What chose the topics, in words.
    kept
        Whether each topic counts, [topics] or [topics, outputs].
    coefficients
        The coefficients after selection; where a topic is not kept the intercept, or 0 without one.
    draws
        The coefficient's posterior draws in the chain, [draw, topics, ...].
    path
        Coefficients for 0, 1, ... kept topics (of each output), [topics + 1, topics, ...].
    """

    fit: Posterior
    site: str
    chain: int
    rule: str
    kept: np.ndarray
    coefficients: np.ndarray
    draws: np.ndarray
    path: np.ndarray

    def __repr__(self) -> str:
        return f"Selection of {self.kept.sum()} of {self.kept.size} coefficients {self.site!r} by {self.rule}"

    def frame(self, n: int = 7, probability: float = 0.9) -> pd.DataFrame:
        """One row a topic (and output), the kept ones first by coefficient: mean, low, high, kept, coefficient, terms."""
        check_share(probability=probability)
        tails = (1 - probability) / 2
        low, high = np.quantile(self.draws, [tails, 1 - tails], axis=0)
        words = np.array(leading_words(self.fit, n, chain=self.chain), object)
        where = np.indices(self.kept.shape).reshape(self.kept.ndim, -1)
        columns = {"topic": topic_labels(self.fit, len(self.kept))[where[0]]} | (
            {"output": where[1]} if self.kept.ndim > 1 else {}
        )
        columns |= {"mean": self.draws.mean(0).ravel(), "low": low.ravel(), "high": high.ravel()}
        columns |= {"kept": self.kept.ravel(), "coefficient": self.coefficients.ravel()}
        frame = pd.DataFrame({**columns, "terms": words[where[0]]})
        return frame.sort_values(["kept", "coefficient"], ascending=[False, True], ignore_index=True)

    def predict(self, corpus: Corpus, *, seed: int = 0) -> Any:
        """The response of new documents at the kept coefficients, all else at the chain's posterior means.

        A :class:`Prediction`, or a dict of them where the story has several responses.
        """
        check_seed(seed)
        found = self._predictor(corpus, repeats=LEAST_RESPONSES, seed=seed)(self.coefficients)
        return found if len(found) > 1 else next(iter(found.values()))

    def errors(self, corpus: Corpus, y: Any) -> pd.DataFrame:
        """Error on documents against the number of topics kept: the share of wrong classes, or the mean squared error.

        Columns: kept (of each output), sparsity (kept over topics), error; ``attrs["error"]`` says which of the two. Where
        the story has several responses, y is a dict of some of them, and each has a column of its name and its word in
        ``attrs``.
        """
        predict, num_topics = self._predictor(corpus, repeats=1, seed=0), self.kept.shape[0]
        path = [predict(coefficients) for coefficients in self.path]
        sites = list(path[0])
        named = y if isinstance(y, Mapping) else dict.fromkeys(sites[:1], self.fit.response.encode(y))
        if (len(sites) > 1 and named is not y) or set(named) - set(sites):
            told = f"names {list(named)}" if named is y else "is one response"
            raise ValueError(f"y {told}, and the story has {', '.join(map(repr, sites))}; give a dict of those.")
        kept = np.arange(num_topics + 1)
        frame = pd.DataFrame({"kept": kept, "sparsity": kept / num_topics})
        for name, values in named.items():
            truth, first = np.asarray(values, float), path[0][name]
            column = name if named is y else "error"
            frame[column] = [error(predictions[name], truth) for predictions in path]
            of_classes = first.probabilities is not None or first.yes_or_no
            frame.attrs[column] = "share of wrong classes" if of_classes else "mean squared error"
        return frame

    def _predictor(self, corpus: Corpus, repeats: int, seed: int) -> Callable[[np.ndarray], dict[str, Prediction]]:
        """A function from coefficients to predictions; documents are folded in and responses compiled once."""
        fold = FoldIn(self.fit, corpus, chains=[self.chain])
        respond, values = plug_in(fold, repeats), fold.means(self.chain)
        topics = plug_in_topics(fold, values)
        return lambda coefficients: _predict(fold, respond, topics, {**values, self.site: coefficients}, seed)


def _predict(fold: FoldIn, respond: Callable, topics: tuple, values: Values, seed: int = 0) -> dict[str, Prediction]:
    """Each response at given topics and values, coefficients among them."""
    values = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), values)
    parts = respond(jax.random.key(seed), *topics, values)
    return {name: as_prediction(name, fold.graph.corpus, [part], fold) for name, part in parts.items()}


def error(prediction: Prediction, y: np.ndarray) -> float:
    """The share of wrong classes (of codes), or the mean squared error; documents without a response do not count."""
    labelled = ~np.isnan(y)
    if prediction.probabilities is not None:
        return float(np.mean(prediction.code[labelled] != y[labelled]))
    if prediction.yes_or_no:  # several side by side
        return float(np.mean((prediction.mean > 0.5)[labelled] != y[labelled]))
    return float(np.mean((prediction.mean - y)[labelled] ** 2))


def select(
    fit: Posterior, rule: str = "projection", *, keep: int | float | None = None, intercept: bool = True,
    probability: float = 0.9, chain: int | None = None, site: str | None = None,
) -> Selection:  # fmt: skip
    """Keep the topics that count for the response and give the others one coefficient in common.

    Parameters
    ----------
    rule
        "largest": by absolute posterior mean. "interval": those whose central interval of ``probability`` excludes 0, by
        mean over deviation. "projection": one after the other, each time the topic that brings the predictions of those
        chosen nearest to the fit's own (decoupled selection, Hahn & Carvalho 2015, by forward steps).
    keep
        How many topics (a whole number), or which share of them (a number below 1), each output keeps. It may be left out
        for "interval", which then keeps as many as pass, and for "projection", which then keeps as few as explain 95% of
        what all topics explain of the fit's own predictions.
    intercept
        Whether topics that are not kept have one number in common, by default, or 0. Shares of topics sum to 1, so that
        this number is an intercept; with 0 a document of none of the kept topics has the response 0, whatever its mean.
    chain
        Topics of different chains are different topics, so one chain is summarised: by default the one whose kept topics
        predict the responses of the fitted documents best from their words. (The most probable one would be chosen by its
        words, next to which a response weighs little; it is taken where a story observes several responses by name.)

    The kept coefficients are those whose predictions of the fitted documents come nearest to what they were with all of
    them: in probabilities where the response is yes or no, else in the mean square of the predictor.
    """
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; choose from {', '.join(map(repr, RULES))}.")
    check_share(probability=probability)
    site = _site(fit, site)
    num_chains, _, num_topics = fit.draws[site].shape[:3]
    if chain is not None and not 0 <= chain < num_chains:
        raise ValueError(f"chain is {chain}; the fit has chains 0 to {num_chains - 1}.")
    wanted = _wanted(rule, keep, num_topics)
    words = RULES[rule]
    if rule == "interval":
        words = f"central {probability:.0%} intervals that exclude 0" if wanted is None else "mean over deviation"
    elif wanted is None:
        words += f", to {ENOUGH:.0%} of what all topics explain"
    fold = FoldIn(fit, fit.corpus, chains=[0])
    topics_of = cache(lambda chain: plug_in_topics(fold, fold.means(chain)))

    def of_chain(chain: int) -> Selection:
        draws, zbar = fit.draws[site][chain], np.asarray(topics_of(chain)[1], np.float64)
        near: Sequence[LogScore | None] | None = yes_or_no(fold, fold.means(chain), topics_of(chain)[0], draws, zbar)
        outputs = np.moveaxis(draws.reshape(len(draws), num_topics, -1), -1, 0)
        columns = [
            _Column(zbar, own, log_score, rule, probability, intercept)
            for own, log_score in zip(outputs, near or [None] * len(outputs), strict=True)
        ]
        path = np.stack([column.path for column in columns], -1).reshape(num_topics + 1, *draws.shape[1:])
        sizes = [column.size if wanted is None else wanted for column in columns]
        kept = np.stack([column.kept(size) for column, size in zip(columns, sizes, strict=True)], -1)
        chosen = np.stack([column.path[size] for column, size in zip(columns, sizes, strict=True)], -1)
        kept, chosen = kept.reshape(draws.shape[1:]), chosen.reshape(draws.shape[1:])
        return Selection(fit, site, chain, words, kept, chosen, draws, path)

    if chain is not None or num_chains == 1:
        return of_chain(chain or 0)
    if fit.response.several:
        return of_chain(int(fit.statistics["lp"].mean(1).argmax()) if "lp" in fit.statistics else 0)
    respond, truth = plug_in(fold, 1), np.asarray(fit.y, float)

    def wrong(chosen: Selection) -> float:
        values = {**fold.means(chosen.chain), site: chosen.coefficients}
        (found,) = _predict(fold, respond, topics_of(chosen.chain), values).values()
        return error(found, truth)

    return min(map(of_chain, range(num_chains)), key=wrong)


class _Column:
    """The coefficients of one output: an order of the topics, and projections onto the first of them."""

    def __init__(
        self, zbar: np.ndarray, draws: np.ndarray, log_score: LogScore | None, rule: str, probability: float, intercept: bool
    ) -> None:  # fmt: skip
        mean, deviation = draws.mean(0), draws.std(0)
        tails = (1 - probability) / 2
        low, high = np.quantile(draws, [tails, 1 - tails], axis=0)
        passes = (low > 0) | (high < 0)
        order = None
        if rule == "largest":
            order = np.argsort(-np.abs(mean), kind="stable")
        elif rule == "interval":
            order = np.lexsort([-np.abs(mean) / np.maximum(deviation, 1e-12), ~passes])
        self.order, self.path, near = project(zbar, mean, log_score or squared(zbar @ mean), intercept, order)
        explained = (near - near[0]) / max(near[-1] - near[0], 1e-30)
        enough = explained >= ENOUGH
        by_projection = int(np.argmax(enough)) if enough.any() else len(mean)
        self.size = int(passes.sum()) if rule == "interval" else by_projection  # how many the rule itself would keep

    def kept(self, size: int) -> np.ndarray:
        return np.isin(np.arange(len(self.order)), self.order[:size])


def _site(fit: Posterior, site: str | None) -> str:
    known = fit.coefficients
    chosen = known[0] if site is None and len(known) == 1 else site
    if chosen not in known:
        have = ", ".join(map(repr, known)) or "none"
        said = "missing" if site is None else repr(site)
        raise ValueError(f"site is {said}; the story {fit.story.name!r} has the coefficients {have}: name one.")
    if fit.graph.dims[chosen][0] != "topic":
        raise ValueError(
            f"site is {chosen!r}, whose first axis is not that of topics; topics are chosen by coefficients of zbar, as in "
            "zbar @ eta."
        )
    return chosen


def _wanted(rule: str, keep: Any, num_topics: int) -> int | None:
    if keep is None:
        if rule == "largest":
            raise ValueError("keep is missing for the rule 'largest'; give a number of topics, or a share such as 0.1.")
        return None
    if isinstance(keep, float) and 0 < keep < 1:
        return int(keep * num_topics + 1e-9)
    if keep != int(keep) or not 0 <= keep <= num_topics:
        raise ValueError(f"keep is {keep!r}; give a whole number from 0 to {num_topics}, or a share below 1.")
    return int(keep)
