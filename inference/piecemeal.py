"""Online variational EM that is handed its minibatches one by one, whoever has them: what ``partial_fit`` is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np

from topiczoo.corpora import Corpus

from .em.components import Settings
from .fit import Fit
from .online_em.engine import check_rates, posterior
from .online_em.learner import Learner, Rates
from .story.validation import check_counts, check_seed
from .streams.minibatches import Minibatches


class OnlineVEM:
    """Steps of :func:`online`, each when its documents come.

    ``learning = OnlineVEM(story, first, y, num_documents=1_000_000, num_topics=50)`` reads the story on a first minibatch
    and learns from it; ``learning.partial_fit(corpus, y)`` learns from another; ``learning.so_far()`` is the Fit by then.

    Parameters
    ----------
    story, arguments
        The story, and its own keyword arguments.
    corpus, y
        The first minibatch and its responses: a sample of what is to come, with all its terms and all classes of y.
    num_documents
        How many documents there are or will be: a minibatch stands for all of them.
    kappa, tau, start, e_tolerance, e_iterations
        As those of :func:`online`.
    """

    def __init__(
        self, story: str | Callable, corpus: Corpus, y: Any = None, *, num_documents: int = 1_000_000, seed: int = 0,
        kappa: float = 0.7, tau: float = 10.0, start: str = "response", e_tolerance: float = 1e-4, e_iterations: int = 20,
        **arguments: Any,
    ) -> None:  # fmt: skip
        check_seed(seed)
        check_counts(num_documents=num_documents, e_iterations=e_iterations)
        check_rates(kappa, tau, start)
        batches = Minibatches(corpus, y, len(corpus), seed)
        self.seed, self._batches, self._graph = seed, batches, batches.read(story, arguments)
        settings = Settings(start=start, e_tolerance=e_tolerance, e_iterations=e_iterations)
        rates = Rates(kappa, tau, max(num_documents, len(corpus)))
        self._learner = Learner(self._graph, settings, rates, batches.size)
        self._learned = self._learner.start(np.random.default_rng(seed))
        for batch in batches.of_pass(self._graph, 0):
            self._learned, _ = self._learner.step(self._learned, batch)

    def __repr__(self) -> str:
        return f"OnlineVEM of {self._graph.story.name} after {self._learned.steps} minibatches"

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "OnlineVEM holds programs of this process and is not pickled; save what it knows: so_far().save(path)."
        )

    def partial_fit(self, corpus: Corpus, y: Any = None) -> Self:
        """Learn from other documents; more than the first minibatch had are taken in parts of as many."""
        known = self._graph.corpus.vocabulary
        if not np.array_equal(corpus.vocabulary, known):
            corpus = corpus.with_vocabulary(known)
        response = self._graph.response.like_this(corpus, y) if self._graph.response else None
        for first in range(0, len(corpus), self._batches.size):
            rows = np.arange(first, min(first + self._batches.size, len(corpus)))
            part = self._batches.as_read(self._graph, corpus[rows], None if response is None else response.take(rows))
            self._learned, _ = self._learner.step(self._learned, part)
        return self

    def so_far(self, num_draws: int = 200) -> Fit:
        """The Fit of what has been learned; proportions are those of the first minibatch's documents."""
        check_counts(num_draws=num_draws)
        info = {"seed": self.seed, "interrupted": False, "passes": 1, "bound": [np.nan], "converged": False}
        return Fit.like(posterior(self._learner, self._learned, np.random.default_rng(self.seed), num_draws, info))
