"""Prediction for new documents: topics are folded in without the response, then the story's own response is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents

from .blocks import LabelBlock
from .folding import Folding, responses
from .reading import Answer, run

if TYPE_CHECKING:
    from .fit import Fit


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution of a response for some documents."""

    names: np.ndarray
    mean: np.ndarray  # [documents, ...]
    draws: np.ndarray  # [draws, documents, ...], chain after chain
    expected: np.ndarray  # E[y | draw] (the draw itself where it has no closed form), [chain, draw, documents, ...]
    probabilities: np.ndarray | None = None  # [documents, classes], for classes

    @property
    def label(self) -> np.ndarray:
        """The most probable class."""
        if self.probabilities is None:
            raise ValueError("The response is not a class; use .mean or .draws.")
        return self.probabilities.argmax(-1)

    def interval(self, probability: float = 0.9) -> np.ndarray:
        """Central predictive interval, [documents, ..., 2]."""
        if not 0 < probability < 1:
            raise ValueError(f"probability is {probability!r}; give a number between 0 and 1.")
        tail = (1 - probability) / 2
        return np.moveaxis(np.quantile(self.draws, [tail, 1 - tail], axis=0), 0, -1)

    def frame(self, probability: float = 0.9) -> pd.DataFrame:
        """One row a document: mean, low, high."""
        if self.mean.ndim > 1:
            raise ValueError("The response has several parts; use .mean and .interval().")
        low, high = self.interval(probability).T
        return pd.DataFrame({"mean": self.mean, "low": low, "high": high}, index=pd.Index(self.names, name="document"))


def predict(
    fit: Fit,
    corpus: Corpus,
    *,
    seed: int = 0,
    most_draws: int = 100,
    num_burn: int = 20,
    progress_bar: bool = False,
) -> Any:
    """Posterior predictive draws of the response of new documents.

    For each posterior draw (``most_draws`` a chain at the most) the topics of the new documents move by one sweep given
    their words alone, after ``num_burn`` sweeps to begin with, and the story's response is drawn. Words that the fit has
    not seen are left out; a document without known words is predicted from the prior of its proportions.

    Returns a :class:`Prediction`, or a dict of them where the story has several responses.
    """
    folding = Folding(fit, corpus)
    reading = folding.reading
    names = responses(reading)
    if not names:
        raise ValueError(f"The story {fit.story.name!r} has no response; use transform for topic proportions.")

    def step(data: tuple, key: jax.Array, z: Any, values: dict, burn: jax.Array) -> tuple[Any, dict]:
        corpus, _ = data
        sweep_key, response_key = jax.random.split(key)
        z = folding.sweeps(corpus, sweep_key, z, values, burn + 1)
        theta = folding.theta(corpus, z, values)
        answer = Answer(folding.zbar(corpus, z, theta))
        values = {**values, reading.theta: theta}
        trace = run(reading.story, corpus, None, values, answer, key=response_key, prior=True)
        return z, {name: _response(trace[name]["fn"], trace[name]["value"]) for name in names}

    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    parts = [
        jax.tree.map(lambda leaf: leaf[None], part) for part in folding.run(step, **settings, progress_bar=progress_bar)
    ]
    predictions = {}
    for name in names:
        draws = np.concatenate([part[name]["draw"] for part in parts])
        probabilities = (
            np.concatenate([part[name]["probabilities"] for part in parts])
            if "probabilities" in parts[0][name]
            else None
        )
        expected = np.concatenate([part[name].get("mean", part[name]["draw"]) for part in parts])
        predictions[name] = Prediction(
            np.asarray(corpus.names), expected.mean(0), draws,
            expected.reshape(len(folding.chains), -1, *expected.shape[1:]),
            None if probabilities is None else probabilities.mean(0),
        )  # fmt: skip
    return predictions if len(predictions) > 1 else next(iter(predictions.values()))


def transform(
    fit: Fit,
    corpus: Corpus,
    *,
    seed: int = 0,
    most_draws: int = 100,
    num_burn: int = 20,
    progress_bar: bool = False,
) -> np.ndarray:
    """Expected topic proportions of new documents given their words, [documents, topics].

    With several chains the first is used: topics of different chains are different topics.
    """
    folding = Folding(fit, corpus, chains=[0])

    def step(data: tuple, key: jax.Array, z: Any, values: dict, burn: jax.Array) -> tuple[Any, jax.Array]:
        corpus, _ = data
        if not folding.reading.has_words:
            return z, _label_probabilities(folding, corpus, values)
        z = folding.sweeps(corpus, key, z, values, burn + 1)
        return z, folding.theta(corpus, z, values)

    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    return np.mean(list(folding.run(step, **settings, progress_bar=progress_bar)), axis=0)


def _response(fn: Any, draw: jax.Array) -> dict[str, jax.Array]:
    """A response's draw, and its mean and the probabilities of its classes where they have a closed form."""
    out = {"draw": draw}
    if fn.has_enumerate_support:
        classes = fn.enumerate_support(expand=False)
        tried = jnp.broadcast_to(classes, (classes.shape[0], *draw.shape))
        out["probabilities"] = jnp.exp(jax.vmap(fn.log_prob)(tried)).T
    try:
        # NumPyro's mean of classes, and of a Cauchy, is NaN: the draw stands for it
        out["mean"] = jnp.where(jnp.isnan(fn.mean), draw, jnp.broadcast_to(fn.mean, draw.shape))
    except NotImplementedError:
        pass  # a distribution without a closed mean: the mean of the draws will do
    return out


def _label_probabilities(folding: Folding, corpus: Documents, values: dict) -> jax.Array:
    """One topic a document: the probabilities of each, [documents, topics]."""
    reading = folding.reading
    (site,) = [name for name in reading.latent if LabelBlock.recognise(reading, name)]
    values = {**values, site: jnp.zeros(corpus.num_documents, jnp.int32)}
    return jax.nn.softmax(LabelBlock(None, reading, [site]).logits(values, corpus, None), -1)
