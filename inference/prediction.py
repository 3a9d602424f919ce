"""Prediction for new documents: topics are folded in without the response, then the story's own response is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpyro.distributions import constraints
from tqdm.auto import tqdm

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, documents

from .blocks import LabelBlock
from .border import check_draws, check_seed
from .folding import Folding, responses
from .intervals import Calibration, bounds, calibrated
from .running import Answer, run, unwrapped
from .sweep import read_weights
from .upstream import ClassPosterior, answers, label_above
from .word_steps import fold_in

if TYPE_CHECKING:
    from .fit import Fit

RULES = ("posterior", "plug-in")
MOST_MOVES = 60_000_000  # of tokens: about six seconds with 50 topics on two cores
FEW_DRAWS = 8  # a chain, where every class is tried at each
LEAST_RESPONSES = 200  # drawn for each document at the least: quantiles need more draws than means do


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution of a response for some documents."""

    names: np.ndarray
    mean: np.ndarray  # [documents, ...]
    draws: np.ndarray  # [draws, documents, ...], chain after chain
    expected: np.ndarray  # E[y | draw] (the draw itself where it has no closed form), [chain, draw, documents, ...]
    probabilities: np.ndarray | None = None  # [documents, classes], for classes
    classes: np.ndarray | None = None  # names of the classes, where y came with names
    lowest: float = -np.inf  # the response is never below
    whole: bool = False  # whether it is a whole number
    yes_or_no: bool = False  # whether it is 0 or 1
    calibration: Calibration | None = None
    losses: np.ndarray | None = None  # expected loss of each class, [documents, classes], under a margin
    site: str = "y"  # of the response in the story

    @property
    def code(self) -> np.ndarray:
        """The class decided on, as a number: the most probable, or under a margin that of the least expected loss."""
        if self.probabilities is None:
            raise ValueError("The response is not a class; use .mean or .draws.")
        return self.probabilities.argmax(-1) if self.losses is None else self.losses.argmin(-1)

    @property
    def label(self) -> np.ndarray:
        """The class decided on, by its name where y came with names."""
        return self.code if self.classes is None else self.classes[self.code]

    def take(self, places: np.ndarray) -> Prediction:
        """The prediction of some of its documents."""
        return replace(
            self, names=self.names[places], mean=self.mean[places], draws=self.draws[:, places],
            expected=self.expected[:, :, places],
            probabilities=None if self.probabilities is None else self.probabilities[places],
            losses=None if self.losses is None else self.losses[places],
        )  # fmt: skip

    def interval(self, probability: float = 0.9) -> np.ndarray:
        """Central predictive interval, [documents, ..., 2]; calibrated where the prediction is."""
        if not 0 < probability < 1:
            raise ValueError(f"probability is {probability!r}; give a number between 0 and 1.")
        if self.calibration is None:
            return np.stack(bounds(self.draws, probability), -1)
        support: dict[str, Any] = {"lowest": self.lowest, "whole": self.whole}
        return np.stack(calibrated(self.draws, probability, self.calibration, **support), -1)

    def frame(self, probability: float = 0.9) -> pd.DataFrame:
        """One row a document: mean, low, high; for classes the label and the probability of each."""
        index = pd.Index(self.names, name="document")
        if self.probabilities is not None and self.probabilities.ndim == 2:
            names = range(self.probabilities.shape[1]) if self.classes is None else self.classes
            shares = {f"p({name})": share for name, share in zip(names, self.probabilities.T, strict=True)}
            return pd.DataFrame({"label": self.label, **shares}, index=index)
        if self.mean.ndim > 1:
            raise ValueError("The response has several parts; use .mean and .interval().")
        low, high = self.interval(probability).T
        return pd.DataFrame({"mean": self.mean, "low": low, "high": high}, index=index)


