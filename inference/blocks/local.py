"""The block of continuous sites that every document has for itself: logits of its topics, effects, coordinates.

Given the topics of words and the sites of the whole corpus, documents are independent, so all of them move at once, by
short Hamiltonian trajectories (:mod:`..kernels.local_hmc`). The density is the story's own: that of the sites and of what
reads them, and where they drive theta sum_k n_dk log theta_dk, in the unconstrained space of NumPyro's transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from topiczoo.corpora.layouts import Documents

from ..kernels.assignments import mean_topics
from ..kernels.local_hmc import Metric, metric, trajectories
from ..story.bound import BoundGraph
from ..story.graph import BETA, LABEL, THETA
from ..story.response import Y
from ..story.tracing import Data, Values, ZbarHandler, by_document, log_prob, run
from .block import Block, Few
from .whitened import whitened

UPDATES = 1  # pairs of trajectories a sweep
LEAST_SHARE = 1e-37  # of a topic: a smaller one has no logarithm in float32


class LocalDensity:
    """The log-density of some sites of each document as a function of free numbers [documents, numbers].

    Parameters
    ----------
    sites
        Continuous sites with an axis of documents, in the story's order.
    parts
        Sites whose densities count, those of ``sites`` among them.
    values
        Of all other sites.
    counts
        Tokens of each document in each topic where the sites drive theta, else None.
    """

    def __init__(
        self, graph: BoundGraph, sites: Sequence[str], parts: Sequence[str], corpus: Documents, y: Y, values: Values,
        zbar: Any = None, counts: jax.Array | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.sites, self.parts, self.corpus, self.y = graph, sites, parts, corpus, y
        self.given = {name: value for name, value in values.items() if name not in sites}
        self.zbar, self.counts = zbar, counts
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.centre = self._centre()

    def _axis(self, name: str) -> int:
        """Which axis of a site's value is documents, from the left: transforms change the number of those behind it."""
        site = self.graph.latent[name]
        assert site.document_axis is not None
        return len(site.shape) + site.document_axis

    def _run(self, choose: Callable[[dict], Any]) -> tuple[dict[str, dict], ZbarHandler]:
        def value(site: dict) -> Any:
            return choose(site) if site["name"] in self.sites else None

        answer = ZbarHandler(self.zbar)
        return run(whitened(self.graph.story), self.corpus, self.y, self.given, answer, prior=value), answer

    def _centre(self) -> jax.Array:
        """The prior means given each other, in free numbers; 0 where a prior has none."""
        found: dict[str, jax.Array] = {}

        def choose(site: dict) -> jax.Array:
            transform, shape = biject_to(site["fn"].support), site["fn"].shape()
            free = jnp.zeros(transform.inverse_shape(shape))
            try:
                mean = transform.inv(jnp.broadcast_to(site["fn"].mean, shape))
                free = jnp.where(jnp.isfinite(mean), mean, 0.0)
            except NotImplementedError:
                pass
            found[site["name"]] = jnp.moveaxis(free, self._axis(site["name"]), 0)
            return transform(free)

        self._run(choose)
        self.shapes = {name: found[name].shape for name in self.sites}
        return self._flat(found)

    def _flat(self, free: Mapping[str, jax.Array]) -> jax.Array:
        rows = self.corpus.num_documents
        return jnp.concatenate([jnp.zeros((rows, 0)), *(free[name].reshape(rows, -1) for name in self.sites)], 1)

    def free(self, values: Values) -> jax.Array:
        """Values of the sites as free numbers."""
        found: dict[str, jax.Array] = {}

        def choose(site: dict) -> Any:
            value = values[site["name"]]
            found[site["name"]] = jnp.moveaxis(biject_to(site["fn"].support).inv(value), self._axis(site["name"]), 0)
            return value

        self._run(choose)
        return self._flat(found)

    def at(self, x: jax.Array) -> tuple[dict[str, jax.Array], jax.Array, jax.Array | None]:
        """The sites' values, the log-density of each document without the words, and log theta where it counts."""
        pieces = np.cumsum([int(np.prod(self.shapes[name][1:])) for name in self.sites])[:-1]
        free = dict(zip(self.sites, jnp.split(x, pieces, axis=1), strict=True)) if self.sites else {}
        jacobians: dict[str, jax.Array] = {}

        def choose(site: dict) -> jax.Array:
            name, transform = site["name"], biject_to(site["fn"].support)
            own = jnp.moveaxis(free[name].reshape(self.shapes[name]), 0, self._axis(name))
            value = transform(own)
            jacobians[name] = by_document(transform.log_abs_det_jacobian(own, value), self._axis(name))
            return value

        trace, answer = self._run(choose)
        total = jnp.zeros(self.corpus.num_documents) + sum(jacobians.values())
        for name in self.parts:
            axis = self.graph.density_axis[name]
            assert axis is not None
            total = total + by_document(log_prob(trace[name]), axis)
        log_theta = None if self.counts is None else jnp.log(jnp.maximum(answer.theta, LEAST_SHARE))
        return {name: trace[name]["value"] for name in self.sites}, total, log_theta

    def __call__(self, x: jax.Array) -> jax.Array:
        """log p of each document, up to a constant, [documents]."""
        _, others, log_theta = self.at(x)
        if log_theta is None or self.counts is None:
            return others
        return others + (self.counts * log_theta).sum(1)

    def metric(self) -> Metric:
        """From the curvature at the centre: of the words by Fisher's information of their counts, of the rest as it is.

        With counts in the place of N theta the information needs no theta that is near the document's own.
        """
        _, curve = jax.linearize(jax.grad(lambda x: self.at(x)[1].sum()), self.centre)
        if self.counts is None:
            return metric(lambda v: -curve(v), self.centre)
        _, slope = jax.linearize(lambda x: self.at(x)[2], self.centre)
        back = jax.linear_transpose(slope, self.centre)
        return metric(lambda v: back(self.counts * slope(v))[0] - curve(v), self.centre)

    def draw(self, key: jax.Array, values: Values, updates: int = UPDATES) -> dict[str, jax.Array]:
        """New values of the sites, from the values they have."""
        if not self.centre.shape[1]:
            return {}
        return self.at(trajectories(key, self.free(values), self, self.metric(), updates))[0]


