"""The parameters of a smooth response, learned from minibatches.

What documents say of eta is a sum, sum_d R_d(eta). A minibatch gives its quadratic about the eta that stands, with slope g
and curvature H, and what all documents say is taken for the running mean of these quadratics, each D/B times itself:

    H <- (1 - rho) H + rho D/B H_b,     b <- (1 - rho) b + rho D/B (g_b - H_b eta)

eta moves to where the mean plus the log-prior is highest. For a normal response that is its running sufficient statistics,
those of equation 10 of Blei & McAuliffe (2007). Where R is no quadratic, as for classes and counts, no document's predictor
may move by more than 1 in a step. Other parameters, such as sigma, go the way of topics: to (1 - rho) times where they stand
plus rho times where the minibatch would have them, in the space without bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..em.components import State
from ..em.responses import SmoothResponse, solve_newton
from ..em.sites import Points
from ..em.words import of_terms

FARTHEST = 1.0  # that a step may move the predictor of a document, where R is no quadratic


class OnlineResponse(NamedTuple):
    """Parameters, and the running quadratic in eta, flat."""

    values: Points
    curvature: np.ndarray  # H, [KC, KC]
    linear: np.ndarray  # b, [KC]
    begun: bool = False

    @classmethod
    def start(cls, values: Points) -> OnlineResponse:
        """Before any minibatch."""
        return cls(values, np.zeros(0), np.zeros(0))

    def step(
        self, response: SmoothResponse, words: Any, log_mean: np.ndarray, state: State, rho: float, scale: float
    ) -> OnlineResponse:
        """After the E-step of a minibatch; the first one decides alone."""
        rho = rho if self.begun else 1.0
        (part,), values = response.parts(log_mean, state), self.values
        gradient, hessian = response.derivatives_of_part(words, values, part)
        eta = np.asarray(values[response.eta], np.float64).ravel()
        bend = np.asarray(hessian, np.float64).reshape(eta.size, eta.size)
        slope = np.asarray(gradient, np.float64).ravel()
        curvature = _blended(self.curvature, scale * bend, rho)
        linear = _blended(self.linear, scale * (slope - bend @ eta), rho)
        prior_slope, prior_bend = (np.asarray(part, np.float64) for part in response.slopes_of_prior(values))
        total = curvature + prior_bend
        move = solve_newton(-(total + total.T) / 2, linear + curvature @ eta + prior_slope)
        if not response.is_normal:
            phibar = np.asarray(part.local.tokens, np.float64) / np.maximum(words.lengths, 1.0)[:, None]
            moved = np.abs(phibar @ move.reshape(response.num_topics, -1)).max()
            move *= min(1.0, FARTHEST / max(moved, 1e-30))
        values = {**values, response.eta: jnp.asarray(eta + move, jnp.float32).reshape(response.shape)}
        values |= self._others(response, words, log_mean, part, values, rho, scale)
        return OnlineResponse(values, curvature, linear, True)

    @staticmethod
    def _others(
        response: SmoothResponse, words: Any, log_mean: np.ndarray, part: Any, values: Points, rho: float, scale: float
    ) -> Points:
        points = response.points
        if not points.names:
            return {}
        columns = values[response.eta].reshape(response.num_topics, -1)
        at = words.moments(columns, part.local, of_terms(log_mean), response.log_linear)
        shares = jnp.full(len(words.lengths), scale, jnp.float32)
        best = points.m_step(values, response.data, response.few, values, [(part.given, shares, *at)])
        blended = jax.tree.map(lambda old, new: (1 - rho) * old + rho * new, points.free(values), points.free(best))
        return points.bounded(blended)


def _blended(old: np.ndarray, new: np.ndarray, rho: float) -> np.ndarray:
    return new if rho == 1.0 else (1 - rho) * old + rho * new
