"""How many topics: one story fitted with several numbers of them and judged by documents that the fits have not seen.

With more topics than documents tell apart, topics are split in two or stand empty, and the score of held-out documents stays
where it is or falls a little; with fewer, two topics share one and it falls by much. So the number chosen is the smallest
whose score is not told from the best: which it lies behind by no more than two standard errors of their difference, taken
document by document. (The rule of one standard error, Breiman et al. 1984, with paired differences. On simulated corpora one
topic too few lies four to thirteen of these errors behind, while one too many, or a chain caught in a lesser mode, lies
one or two from the best on either side; benchmarks/true_topics.py.)
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.predictive.cross_validation import rows_of
from topiczoo.inference.predictive.pointwise import pointwise
from topiczoo.inference.predictive.predicting import by_fitted
from topiczoo.inference.programs.progress import tqdm
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.response import Response, in_order
from topiczoo.inference.story.validation import check_corpus, check_counts, check_seed
from topiczoo.models.catalogue import as_story

from ..convergence.alignment import align
from ..scoring.held_out import METHODS, perplexity
from ..scoring.predictive_scores import TINY
from ..scoring.topic_quality import coherence
from .topic_argument import topic_argument

ENGINES = ("gibbs", "vem", "svi", "nuts")
SCORES = ("response", "words")
TOLD_APART = 2.0  # standard errors between two scores
PARTICLES: dict[str, Any] = {"particles": 8, "resample_tokens": 3}  # enough where many documents and draws are averaged


@dataclass(frozen=True, repr=False)
class TopicNumbers:
    """A story with several numbers of topics.

    ``table`` has one row a number of topics, its index named as the story's argument:

    ============================  =====================================================================================
    ``response``                  log predictive density of the response of held-out documents given their words, a document
    ``words``                     log p(words) of held-out documents, a word: their evidence (``method`` says how)
    ``<score>_error``             standard error of each over held-out documents
    ``behind``, ``behind_error``  by how much the score that decides lies behind the best, and the standard error of that
    ``agreement``                 share of words in topics that all chains have (:func:`align`); NaN with a single chain
    ``coherence``                 mean NPMI of the topics' leading terms (:func:`coherence`)
    ``bound``                     of vem: the evidence of the fitted documents is not below it
    ============================  =====================================================================================
    """

    table: pd.DataFrame
    by: str  # the score that decides

    @property
    def best(self) -> int:
        """The smallest number of topics whose score lies behind the best by no more than two standard errors."""
        close = self.table["behind"] <= TOLD_APART * self.table["behind_error"]
        return int(self.table.index[close.to_numpy().argmax()])

    @property
    def why(self) -> str:
        """The choice, and what it rests on."""
        name, best = self.table.index.name, self.best
        top, first, last = int(self.table["behind"].idxmin()), int(self.table.index[0]), int(self.table.index[-1])
        unit = "a word" if self.by == "words" else "a document"
        if best == top:
            said = f"{name}={best}: the best score of held-out {_called(self.by)}, and no smaller number is within two"
            said += " standard errors of it."
        else:
            row = self.table.loc[best]
            said = (
                f"{name}={best}: the smallest number whose score of held-out {_called(self.by)} is not told from the "
            )
            said += f"best, that of {top}; it lies behind by {row['behind']:.2g} ± {row['behind_error']:.2g} {unit}."
        ends = {
            first: " It is the smallest that was tried: try fewer." if first > 1 else "",
            last: " It is the largest that was tried: try more.",
        }
        return said + ends.get(best, "")

    def plot(self) -> Any:
        """The scores with their errors, the chosen number marked, beside how far chains agree; a matplotlib figure."""
        import matplotlib.pyplot as plt

        panels = [score for score in SCORES if score in self.table]
        panels += [column for column in ("agreement", "coherence") if self.table[column].notna().any()]
        figure, axes = plt.subplots(
            1, len(panels), figsize=(3.2 * len(panels), 2.8), squeeze=False, layout="constrained"
        )
        for axis, column in zip(axes[0], panels, strict=True):
            error = self.table.get(f"{column}_error")
            axis.errorbar(self.table.index, self.table[column], error, color="#3b6ea5", marker="o", capsize=3)
            axis.axvline(self.best, color="#b3402e", linewidth=0.8)
            axis.set_xticks(self.table.index)
            axis.set_xlabel(str(self.table.index.name))
            axis.set_title(column + (", which decides" if column == self.by else ""), fontsize=9)
        figure.suptitle(self.why, fontsize=9, wrap=True)
        return figure

    def __repr__(self) -> str:
        return f"TopicNumbers: {self.why}\n{self.table.to_string(float_format=lambda value: f'{value:.4g}')}"


def compare_topics(
    story: str | Callable, corpus: Corpus, y: Any = None, topics: Sequence[int] | Mapping[str, Sequence[int]] = (),
    *, engine: str | Callable = "gibbs", by: str | None = None, method: str | None = None, folds: int = 5,
    fits: int = 1, most_draws: int = 10, seed: int = 0, progress_bar: bool = True, **arguments: Any,
) -> TopicNumbers:  # fmt: skip
    """Fit a story with several numbers of topics, and choose one by documents that the fits have not seen.

    Parameters
    ----------
    story, corpus, y, arguments
        As in ``engine(story, corpus, y, **arguments)``: keyword arguments of the engine and of the story.
    topics
        The numbers to try, e.g. ``[5, 10, 20]``; the story's argument that they are of is found by reading the story. Where
        it has several such arguments, ``{"how_many": [5, 10, 20]}`` names one.
    engine
        "gibbs", "vem", "svi" or "nuts", or a function such as :func:`inference.gibbs`.
    by
        The score that decides, "response" or "words". By default the response where the story has one.
    method
        How words are scored, as in :func:`perplexity`: "left_to_right" or "chib", the evidence of whole documents, or
        "completion", the second half of a document given the first. By default left to right, or completion where the
        evidence cannot be had.
    folds, fits
        Documents are dealt into so many ``folds``; the first ``fits`` of them are held out in turn, each from fits of its
        own. With ``fits=folds`` this is cross-validation: every document is scored.
    most_draws
        Posterior draws a chain at which held-out documents are scored.

    The response is scored as ``fit.predict`` predicts it, all chains averaged. Words are scored by the best of the chains,
    which for either half of the held-out documents is the one that is best on the other half: chains that sit in different
    modes would, averaged, be more topics than were asked for, and a chain that is caught in a bad one says nothing of their
    number. Terms that no document of the fit has are left out of the score.
    """
    check_seed(seed)
    check_corpus(corpus)
    check_counts(folds=folds, fits=fits, most_draws=most_draws)
    if not (2 <= folds <= len(corpus) // 2 and fits <= folds):
        raise ValueError(
            f"folds is {folds} and fits is {fits}; give folds from 2 to half the number of documents, {len(corpus) // 2}, "
            "and no more fits than folds."
        )
    if not callable(engine) and engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; choose from {', '.join(map(repr, ENGINES))}, or give a function.")
    run = engine if callable(engine) else getattr(inference, engine)
    function, y = as_story(story), in_order(corpus, y)
    of_story = _of_story(run, arguments)
    name, values = topic_argument(function, corpus, y, topics, of_story)
    by = _decides(by, y)
    if method not in (None, *METHODS):
        raise ValueError(f"method is {method!r}; choose from {', '.join(map(repr, METHODS))}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fits say it again
        for value in values:
            read(function, corpus, y, {**of_story, name: value}, latent_classes=True)

    parts = np.array_split(np.random.default_rng(seed).permutation(len(corpus)), folds)[:fits]
    if by == "response" and all(
        np.isnan(part).all() for part in Response.of(corpus, y).take(np.concatenate(parts)).parts.values()
    ):
        raise ValueError(f"y is NaN for every document that is held out in {fits} of {folds} folds; give more fits.")
    found: dict[int, list[_Scored]] = {value: [] for value in values}
    with tqdm(total=fits * len(values), disable=not progress_bar, unit="fit") as bar:
        for left_out in parts:
            kept = np.setdiff1d(np.arange(len(corpus)), left_out)
            for value in values:
                bar.set_description(f"{name} {value}")
                fit = run(
                    story, corpus[kept], *_given(y, kept), seed=seed, progress_bar=False, **arguments, **{name: value}
                )
                found[value].append(_scored(fit, corpus[left_out], rows_of(y, left_out), by, method, most_draws, seed))
                bar.update()
    table = pd.DataFrame({value: _row(rows) for value, rows in found.items()}).T.rename_axis(name)
    return TopicNumbers(_with_distances(table, found, by), by)


class _Scored(NamedTuple):
    """Of one fit: scores of held-out documents and what they are counted in, by name; and numbers of the fit."""

    scores: dict[str, tuple[np.ndarray, np.ndarray]]  # values and units (words, or 1), each [documents]
    told: dict[str, float]


def _called(by: str) -> str:
    return "words" if by == "words" else "responses"


def _decides(by: str | None, y: Any) -> str:
    if by not in (None, *SCORES):
        raise ValueError(f"by is {by!r}; choose from {', '.join(map(repr, SCORES))}.")
    if by == "response" and y is None:
        raise ValueError("by is 'response', and y is missing; give the responses, or by='words'.")
    return by or ("words" if y is None else "response")


def _of_story(run: Callable, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are the story's: those that the engine does not have by name."""
    own = {p.name for p in inspect.signature(run).parameters.values() if p.kind is not p.VAR_KEYWORD}
    return {name: value for name, value in arguments.items() if name not in own}


