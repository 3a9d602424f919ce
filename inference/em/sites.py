"""Sites of the whole corpus as variational EM estimates them: Dirichlet sites, and points found by climbing.

Corpus-wide quantities are computed in float64 on the host: the bound is a difference of large sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to

from topiczoo.corpora.layouts import Documents

from ..programs.compiling import jitted
from ..steps.dirichlet import dirichlet_bound, expected_log
from ..story.bound import BoundGraph
from ..story.response import Y
from ..story.tracing import ZbarHandler, base_distribution, program, run, total
from .components import Posterior, refuse

SMOOTHING = 1e-20  # expected tokens added to each term under maximum likelihood: log 0 would end the bound

Points = dict[str, Any]  # values by site
Seen = tuple[Documents, Y]


def few_of(graph: BoundGraph) -> Seen:
    """A few documents and their responses: enough where nothing depends on them."""
    return graph.few_documents, graph.few_y


@dataclass(frozen=True)
class DirichletSite:
    """A Dirichlet site of the whole corpus (topics, shares) and how it is estimated.

    Its state is ``counts`` plus the prior's concentration (``mle`` False: the variational Dirichlet of Hoffman et
    al. 2010) or plus next to nothing (``mle`` True: the maximum-likelihood estimate is the state, normalised).
    """

    name: str
    prior: np.ndarray
    mle: bool

    reads: frozenset[str] = frozenset({"topics"})

    @property
    def names(self) -> set[str]:
        return {self.name}

    def start(self, rng: np.random.Generator, counts: np.ndarray | float = 0.0) -> np.ndarray:
        """Expected counts on top of uniform ones with 10% of noise: exactly equal topics would never separate."""
        return counts + rng.gamma(100.0, 0.01, self.prior.shape)

    def m_step(self, counts: np.ndarray, state: Any = None) -> np.ndarray:
        """The maximiser of the bound, whatever the state was: equation 8 for ``mle``, else what conjugacy gives."""
        return counts + (SMOOTHING if self.mle else self.prior)

    def log_mean(self, state: np.ndarray) -> np.ndarray:
        """E[log x], or log x at the estimate."""
        return np.log(_share(state)) if self.mle else expected_log(state)

    def point(self, state: np.ndarray) -> jax.Array:
        """exp(E[log x]), in float32."""
        floor = np.log(np.finfo(np.float32).tiny)
        return jnp.asarray(np.exp(np.maximum(self.log_mean(state), floor)), jnp.float32)

    def bound(self, state: np.ndarray) -> float:
        """E[log p(x)] + H(q(x)); nothing for an estimate."""
        return 0.0 if self.mle else float(dirichlet_bound(self.prior, state).sum())

    def q(self, state: np.ndarray) -> Posterior:
        return {self.name: dist.Delta(_share(state)) if self.mle else dist.Dirichlet(state)}


def _share(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(-1, keepdims=True)


def require_dirichlet(graph: BoundGraph, name: str, above: set[str] | frozenset[str] = frozenset()) -> None:
    """The site is a Dirichlet whose concentration depends on no other site than those ``above``."""
    site = graph.latent[name]
    if not isinstance(site.prior, dist.Dirichlet):
        refuse(graph, name, f"it is {type(site.prior).__name__} where a Dirichlet is needed")
    if others := sorted(graph.parents[name] - {name} - above):
        refuse(graph, others[0], f"it is a latent parameter of the prior of {name!r}")


def concentrations(graph: BoundGraph, names: list[str], values: Mapping[str, Any] | None = None) -> Points:
    """The prior concentrations of Dirichlet sites as the story gives them, in the shape of the sites' values; ``values``
    are of sites that they depend on."""

    found = graph.program(_concentrations, tuple(names))(*data_of(graph), values or {})
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def data_of(graph: BoundGraph) -> Seen:
    """All documents by pairs of a term and its count, with the story's numbers, and the responses."""
    return graph.documents(pairs=True), jax.tree.map(jnp.asarray, graph.y)


def _concentrations(
    graph: BoundGraph, names: Sequence[str], corpus: Documents, y: Y, values: Any
) -> dict[str, jax.Array]:
    story = graph.story.without_weights()  # what the engine has weighed is no scale of the story's
    trace = run(story, corpus, y, values, ZbarHandler(lambda theta: theta))
    for name, site in trace.items():
        if site["type"] == "sample" and site["scale"] is not None:
            refuse(graph, name, "its density is scaled")
    return {
        name: jnp.broadcast_to(base_distribution(trace[name]["fn"]).concentration, jnp.shape(trace[name]["value"]))
        for name in names
    }


