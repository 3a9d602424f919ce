"""Prediction for new documents: topics are folded in without the response, then the story's own response is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import Mesh
from tqdm.auto import tqdm

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents

from .assignments import count, mean_topics
from .blocks import LabelBlock
from .gibbs_engine import theta_can_be_integrated_out
from .reading import Answer, Reading, Story, run
from .sweep import read_weights, sweep

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
    folding = _Folding(fit, corpus)
    if not folding.responses:
        raise ValueError(f"The story {fit.story.name!r} has no response; use transform for topic proportions.")
    parts = folding.run(seed, most_draws, num_burn, progress_bar, want_response=True)
    predictions = {}
    for name in folding.responses:
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
    folding = _Folding(fit, corpus, chains=[0])
    parts = folding.run(seed, most_draws, num_burn, progress_bar, want_response=False)
    return np.concatenate([part["theta"] for part in parts]).mean(0)


class _Folding:
    """Topics of new documents given posterior draws of everything that is not of documents."""

    def __init__(self, fit: Fit, corpus: Corpus, chains: Sequence[int] | None = None) -> None:
        if not isinstance(corpus, Corpus):
            raise TypeError(
                f"corpus is a {type(corpus).__name__}; make a Corpus of it, e.g. Corpus.from_counts(counts)."
            )
        self.fit = fit
        self.chains = chains or range(next(iter(fit.global_draws().values())).shape[0])
        story = Story(fit.story.function, fit.story.arguments)
        known = corpus if np.array_equal(corpus.vocabulary, fit.vocabulary) else corpus.with_vocabulary(fit.vocabulary)
        self.reading = Reading(story, known, None, predicting=True)
        self.devices = jax.devices()
        words = self.reading.has_words
        if words and not theta_can_be_integrated_out(self.reading):
            raise ValueError(
                f"Prediction folds topics in with theta integrated out, which the story {story.name!r} does not allow; "
                "fit the new documents together with the old ones, with NaN as their response."
            )
        self.corpus = documents(known, pairs=not words, shards=len(self.devices) if words else 0)
        # responses: what reads zbar and is read by nothing
        self.responses = [name for name in self.reading.below if self.reading.children([name]) == {name}]

    def run(self, seed: int, most_draws: int, num_burn: int, progress_bar: bool, want_response: bool) -> list[dict]:
        draws = self.fit.global_draws(most_draws)
        num_draws = next(iter(draws.values())).shape[1]
        step = jax.jit(self._with_words if self.reading.has_words else self._with_labels, static_argnums=3)
        parts = []
        with tqdm(total=len(self.chains) * num_draws, disable=not progress_bar, desc="folding in", unit="draw") as bar:
            for chain in self.chains:
                start_key, burn_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain), 3)
                state = None
                for i in range(num_draws):
                    values = {name: jnp.asarray(value[chain, i]) for name, value in draws.items()}
                    if state is None:
                        state = self._start(start_key)
                        for b in range(num_burn if self.reading.has_words else 0):
                            state, _ = step(jax.random.fold_in(burn_key, b), state, values, False)
                    state, part = step(jax.random.fold_in(key, i), state, values, want_response)
                    parts.append(jax.tree.map(lambda leaf: np.asarray(leaf)[None], part))
                    bar.update()
        return parts

    def _start(self, key: jax.Array) -> Any:
        if not self.reading.has_words:
            return 0
        blocks = self.corpus.blocks
        assert blocks is not None and self.reading.num_topics is not None
        topics = jax.random.randint(key, blocks.terms.shape, 0, self.reading.num_topics, jnp.int32)
        return jax.jit(count, static_argnums=(2, 3))(topics, blocks, self.reading.num_topics, self.corpus.num_terms)

    def _with_words(self, key: jax.Array, z: Any, values: dict, want_response: bool) -> tuple[Any, dict]:
        """One sweep of the new documents' topics, and what follows from them."""
        sweep_key, response_key = jax.random.split(key)
        mesh = Mesh(np.asarray(self.devices), ("documents",)) if len(self.devices) > 1 else None
        z = sweep(sweep_key, z, self.reading, self.corpus, None, values, collapsed=True, supervised=False, mesh=mesh)
        alpha = read_weights(self.reading, self.corpus, None, values, collapsed=True).proportions
        theta = z.document_topic + alpha
        out: dict[str, Any] = {"theta": theta / theta.sum(-1, keepdims=True)}
        if want_response:
            # a document without known words: E[zbar] under the prior stands for its topics
            zbar = jnp.where(self.corpus.lengths[:, None] > 0, mean_topics(z, self.corpus), out["theta"])
            out |= self._responses(response_key, zbar, {**values, self.reading.theta: out["theta"]})
        return z, out

    def _responses(self, key: jax.Array, zbar: jax.Array, values: dict) -> dict[str, dict]:
        trace = run(self.reading.story, self.corpus, None, values, Answer(zbar), key=key, prior=True)
        out = {}
        for name in self.responses:
            fn, draw = trace[name]["fn"], trace[name]["value"]
            out[name] = {"draw": draw}
            if fn.has_enumerate_support:
                classes = fn.enumerate_support(expand=False)
                out[name]["probabilities"] = jnp.exp(
                    jax.vmap(fn.log_prob)(jnp.broadcast_to(classes, (classes.shape[0], *draw.shape)))
                ).T
            try:
                out[name]["mean"] = jnp.broadcast_to(fn.mean, draw.shape)
            except NotImplementedError:
                pass  # a distribution without a closed mean: the mean of the draws will do
        return out

    def _with_labels(self, key: jax.Array, state: Any, values: dict, want_response: bool) -> tuple[Any, dict]:
        """One topic a document: the probabilities of each."""
        (site,) = [name for name, latent in self.reading.latent.items() if LabelBlock.recognise(self.reading, name)]
        values = {**values, site: jnp.zeros(self.corpus.num_documents, jnp.int32)}
        block = LabelBlock(_no_model, self.reading, [site])
        return state, {"theta": jax.nn.softmax(block.logits(values, self.corpus, None), -1)}


def _no_model(*_: Any) -> None:
    """A block asks for a model only inside NumPyro's kernel."""
