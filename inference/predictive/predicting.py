"""Prediction for new documents: topics are folded in without the response, then the story's own response is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from scipy.special import logsumexp

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, documents

from ..blocks.conjugate import LabelBlock
from ..kernels.assignments import Labels
from ..posterior.posterior import Posterior
from ..programs.progress import tqdm
from ..steps.words import fold_in
from ..story.classes import is_class
from ..story.sweeping import read_weights
from ..story.tracing import Data, Values
from ..story.validation import check_draws, check_seed
from .class_posterior import ClassPosterior, answers, label_above
from .conformal import Calibration
from .fold_in import FoldIn
from .prediction import Prediction, by_weight
from .probabilities import (
    ABOVE_THE_WORDS,
    LEAST,
    MOST,
    UNDER_A_MARGIN,
    from_aside,
    own_evidence,
    temperature,
    tempered,
)
from .responding import respond

RULES = ("posterior", "plug-in")
MOST_MOVES = 60_000_000  # of tokens: about six seconds with 50 topics on two cores
ALIKE = 20  # draws a chain, however many documents there are
FEW_DRAWS = 8  # a chain, where every class is tried at each
LEAST_RESPONSES = 200  # drawn for each document at the least: quantiles need more draws than means do


def predict(
    fit: Posterior,
    corpus: Corpus,
    *,
    rule: str = "posterior",
    calibrate: Any = None,
    seed: int = 0,
    most_draws: int | None = None,
    num_burn: int = 1,
    weights: np.ndarray | None = None,
    alike: bool = False,
    progress_bar: bool = False,
) -> Any:
    """The predictive distribution of the response of new documents.

    Words that the fit has not seen are left out; a document without known words is predicted from the prior of its
    proportions.

    Parameters
    ----------
    rule
        "posterior": at each posterior draw (``most_draws`` a chain at the most; by default 8 to 50, as many as some
        seconds allow) the topics of the new documents are drawn given their words alone, by a soft sweep and ``num_burn``
        exact ones (see :mod:`..kernels.soft_sweep`), and then the story's response, so that what is not known of topics,
        proportions, coefficients and noise all widens the prediction; under a margin the class of the least loss in the
        mean of the draws is decided on. "plug-in": the rule of Blei & McAuliffe (2007),
        equations 13 and 22: every parameter at its posterior mean (chain by chain), zbar at its variational mean.
        A class above the words follows from Bayes' rule (see :mod:`.class_posterior`), at each draw or at the means.
    calibrate
        Documents that the fit has not seen, ``(corpus, y)``, or predictions of them, ``(prediction, y)``, e.g. from
        :func:`cross_predict`: intervals are widened or narrowed until they hold as many of these responses as they say,
        and probabilities of classes are tempered until they are as sure as they are right (see :mod:`.probabilities`).
        Predictions by another fit stand for this fit's own as far as the two are alike; variational fits of different
        documents may end in different optima, and then documents set aside are the safer choice.
        By default intervals are the model's own, and so are probabilities where they are such; where they are not, under
        a margin and for a class above the words, they are tempered by the fitted documents (500 at the most, once a fit).
        A fit with a weight of the response has held documents out, and is calibrated by them.
        False: the model's own numbers in any case. No decision on a class depends on it.
    weights
        How much each chain counts, [chains], by default alike; ``Fit.predict`` finds them by stacking.
    alike
        Whether what is expected of a document follows from its words, whatever is predicted beside it: random numbers of its
        topics then come from its words and not from its row, and there are 20 draws a chain unless ``most_draws`` says
        otherwise. Draws of documents with the same words are then no independent ones. (Kernels of a GPU, and documents
        much longer than the others, go by rows in any case.)

    Returns a :class:`Prediction`, or a dict of them where the story has several responses.
    """
    check_seed(seed)
    check_draws(most_draws, num_burn)
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; choose from {', '.join(map(repr, RULES))}.")
    aside = None if calibrate is None or calibrate is False else _aside(calibrate)
    settings: dict[str, Any] = {"rule": rule, "seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    settings["weights"] = weights
    predictions = predicted(FoldIn(fit, corpus, alike=alike), **settings, progress_bar=progress_bar)
    if calibrate is None and (rows := fit.info.get("held_out")):
        codes = {name: np.asarray(fit.response.named(name), float) for name in predictions}
        aside = fit.corpus[np.asarray(rows)], {name: of_all[np.asarray(rows)] for name, of_all in codes.items()}
    if aside is not None:
        predictions = _calibrated(fit, *aside, predictions, settings)
    elif calibrate is None:
        predictions = {name: by_fitted(fit, part, rule, seed) for name, part in predictions.items()}
    return predictions if len(predictions) > 1 else next(iter(predictions.values()))


def by_fitted(fit: Posterior, prediction: Prediction, rule: str = "posterior", seed: int = 0) -> Prediction:
    """The prediction, tempered by the fitted documents where the model's own word on classes is no probability."""
    if prediction.evidence is None:
        return prediction
    degrees = from_fitted(fit, prediction.site, rule, prediction.weights)
    return prediction if degrees is None else tempered(prediction, degrees, seed)


