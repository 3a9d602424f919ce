"""Folding in where theta is not integrated out: what drives a document's proportions is drawn together with its topics.

Rounds alternate between new topics of all words given theta, which are independent of each other, and new values of the
sites above theta given the counts of topics (:mod:`..blocks.local`). A chain's rounds at its posterior means tell once where
each document lies; from there every posterior draw goes some rounds of its own. No response is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import Documents, PaddedBatches

from ..blocks.block import few
from ..blocks.local import LocalBlock, LocalDensity, above_theta
from ..gpu.choosing import with_kernels
from ..kernels.assignments import Assignments
from ..story.bound import BoundGraph
from ..story.graph import BETA, LABEL, THETA
from ..story.sweeping import read_weights, sweep
from ..story.tracing import Values

CENTRING_ROUNDS = 30  # at a chain's means, of which the second half tells where documents lie
LEAST_ROUNDS = 4  # of every posterior draw, beside those that are asked for


class Folded(NamedTuple):
    """Topics of all words, and the sites that drive proportions."""

    z: Assignments
    values: dict[str, jax.Array]  # of the sites above theta
    proportions: jax.Array  # theta, or its mean over some rounds, [documents, topics]

    @property
    def topics(self) -> jax.Array:
        return self.z.topics

    @property
    def long(self) -> Any:
        return self.z.long

    @property
    def document_topic(self) -> jax.Array:
        return self.z.document_topic


class LocalFold:
    """Rounds of topics and of the sites above theta, for some documents. It holds names, no data."""

    def __init__(self, sites: Sequence[str], parts: Sequence[str]) -> None:
        self.sites, self.parts = tuple(sites), tuple(parts)

    @classmethod
    def of(cls, graph: BoundGraph) -> LocalFold | None:
        """For a story on documents without responses; None where something else than sites of single documents, or a
        label, stands above theta."""
        sites = above_theta(graph)
        if not graph.has_words or graph.has_labels or graph.parents[BETA] & set(sites):
            return None
        if any(graph.latent[site].discrete for site in (*sites, *graph.parents[THETA], *graph.parents.get(LABEL, ()))):
            return None
        if any(graph.density_axis[site] is None or site in graph.response_sites for site in sites):
            return None
        small = few(graph) if sites else None
        if small and not all(LocalBlock.is_local(graph, site, small) for site in sites):
            return None
        seen = graph.children(sites) & set(graph.observed) - set(graph.response_sites)
        if any(graph.density_axis[name] is None for name in seen):
            return None
        return cls(sites, [*sites, *sorted(seen)])

    def density(self, graph: BoundGraph, corpus: Documents, values: Values, counts: jax.Array) -> LocalDensity:
        """Of the sites above theta given counts of topics; nothing that reads topics counts."""
        return LocalDensity(graph, self.sites, self.parts, corpus, None, values, lambda theta: theta, counts)

    def round(self, graph: BoundGraph, corpus: Documents, key: jax.Array, state: Folded, values: Values) -> Folded:
        """New topics given theta, and a new theta given them."""
        sweep_key, local_key = jax.random.split(key)
        before = {**values, **state.values}
        z = sweep(
            sweep_key,
            state.z,
            graph,
            corpus,
            None,
            before,
            collapsed=False,
            supervised=False,
            by_kernel=with_kernels(corpus.laid_out),
        )
        new = self.density(graph, corpus, values, z.from_theta).draw(local_key, state.values)
        return Folded(z, new, self._theta(graph, corpus, {**values, **new}))

    @staticmethod
    def _theta(graph: BoundGraph, corpus: Documents, values: Values) -> jax.Array:
        theta = read_weights(graph, corpus, None, values, collapsed=False).proportions
        return jnp.broadcast_to(theta, (corpus.num_documents, theta.shape[-1]))

    def _start(self, graph: BoundGraph, corpus: Documents, free: jax.Array | None, values: Values) -> Folded:
        """The sites at given free numbers, or at their prior means; topics are drawn before anybody reads them."""
        batches = corpus.laid_out
        counts = jnp.zeros((corpus.num_documents, graph.num_topics)).at[:, 0].set(corpus.lengths)
        density = self.density(graph, corpus, values, counts)
        local = density.at(density.centre if free is None else free)[0] if self.sites else {}
        z = Assignments(jnp.zeros(batches.terms.shape, jnp.int32), counts, long=_no_topics(batches))
        if graph.has_sentences:
            z = z._replace(taken=jnp.zeros_like(z.topics), new=counts)
        return Folded(z, local, self._theta(graph, corpus, {**values, **local}))

    def _rounds(
        self, graph: BoundGraph, corpus: Documents, key: jax.Array, state: Folded, values: Values, rounds: int
    ) -> tuple[Folded, jax.Array, jax.Array, jax.Array]:
        """The state after some rounds, and means over their second half: free numbers, theta and counts of topics."""
        first = rounds // 2

        def one(i: jax.Array, carry: tuple) -> tuple:
            state, totals = carry
            state = self.round(graph, corpus, jax.random.fold_in(key, i), state, values)
            free = self.density(graph, corpus, values, state.z.from_theta).free(state.values)
            now = free, state.proportions, state.document_topic
            return state, jax.tree.map(lambda total, new: total + (i >= first) * new, totals, now)

        like = jax.eval_shape(lambda: one(jnp.asarray(0), (state, (0.0, 0.0, 0.0)))[1])
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        state, totals = jax.lax.fori_loop(0, rounds, one, (state, zeros))
        return state, *jax.tree.map(lambda total: total / (rounds - first), totals)

    def centre(self, graph: BoundGraph, corpus: Documents, values: Values) -> jax.Array:
        """Where documents lie at a chain's means, in free numbers [documents, numbers]."""
        start = self._start(graph, corpus, None, values)
        return self._rounds(graph, corpus, jax.random.key(0), start, values, CENTRING_ROUNDS)[1]

    def topics(
        self, graph: BoundGraph, corpus: Documents, key: jax.Array, centre: jax.Array, values: Values, burn: int
    ) -> Folded:
        """A draw of topics and of what drives them; its proportions are the mean over the last rounds."""
        start = self._start(graph, corpus, centre, values)
        state, _, theta, _ = self._rounds(graph, corpus, key, start, values, LEAST_ROUNDS + burn)
        return state._replace(proportions=theta)

    def expected(self, graph: BoundGraph, corpus: Documents, values: Values) -> tuple[jax.Array, jax.Array, dict]:
        """E[theta] and E[zbar] given the words, and the sites at their means; every call has the same random numbers."""
        start = self._start(graph, corpus, None, values)
        _, free, theta, counts = self._rounds(graph, corpus, jax.random.key(0), start, values, CENTRING_ROUNDS)
        means = self.density(graph, corpus, values, counts).at(free)[0] if self.sites else {}
        return theta, counts / jnp.maximum(corpus.lengths, 1)[:, None], means


def _no_topics(batches: PaddedBatches) -> jax.Array | None:
    return None if batches.long is None else jnp.zeros(batches.long.terms.shape, jnp.int32)