def _given(y: Any, kept: np.ndarray) -> tuple:
    return () if y is None else (rows_of(y, kept),)


def _scored(fit: Fit, test: Corpus, y: Any, by: str, method: str | None, most_draws: int, seed: int) -> _Scored:
    """A fit judged by documents that it has not seen."""
    scores = {} if y is None else {"response": _response_scores(fit, test, y, most_draws, seed)}
    used = np.asarray(fit.corpus.counts.sum(0)).ravel() > 0
    known = test.with_vocabulary(fit.vocabulary[used])
    try:
        scores["words"] = _word_scores(fit, known, method, most_draws, seed)
    except ValueError:  # a story whose p(w_d) is not known says so
        if by == "words":
            raise
    told = {"agreement": np.nan, "coherence": np.nan}
    if fit.has_topics and fit.graph.topics:
        num_chains = len(fit.global_draws(1)[fit.graph.topics])
        agreement = align(fit).alignment.agreement
        told["agreement"] = np.nan if agreement is None else agreement
        told["coherence"] = float(
            np.mean([np.nanmean(coherence(fit, fit.corpus, chain=c)["coherence"]) for c in range(num_chains)])
        )
    if "bound" in fit.info:
        told["bound"] = float(fit.info["bound"][-1])
    return _Scored(scores, told)