def from_fitted(fit: Posterior, site: str, rule: str, weights: np.ndarray | None = None) -> float | None:
    """The raised temperature of the fitted documents, found once for a rule of prediction; None where they are too few."""
    asked = site, rule, None if weights is None else tuple(weights)
    if asked not in fit.temperatures:
        codes = fit.response.named(site)
        codes = np.full(len(fit.corpus), np.nan) if codes is None else np.asarray(codes, float)
        rows = np.flatnonzero(~np.isnan(codes) & (fit.corpus.lengths > 0))
        found = None
        if len(rows) >= LEAST:
            rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST])
            told = predicted(FoldIn(fit, fit.corpus[rows]), rule=rule, weights=weights)[site]
            raised = ABOVE_THE_WORDS if told.losses is None else UNDER_A_MARGIN
            found = raised * temperature(own_evidence(told), codes[rows].astype(int))
        fit.temperatures[asked] = found
    return fit.temperatures[asked]


def predicted(
    fold: FoldIn, *, rule: str = "posterior", seed: int = 0, most_draws: int | None = None, num_burn: int = 1,
    weights: np.ndarray | None = None, progress_bar: bool = False,
) -> dict[str, Prediction]:  # fmt: skip
    """Each response of the documents, by the model's own numbers."""
    fit = fold.fit
    above = label_above(fold.graph, fit.sites)
    if most_draws is None:
        most_draws = FEW_DRAWS if above is not None else ALIKE if fold.alike else _affordable(fold, num_burn)
    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    # chains that count for little leave fewer draws: more responses are drawn at each
    shared = 1.0 if weights is None else len(weights) * float(np.sum(np.square(weights)))
    settings["least"] = int(np.ceil(LEAST_RESPONSES * shared))
    if not (fold.responses if above is None else answers(fold, above)):
        raise ValueError(f"The story {fit.story.name!r} has no response; use transform for topic proportions.")
    if above is not None:
        parts = _parts_from_above(fold, above, rule, settings, progress_bar)
    else:
        parts = (_posterior_parts if rule == "posterior" else _plug_in_parts)(fold, settings, progress_bar)
    corpus = fold.graph.corpus
    return {name: as_prediction(name, corpus, [part[name] for part in parts], fold, weights) for name in parts[0]}