def counted_sites(
    graph: BoundGraph, names: Sequence[str], mle: bool, observed: Sequence[str]
) -> tuple[list[tuple[DirichletSite, np.ndarray]], float]:
    """The sites, such as the shares of observed classes, each with its posterior, and the expected log-density of what reads
    them; whatever is not of this kind is refused.

    ``observed`` are the sites that may read them. Their log-density is linear in log x, so that the counts are
    x d(log p)/dx at any x.
    """
    for name in names:
        site, readers = graph.latent[name], graph.children([name]) - {name}
        if site.document_axis is not None or not readers or not readers <= set(observed):
            refuse(graph, name, "no words depend on it and it is no response that vem knows")
        require_dirichlet(graph, name)
    for name in observed:
        if not graph.parents[name] - {name} <= set(names) or not graph.parents[name] - {name}:
            refuse(graph, name, "no words depend on it and it is no response that vem knows")
    if not names:
        return [], 0.0

    @jitted(once=True)
    def log_density(logs: dict, corpus: Documents, y: Y) -> jax.Array:
        values = {name: jnp.exp(part) for name, part in logs.items()}
        return total(run(graph.story, corpus, y, values, ZbarHandler(lambda theta: theta)), observed)

    data, priors = data_of(graph), concentrations(graph, list(names))
    even = {name: jnp.full(prior.shape, -np.log(prior.shape[-1]), jnp.float32) for name, prior in priors.items()}
    value, counts = jax.value_and_grad(log_density)(even, *data)
    moved = {name: part + 0.5 * jnp.cos(jnp.arange(part.size)).reshape(part.shape) for name, part in even.items()}
    expected = value + sum(((moved[name] - even[name]) * counts[name]).sum() for name in names)
    if not np.allclose(log_density(moved, *data), expected, rtol=1e-3):
        refuse(graph, names[0], "the density of what is observed is not linear in its logarithm")
    sites = [DirichletSite(name, priors[name], mle) for name in names]
    found = [(site, site.m_step(np.asarray(counts[site.name], np.float64))) for site in sites]
    logs = {site.name: jnp.asarray(site.log_mean(state), jnp.float32) for site, state in found}
    return found, float(log_density(logs, *data))


class PointSites:
    """Sites that are estimated by climbing their log-density, whatever it is, in the space without bounds.

    ``log_density(points, *data)`` is what is climbed; priors that are to count are part of it. It holds no corpus and no
    numbers of a story, so that what is compiled serves another fit.
    """

    def __init__(self, graph: BoundGraph, names: list[str], log_density: Callable, steps: int) -> None:
        self.graph, self.names, self.steps = graph, names, steps
        self._to = {name: biject_to(graph.latent[name].fn.support) for name in names}
        self._like = self.free({name: graph.few_values[name] for name in names})
        self._slope = program(_value_and_slope, log_density, self._to)

    def free(self, points: Points) -> dict[str, jax.Array]:
        """Values in the space without bounds."""
        return {name: self._to[name].inv(jnp.asarray(points[name])) for name in self.names}

    def bounded(self, free: Mapping[str, jax.Array]) -> Points:
        """The other way."""
        return bounded(self._to, free)

    def _of_flat(self, flat: jax.Array) -> Points:
        return self.bounded(ravel_pytree(self._like)[1](flat))

    def prior_means(self) -> Points:
        """The priors' means where they have one, else feasible values."""
        trace = run(self.graph.story, self.graph.few_documents, self.graph.few_y, {}, ZbarHandler(lambda theta: theta))
        points = {}
        for name in self.names:
            value = np.asarray(trace[name]["value"])
            mean = np.broadcast_to(np.asarray(trace[name]["fn"].mean), value.shape)
            points[name] = np.where(np.isfinite(mean), mean, value).astype(np.float32)
        return points

    def m_step(self, points: Points, *data: Any) -> Points:
        """A point where the log-density is not smaller: L-BFGS from where they stand."""
        if not self.names:
            return {}

        def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._slope(jnp.asarray(flat, jnp.float32), self._like, *data)
            return float(value), np.asarray(gradient, np.float64)

        flat = np.asarray(ravel_pytree(self.free(points))[0], np.float64)
        from scipy.optimize import minimize  # a tenth of a second of start-up

        found = minimize(at, flat, jac=True, method="L-BFGS-B", options={"maxiter": self.steps})
        if not found.fun < at(flat)[0]:
            return {name: points[name] for name in self.names}
        return self._of_flat(jnp.asarray(found.x, jnp.float32))


def bounded(to: Mapping[str, Callable], free: Mapping[str, jax.Array]) -> Points:
    return {name: to[name](value) for name, value in free.items()}


def _value_and_slope(
    log_density: Callable, to: Mapping[str, Callable], flat: jax.Array, like: Points, *data: Any
) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(lambda flat: -log_density(bounded(to, ravel_pytree(like)[1](flat)), *data))(flat)


def log_prior(graph: BoundGraph, names: Sequence[str], values: Points, few: Seen | None = None) -> jax.Array:
    """log p of some sites that do not belong to documents; ``few`` documents bring a bare graph the story's numbers."""
    if not names:
        return jnp.zeros(())
    few = few or few_of(graph)
    return total(run(graph.story, *few, values, ZbarHandler(lambda theta: theta)), names)
