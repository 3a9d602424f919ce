"""Variational EM for words with any response of one linear predictor: the M-step, and the form as the engine sees it.

eta moves by Newton's step on sum_d F_d(m_d(eta), v_d(eta)) + log p(eta), with

    gradient  sum_d phibar_d F_m' + 2 S_d eta F_v,    Hessian  sum_d phibar_d phibar_d' F_mm + 2 S_d F_v

where v_d = eta' S_d eta and S_d = (diag sum_n phi_n - sum_n phi_n phi_n') / N^2; of the products of phi in the Hessian only
those of one predictor with itself are kept. For a normal response that is equation 10, solved at once. Other parameters
move by L-BFGS. Steps are halved until the bound rises.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from topiczoo.corpora.layouts import distinct_pairs

from ..kernels.special import digamma
from ..kernels.word_steps import pair_batches
from ..story.bound import BoundGraph
from .expectations import Marginals, Settings, expected_log, fit_alpha, refuse
from .expectations_glm import GlmResponse, Settled, no_less_than_rounding, settle_glm, sums_of_words
from .expectations_words import read_words
from .starts import coefficients_by_response, topics_by_response

SMALLEST_PIVOT = 1e-5  # of a root's largest; below it a matrix is as good as singular


class GlmState(NamedTuple):
    """What one turn of EM hands to the next."""

    topics: np.ndarray  # [K, V], see DirichletSite
    alpha: np.ndarray  # [K] or [D, K]
    values: dict[str, jax.Array]  # eta and the response's other parameters
    settled: Any  # Settled, once there was an E-step
    sums: Any  # Sums, once there was an E-step


class GlmWords:
    """Stories of a Dirichlet theta for each document, Dirichlet topics, and responses of one zbar @ eta."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.settings = graph, settings
        self.theta, self.topics, self.alpha = read_words(graph, settings)
        self.response = GlmResponse(graph, settings.point, settings.expectation)
        known = {self.theta, *self.topics.names, *self.response.sites}
        if extra := sorted((set(graph.latent) | set(graph.observed)) - known):
            refuse(graph, extra[0], "it is neither part of the words nor of their response")
        self.num_topics = len(self.topics.prior)
        self.pairs = pair_batches(distinct_pairs(graph.corpus.counts), *graph.corpus.counts.shape)
        self.lengths = jnp.asarray(graph.corpus.lengths, jnp.float32)
        self.size = int(np.prod(self.response.shape[1:], dtype=int))
        data = self.response.data  # an argument: XLA would spend seconds on what follows from constants
        self._objective = partial(jax.jit(self._expected), data)
        self._slopes = partial(jax.jit(self._derivatives), data)
        self._others = partial(jax.jit(jax.value_and_grad(self._loss_of_others, argnums=1)), data)
        self._prior = jax.jit(self.response.log_prior)

    def start(self, rng: np.random.Generator) -> GlmState:
        """Topics by the response, or section 3 of the paper: eta on a grid, topics uniform (plus noise)."""
        values, counts = self.response.start(), np.zeros(())
        if self.settings.start == "response":
            y = self.graph.y
            counts, shares = topics_by_response(self.graph.corpus.counts, y, self.num_topics)
            if len(self.response.shape) > 1:
                eta = coefficients_by_response(y, shares, self.size)
                values = {**values, self.response.eta: jnp.asarray(eta, jnp.float32)}
        return GlmState(self.topics.start(rng, counts), self.alpha, values, None, None)

    def _log_beta(self, topics: np.ndarray) -> jax.Array:
        return jnp.asarray(self.topics.log_mean(topics).T, jnp.float32)

    def expect(self, state: GlmState, fresh: bool) -> GlmState:
        num_documents, num_topics, size = len(self.lengths), self.num_topics, self.size
        alpha = jnp.broadcast_to(jnp.asarray(state.alpha, jnp.float32), (num_documents, num_topics))
        start = state.settled
        if fresh or start is None:
            tokens, nothing = self.lengths[:, None] / num_topics + 0 * alpha, jnp.zeros((num_documents, size))
            covariance = jnp.zeros((num_documents, size, size))
            start = Settled(alpha + tokens, 0 * alpha, nothing, tokens, nothing, covariance, jnp.zeros(num_documents))
        settled, sums = settle_glm(
            self.response, self.response.data, self.pairs, self._log_beta(state.topics), alpha, state.values, start,
            (self.settings.e_tolerance, self.settings.e_iterations),
        )  # fmt: skip
        return state._replace(settled=settled, sums=sums)

    def maximise(self, state: GlmState, fresh: bool) -> GlmState:
        alpha = state.alpha
        if self.settings.estimate_alpha and not fresh:
            alpha = fit_alpha(alpha, expected_log(np.asarray(state.settled.gamma, np.float64)))
        values, *moments = self._move_eta(state)
        counts = np.asarray(state.sums.counts, np.float64).T
        return state._replace(
            topics=self.topics.update(counts, state.topics), alpha=alpha, values=self._move_others(values, *moments)
        )

    # the response's parameters

    def _expected(self, data: tuple[Any, Any], values: dict, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        """sum_d F_d + log p(values)."""
        terms = self.response.terms(values, *data, mean, covariance)
        return terms.sum() + self.response.log_prior(values)

    def _derivatives(self, data: tuple[Any, Any], values: dict, mean: jax.Array, covariance: jax.Array) -> tuple:
        at = mean.T, jnp.moveaxis(covariance, 0, -1)
        slope, curve, bend = self.response.slopes(values, *data, *at)

        def prior(eta: jax.Array) -> jax.Array:
            return self.response.log_prior({**values, self.response.eta: eta.reshape(self.response.shape)})

        eta = values[self.response.eta].ravel()
        of_documents = slope.T, jnp.moveaxis(bend, -1, 0), jnp.moveaxis(curve, -1, 0)
        return *of_documents, jax.grad(prior)(eta), jax.hessian(prior)(eta)

    def _moments(self, eta: jax.Array, state: GlmState) -> tuple[jax.Array, jax.Array]:
        """Mean [D, C] and covariance [D, C, C] of the predictor under the E-step's phi and any eta [K, C]."""
        tokens, gamma = state.settled.tokens, state.settled.gamma
        weights = digamma(gamma) - digamma(gamma.sum(-1, keepdims=True)) + state.settled.tilt  # as the E-step left them
        length = jnp.maximum(self.lengths, 1.0)[:, None]
        exact, log_beta = self.response.log_linear, self._log_beta(state.topics)
        outer = sums_of_words(self.pairs, log_beta, weights, eta, length[:, 0], exact=exact)
        if exact:
            return tokens @ eta / length, 2 * outer
        second = jnp.einsum("kc,dk,ke->ced", eta, tokens, eta)
        spread = jnp.moveaxis(no_less_than_rounding(second, jnp.moveaxis(outer, 0, -1)), -1, 0)
        return tokens @ eta / length, spread / length[..., None] ** 2

    def _move_eta(self, state: GlmState) -> tuple[dict, jax.Array, jax.Array]:
        """The response's parameters with eta moved, and mean and covariance of the predictor there."""
        values, settled, sums = state.values, state.settled, state.sums
        mean, covariance = settled.mean, settled.covariance
        slope, bend, curve, prior_slope, prior_bend = self._slopes(values, mean, covariance)
        tokens, length = settled.tokens, jnp.maximum(self.lengths, 1.0)[:, None]
        weight, phibar = curve / length[..., None] ** 2, tokens / length
        eta = values[self.response.eta].reshape(self.num_topics, -1)
        gradient = phibar.T @ slope + 2 * (jnp.einsum("dk,dce,ke->kc", tokens, weight, eta) - sums.pull)
        each, topics = jnp.arange(self.size), jnp.arange(self.num_topics)
        hessian = jnp.einsum("dk,dce,dl->kcle", phibar, bend, phibar)
        hessian = hessian.at[topics, :, topics, :].add(2 * jnp.einsum("dce,dk->kce", weight, tokens))
        hessian = hessian.at[:, each, :, each].add(-2 * sums.products)
        n = self.num_topics * self.size
        ascent = np.asarray(gradient.ravel() + prior_slope, np.float64)
        bend_of_eta = np.asarray(hessian.reshape(n, n) + prior_bend, np.float64)
        move = _solve(-(bend_of_eta + bend_of_eta.T) / 2, ascent)
        if ascent @ move <= 0:
            move = ascent
        old = float(self._objective(values, mean, covariance))
        for halvings in range(12):
            moved = jnp.asarray(np.ravel(eta) + move / 2**halvings, jnp.float32).reshape(self.response.shape)
            new = {**values, self.response.eta: moved}
            moments = self._moments(moved.reshape(self.num_topics, -1), state)
            if float(self._objective(new, *moments)) >= old:
                return new, *moments
        return values, mean, covariance

    def _loss_of_others(self, data: tuple[Any, Any], flat: jax.Array, eta: jax.Array, *moments: jax.Array) -> jax.Array:
        return -self._expected(data, {**self._constrained(flat), self.response.eta: eta}, *moments)

    def _constrained(self, flat: jax.Array) -> dict[str, jax.Array]:
        free = self._unravel(flat)
        return {name: biject_to(self.graph.latent[name].fn.support)(free[name]) for name in free}

    def _move_others(self, values: dict, mean: jax.Array, covariance: jax.Array) -> dict:
        if not self.response.others:
            return values
        free = {n: biject_to(self.graph.latent[n].fn.support).inv(values[n]) for n in self.response.others}
        flat, self._unravel = ravel_pytree(free)

        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            at = jnp.asarray(x, jnp.float32)
            value, slope = self._others(at, values[self.response.eta], mean, covariance)
            return float(value), np.asarray(slope, np.float64)

        found = minimize(loss, np.asarray(flat, np.float64), jac=True, method="L-BFGS-B", options={"maxiter": 20})
        if not found.fun < loss(np.asarray(flat, np.float64))[0]:
            return values
        return {**values, **self._constrained(jnp.asarray(found.x, jnp.float32))}

    def bound(self, state: GlmState) -> float:
        documents = float(np.asarray(state.settled.bound, np.float64).sum())
        return documents + self.topics.bound(state.topics) + float(self._prior(state.values))

    def marginals(self, state: GlmState) -> Marginals:
        marginals = Marginals(dirichlet={self.theta: np.asarray(state.settled.gamma)})
        self.topics.put(state.topics, marginals)
        marginals.point.update({name: np.asarray(value) for name, value in state.values.items()})
        return marginals


def _solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """By Cholesky's root where there is a good one, else the shortest of the nearest solutions, which takes far longer."""
    try:
        root, lower = cho_factor(matrix)
        pivots = np.diag(root)
        if pivots.min() > SMALLEST_PIVOT * pivots.max():
            return cho_solve((root, lower), vector)
    except LinAlgError:
        pass
    return np.linalg.lstsq(matrix, vector, rcond=None)[0]