def _affordable(fold: FoldIn, num_burn: int) -> int:
    """Draws a chain that take some seconds, within bounds."""
    a_draw = max(fold.graph.corpus.num_tokens, 1) * len(fold.chains) * (1 + num_burn)
    return int(np.clip(MOST_MOVES // a_draw, 8, 50))


def _parts_from_above(fold: FoldIn, site: str, rule: str, settings: dict, progress_bar: bool) -> list[dict]:
    """A class above the words: one part a posterior draw, chain after chain, or one a chain at its means."""
    classes, key = ClassPosterior(fold, site), jax.random.key(settings["seed"])
    if rule == "plug-in":
        points = [fold.means(chain) for chain in fold.chains]
    else:
        points = list(fold.points(settings["most_draws"]))
    repeats = -(-settings["least"] // len(points))
    shown = tqdm(points, disable=not progress_bar, desc="classes", unit="draw")
    return [classes.part(jax.random.fold_in(key, i), values, repeats) for i, values in enumerate(shown)]


def _posterior_parts(fold: FoldIn, settings: dict, progress_bar: bool) -> list[dict]:
    """One part a posterior draw, chain after chain."""
    num_draws = len(fold.chains) * next(iter(fold.fit.global_draws(settings["most_draws"]).values())).shape[1]
    repeats = -(-settings.pop("least") // num_draws)
    return list(fold.run(_drawn, repeats, **settings, progress_bar=progress_bar))


def _drawn(
    fold: FoldIn, burn: int, repeats: int, data: tuple, key: jax.Array, centre: Any, values: Values
) -> dict[str, dict]:
    """Topics given the words, and the responses given them."""
    corpus, _ = data
    sweep_key, response_key = jax.random.split(key)
    z = fold.topics(corpus, sweep_key, centre, values, burn)
    theta = fold.theta(corpus, z, values)
    zbar = fold.zbar(corpus, z, theta)
    names, given = tuple(fold.responses), fold.given(z, theta, values)
    return respond(fold.graph, names, repeats, response_key, corpus, zbar, given)


def _plug_in_parts(fold: FoldIn, settings: dict, progress_bar: bool) -> list[dict]:
    """One part a chain: parameters at their means."""
    repeats = -(-settings["least"] // len(fold.chains))
    respond = plug_in(fold, repeats)
    parts = []
    for chain in fold.chains:
        values = fold.means(chain)
        key = jax.random.fold_in(jax.random.key(settings["seed"]), chain)
        parts.append(respond(key, *plug_in_topics(fold, values), values))
    return parts


def plug_in_topics(fold: FoldIn, values: Values) -> tuple[jax.Array, jax.Array]:
    """E[theta] and E[zbar] of the documents under q, every parameter at a given value; both [documents, topics]."""
    fit, graph = fold.fit, fold.graph
    if not graph.has_words:
        raise ValueError(
            f"rule 'plug-in' needs topics of words, and the story {fit.story.name!r} has one topic a document."
        )
    if fold.local is not None:
        raise ValueError(
            "The variational mean of topics, which rule 'plug-in' and selection need, is that of Dirichlet proportions that "
            f"only words read, which theta of the story {fit.story.name!r} is not; predict by rule='posterior'."
        )

    beta, alpha, labels = fold.compiled(_topics)(fold.corpus, values)
    laid = documents(graph.corpus, pairs=True)
    if labels is not None and (pairs := laid.pairs) is not None:  # each label's terms are terms of their own
        laid = replace(laid, pairs=pairs._replace(term=pairs.term + labels.first[pairs.document]))
    gamma, phibar = fold_in(beta, alpha, laid)
    theta = gamma / gamma.sum(-1, keepdims=True)
    return theta, jnp.where(fold.corpus.lengths[:, None] > 0, phibar, theta)


def _topics(fold: FoldIn, corpus: Documents, values: Values) -> tuple[jax.Array, jax.Array, Labels | None]:
    """beta [topics, terms], the terms of all labels side by side where topics have labels, alpha, and the labels."""
    weights = read_weights(fold.graph, corpus, None, values, collapsed=True)
    return weights.term_topic[:-1].T, weights.proportions, weights.labels


def plug_in(fold: FoldIn, repeats: int) -> Callable[..., dict]:
    """A function of key, theta, zbar and values that runs the responses; compiled once."""
    compiled = fold.compiled(_plugged_in, repeats)
    return lambda *arguments: jax.tree.map(np.asarray, compiled(fold.corpus, *arguments))


def _plugged_in(
    fold: FoldIn, repeats: int, corpus: Documents, key: jax.Array, theta: jax.Array, zbar: jax.Array, values: Values
) -> dict[str, dict]:
    names, given = tuple(fold.responses), {**values, fold.graph.theta: theta}
    return respond(fold.graph, names, repeats, key, corpus, zbar, given)


def as_prediction(
    name: str, corpus: Corpus, parts: list[dict], fold: FoldIn, weights: np.ndarray | None = None
) -> Prediction:
    """The parts of one response, one a posterior draw or a chain, as a prediction; ``weights`` of the chains."""
    draws = np.concatenate([part["draw"] for part in parts])
    of_parts = None
    if weights is not None:
        of_parts = np.repeat(weights, len(parts) // len(weights)) * len(weights) / len(parts)
        draws = by_weight(draws, np.repeat(of_parts, len(draws) // len(parts)))
    expected = np.stack([part["mean"] for part in parts])
    mean = np.average(expected, axis=0, weights=of_parts)
    expected = expected.reshape(len(fold.chains), -1, *expected.shape[1:])
    support = fold.graph.latent[name].prior.support
    bound = getattr(support, "lower_bound", None)
    told: dict[str, Any] = {
        "site": name,
        "whole": support.is_discrete,
        "yes_or_no": support is constraints.boolean,
        "lowest": bound if isinstance(bound, int | float) else -np.inf,
    }
    if "probabilities" in parts[0]:
        of_classes = parts[0].keys() & {"probabilities", "losses"}
        told |= {what: np.average([part[what] for part in parts], axis=0, weights=of_parts) for what in of_classes}
        told["classes"] = fold.fit.classes
        if "losses" in told:
            told["evidence"] = -told["losses"].astype(float)
        elif "log_probabilities" in parts[0]:
            shares = np.full(len(parts), 1 / len(parts)) if of_parts is None else of_parts
            told["evidence"] = logsumexp([part["log_probabilities"] for part in parts], axis=0, b=shares[:, None, None])
    told |= {"unsaid": fold.fit.unsaid, "weights": weights}
    return Prediction(np.asarray(corpus.names), mean, draws, expected, **told)


def _aside(calibrate: Any) -> tuple[Any, Any]:
    """Documents or predictions, and the responses to calibrate by."""
    try:
        seen, y = calibrate
    except (TypeError, ValueError):
        raise ValueError(
            "calibrate must be documents that the fit has not seen and their responses, (corpus, y) or (prediction, y)."
        ) from None
    if y is None:
        raise ValueError("y of calibrate is None; give the responses of its documents, NaN for unlabelled ones.")
    return seen, y


def _calibrated(fit: Posterior, seen: Any, y: Any, predictions: dict[str, Prediction], settings: dict) -> dict:
    """Each response with its intervals, or the probabilities of its classes, by documents set aside."""
    if isinstance(seen, Corpus):
        seen = predict(fit, seen, calibrate=False, **settings)
    told = seen if isinstance(seen, dict) else {next(iter(predictions)): seen}
    observed = y if isinstance(y, dict) else dict.fromkeys(told, fit.response.encode(y))
    if missing := [name for name in predictions if name not in told or name not in observed]:
        raise ValueError(
            f"calibrate lacks the response {missing[0]!r}; give a dict with {', '.join(map(repr, predictions))}."
        )
    found = {}
    for name, part in predictions.items():
        if part.probabilities is not None and part.probabilities.ndim == 2:
            found[name] = tempered(part, from_aside(told[name], observed[name]), settings["seed"])
        else:
            if told[name].probabilities is not None:
                raise ValueError(
                    "calibrate is for numbers and for one class a document; the response is several classes."
                )
            found[name] = replace(part, calibration=Calibration.of(told[name].draws, observed[name]))
    return found


def transform(
    fit: Posterior,
    corpus: Corpus,
    *,
    seed: int = 0,
    most_draws: int = 20,
    num_burn: int = 1,
    chain: int = 0,
    alike: bool = False,
    progress_bar: bool = False,
) -> np.ndarray:
    """Expected topic proportions of new documents given their words, [documents, topics].

    They are those of one ``chain``, the first by default: topics of different chains are different topics. ``alike`` is that
    of :func:`predict`.
    """
    check_seed(seed)
    check_draws(most_draws, num_burn)
    fold = FoldIn(fit, corpus, chains=[chain], alike=alike)
    if (above := label_above(fold.graph, fit.sites)) is not None:
        classes = ClassPosterior(fold, above)
        found = [classes(values) for values in fold.points(min(most_draws, FEW_DRAWS))]
        return np.mean([shares if theta is None else theta for shares, theta in found], axis=0)
    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    return np.mean(list(fold.run(_shares, **settings, progress_bar=progress_bar)), axis=0)


def _shares(fold: FoldIn, burn: int, data: tuple, key: jax.Array, centre: Any, values: Values) -> jax.Array:
    """Expected proportions at a draw, [documents, topics]."""
    corpus, _ = data
    if not fold.graph.has_words:
        return _label_probabilities(fold, corpus, values)
    return fold.theta(corpus, fold.topics(corpus, key, centre, values, burn), values)


def _label_probabilities(fold: FoldIn, corpus: Documents, values: Values) -> jax.Array:
    """One topic a document: the probabilities of each, [documents, topics]."""
    graph = fold.graph
    (site,) = [name for name in graph.latent if is_class(graph, name)]
    values = {**values, site: jnp.zeros(corpus.num_documents, jnp.int32)}
    return jax.nn.softmax(LabelBlock(graph, [site]).logits(values, Data(corpus, None)), -1)
