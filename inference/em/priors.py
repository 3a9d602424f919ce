"""Sites above the Dirichlet priors of theta and beta: point estimates, found by climbing the bound.

Given E[log theta_d] the bound has D [sum_k (alpha_k - 1) mean_d E[log theta_dk] - log B(alpha)] of alpha. For beta the best
q(beta) is taken along, Dir(gamma + n) with expected counts n, which leaves sum_k [log B(gamma + n_k) - log B(gamma)]: most
terms of a topic have no counts, and at a fixed q(beta) gamma would follow its own old value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to, constraints
from scipy.special import digamma

from topiczoo.corpora.layouts import Documents

from ..steps.dirichlet import SMALLEST_ALPHA, expected_log, log_normaliser
from ..story.bound import BoundGraph
from ..story.response import Y
from ..story.tracing import ZbarHandler, concentration, program, run
from .components import Posterior, Settings, State, refuse
from .sites import Points, PointSites, Seen, bounded, data_of, few_of, log_prior

STEPS = 10  # of L-BFGS in an M-step


def sites_above(graph: BoundGraph, name: str) -> set[str]:
    """Continuous sites that the prior of a site reads."""
    return {site for site in graph.parents[name] - {name} if not graph.latent[site].discrete}


class LearnedPriors:
    """What the priors of theta and beta are made of, as far as it is latent; the state holds the values by site."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.map = graph, settings.point == "map"
        given = [name for name in (graph.theta, graph.beta) if graph.has_words and name]
        given = [name for name in given if isinstance(graph.latent[name].prior, dist.Dirichlet)]
        self.of = {name: sorted(found) for name in given if (found := sites_above(graph, name))}
        self.names = {site for sites in self.of.values() for site in sites}
        self.reads = frozenset({"point"} if self.names else ())
        for name, sites in self.of.items():
            for site in sites:
                if graph.latent[site].document_axis is not None:
                    refuse(graph, site, f"it is a latent parameter of the prior of {name!r} and belongs to documents")
                if others := sorted((graph.children([site]) | graph.parents[site]) - {site, name}):
                    refuse(graph, site, f"it is a latent parameter of the prior of {name!r}, and of {others[0]!r}")
        if self.names and (classes := [name for name, site in graph.latent.items() if site.discrete]):
            refuse(
                graph, sorted(self.names)[0], f"it stands above a Dirichlet prior, and {classes[0]!r} is a latent class"
            )
        if settings.estimate_alpha and graph.theta in self.of:
            raise ValueError(
                f"estimate_alpha is True, but the story {graph.story.name!r} draws {self.of[graph.theta][0]!r} itself; "
                "leave estimate_alpha out."
            )
        if self.names:
            self.data, bare = data_of(graph), graph.for_programs()
            self._to = {site: biject_to(graph.latent[site].fn.support) for site in sorted(self.names)}
            self._rows = {name: program(_concentration, bare, self._to, name) for name in self.of}
            self._back = {name: program(_pulled_back, bare, self._to, name) for name in self.of}
            self._log_prior = program(_log_prior_and_slope, bare, self._to)

    def start(self) -> Points:
        """The means of their own priors."""
        return PointSites(self.graph, sorted(self.names), lambda points: 0.0, 0).prior_means() if self.names else {}

    def concentration(self, name: str, points: Points, shape: tuple[int, ...]) -> np.ndarray:
        """The concentration of a Dirichlet site, in the shape of its values."""
        free = {site: self._to[site].inv(jnp.asarray(points[site])) for site in self.of[name]}
        return np.broadcast_to(np.asarray(self._rows[name](free, *self.data), np.float64), shape)

    def topics(self, topics: Any, points: Points) -> Any:
        """The topics' site with its prior as it stands."""
        if self.graph.beta not in self.of:
            return topics
        return replace(topics, prior=self.concentration(topics.name, points, topics.prior.shape))

    def m_step(self, state: State, topics: Any) -> Points:
        """Points at which the bound is not smaller."""
        points = dict(state.priors)
        for name in self.of:
            if name == self.graph.theta:
                logs = expected_log(np.asarray(state.local.gamma, np.float64))
                points |= self._climbed(name, points, partial(_of_logs, logs))
            elif topics.mle:
                continue  # topics without their prior say nothing of it
            else:
                points |= self._climbed(name, points, partial(_of_counts, np.asarray(state.counts, np.float64)))
        return points

    def bound(self, state: State) -> float:
        """log p of the points, where they are estimated under their priors."""
        return float(log_prior(self.graph, sorted(self.names), state.priors)) if self.names and self.map else 0.0

    def q(self, state: State) -> Posterior:
        return {site: dist.Delta(np.asarray(state.priors[site])) for site in self.names}

    def _climbed(self, name: str, points: Points, objective: Callable) -> Points:
        """L-BFGS on objective(concentration), which gives its slope as well, plus the log-prior."""
        sites = self.of[name]
        start, unravel = ravel_pytree({site: self._to[site].inv(jnp.asarray(points[site])) for site in sites})

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            free = unravel(jnp.asarray(flat, jnp.float32))
            rows = np.asarray(self._rows[name](free, *self.data), np.float64)
            value, slope = objective(rows)
            back = self._back[name](jnp.asarray(slope, jnp.float32), free, *self.data)
            if self.map:
                log_density, slopes = self._log_prior(free, few_of(self.graph))
                value, back = value + float(log_density), jax.tree.map(jnp.add, back, slopes)
            return -value, -np.asarray(ravel_pytree(back)[0], np.float64)

        lowest = {
            site: jnp.full(
                np.shape(self._to[site].inv(jnp.asarray(points[site]))),
                np.log(SMALLEST_ALPHA) if self.graph.latent[site].fn.support is constraints.positive else -np.inf,
            )
            for site in sites
        }
        flat = np.maximum(np.asarray(start, np.float64), np.asarray(ravel_pytree(lowest)[0], np.float64))
        bounds = [(low, None) for low in np.asarray(ravel_pytree(lowest)[0], np.float64)]
        from scipy.optimize import minimize  # a tenth of a second of start-up

        found = minimize(loss, flat, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
        if not found.fun < loss(flat)[0]:
            return {site: points[site] for site in sites}
        free = unravel(jnp.asarray(found.x, jnp.float32))
        return {site: np.asarray(self._to[site](free[site])) for site in sites}


def _concentration(
    graph: BoundGraph, to: Mapping[str, Callable], name: str, free: Points, corpus: Documents, y: Y
) -> jax.Array:
    """In its own shape, often one row for all, from points in the space without bounds."""
    points = bounded(to, free)
    return concentration(run(graph.story, corpus, y, points, ZbarHandler(lambda theta: theta))[name]["fn"])


def _pulled_back(
    graph: BoundGraph, to: Mapping[str, Callable], name: str, slope: jax.Array, free: Points, corpus: Documents, y: Y
) -> Points:
    return jax.vjp(lambda free: _concentration(graph, to, name, free, corpus, y), free)[1](slope)[0]


def _log_prior_and_slope(
    graph: BoundGraph, to: Mapping[str, Callable], free: Points, few: Seen
) -> tuple[jax.Array, Points]:
    return jax.value_and_grad(lambda free: log_prior(graph, list(free), bounded(to, free), few))(free)


def _of_logs(logs: np.ndarray, prior: np.ndarray) -> tuple[float, np.ndarray]:
    """sum_d E[log Dir(x_d; prior)] and its slope in the prior, which may be one row for all d."""
    slope = logs - digamma(prior) + digamma(prior.sum(-1, keepdims=True))
    value = ((prior - 1) * logs).sum() - log_normaliser(np.broadcast_to(prior, logs.shape)).sum()
    return float(value), _summed(slope, prior.shape)


def _of_counts(counts: np.ndarray, prior: np.ndarray) -> tuple[float, np.ndarray]:
    """sum_k [log B(prior + n_k) - log B(prior)] and its slope in the prior, which may be one row for all k."""
    posterior = prior + counts
    slope = expected_log(posterior) - digamma(prior) + digamma(prior.sum(-1, keepdims=True))
    before = log_normaliser(prior) * (posterior[..., 0].size / max(prior[..., 0].size, 1))
    return float((log_normaliser(posterior)).sum() - np.sum(before)), _summed(slope, prior.shape)


def _summed(slope: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Summed over rows that share one prior."""
    extra = slope.ndim - len(shape)
    slope = slope.sum(tuple(range(extra)))
    return slope.sum(tuple(i for i, size in enumerate(shape) if size == 1 and slope.shape[i] > 1), keepdims=True)
