"""Words whose topics are those of a latent label: a document's region, say, that also generates what is observed of it.

q(label_d) is free, and given the label theta and z are as for words alone: for each label the E-step runs on all documents,
and a label's weight is its part of the bound,

    q(label_d = j)  proportional to  p(label_d = j) p(y_d | label_d = j) exp(bound_dj)

so that a document's bound is the logarithm of the sum over labels. All other sites that are not of documents are point
estimates under their priors, whatever these are. A label that is known of some documents is held there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to
from scipy.optimize import minimize
from scipy.special import logsumexp

from topiczoo.corpora.layouts import distinct_pairs, documents

from ..kernels.word_steps import e_step, first_gamma, pair_batches
from ..story.bound import BoundGraph
from ..story.classes import is_class
from ..story.graph import LABEL
from ..story.tracing import ZbarHandler, run, total
from .additive_site import dealt_counts, warmed_up
from .expectations import Marginals, Settings, expected_log, fit_alpha, impossible, refuse
from .expectations_words import read_words

Points = dict[str, np.ndarray]


class LabelsState(NamedTuple):
    """What one turn of EM hands to the next."""

    topics: Any  # see DirichletSite and AdditiveSite
    points: Points
    alpha: np.ndarray  # [K] or [D, K]
    gamma: jax.Array  # [labels, D, K]
    shares: np.ndarray  # q(label), [labels, D]
    counts: np.ndarray  # [labels, K, V] expected
    bound: np.ndarray  # [D]


class LatentLabels:
    """Stories of one latent label a document, with topics of its own, and a Dirichlet theta."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.settings = graph, settings
        self.theta, self.topics, self.alpha = read_words(graph, settings, labels=True)
        above = sorted(graph.parents[LABEL])
        self.label = above[0]
        if len(above) > 1 or not is_class(graph, self.label):
            refuse(graph, above[-1], "the label given to draw_words must be one categorical site of documents")
        self.readers = sorted(graph.children([self.label]))
        others = sorted(set(graph.latent) - {self.theta, self.label, *self.topics.names})
        for name in others:
            if graph.latent[name].document_axis is not None or graph.latent[name].discrete:
                refuse(graph, name, "beside theta and the label it is a third latent site of documents, or discrete")
        for name in (*self.readers, *(n for n in graph.observed if n not in self.readers)):
            if name not in self.readers or graph.density_axis[name] is None:
                refuse(graph, name, f"it does not depend on {self.label!r} document by document")
        self.labels = jnp.arange(self.topics.prior.shape[0])
        self.points = PointSites(
            graph, others, lambda points, shares, *data: (shares * self._log_evidence(points, *data)).sum()
        )
        corpus = graph.corpus
        self.pairs = pair_batches(distinct_pairs(corpus.counts), *corpus.counts.shape)
        self.place_of = self._documents_of_places()
        self.lengths = corpus.lengths.astype(np.float64)
        self.data = documents(corpus, pairs=True), jax.tree.map(jnp.asarray, graph.y)
        self._evidence: Callable = jax.jit(self._log_evidence)

    def _documents_of_places(self) -> jax.Array:
        """The document at each position of the batches; one beyond the last in padding."""
        pairs, batches = distinct_pairs(self.graph.corpus.counts), self.pairs.batches
        place = np.full(batches.terms.shape, len(self.graph.corpus), np.int32)
        place[batches.positions()] = np.asarray(pairs.document)
        return jnp.asarray(place)

    def _log_evidence(self, points: dict, corpus: Any, y: Any) -> jax.Array:
        """log p(label_d = j, what is observed of d beside words), [labels, D]."""

        def one(label: jax.Array) -> jax.Array:
            values = {**points, self.label: jnp.full(corpus.num_documents, label)}
            return self.graph.document_terms(self.readers, corpus, y, values, ZbarHandler(lambda theta: theta))

        return jax.lax.map(one, self.labels)

    def start(self, rng: np.random.Generator) -> LabelsState:
        """Labels as what is observed beside words says, topics of documents by chance."""
        points, nothing = self.points.start(), np.zeros(0)
        evidence = np.asarray(self._evidence(points, *self.data), float)
        shares = np.exp(evidence - logsumexp(evidence, axis=0))
        if self.graph.known is not None:  # documents whose label is known come first
            shares = np.equal.outer(np.asarray(self.labels), self.graph.known).astype(float)
        elif np.ptp(evidence, axis=0).max() < 1e-6:  # nothing but words tells labels apart
            shares = rng.dirichlet(np.full(len(self.labels), 0.1), len(self.lengths)).T
        counts = dealt_counts(rng, self.graph.corpus, self.topics.prior.shape[-2], shares)
        topics = self.topics.start(rng, counts)
        state = LabelsState(topics, points, self.alpha, jnp.zeros(0), shares, counts, nothing)
        return warmed_up(self.topics, state, self.expect)

    def expect(self, state: LabelsState, fresh: bool) -> LabelsState:
        log_mean = jnp.asarray(np.swapaxes(self.topics.log_mean(state.topics), -1, -2), jnp.float32)  # [labels, V, K]
        limits = self.settings.e_tolerance, self.settings.e_iterations
        gammas, bounds = [], []
        for j in range(len(log_mean)):
            start = first_gamma(state.alpha, self.lengths) if fresh else state.gamma[j]
            found = e_step(self.pairs, log_mean[j], state.alpha, start, limits, counted=False)
            gammas.append(found.gamma)
            bounds.append(found.bound)
        joint = np.stack(bounds) + np.asarray(self._evidence(state.points, *self.data), np.float64)
        joint += impossible(np.asarray(self.labels), self.graph.known)
        bound = logsumexp(joint, axis=0)
        shares = np.exp(joint - bound)
        counts = []
        for j, gamma in enumerate(gammas):
            weight = jnp.append(jnp.asarray(shares[j], jnp.float32), 0.0)[self.place_of]
            weighted = self.pairs._replace(repeats=self.pairs.repeats * weight)
            counts.append(e_step(weighted, log_mean[j], state.alpha, gamma, (0.0, 0)).counts.T)
        expected = np.asarray(jnp.stack(counts), np.float64)
        return state._replace(gamma=jnp.stack(gammas), shares=shares, counts=expected, bound=bound)

    def maximise(self, state: LabelsState, fresh: bool) -> LabelsState:
        alpha = state.alpha
        if self.settings.estimate_alpha and not fresh:
            logs = expected_log(np.asarray(state.gamma, np.float64))
            alpha = fit_alpha(alpha, (state.shares[..., None] * logs).sum(0))
        shares = jnp.asarray(state.shares, jnp.float32)
        points = self.points.maximise(state.points, shares, *self.data)
        return state._replace(topics=self.topics.update(state.counts, state.topics), points=points, alpha=alpha)

    def bound(self, state: LabelsState) -> float:
        return float(state.bound.sum()) + self.topics.bound(state.topics) + self.points.log_prior(state.points)

    def marginals(self, state: LabelsState) -> Marginals:
        """theta's posterior is a mixture over labels: a Dirichlet with the mixture's mean concentration stands for it."""
        gamma = (state.shares[..., None] * np.asarray(state.gamma, np.float64)).sum(0)
        latent = {self.label: state.shares.T} if self.graph.known is None else {}
        marginals = Marginals(dirichlet={self.theta: gamma}, categorical=latent, point=dict(state.points))
        self.topics.put(state.topics, marginals)
        return marginals