class LocalBlock(Block):
    """Continuous sites of documents, all documents at once."""

    averages = True
    label = "Hamiltonian trajectories, all documents at once"
    grouped = True

    def density(self, values: Values, data: Data) -> LocalDensity:
        """Of each document, given the rest."""
        graph = self.graph
        zbar = mean_topics(values["z"], data.documents) if graph.has_words else None
        counts = values["z"].from_theta if graph.drives_words(self.sites) else None
        parts = sorted(graph.children(self.sites))
        return LocalDensity(graph, self.sites, parts, *data, values, zbar, counts)

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        new = self.density(values, data).draw(key, values)
        return new, new

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        """log p(new | all other values) up to a constant: the density that trajectories follow, less its Jacobian."""
        density = self.density(values, data)
        x = density.free(new)
        jacobian = LocalDensity(self.graph, self.sites, (), *data, values, density.zbar)
        return (density(x) - jacobian(x)).sum()

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether every document has the last of the sites for itself; the others have been found to be such before."""
        return cls(graph, sites) if cls.is_local(graph, sites[-1], few) else None

    @staticmethod
    def is_local(graph: BoundGraph, site: str, few: Few) -> bool:
        """Whether no document's value of a site enters another's terms or proportions."""
        latent, parents = graph.latent[site], graph.parents
        if latent.discrete or latent.document_axis is None:
            return False
        if any(site in parents.get(part, frozenset()) for part in (BETA, LABEL)):
            return False
        if any(graph.density_axis[name] is None for name in graph.children([site])):
            return False
        reach, rng = graph.program(_reach, site), np.random.default_rng(0)
        for _ in range(2):
            move = jnp.asarray(rng.normal(0, 0.5, (few.data.documents.num_documents, 1)), jnp.float32)
            for change in reach(few, move):
                change = np.abs(np.moveaxis(np.asarray(change), -2, 1)).reshape(3, 3, -1).max(-1)
                if not np.allclose(change * (1 - np.eye(3)), 0, atol=1e-6 * max(change.max(), 1.0)):
                    return False
        return True


def _reach(graph: BoundGraph, site: str, few: Few, move: jax.Array) -> tuple[jax.Array, ...]:
    """How each document's numbers change each document's terms and proportions."""
    density = LocalBlock(graph, [site]).density(few.values, few.data)

    def terms(x: jax.Array) -> tuple[jax.Array, ...]:
        _, others, log_theta = density.at(x)
        return (others,) if log_theta is None else (others, log_theta)

    return jax.jacfwd(terms)(density.free(few.values) + move)


def local_sites(graph: BoundGraph, sites: Sequence[str], few: Few) -> list[str]:
    """Those of some sites that :class:`LocalBlock` serves, in the story's order."""
    return [site for site in graph.latent if site in sites and LocalBlock.is_local(graph, site, few)]


def above_theta(graph: BoundGraph) -> list[str]:
    """Sites of documents that proportions depend on, at once or by way of other such sites, in the story's order."""
    found = {site for site in graph.parents.get(THETA, ()) if graph.latent[site].document_axis is not None}
    while True:
        above = {
            parent for site in found for parent in graph.parents[site]
            if parent in graph.latent and graph.latent[parent].document_axis is not None
        }  # fmt: skip
        if above <= found:
            return [site for site in graph.latent if site in found]
        found |= above
