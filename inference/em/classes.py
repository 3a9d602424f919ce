"""A class of each document, which its words, its proportions or whatever else is seen of it depend on.

Observed, a class asks nothing but counting. Of a latent one q(c_d) is free, and given the class the rest is as it would be:

    q(c_d = j)  proportional to  p(c_d = j) p(y_d | c_d = j) exp(bound_dj)

where bound_dj is that of the document's words, if they have topics of their own, so that a document's bound is the logarithm
of the sum over classes. Words that all have the topic of the class are part of p(y_d | c_d). A class that is known of some
documents is held there.

Nothing is known of what depends on the class beyond this: given the class its log-density is linear in log x for each
Dirichlet site x, so that E[log p] is log p at exp(E[log x]) and the expected counts are x d(E[log p])/dx at any x; that is
checked. The words of a document may come from an additive component. All other sites are points, found by climbing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import logsumexp

from topiczoo.corpora.layouts import Documents

from ..programs.compiling import jitted
from ..story.bound import BoundGraph
from ..story.graph import LABEL
from ..story.response import Y
from ..story.tracing import ZbarHandler, base_distribution, program, run
from .additive import WARM_UP, AdditiveSite, additive_bags, has_sparse_prior
from .components import Posterior, Settings, State, refuse
from .sites import (
    DirichletSite,
    Points,
    PointSites,
    Seen,
    concentrations,
    counted_sites,
    data_of,
    few_of,
    log_prior,
)  # fmt: skip
from .starts import counts_of
from .words import observed_labels, of_topics


class ClassPosterior(NamedTuple):
    """What an E-step leaves of each document."""

    gamma: Any  # [classes, D, K], where there is a theta
    shares: np.ndarray  # q(c), [classes, D]
    bound: np.ndarray  # [D]


class OfClass(NamedTuple):
    """What an E-step leaves of all documents as members of one class, where they have a response of topics."""

    value: float
    log_mean: np.ndarray  # of the topics that its documents have
    local: Any
    sums: Any


class ObservedClass:
    """No latent class. Dirichlet sites that only what is observed reads, such as the shares of observed classes, are known
    at once; so are the words of an additive component for each class.

    ``extra`` are the latent sites that are neither words nor response, ``observed`` the sites that may read them.
    """

    reads: frozenset[str] = frozenset()
    latent: ClassVar[bool] = False

    def __init__(self, graph: BoundGraph, settings: Settings, extra: Sequence[str], observed: Sequence[str]) -> None:
        self.bags: AdditiveSite | None = None
        if not graph.has_words and (sparse := [name for name in extra if has_sparse_prior(graph, name)]):
            words, self.bags = additive_bags(graph, settings, sparse[0])
            extra = [name for name in extra if name != sparse[0]]
            observed = [name for name in observed if name != words and graph.parents[name] - {name}]
            self.reads = self.bags.reads

            @jitted
            def look(corpus: Documents, y: Y) -> jax.Array:
                return base_distribution(run(graph.story, corpus, y, {})[words]["fn"]).z

            z = np.asarray(look(*data_of(graph)))
            self.counts = counts_of((z == np.arange(len(self.bags.rest))[:, None]).astype(np.float32), graph.corpus)
        if extra and not graph.has_words:
            self.reads = self.reads | {"topics"}
        self.counted, self.expected = counted_sites(graph, extra, settings.topics == "mle", observed)

    def start(self, rng: np.random.Generator) -> Any:
        return None if self.bags is None else self.bags.start(rng, self.counts)

    def e_step(self, words: Any, response: Any, log_mean: Any, state: State, fresh: bool) -> State:
        """Where no word has a topic of its own: the words' log-density."""
        bound = 0.0 if self.bags is None else float((self.counts * self.bags.log_mean(state.classes)).sum())
        return state._replace(local=ClassPosterior(None, np.zeros(0), np.asarray([bound])))

    def m_step(self, state: State) -> Any:
        return None if self.bags is None else self.bags.converge(self.counts, state.classes)

    def bound(self, state: State) -> float:
        own = 0.0 if self.bags is None else self.bags.bound(state.classes)
        return own + self.expected + sum(site.bound(found) for site, found in self.counted)

    def q(self, state: State) -> Posterior:
        found = {} if self.bags is None else self.bags.q(state.classes)
        for site, counted in self.counted:
            found |= site.q(counted)
        return found


