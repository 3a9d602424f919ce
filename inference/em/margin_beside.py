"""A margin of numbers with a normal response beside it: MedLDA's regression (Zhu, Ahmed & Xing 2012).

    minimise  -L(q) + KL(q(eta) || p(eta)) - E[log N(y_d; eta . zbar_d, sigma^2)] + sum_d loss(y_d, lambda . E[zbar_d])

q(eta) is N(lambda, Sigma) with Sigma^-1 = 1/V + E[A'A] / sigma^2 (corollary 3), lambda a support vector regression after a
change of variables (equation 17). Words are tilted by equation 14: by the duals as for a margin alone, and by the slope of
the normal response, which depends on the topics themselves. That slope is taken at their mean and renewed a few times within
an E-step, half the way each time. The objective is exact, and may rise a little from one iteration to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ..kernels.special import digamma
from ..steps.responses import sums_of_products
from ..steps.support_vectors import TUBE, support_vectors
from ..story.bound import BoundGraph
from .components import Posterior, Settings, State, refuse
from .margins import Margin
from .responses import SmoothResponse
from .sites import Points, log_prior
from .words import of_terms

ROUNDS = 4  # of the normal response's slope within an E-step


class BesideState(NamedTuple):
    """What one turn of EM hands to the next."""

    coefficients: np.ndarray  # [K] lambda
    covariance: np.ndarray  # [K, K] Sigma
    duals: np.ndarray  # [D, 1], 0 where unlabelled
    values: Points  # the normal response's other parameters


class MarginBeside(Margin):
    """The margin, with the normal response as :class:`.responses.SmoothResponse` reads it.

    The statistic of the E-step is E[A'A] of the labelled documents, [K, K].
    """

    reads: frozenset[str] = frozenset({"start", "slack", "point"})

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        super().__init__(graph, settings)
        others = tuple(name for name in graph.response_sites if name != self.name)
        if graph.story.weighed:
            refuse(graph, self.name, "with another response beside it a margin knows no weight of the response")
        if len(others) > 1 or not issubclass(graph.family(others[0]), dist.Normal):
            refuse(graph, others[0], "beside a margin one normal response is served, and nothing else")
        if self.loss is not TUBE or self.laplace:
            refuse(graph, self.eta, "beside a normal response it needs a normal prior and a margin for numbers")
        self.normal = SmoothResponse(graph, settings, others)
        self.normal.require_normal()
        self.names |= self.normal.names
        self.y, precision = self.normal.as_normal(self.normal.first_values())
        if np.ptp(precision[self.labelled]) > 1e-5 * precision.max():
            refuse(graph, others[0], "beside a margin its scale must be that of all documents")

    def start(self, rng: np.random.Generator) -> tuple[BesideState, np.ndarray | float]:
        """eta on a grid, sigma the deviation of y; topics by the response, or uniform plus noise."""
        values, counts = self.normal.start(rng)
        values = self.normal.at_deviation_of_y(values)
        grid, duals = np.asarray(values.pop(self.eta), np.float64), np.zeros((len(self.lengths), 1))
        return BesideState(grid, 1e-4 * np.eye(self.num_topics), duals, values), counts

    def noise(self, state: State) -> float:
        """sigma^2."""
        eta = jnp.asarray(state.response.coefficients, jnp.float32)
        return 1 / float(self.normal.as_normal({**state.response.values, self.eta: eta})[1].max())

    def tilt_at(self, state: State, mean_topics: np.ndarray, noise: float) -> np.ndarray:
        """Equation 14 at given mean topics, [D, K]; of a word's own part of them the mean is taken."""
        own, length = state.response, self.lengths[:, None]
        second = own.covariance + np.outer(own.coefficients, own.coefficients)
        linear = (self.y / noise - own.duals[:, 0])[:, None] * own.coefficients / length
        others = ((length - 1) * (mean_topics @ second) + np.diag(second) / 2) / (length**2 * noise)
        return np.where(self.labelled[:, None], linear - others, 0.0)

    def e_step(self, words: Any, log_mean: np.ndarray, state: State, fresh: bool) -> State:
        gamma = words.first_gamma(state.alpha) if fresh or state.local is None else state.local.gamma
        mean_topics, noise = words.mean_topics(gamma, state.alpha), self.noise(state)
        for _ in range(ROUNDS):
            tilt = self.tilt_at(state, mean_topics, noise)
            steps = max(1, self.settings.e_iterations // ROUNDS)
            found = words.e_step(log_mean, state.alpha, gamma, tilt, steps=steps)
            gamma = found.gamma
            mean_topics = (mean_topics + words.mean_topics(gamma, state.alpha)) / 2
        log_weight = digamma(gamma) - digamma(gamma.sum(-1, keepdims=True)) + jnp.asarray(tilt, jnp.float32)
        weight = jnp.asarray(np.where(self.labelled, self.lengths**-2, 0.0), jnp.float32)
        same = np.asarray(sums_of_products(words.pairs, of_terms(log_mean), log_weight, weight), np.float64)
        x = words.mean_topics(gamma, state.alpha)[self.labelled]
        once = np.diag((x / self.lengths[self.labelled, None]).sum(0))
        return state._replace(local=found, counts=found.counts, statistics=x.T @ x + once - same)

    def m_step(self, words: Any, log_mean: np.ndarray, state: State) -> BesideState:
        x, y = words.mean_topics(state.local.gamma, state.alpha)[self.labelled], self.y[self.labelled]
        noise = self.noise(state)
        root = np.linalg.cholesky(np.diag(self.scale[:, 0] ** -2) + state.statistics / noise)
        covariance = np.linalg.solve(root.T, np.linalg.solve(root, np.eye(self.num_topics)))
        centre = covariance @ (x.T @ y) / noise
        features, ones = np.linalg.solve(root, x.T).T, np.ones((self.num_topics, 1))
        found, duals = self.machine(state.response.duals, TUBE, features, y - x @ centre, ones)
        coefficients = centre + np.linalg.solve(root.T, found.coefficients[:, 0].astype(float))
        own = BesideState(coefficients, covariance, duals, state.response.values)
        points, moments = self.normal.points, self._moments(state._replace(response=own), x)
        given = {**own.values, self.eta: jnp.asarray(coefficients, jnp.float32)}
        seen = self.normal.data, self.normal.few
        return own._replace(values=points.m_step(own.values, *seen, given, [({}, None, *moments)]))

    def _moments(self, state: State, x: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of predictors that together have R of the documents: all of sum_d E[(y_d - eta . zbar_d)^2],
        equation 11, as variance around the target."""
        own, y = state.response, self.y[self.labelled]
        second = own.covariance + np.outer(own.coefficients, own.coefficients)
        residual = float(y @ y - 2 * y @ (x @ own.coefficients) + (state.statistics * second).sum())
        variance = np.full((len(self.y), 1, 1), residual / max(len(y), 1))
        return jnp.asarray(self.y, jnp.float32)[:, None], jnp.asarray(variance, jnp.float32)

    def bound(self, state: State) -> float:
        """Minus the objective."""
        own, (y, variance) = state.response, (self.y[self.labelled], self.scale[:, 0] ** 2)
        x = ((np.asarray(state.local.gamma, np.float64) - state.alpha) / self.lengths[:, None])[self.labelled]
        scores = jnp.asarray(x @ own.coefficients, jnp.float32)[:, None]
        loss = float(TUBE.value(scores, jnp.asarray(y, jnp.float32), self.parameters).sum())
        values = {**own.values, self.eta: jnp.asarray(own.coefficients, jnp.float32)}
        expected = float(self.normal.terms(values, *self.normal.data, *self._moments(state, x)).sum())
        spread = (np.diag(own.covariance) + own.coefficients**2) / variance - 1 + np.log(variance)
        divergence = 0.5 * (spread.sum() - np.linalg.slogdet(own.covariance)[1])
        prior = float(log_prior(self.graph, self.normal.others if self.normal.map else [], own.values))
        return expected - divergence + prior - loss

    def q(self, state: State) -> Posterior:
        own = state.response
        points: Posterior = {name: dist.Delta(np.asarray(value)) for name, value in own.values.items()}
        return points | {
            self.eta: dist.MultivariateNormal(own.coefficients, scale_tril=np.linalg.cholesky(own.covariance))
        }

    def report(self, state: State) -> Mapping[str, float]:
        own = state.response.duals[self.labelled]
        return {"support_vectors": support_vectors(TUBE, own, self.y[self.labelled], self.parameters)}
