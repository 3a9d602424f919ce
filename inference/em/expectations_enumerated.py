"""EM for stories with one discrete z a document: responsibilities by enumeration, counts by differentiation.

Nothing is known of the story beyond this: given z, its log-density is linear in log x for each Dirichlet site x, and the
words of a document may come from an additive component. That is checked.
Then E[log p] is log p at exp(E[log x]), and the expected counts are x d(E[log p])/dx at any x. Where z is known of some
documents it is held there, and EM starts from what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import documents

from ..story.bound import BoundGraph
from ..story.tracing import ZbarHandler, base_distribution, run
from .additive_site import WARM_UP, AdditiveSite, counts_of
from .expectations import DirichletSite, Marginals, Settings, concentrations, impossible, refuse, require_dirichlet
from .expectations_additive import additive_bags, has_sparse_prior


class EnumeratedState(NamedTuple):
    """What one turn of EM hands to the next."""

    sites: dict[str, np.ndarray]  # see DirichletSite and AdditiveSite
    responsibilities: np.ndarray  # [K, D]
    bound: np.ndarray  # [D]


class Enumerated:
    """Stories of one categorical z for each document, and Dirichlet or additive sites that do not belong to documents."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph = graph
        discrete = [name for name, site in graph.latent.items() if site.discrete]
        others = [name for name in graph.latent if name not in discrete]
        if not discrete:
            refuse(graph, (others or list(graph.observed))[0], "the story has neither draw_words nor a discrete z")
        if len(discrete) > 1:
            refuse(graph, discrete[1], f"it is a second discrete site beside {discrete[0]!r}")
        self.z = discrete[0]
        trace = run(graph.story, graph.few_documents, graph.few_y, graph.few_values)
        axis, fn = graph.latent[self.z].document_axis, trace[self.z]["fn"]
        if axis != -1 or graph.latent[self.z].shape != (3,) or not fn.has_enumerate_support:
            refuse(graph, self.z, "it is not one enumerable number a document")
        self.values = np.asarray(fn.enumerate_support(expand=False)).reshape(-1)

        if not others:
            refuse(graph, self.z, "no Dirichlet site depends on it")
        self.sites: dict[str, DirichletSite | AdditiveSite] = {}
        for name in others:
            if has_sparse_prior(graph, name):
                self.sites[name] = self._components(settings, name)
                continue
            require_dirichlet(graph, name)
            if graph.latent[name].document_axis is not None:
                refuse(graph, name, "it has an axis of documents")
        self.touched = sorted(graph.children([self.z]))
        for name in graph.observed:
            if name not in self.touched:
                refuse(graph, name, f"it does not depend on {self.z!r}")
        if settings.estimate_alpha:
            refuse(graph, others[0], "estimate_alpha=True asks for a theta a document")
        self.shares = [name for name in others if name not in self.sites]
        priors = concentrations(graph, self.shares)
        self.sites |= {name: DirichletSite(name, priors[name], settings.topics == "mle") for name in self.shares}
        self._check_linear()
        self._data = documents(graph.corpus, pairs=True), jax.tree.map(jnp.asarray, graph.y)
        self._joint = jax.jit(self._log_joint)
        self._counts = jax.jit(self._expected_counts)

    def _components(self, settings: Settings, name: str) -> AdditiveSite:
        """The deviations of components, of which z says a document's own."""
        few = self.graph.few_documents, self.graph.few_y
        words, site = additive_bags(self.graph, settings, name)
        for value in self.values[[0, -1]]:
            trace = run(self.graph.story, *few, {**self.graph.few_values, self.z: jnp.full(3, value)})
            if np.any(base_distribution(trace[words]["fn"]).z != value):
                refuse(self.graph, words, f"its documents do not have the components that {self.z!r} says")
        return site

    def _log_joint(self, sites: dict[str, jax.Array], corpus: Any, y: Any) -> jax.Array:
        """log p(z_d = k, what depends on it), [K, D]."""

        def one(value: jax.Array) -> jax.Array:
            values = {**sites, self.z: jnp.full(corpus.num_documents, value)}
            return self.graph.document_terms(self.touched, corpus, y, values, ZbarHandler())

        return jax.vmap(one)(jnp.asarray(self.values))

    def _expected_counts(self, weights: jax.Array, corpus: Any, y: Any) -> dict[str, jax.Array]:
        """x d/dx sum_kd weights_kd log p_kd at uniform x: the coefficients of log x."""
        fixed = {name: jnp.zeros(site.prior.shape) for name, site in self.sites.items()}
        uniform = {name: jnp.full(fixed[name].shape, 1 / fixed[name].shape[-1]) for name in self.shares}
        slope = jax.grad(lambda shares: (weights * self._log_joint({**fixed, **shares}, corpus, y)).sum())(uniform)
        return {name: uniform[name] * slope[name] for name in uniform}

    def _check_linear(self) -> None:
        """On a few documents: moving log x changes the log-density by the expected counts, on or off the simplex."""
        rng, graph = np.random.default_rng(0), self.graph
        few = graph.few_documents, graph.few_y
        weights = jnp.asarray(rng.random((len(self.values), 3)), jnp.float32)
        logs = {name: rng.normal(size=site.prior.shape) - 2.0 for name, site in self.sites.items()}
        counts = jax.jit(self._expected_counts)(weights, *few)
        value = jax.jit(lambda sites: (weights * self._log_joint(sites, *few)).sum())
        base = {name: jnp.zeros(site.prior.shape) for name, site in self.sites.items()}
        for name in self.shares:
            moved = value({key: jnp.exp(base[key] + (logs[key] if key == name else 0.0)) for key in base})
            expected = value({key: jnp.exp(base[key]) for key in base}) + (counts[name] * logs[name]).sum()
            if not np.allclose(moved, expected, rtol=1e-3, atol=1e-3):
                refuse(graph, name, "the story's log-density is not linear in its logarithm")

    def start(self, rng: np.random.Generator) -> EnumeratedState:
        nothing = np.zeros(0)
        state = EnumeratedState({name: site.start(rng) for name, site in self.sites.items()}, nothing, nothing)
        if self.graph.known is not None:
            return self._start_at_known(state)
        for _ in range(WARM_UP if len(self.shares) < len(self.sites) else 0):
            state = self._moved(self.expect(state, fresh=True), AdditiveSite.warm)
        return state

    def _start_at_known(self, state: EnumeratedState) -> EnumeratedState:
        """What the documents whose z is known say of the others; terms of those may then deviate as well."""
        of_known = np.equal.outer(self.values, self.graph.known).astype(float)
        state = self._moved(state._replace(responsibilities=of_known), AdditiveSite.warm)
        return self._moved(self.expect(self._moved(state, AdditiveSite.settle), fresh=True), AdditiveSite.warm)

    def expect(self, state: EnumeratedState, fresh: bool) -> EnumeratedState:
        """Responsibilities q(z_d = k) proportional to exp E[log p]; a document's bound is the log of their sum."""
        points = {name: site.point(state.sites[name]) for name, site in self.sites.items()}
        joint = np.asarray(self._joint(points, *self._data), np.float64) + impossible(self.values, self.graph.known)
        top = joint.max(0)
        bound = top + np.log(np.exp(joint - top).sum(0))
        return state._replace(responsibilities=np.exp(joint - bound), bound=bound)

    def maximise(self, state: EnumeratedState, fresh: bool) -> EnumeratedState:
        return self._moved(state)

    def _moved(self, state: EnumeratedState, move: Callable = AdditiveSite.update) -> EnumeratedState:
        counts = self._counts(jnp.asarray(state.responsibilities, jnp.float32), *self._data) if self.shares else {}
        sites = {}
        for name, site in self.sites.items():
            if isinstance(site, AdditiveSite):
                expected = counts_of(state.responsibilities, self.graph.corpus)
                sites[name] = move(site, expected, state.sites[name])
            else:
                sites[name] = site.update(np.asarray(counts[name], np.float64))
        return state._replace(sites=sites)

    def bound(self, state: EnumeratedState) -> float:
        return float(state.bound.sum()) + sum(site.bound(state.sites[name]) for name, site in self.sites.items())

    def marginals(self, state: EnumeratedState) -> Marginals:
        latent = {self.z: state.responsibilities.T} if self.graph.known is None else {}
        marginals = Marginals(categorical=latent)
        for name, site in self.sites.items():
            site.put(state.sites[name], marginals)
        return marginals