class LatentClass:
    """One categorical site c for each document, and the sites of the corpus that what depends on it reads.

    The state holds the state of every such site by its name.
    """

    reads: frozenset[str] = frozenset()
    latent: ClassVar[bool] = True

    def __init__(self, graph: BoundGraph, settings: Settings, response: Collection[str] = ()) -> None:
        """``response`` are the names of a response of topics, of its coefficients and other parameters."""
        self.graph = graph
        self.name, self.values = latent_class(graph)
        words = {graph.theta, graph.beta, *response} | (graph.parents["~beta"] if graph.has_words else set())
        if graph.has_words and sorted(graph.parents.get(LABEL, set()) - {self.name}):
            refuse(graph, self.name, "the label given to draw_words must be this one site")
        self.of_label = self.name in graph.parents.get(LABEL, frozenset())
        if self.of_label:
            last = self.values[-1]
            if (observed_labels(graph, {self.name: jnp.full(len(graph.corpus), last)}) != last).any():
                refuse(graph, self.name, "the label given to draw_words must be this site itself")
        self.touched = sorted(graph.children([self.name]) - {graph.theta, *response})
        for name in set(graph.observed).difference(response):
            if name not in self.touched or graph.density_axis[name] is None:
                refuse(graph, name, f"it does not depend on {self.name!r} document by document")
        others = [name for name in graph.latent if name not in {self.name, *words}]
        for name in others:
            if graph.latent[name].document_axis is not None or graph.latent[name].discrete:
                refuse(graph, name, f"beside {self.name!r} it belongs to documents, or is discrete")
        if not others and not graph.has_words:
            refuse(graph, self.name, "no site of the corpus depends on it")
        self.sites: dict[str, DirichletSite | AdditiveSite] = {}
        for name in others:
            if not graph.has_words and has_sparse_prior(graph, name):
                self.sites[name] = self._components(settings, name)
        self.shares = [name for name in others if name not in self.sites and self._is_counted(name)]
        priors = concentrations(graph, self.shares)
        self.sites |= {name: DirichletSite(name, priors[name], settings.topics == "mle") for name in self.shares}
        self.reads = frozenset().union(*(site.reads for site in self.sites.values()))
        self._depends = Depends(graph.for_programs(), self.name, self.values, tuple(self.touched))
        self._check_linear()
        self.data, self.few = data_of(graph), few_of(graph)
        rest = [name for name in others if name not in self.sites]
        self.points = PointSites(graph, rest, partial(_of_points, self._depends, tuple(rest)), steps=50)
        self._joint = program(_log_joint, self._depends)
        self._counts = program(_expected_counts, self._depends, self._shapes)

    def _is_counted(self, name: str) -> bool:
        graph = self.graph
        return isinstance(graph.latent[name].prior, dist.Dirichlet) and graph.parents[name] == {name}

    def _components(self, settings: Settings, name: str) -> AdditiveSite:
        """The deviations of components, of which the class says a document's own."""
        few = self.graph.few_documents, self.graph.few_y
        words, site = additive_bags(self.graph, settings, name)
        for value in self.values[[0, -1]]:
            trace = run(self.graph.story, *few, {**self.graph.few_values, self.name: jnp.full(3, value)})
            if np.any(base_distribution(trace[words]["fn"]).z != value):
                refuse(self.graph, words, f"its documents do not have the components that {self.name!r} says")
        return site

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self.sites[name].prior.shape for name in self.shares}

    def _check_linear(self) -> None:
        """On a few documents: moving log x changes the log-density by the expected counts, on or off the simplex."""
        rng, graph = np.random.default_rng(0), self.graph
        weights, few = jnp.asarray(rng.random((len(self.values), 3)), jnp.float32), few_of(graph)
        fixed = {name: value for name, value in graph.few_values.items() if name not in self.shares}
        counts = program(_expected_counts, self._depends, self._shapes, once=True)(weights, fixed, *few)
        joint = program(_log_joint, self._depends, once=True)

        def value(shares: Points) -> jax.Array:
            return (weights * joint({**fixed, **shares}, *few)).sum()

        for name in self.shares:
            shape = self.sites[name].prior.shape
            logs, ones = (
                rng.normal(size=shape) - 2.0,
                {key: jnp.ones(self.sites[key].prior.shape) for key in self.shares},
            )
            expected = value(ones) + (counts[name] * logs).sum()
            if not np.allclose(value({**ones, name: jnp.exp(logs)}), expected, rtol=1e-3, atol=1e-3):
                refuse(graph, name, "the story's log-density is not linear in its logarithm")

    def _at(self, sites: Points) -> Points:
        """The values at which densities are taken."""
        return {name: self.sites[name].point(value) if name in self.sites else value for name, value in sites.items()}

    # what EM asks

    def start(self, rng: np.random.Generator) -> Points:
        return {name: site.start(rng) for name, site in self.sites.items()} | self.points.prior_means()

    def warmed_up(self, state: State) -> State:
        """Where words have no topics of their own: what documents whose class is known say of the others; with additive
        components, after some turns of EM under the normal prior."""
        if self.graph.known is not None:  # terms of the other documents may then deviate as well
            known = np.equal.outer(self.values, self.graph.known).astype(float)
            first = state._replace(local=ClassPosterior(None, known, np.zeros(0)))
            first = first._replace(classes=self.m_step(first, "warm"))
            first = first._replace(classes=self.m_step(first, "converge"))
            first = self.e_step(None, None, None, first, True)
            return first._replace(classes=self.m_step(first, "warm"))
        for _ in range(WARM_UP if len(self.shares) < len(self.sites) else 0):
            state = self.e_step(None, None, None, state, True)
            state = state._replace(classes=self.m_step(state, "warm"))
        return state

    def first_shares(self, rng: np.random.Generator, sites: Points) -> np.ndarray:
        """q(c) to start with, [classes, D], where the class has topics: documents whose class is known come first, then what
        is observed beside words."""
        if self.graph.known is not None:
            return np.equal.outer(self.values, self.graph.known).astype(float)
        evidence = np.asarray(self._joint(self._at(sites), *self.data), float)
        if np.ptp(evidence, axis=0).max() < 1e-6:  # nothing but words tells classes apart
            return rng.dirichlet(np.full(len(self.values), 0.1), len(self.graph.corpus)).T
        return np.exp(evidence - logsumexp(evidence, axis=0))

    def e_step(self, words: Any, response: Any, log_mean: Any, state: State, fresh: bool) -> State:
        """q(c); with words the E-step of each class on all documents, then expected counts weighted by q(c)."""
        joint = np.asarray(self._joint(self._at(state.classes), *self.data), np.float64)
        joint += impossible(self.values, self.graph.known)
        each = range(len(self.values))
        if words is None:
            bound = logsumexp(joint, axis=0)
            return state._replace(local=ClassPosterior(None, np.exp(joint - bound), bound), counts=None)
        topics = [log_mean[j] if self.of_label else log_mean for j in each]
        alpha = [state.alpha[j] if state.alpha.ndim > 2 else state.alpha for j in each]
        if response.latent:
            points = [response.of_class(state.response, value) for value in self.values]
            starts = [None if fresh else state.statistics[j].local for j in each]
            found = [words.with_response(response, points[j], topics[j], alpha[j], starts[j])[0] for j in each]
        else:
            starts = [words.first_gamma(alpha[j]) if fresh else state.local.gamma[j] for j in each]
            found = [words.e_step(topics[j], alpha[j], starts[j], counted=False) for j in each]
        joint += np.stack([of_class.bound for of_class in found])
        gamma = jnp.stack([of_class.gamma for of_class in found])
        bound = logsumexp(joint, axis=0)
        shares = np.exp(joint - bound)
        parts = None
        if response.latent:
            sums = [words.with_response(response, points[j], topics[j], alpha[j], found[j], shares[j])[1] for j in each]
            parts = [OfClass(self.values[j], topics[j], found[j], sums[j]) for j in each]
            counts = np.stack([of_topics(sums[j].counts, topics[j].shape) for j in each])
        else:
            again = [words.e_step(topics[j], alpha[j], gamma[j], steps=0, weights=shares[j]) for j in each]
            counts = np.stack([of_class.counts for of_class in again])
        local = ClassPosterior(gamma, shares, bound)
        return state._replace(local=local, counts=counts if self.of_label else counts.sum(0), statistics=parts)

    def m_step(self, state: State, move: str = "m_step") -> Points:
        """``move`` is how additive components go: ``m_step``, ``warm`` or ``converge``."""
        shares, before = jnp.asarray(state.local.shares, jnp.float32), self._at(state.classes)
        counts = self._counts(shares, before, *self.data) if self.shares else {}
        sites = {}
        for name, site in self.sites.items():
            if isinstance(site, AdditiveSite):
                expected = counts_of(state.local.shares, self.graph.corpus)
                sites[name] = getattr(site, move)(expected, state.classes[name])
            else:
                sites[name] = site.m_step(np.asarray(counts[name], np.float64))
        fixed = {name: before[name] for name in self.sites}
        return sites | self.points.m_step(state.classes, shares, fixed, self.few, *self.data)

    def bound(self, state: State) -> float:
        points = {name: state.classes[name] for name in self.points.names}
        prior = float(log_prior(self.graph, self.points.names, points))
        return prior + sum(site.bound(state.classes[name]) for name, site in self.sites.items())

    def q(self, state: State) -> Posterior:
        found: Posterior = {}
        for name, site in self.sites.items():
            found |= site.q(state.classes[name])
        found |= {name: dist.Delta(np.asarray(state.classes[name])) for name in self.points.names}
        return found | ({self.name: dist.Categorical(state.local.shares.T)} if self.graph.known is None else {})


