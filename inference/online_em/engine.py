"""Online variational EM (Hoffman, Blei & Bach 2010): documents are read batch by batch, and none of them is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.streams import Stream

from ..em.components import Settings
from ..em.loop import draw, means
from ..lasting.checkpoint import Checkpoint, Nowhere, opened
from ..posterior.posterior import Posterior
from ..programs.progress import tqdm
from ..story.tracing import circumstances
from ..story.validation import check_counts, check_numbers, check_seed
from ..streams.minibatches import Minibatches
from .learner import Learned, Learner, Rates

RESTS = 1e-3  # relative change of the bound from a pass to the next


def online(
    story: str | Callable, corpus: Corpus | Stream, y: Any = None, *, seed: int = 0, passes: int = 1,
    batch_size: int | None = None, kappa: float = 0.7, tau: float = 10.0, start: str = "response", e_tolerance: float = 1e-4,
    e_iterations: int = 20, num_draws: int = 200, checkpoint: str | Path | Checkpoint | None = None,
    progress_bar: bool = True, **arguments: Any,
) -> Posterior:  # fmt: skip
    """Fit a story by online variational EM: for corpora beyond memory, and large ones in it.

    After each minibatch topics move by rho_t = (tau + t)^-kappa towards those that variational EM would find if all
    documents were like the minibatch's. It serves stories whose topics and proportions are Dirichlet, without a response or
    with one that has a smooth density: normal ones by running sufficient statistics, others by steps of the same kind.

    Parameters
    ----------
    story, arguments
        The story or the name of one of the zoo, and its own keyword arguments.
    corpus, y
        ``corpora.stream(...)``, which has its responses itself, or a corpus in memory and its responses.
    passes
        How often all documents are read.
    batch_size
        Documents of a minibatch, for a corpus in memory (1024 by default); a stream has its own.
    kappa, tau
        How fast rho_t falls, from 0.5 to 1, and how slow the first steps are.
    start
        As that of :func:`vem`: where topics start, for stories with a response; "response" looks at the first batch.
    e_tolerance, e_iterations, num_draws
        As those of :func:`vem`.
    checkpoint
        A folder for checkpoints, about one a minute: the same call again goes on from the last one (docs/lasting.md).

    The Fit is that of the documents of the first batch, a sample, under topics that are learned from all: ``fit.corpus`` and
    proportions are theirs. ``info`` has "num_documents", "bound" (one number a pass, the sum of what batches had before they
    moved anything), "converged" (whether the last pass changed it by less than a thousandth), and "steps".
    """
    check_seed(seed)
    check_counts(passes=passes, e_iterations=e_iterations, num_draws=num_draws)
    check_numbers(zero=True, e_tolerance=e_tolerance)
    check_rates(kappa, tau, start)
    batches = Minibatches(corpus, y, batch_size, seed)
    graph = batches.read(story, arguments)
    settings = Settings(start=start, e_tolerance=e_tolerance, e_iterations=e_iterations)
    learner = Learner(graph, settings, Rates(kappa, tau, batches.num_documents), batches.size)
    rng = np.random.default_rng(seed)
    course = Course(learner, batches, passes, progress_bar)
    learned = course.run(learner.start(rng), opened(checkpoint, batches.of_all(graph)))
    return posterior(learner, learned, rng, num_draws, {"seed": seed, "passes": passes, **course.info()})


def check_rates(kappa: Any, tau: Any, start: Any) -> None:
    """What says how steps are taken, and from where."""
    check_numbers(tau=tau)
    if isinstance(kappa, bool) or not isinstance(kappa, int | float) or not 0.5 <= kappa <= 1:
        raise ValueError(f"kappa is {kappa!r}; give a number from 0.5 to 1, or steps do not settle.")
    if start not in ("response", "uniform"):
        raise ValueError(f"start is {start!r}; choose from 'response', 'uniform'.")


def posterior(
    learner: Learner, learned: Learned, rng: np.random.Generator, num_draws: int, info: dict[str, Any]
) -> Posterior:
    """What has been learned, with the proportions of the sample's documents."""
    q, rates = learner.q(learned), learner.rates
    info |= {
        "num_documents": rates.num_documents, "batch_size": learner.size, "kappa": rates.kappa, "tau": rates.tau,
        "steps": learned.steps, **circumstances(),
    }  # fmt: skip
    if learner.alpha is not None:
        info["alpha"] = learner.alpha
    told: Any = info
    return Posterior.of(learner.graph, draw(q, rng, num_draws), engine="vem", info=told, means=means(q))