class PointSites:
    """Sites that are estimated by climbing their log-density, whatever it is, in the space without bounds.

    ``log_density(points, *data)`` is what is climbed beside the priors.
    """

    def __init__(self, graph: BoundGraph, names: list[str], log_density: Callable) -> None:
        self.graph, self.names = graph, names
        transforms = {name: biject_to(graph.latent[name].fn.support) for name in names}
        few = graph.few_documents, graph.few_y

        def prior(points: dict) -> jax.Array:
            return total(run(graph.story, *few, points, ZbarHandler(lambda theta: theta)), names)

        first = self.start()
        self._free = {name: transforms[name].inv for name in names}
        _, unravel = ravel_pytree({name: transforms[name].inv(jnp.asarray(first[name])) for name in names})

        def of_flat(flat: jax.Array) -> dict:
            return {name: transforms[name](value) for name, value in unravel(flat).items()}

        def loss(flat: jax.Array, *data: Any) -> jax.Array:
            return -(log_density(of_flat(flat), *data) + prior(of_flat(flat)))

        self._of_flat, self._slope, self._prior = of_flat, jax.jit(jax.value_and_grad(loss)), jax.jit(prior)

    def start(self) -> Points:
        """At the priors' means, where they have one."""
        trace = run(self.graph.story, self.graph.few_documents, self.graph.few_y, {}, ZbarHandler(lambda theta: theta))
        points = {}
        for name in self.names:
            value = np.asarray(trace[name]["value"])
            mean = np.broadcast_to(np.asarray(trace[name]["fn"].mean), value.shape)
            points[name] = np.where(np.isfinite(mean), mean, value).astype(np.float32)
        return points

    def log_prior(self, points: Points) -> float:
        return float(self._prior(points)) if self.names else 0.0

    def maximise(self, points: Points, *data: Any) -> Points:
        """A point where the log-density is not smaller: L-BFGS from where they stand."""
        if not self.names:
            return points
        flat, _ = ravel_pytree({name: self._free[name](jnp.asarray(points[name])) for name in self.names})

        def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._slope(jnp.asarray(flat, jnp.float32), *data)
            return float(value), np.asarray(gradient, np.float64)

        found = minimize(at, np.asarray(flat, np.float64), jac=True, method="L-BFGS-B", options={"maxiter": 50})
        if not found.fun < at(np.asarray(flat))[0]:
            return points
        return {name: np.asarray(value) for name, value in self._of_flat(jnp.asarray(found.x, jnp.float32)).items()}