@dataclass(frozen=True, eq=False)
class Depends:
    """What the density of a class is computed from."""

    graph: BoundGraph
    name: str
    values: np.ndarray
    touched: tuple[str, ...]  # sites that depend on it


def _log_joint(of: Depends, sites: Points, corpus: Documents, y: Y) -> jax.Array:
    """log p(c_d = j, what depends on it), [classes, D]."""

    def one(value: jax.Array) -> jax.Array:
        values = {**sites, of.name: jnp.full(corpus.num_documents, value)}
        return of.graph.document_terms(of.touched, corpus, y, values, ZbarHandler(lambda theta: theta))

    return jax.vmap(one)(jnp.asarray(of.values))


def _expected_counts(
    of: Depends, shapes: dict[str, tuple[int, ...]], weights: jax.Array, points: Points, corpus: Documents, y: Y
) -> Points:
    """x d/dx sum_jd weights_jd log p_jd at uniform x: the coefficients of log x."""
    uniform = {name: jnp.full(shape, 1 / shape[-1]) for name, shape in shapes.items()}
    slope = jax.grad(lambda shares: (weights * _log_joint(of, {**points, **shares}, corpus, y)).sum())(uniform)
    return {name: uniform[name] * slope[name] for name in uniform}


def _of_points(
    of: Depends, names: Sequence[str], points: Points, shares: jax.Array, sites: Points, few: Seen, *data: Any
) -> jax.Array:
    expected = (shares * _log_joint(of, {**sites, **points}, *data)).sum()
    return expected + log_prior(of.graph, names, points, few)


def latent_class(graph: BoundGraph) -> tuple[str, np.ndarray]:
    """The one discrete site of documents, and its values."""
    discrete = [name for name, site in graph.latent.items() if site.discrete]
    if len(discrete) > 1:
        refuse(graph, discrete[1], f"it is a second discrete site beside {discrete[0]!r}")
    axis, fn = graph.latent[discrete[0]].document_axis, graph.latent[discrete[0]].fn
    if axis != -1 or graph.latent[discrete[0]].shape != (3,) or not fn.has_enumerate_support:
        refuse(graph, discrete[0], "it is not one enumerable number a document")
    return discrete[0], np.asarray(fn.enumerate_support(expand=False)).reshape(-1)


def impossible(classes: np.ndarray, known: np.ndarray | None) -> np.ndarray | float:
    """What is known of a latent class as a logarithm, [classes, documents]: minus infinity where it is another one."""
    if known is None:
        return 0.0
    return np.where(np.isnan(known) | np.equal.outer(classes, known), 0.0, -np.inf)
