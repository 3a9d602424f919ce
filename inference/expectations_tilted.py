"""Words with a margin, in what its forms of variational EM share: E-steps under a tilt, and machines with their duals.

A tilt is what each word of a document gains in each topic from the response, [D, K].
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import distinct_pairs

from .expectations import Settings, expected_log, fit_alpha, refuse
from .expectations_words import read_words
from .margin_solvers import Loss, Solution, n_slack, one_slack
from .reading import Reading
from .sweep import mesh_of_devices
from .word_steps import e_step, first_gamma, pair_blocks

WIDER, NARROWER = 1.5, 0.3  # a document's next step, where the last one served it and where it did not


class TiltedWords:
    """A Dirichlet theta for each document and Dirichlet topics; states have topics, alpha, gamma, counts and duals."""

    monotone = False
    labelled: np.ndarray  # [D] bool

    def __init__(self, reading: Reading, settings: Settings) -> None:
        self.reading, self.settings = reading, settings
        self.theta, self.topics, self.alpha = read_words(reading, settings)
        self.num_topics = len(self.topics.prior)
        self.pairs = pair_blocks(distinct_pairs(reading.corpus), *reading.corpus.counts.shape)
        self.lengths = reading.corpus.lengths.astype(np.float64)
        self.where: dict[str, Any] = {"deepest": self.pairs.deepest, "mesh": mesh_of_devices()}

    def refuse_others(self, known: set[str], whole: str) -> None:
        """Say no to sites that are neither words nor what stands below them."""
        known = known | {self.theta, *self.topics.names}
        if extra := sorted((set(self.reading.latent) | set(self.reading.observed)) - known):
            refuse(self.reading, extra[0], f"it is neither part of the words nor of their {whole}")

    def log_beta(self, state: Any) -> jax.Array:
        """E[log beta], [V, K]."""
        return jnp.asarray(self.topics.log_mean(state.topics).T, jnp.float32)

    def first_gamma(self, state: Any, fresh: bool) -> jax.Array:
        """Where an E-step starts, [D, K]: afresh, or where the last one ended."""
        return first_gamma(state.alpha, self.lengths) if fresh or state.gamma is None else state.gamma

    def settled(self, state: Any, gamma: jax.Array, tilt: np.ndarray, steps: int) -> Any:
        """The state with gamma, expected counts and the documents' part of the words' bound, under a tilt."""
        limits = self.settings.e_tolerance, steps
        gamma, bound, counts = e_step(self.pairs, self.log_beta(state), state.alpha, gamma, limits, tilt)
        return state._replace(gamma=gamma, counts=np.asarray(counts, np.float64).T, words=bound)

    def guarded(self, state: Any, target: np.ndarray, fresh: bool) -> Any:
        """An E-step towards the tilt ``target`` that no document takes to its own loss.

        A document's loss bends as its topics move, so that with the whole tilt it may end beyond the margin on the other
        side. Each has a step size: it goes that part of the way from its old tilt to the new one, keeps its topics where its
        share of the objective would fall, and then tries a smaller step.
        """
        first, steps = state.gamma is None, self.settings.e_iterations
        tilt = target if first else state.tilt + state.step[:, None] * (target - state.tilt)
        new = self.settled(state, self.first_gamma(state, fresh), tilt, steps)._replace(tilt=tilt)
        if first or not self.settings.guarded:
            return new
        old = self.settled(state, state.gamma, state.tilt, 0)
        better = self.shares_of_documents(new) >= self.shares_of_documents(old)
        step = np.where(better, np.minimum(1.0, WIDER * state.step), NARROWER * state.step)
        if better.all():
            return new._replace(step=step)
        gamma = jnp.where(better[:, None], new.gamma, old.gamma)
        mixed = np.where(better[:, None], tilt, state.tilt)
        return self.settled(state, gamma, mixed, 0)._replace(tilt=mixed, step=step)

    def shares_of_documents(self, state: Any) -> np.ndarray:
        """What each document adds to minus the objective, [D]."""
        raise NotImplementedError

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
            found = one_slack(loss, x, y, variance, parameters, start)
        else:
            found = n_slack(loss, x, y, variance, parameters, state.duals[self.labelled])
        duals[self.labelled] = found.duals
        return found, duals