def predict(
    fit: Fit,
    corpus: Corpus,
    *,
    rule: str = "posterior",
    calibrate: Any = None,
    seed: int = 0,
    most_draws: int | None = None,
    num_burn: int = 1,
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
        exact ones (see :mod:`.soft_sweep`), and then the story's response, so that what is not known of topics,
        proportions, coefficients and noise all widens the prediction; under a margin the class of the least loss in the
        mean of the draws is decided on. "plug-in": the rule of Blei & McAuliffe (2007),
        equations 13 and 22: every parameter at its posterior mean (chain by chain), zbar at its variational mean.
        A class above the words follows from Bayes' rule (see :mod:`.upstream`), at each draw or at the means.
    calibrate
        Documents that the fit has not seen, ``(corpus, y)``, or predictions of them, ``(prediction, y)``, e.g. from
        :func:`cross_predict`: intervals are widened or narrowed until they hold as many of these responses as they say.
        Predictions by another fit stand for this fit's own as far as the two are alike; variational fits of different
        documents may end in different optima, and then documents set aside are the safer choice.

    Returns a :class:`Prediction`, or a dict of them where the story has several responses.
    """
    check_seed(seed)
    check_draws(most_draws, num_burn)
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; choose from {', '.join(map(repr, RULES))}.")
    folding = Folding(fit, corpus)
    above = label_above(folding.reading, fit.sites)
    if most_draws is None:
        most_draws = _affordable(folding, num_burn) if above is None else FEW_DRAWS
    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    if not (responses(folding.reading) if above is None else answers(folding, above)):
        raise ValueError(f"The story {fit.story.name!r} has no response; use transform for topic proportions.")
    if above is not None:
        parts = _parts_from_above(folding, above, rule, settings, progress_bar)
    else:
        parts = (_posterior_parts if rule == "posterior" else _plug_in_parts)(folding, settings, progress_bar)
    predictions = {name: as_prediction(name, corpus, [part[name] for part in parts], folding) for name in parts[0]}
    if calibrate is not None:
        told = _calibration(fit, calibrate, predictions, rule=rule, **settings)
        predictions = {name: replace(part, calibration=told[name]) for name, part in predictions.items()}
    return predictions if len(predictions) > 1 else next(iter(predictions.values()))


def _affordable(folding: Folding, num_burn: int) -> int:
    """Draws a chain that take some seconds, within bounds."""
    a_draw = max(folding.reading.corpus.num_tokens, 1) * len(folding.chains) * (1 + num_burn)
    return int(np.clip(MOST_MOVES // a_draw, 8, 50))


def _parts_from_above(folding: Folding, site: str, rule: str, settings: dict, progress_bar: bool) -> list[dict]:
    """A class above the words: one part a posterior draw, chain after chain, or one a chain at its means."""
    classes, key = ClassPosterior(folding, site), jax.random.key(settings["seed"])
    if rule == "plug-in":
        points = [folding.means(chain) for chain in folding.chains]
    else:
        points = list(folding.points(settings["most_draws"]))
    repeats = -(-LEAST_RESPONSES // len(points))
    shown = tqdm(points, disable=not progress_bar, desc="classes", unit="draw")
    return [classes.part(jax.random.fold_in(key, i), values, repeats) for i, values in enumerate(shown)]


def _posterior_parts(folding: Folding, settings: dict, progress_bar: bool) -> list[dict]:
    """One part a posterior draw, chain after chain."""
    num_draws = len(folding.chains) * next(iter(folding.fit.global_draws(settings["most_draws"]).values())).shape[1]
    repeats = -(-LEAST_RESPONSES // num_draws)

    def step(data: tuple, key: jax.Array, centre: Any, values: dict, burn: int) -> dict:
        corpus, _ = data
        sweep_key, response_key = jax.random.split(key)
        z = folding.topics(corpus, sweep_key, centre, values, burn)
        theta = folding.theta(corpus, z, values)
        zbar = folding.zbar(corpus, z, theta)
        return _respond(folding, response_key, corpus, zbar, {**values, folding.reading.theta: theta}, repeats)

    return list(folding.run(step, **settings, progress_bar=progress_bar))


def _plug_in_parts(folding: Folding, settings: dict, progress_bar: bool) -> list[dict]:
    """One part a chain: parameters at their means."""
    repeats = -(-LEAST_RESPONSES // len(folding.chains))
    respond = plug_in(folding, repeats)
    parts = []
    for chain in folding.chains:
        values = folding.means(chain)
        key = jax.random.fold_in(jax.random.key(settings["seed"]), chain)
        parts.append(respond(key, *plug_in_topics(folding, values), values))
    return parts


def plug_in_topics(folding: Folding, values: dict) -> tuple[jax.Array, jax.Array]:
    """E[theta] and E[zbar] of the documents under q, every parameter at a given value; both [documents, topics]."""
    fit, reading = folding.fit, folding.reading
    if not reading.has_words:
        raise ValueError(
            f"rule 'plug-in' needs topics of words, and the story {fit.story.name!r} has one topic a document."
        )

    @jax.jit
    def topics(corpus: Documents, values: dict) -> tuple[jax.Array, jax.Array]:
        weights = read_weights(reading, corpus, None, values, collapsed=True)
        return weights.term_topic[:-1].T, weights.proportions

    beta, alpha = topics(folding.corpus, values)
    gamma, phibar = fold_in(beta, alpha, documents(reading.corpus, pairs=True))
    theta = gamma / gamma.sum(-1, keepdims=True)
    return theta, jnp.where(folding.corpus.lengths[:, None] > 0, phibar, theta)


def plug_in(folding: Folding, repeats: int) -> Callable[..., dict]:
    """A function of key, theta, zbar and values that runs the responses; compiled once."""

    @jax.jit
    def respond(corpus: Documents, key: jax.Array, theta: jax.Array, zbar: jax.Array, values: dict) -> dict:
        return _respond(folding, key, corpus, zbar, {**values, folding.reading.theta: theta}, repeats)

    return lambda *arguments: jax.tree.map(np.asarray, respond(folding.corpus, *arguments))


def _respond(
    folding: Folding, key: jax.Array, corpus: Documents, zbar: jax.Array, values: dict, repeats: int
) -> dict[str, dict]:
    """The responses at given topics: draws [repeats, documents, ...], mean, and the probabilities of classes."""
    reading = folding.reading

    def once(key: jax.Array) -> dict:
        trace = run(reading.story, corpus, None, values, Answer(zbar), key=key, prior=True)
        return {name: _response(trace[name]["fn"], trace[name]["value"]) for name in responses(reading)}

    # what lies between topics and response (random effects) is drawn anew each time, and their means are averaged
    parts = jax.vmap(once)(jax.random.split(key, repeats))
    return {
        name: {what: value if what == "draw" else value.mean(0) for what, value in part.items()}
        for name, part in parts.items()
    }


def as_prediction(name: str, corpus: Corpus, parts: list[dict], folding: Folding) -> Prediction:
    """The parts of one response, one a posterior draw or a chain, as a prediction."""
    draws = np.concatenate([part["draw"] for part in parts])
    expected = np.stack([part["mean"] for part in parts])
    expected = expected.reshape(len(folding.chains), -1, *expected.shape[1:])
    support = folding.reading.latent[name].prior.support
    bound = getattr(support, "lower_bound", None)
    told: dict[str, Any] = {
        "site": name,
        "whole": support.is_discrete,
        "yes_or_no": support is constraints.boolean,
        "lowest": bound if isinstance(bound, int | float) else -np.inf,
    }
    if "probabilities" in parts[0]:
        of_classes = parts[0].keys() & {"probabilities", "losses"}
        told |= {what: np.mean([part[what] for part in parts], axis=0) for what in of_classes}
        told["classes"] = folding.fit.classes
    return Prediction(np.asarray(corpus.names), expected.mean((0, 1)), draws, expected, **told)


def _calibration(fit: Fit, calibrate: Any, predictions: dict, **settings: Any) -> dict[str, Calibration]:
    """For each response the documents set aside, predicted, and their responses."""
    try:
        seen, y = calibrate
    except (TypeError, ValueError):
        raise ValueError(
            "calibrate must be documents that the fit has not seen and their responses, (corpus, y) or (prediction, y)."
        ) from None
    if isinstance(seen, Corpus):
        seen = predict(fit, seen, **settings)
    told = seen if isinstance(seen, dict) else {next(iter(predictions)): seen}
    observed = y if isinstance(y, dict) else dict.fromkeys(told, y)
    return {name: Calibration.of(told[name], observed[name]) for name in predictions}


def transform(
    fit: Fit,
    corpus: Corpus,
    *,
    seed: int = 0,
    most_draws: int = 20,
    num_burn: int = 1,
    progress_bar: bool = False,
) -> np.ndarray:
    """Expected topic proportions of new documents given their words, [documents, topics].

    With several chains the first is used: topics of different chains are different topics.
    """
    check_seed(seed)
    check_draws(most_draws, num_burn)
    folding = Folding(fit, corpus, chains=[0])
    if (above := label_above(folding.reading, fit.sites)) is not None:
        classes = ClassPosterior(folding, above)
        found = [classes(values) for values in folding.points(min(most_draws, FEW_DRAWS))]
        return np.mean([shares if theta is None else theta for shares, theta in found], axis=0)

    def step(data: tuple, key: jax.Array, centre: Any, values: dict, burn: int) -> jax.Array:
        corpus, _ = data
        if not folding.reading.has_words:
            return _label_probabilities(folding, corpus, values)
        z = folding.topics(corpus, key, centre, values, burn)
        return folding.theta(corpus, z, values)

    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    return np.mean(list(folding.run(step, **settings, progress_bar=progress_bar)), axis=0)


def _response(fn: Any, draw: jax.Array) -> dict[str, jax.Array]:
    """A response's draw, and its mean and the probabilities of its classes where they have a closed form."""
    out = {"draw": draw}
    if fn.has_enumerate_support and not fn.event_shape:
        classes = fn.enumerate_support(expand=False)
        density = jax.vmap(fn.log_prob)(jnp.broadcast_to(classes, (classes.shape[0], *draw.shape))).T
        # a margin's densities do not sum to 1, those of other classes do: they are losses
        out["probabilities"] = jax.nn.softmax(density, -1)
        if hasattr(unwrapped(fn), "log_normaliser"):
            out["losses"] = -density
    try:
        # NumPyro's mean of classes, and of a Cauchy, is NaN: the draw stands for it
        out["mean"] = jnp.where(jnp.isnan(fn.mean), draw, jnp.broadcast_to(fn.mean, draw.shape))
    except NotImplementedError:
        out["mean"] = jnp.asarray(draw, jnp.float32)  # no closed mean: the mean of the draws will do
    return out


def _label_probabilities(folding: Folding, corpus: Documents, values: dict) -> jax.Array:
    """One topic a document: the probabilities of each, [documents, topics]."""
    reading = folding.reading
    (site,) = [name for name in reading.latent if LabelBlock.recognise(reading, name)]
    values = {**values, site: jnp.zeros(corpus.num_documents, jnp.int32)}
    return jax.nn.softmax(LabelBlock(None, reading, [site]).logits(values, corpus, None), -1)
