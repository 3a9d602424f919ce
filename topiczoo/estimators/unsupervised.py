"""Topics of words alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from topiczoo import inference
from topiczoo.diagnostics.scoring.held_out import HeldOut, perplexity
from topiczoo.models import lda, mixture

from .base import TopicEstimator

FEW = 20  # draws of topics after each minibatch


class _OfWords(TopicEstimator):
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the topics of counts [documents, terms]; y is not looked at."""
        return self._fit(validate_data(self, X, accept_sparse="csr"))

    def score(self, X: Any, y: Any = None) -> float:
        """The log-probability of a word of new documents, their topics summed out (``diagnostics.perplexity``)."""
        return self._held_out(X).per_word

    def perplexity(self, X: Any) -> float:
        """exp(-score): as many equally likely words would be as hard to guess."""
        return self._held_out(X).perplexity

    def _held_out(self, X: Any) -> HeldOut:
        corpus = self._documents(X)
        return perplexity(self.fit_, corpus)


class LDA(_OfWords):
    """Latent Dirichlet allocation; the story is ``models.lda``.

    Parameters
    ----------
    n_components : number of topics.
    alpha, gamma : Dirichlet priors of a document's proportions and of a topic's terms: numbers, or "learned".
    engine : "gibbs", "vem", "svi" or "nuts".
    engine_options : settings of the engine, e.g. ``{"num_warmup": 500, "num_samples": 500, "num_chains": 4}`` of gibbs.
    story_options : further arguments of the story.
    random_state : a whole number is the engine's seed; None draws one from NumPy's global generator.
    verbose : whether a bar shows how far the engine is.
    """

    def __init__(
        self, n_components: int = 20, *, alpha: float | str | Sequence[float] = 0.1, gamma: float | str = 0.1,
        engine: str = "gibbs", engine_options: Mapping[str, Any] | None = None,
        story_options: Mapping[str, Any] | None = None, random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def partial_fit(self, X: Any, y: Any = None, *, num_documents: int = 1_000_000) -> Self:
        """Learn from a minibatch of counts by online variational EM, whatever ``engine`` is; y is not looked at.

        ``num_documents``: how many documents there are or will be, read at the first call. Rows of the first minibatch are a
        sample of them. A ``fit`` in between starts anew (docs/streams.md).
        """
        first = not hasattr(self, "_learning")
        corpus = self._corpus(validate_data(self, X, accept_sparse="csr", reset=first), empty="drop")
        if first:
            self._check_arguments(lda)
            arguments = {**self._told(), **(self.story_options or {})}
            self._learning = inference.OnlineVEM(
                lda, corpus, num_documents=num_documents, seed=self._seed(), **arguments
            )
        else:
            self._learning.partial_fit(corpus)
        self.fit_ = self._learning.so_far(FEW)
        self.components_ = self._components()
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the topics of counts [documents, terms]; y is not looked at."""
        if hasattr(self, "_learning"):
            del self._learning
        return super().fit(X, y)

    def _story(self) -> Callable:
        return lda


class MixtureOfCategoricals(_OfWords):
    """A mixture of categoricals, one topic a document; the story is ``models.mixture``.

    Parameters are those of :class:`LDA`; ``alpha`` is the Dirichlet prior of the topics' shares. :meth:`transform` gives the
    probabilities of a document's topic, and :meth:`predict` the most probable one.
    """

    def __init__(
        self, n_components: int = 20, *, alpha: float | Sequence[float] = 1.0, gamma: float = 0.1, engine: str = "gibbs",
        engine_options: Mapping[str, Any] | None = None, story_options: Mapping[str, Any] | None = None,
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return mixture

    def predict(self, X: Any) -> np.ndarray:
        """The most probable topic of each document."""
        corpus = self._documents(X)
        return self.fit_.transform(corpus, alike=True).argmax(1)