def _word_scores(
    fit: Fit, test: Corpus, method: str | None, most_draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """log p of each document's words by the best chain, chosen on the other half of the documents; and their number."""
    by_particles = fit.graph.has_words and fit.graph.theta_is_integrable()
    method = method or ("left_to_right" if by_particles or not fit.graph.has_words else "completion")
    settings: dict[str, Any] = PARTICLES if by_particles and method != "chib" else {}
    found = perplexity(fit, test, method, most_draws=most_draws, seed=seed, **settings)
    by_chain = logsumexp(found.estimates, axis=1) - np.log(found.estimates.shape[1])  # [chain, documents]
    by_chain = np.where(found.num_tokens == 0, 0.0, by_chain)
    return best_chain(by_chain), found.num_tokens


def best_chain(by_chain: np.ndarray) -> np.ndarray:
    """The scores of documents by the chain that is best on the other half of them, [documents] of [chain, documents]."""
    odd = np.arange(by_chain.shape[1]) % 2 == 1
    totals = {half: by_chain[:, odd == half].sum(1) for half in (False, True)}
    return np.where(odd, by_chain[totals[False].argmax()], by_chain[totals[True].argmax()])


def _response_scores(fit: Fit, test: Corpus, y: Any, most_draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """log predictive density of each document's response, or the sum over responses, and 1 where there is one."""
    found = pointwise(fit, test, y, inner=None, predictions=True, most_draws=most_draws, seed=seed)
    total, labelled = np.zeros(len(test)), np.zeros(len(test), bool)
    for name, logs in found.log_likelihood.items():
        prediction = by_fitted(fit, found.predictions[name], seed=seed)
        log_density = logsumexp(logs, axis=(0, 1)) - np.log(logs.shape[0] * logs.shape[1])
        known = ~np.isnan(log_density)
        if prediction.probabilities is not None and prediction.probabilities.ndim == 2:
            rows = np.flatnonzero(known)
            shares = prediction.probabilities[rows, found.observed[name][rows].astype(int)]
            log_density[rows] = np.log(np.maximum(shares.astype(float), TINY))
        total[known] += log_density[known]
        labelled |= known
    return total, labelled.astype(float)


def _row(rows: list[_Scored]) -> dict[str, float]:
    """A row of the table: scores over all held-out documents with their errors, and means of what is of the fits."""
    row = {}
    for name in rows[0].scores:
        row[name], row[f"{name}_error"] = _ratio(*_joined(rows, name))
    told = {name: float(np.mean([fit.told[name] for fit in rows])) for name in rows[0].told}
    return row | told


def _joined(rows: list[_Scored], name: str) -> tuple[np.ndarray, np.ndarray]:
    values, units = zip(*(fit.scores[name] for fit in rows), strict=True)
    return np.concatenate(values), np.concatenate(units)


def _ratio(values: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """sum of values / sum of units over documents, and its standard error; documents without a unit count for nothing."""
    values, units = values[units > 0], units[units > 0]
    if not len(units):
        return np.nan, np.nan
    mean = values.sum() / units.sum()
    left = values - mean * units
    spread = np.sqrt((left**2).sum() * len(left) / max(len(left) - 1, 1))
    return float(mean), float(spread / units.sum()) if len(left) > 1 else np.nan


def _with_distances(table: pd.DataFrame, found: Mapping[int, list[_Scored]], by: str) -> pd.DataFrame:
    """The table with the distances from the best by the score that decides, document by document."""
    top, units = _joined(found[int(table[by].idxmax())], by)
    distances = [_ratio(top - _joined(rows, by)[0], units) for rows in found.values()]
    behind, error = map(list, zip(*distances, strict=True))
    place = table.columns.get_loc(f"{by}_error") + 1
    table.insert(place, "behind", behind)
    table.insert(place + 1, "behind_error", error)
    return table