class Course:
    """The passes, one minibatch after the other."""

    def __init__(self, learner: Learner, batches: Minibatches, passes: int, progress_bar: bool) -> None:
        self.learner, self.batches, self.passes, self.progress_bar = learner, batches, passes, progress_bar
        self.bounds: list[float] = []
        self.within = 0.0  # of the pass under way
        self.seconds = 0.0
        self.interrupted = False

    def run(self, learned: Learned, lasting: Nowhere) -> Learned:
        """What is learned in all passes, or in those that are left after a checkpoint."""
        if lasting.kept is not None:
            learned = self._taken_up(learned, lasting.kept)
        each, began = self.batches.num_batches, time.perf_counter() - self.seconds
        total = each * self.passes
        bar = tqdm(total=total, desc="online EM", unit="batch", disable=not self.progress_bar)
        with bar, lasting.watching():
            bar.update(learned.steps)
            try:
                while learned.steps < total:
                    number, first = divmod(learned.steps, each)
                    for batch in self.batches.of_pass(self.learner.graph, number, first):
                        learned, bound = self.learner.step(learned, batch)
                        self._add(learned, bound, each)
                        bar.update()
                        self.seconds = time.perf_counter() - began
                        lasting.look(lambda: self._told(learned), last=learned.steps == total)
            except KeyboardInterrupt:
                if not learned.steps:
                    raise
                self.interrupted = True
        return learned

    def _add(self, learned: Learned, bound: float, each: int) -> None:
        self.within += bound
        if not np.isfinite(self.within):
            raise FloatingPointError(
                f"The bound of the story {self.learner.graph.story.name!r} became {bound} at batch {learned.steps - 1}; "
                "look at its priors and at the scale of y."
            )
        if learned.steps % each == 0:
            self.bounds.append(self.within + self.learner.bound_of_corpus(learned))
            self.within = 0.0

    def info(self) -> dict[str, Any]:
        bounds, rest = self.bounds, len(self.bounds) > 1 and not self.interrupted
        converged = rest and abs(bounds[-1] - bounds[-2]) < RESTS * abs(bounds[-2])
        bounds = bounds or [self.within]
        return {"bound": bounds, "converged": converged, "interrupted": self.interrupted, "seconds": self.seconds}

    def _told(self, learned: Learned) -> tuple[Any, dict[str, Any]]:
        """All that a checkpoint needs: the prior is the story's."""
        topics = learned.topics
        state = (topics.counts, topics.totals, learned.response)
        counts = {"size": topics.size, "steps": learned.steps, "bounds": self.bounds, "within": self.within}
        return state, {**counts, "seconds": self.seconds}

    def _taken_up(self, learned: Learned, kept: Any) -> Learned:
        counts = kept.counts
        self.bounds, self.within, self.seconds = list(counts["bounds"]), counts["within"], counts["seconds"]
        response = learned.response
        if response is not None:
            size = int(np.prod(self.learner.response.shape))
            response = response._replace(curvature=np.zeros((size, size)), linear=np.zeros(size), begun=True)
        found, totals, response = kept.state((learned.topics.counts, learned.topics.totals, response))
        topics = learned.topics._replace(counts=np.array(found), size=counts["size"], totals=np.asarray(totals))
        return Learned(topics, response, counts["steps"])
