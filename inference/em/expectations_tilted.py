"""Words with a margin, in what its forms of variational EM share: E-steps under a tilt, and machines with their duals.

A tilt is what each word of a document gains in each topic from the response, [D, K].
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import distinct_pairs

from ..kernels.word_steps import e_step, first_gamma, pair_batches
from ..story.bound import BoundGraph
from .expectations import Settings, expected_log, fit_alpha, refuse
from .expectations_words import read_words
from .support_vectors import LOOSE_GAP, Loss, Solution, n_slack, one_slack


class TiltedWords:
    """A Dirichlet theta for each document and Dirichlet topics; states have topics, alpha, gamma, counts and duals."""

    monotone = False
    labelled: np.ndarray  # [D] bool

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.settings = graph, settings
        self.theta, self.topics, self.alpha = read_words(graph, settings)
        self.num_topics = len(self.topics.prior)
        self.pairs = pair_batches(distinct_pairs(graph.corpus.counts), *graph.corpus.counts.shape)
        self.lengths = graph.corpus.lengths.astype(np.float64)

    def refuse_others(self, known: set[str], whole: str) -> None:
        """Say no to sites that are neither words nor what stands below them."""
        known = known | {self.theta, *self.topics.names}
        if extra := sorted((set(self.graph.latent) | set(self.graph.observed)) - known):
            refuse(self.graph, extra[0], f"it is neither part of the words nor of their {whole}")

    def log_beta(self, state: Any) -> jax.Array:
        """E[log beta], [V, K]."""
        return jnp.asarray(self.topics.log_mean(state.topics).T, jnp.float32)

    def first_gamma(self, state: Any, fresh: bool) -> jax.Array:
        """Where an E-step starts, [D, K]: afresh, or where the last one ended."""
        return first_gamma(state.alpha, self.lengths) if fresh or state.gamma is None else state.gamma

    def settled(
        self, state: Any, gamma: jax.Array, tilt: np.ndarray, steps: int, **rivalry: Any
    ) -> tuple[Any, np.ndarray]:
        """The state with gamma, expected counts and the documents' part of the words' bound, and which documents moved."""
        limits = self.settings.e_tolerance, steps
        found = e_step(self.pairs, self.log_beta(state), state.alpha, gamma, limits, tilt, **rivalry)
        counts = np.asarray(found.counts, np.float64).T
        return state._replace(gamma=found.gamma, counts=counts, words=found.bound), found.moved

    def mean_topics(self, state: Any) -> np.ndarray:
        """E[zbar], [D, K]."""
        return (np.asarray(state.gamma, np.float64) - state.alpha) / self.lengths[:, None]

    def next_alpha(self, state: Any, fresh: bool) -> np.ndarray:
        """Theta's prior, fitted where that is asked for and topics have settled."""
        if self.settings.estimate_alpha and not fresh:
            return fit_alpha(state.alpha, expected_log(np.asarray(state.gamma, np.float64)))
        return state.alpha

    def machine(
        self, state: Any, loss: Loss, x: np.ndarray, y: np.ndarray, variance: np.ndarray, parameters: dict,
        start: np.ndarray | None = None,
    ) -> tuple[Solution, np.ndarray]:  # fmt: skip
        """The machine of the labelled documents, from coefficients to start with, and duals of all, 0 where unlabelled."""
        duals = np.zeros_like(state.duals)
        if self.settings.slack == "one":
            known = state.duals[self.labelled]
            found = one_slack(loss, x, y, variance, parameters, known, first=start, gap=LOOSE_GAP)
        else:
            found = n_slack(loss, x, y, variance, parameters, state.duals[self.labelled])
        duals[self.labelled] = found.duals
        return found, duals
