"""Deviations in variational EM: beta = softmax(rest + deviations), point estimates in the place of Dirichlet topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus

from ..kernels.additive import JeffreysPenalty, LaplacePenalty, NormalPenalty, Penalty, first_deviation, newton, spread
from .expectations import Marginals

Limits = tuple[int, float]
START = 20, 1e-6  # Newton steps under the normal prior, and when to end them
# the same under the story's: where nothing but the deviations is to be found, and in one turn of EM, whose counts are not
# yet right. To 0 it is a long way under the Laplace prior and a short one under the Jeffreys prior.
WHOLE: dict[type, Limits] = {JeffreysPenalty: (100, 1e-6), LaplacePenalty: (200, 1e-7)}
TURN: dict[type, Limits] = {JeffreysPenalty: (1, 0.0), LaplacePenalty: (20, 1e-6)}
ZERO = 1e-3  # a deviation below is a tenth of a percent of a frequency
WARM_UP = 10  # turns of EM under the normal prior: a deviation that is 0 early would stay 0


class Facet(NamedTuple):
    """A site of deviations: those of topics, say, or of labels."""

    name: str
    shape: tuple[int, ...]  # [..., terms]
    owner: jax.Array | None  # the component in each sum, see :func:`..kernels.additive.newton`
    penalty: Penalty

    def flat(self, value: Any) -> jax.Array:
        """[components, terms]."""
        return jnp.asarray(value).reshape(-1, self.shape[-1])


@dataclass(frozen=True)
class AdditiveSite:
    """Deviations as variational EM estimates them; the methods are those of DirichletSite.

    The state holds the value of every facet. Facets move in turn, those of fewer components first: a deviation that
    several sums share is theirs before it is that of one alone.
    """

    rest: jax.Array  # log beta at deviations of 0, [..., topics, terms]
    facets: tuple[Facet, ...]
    corpus: Corpus
    start_variance: float  # of the normal prior that deviations start under

    @property
    def name(self) -> str:
        return self.facets[0].name

    @property
    def names(self) -> set[str]:
        return {facet.name for facet in self.facets}

    @property
    def prior(self) -> np.ndarray:
        """An array of the shape of beta."""
        return np.asarray(self.rest)

    def start(self, rng: np.random.Generator, counts: np.ndarray | float = 0.0) -> Any:
        """At counts, where there are none at those of documents dealt to the components by chance.

        A facet of interactions stays at 0 until :meth:`complete`: it could say alone what all say together, and topics of
        different labels would be different topics.
        """
        if not isinstance(counts, np.ndarray) or not counts.ndim:
            counts = dealt_counts(rng, self.corpus, self.rest.shape[-2])
        state = {facet.name: np.zeros(facet.shape, np.float32) for facet in self.facets}
        for facet in self._first_facets:
            state = self._begun(facet, self._flat(counts), state)
        return state

    def warm(self, counts: np.ndarray, state: Any) -> Any:
        """The optimum under a normal prior."""
        for facet in self._first_facets:
            state = self._moved(facet, self._flat(counts), state, START, NormalPenalty(self.start_variance))
        return state

    def complete(self, counts: np.ndarray, state: Any) -> Any:
        """The same with a facet of interactions, which is left what the others cannot say."""
        for facet in self.facets[len(self._first_facets) :]:
            state = self._begun(facet, self._flat(counts), state)
        return state

    @cached_property
    def _first_facets(self) -> tuple[Facet, ...]:
        """All but a last one that has a component for each sum, where the others tell the sums apart without it."""
        number = int(np.prod(self.rest.shape[:-1]))
        others = [np.arange(number) if f.owner is None else np.asarray(f.owner) for f in self.facets[:-1]]
        apart = bool(others) and len(np.unique(np.stack(others), axis=1).T) == number
        return self.facets[:-1] if apart and self.facets[-1].owner is None else self.facets

    def _begun(self, facet: Facet, expected: jax.Array, state: dict) -> dict:
        number = facet.flat(state[facet.name]).shape[0]
        first = first_deviation(expected, self._others(state, facet), facet.owner, number)
        state = {**state, facet.name: np.asarray(first).reshape(facet.shape)}
        return self._moved(facet, expected, state, START, NormalPenalty(self.start_variance))

    def update(self, counts: np.ndarray, state: Any) -> Any:
        """Newton steps on the deviations, under the Jeffreys prior one, as in the paper: counts are not yet right."""
        for facet in self.facets:
            state = self._moved(facet, self._flat(counts), state, TURN[type(facet.penalty)], facet.penalty)
        return state

    def settle(self, counts: np.ndarray, state: Any) -> Any:
        """Newton steps on the deviations until they rest, facet after facet."""
        for facet in self.facets:
            state = self._moved(facet, self._flat(counts), state, WHOLE[type(facet.penalty)], facet.penalty)
        return state

    def _moved(self, facet: Facet, expected: jax.Array, state: dict, limits: Limits, penalty: Penalty) -> dict:
        before = facet.flat(state[facet.name])
        found = newton(before, expected, self._others(state, facet), penalty, *limits, facet.owner).deviation
        return {**state, facet.name: np.asarray(found).reshape(facet.shape)}

    def _flat(self, counts: Any) -> jax.Array:
        return jnp.asarray(counts, jnp.float32).reshape(-1, self.rest.shape[-1])

    def _others(self, state: dict, left_out: Facet | None = None) -> jax.Array:
        """What is added in each sum beside a facet, [sums, terms]."""
        total = self._flat(self.rest)
        for facet in self.facets:
            if facet is not left_out:
                total = total + spread(facet.flat(state[facet.name]), facet.owner)
        return total

    def log_mean(self, state: Any) -> np.ndarray:
        """log beta."""
        logits = np.asarray(self._others(state), np.float64)
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits.reshape(self.rest.shape)

    def point(self, state: Any) -> jax.Array:
        """The value of the one site there is."""
        (value,) = state.values()
        return jnp.asarray(value, jnp.float32)

    def bound(self, state: Any) -> float:
        """log p(deviation); that of an improper prior is counted from 0."""
        total = 0.0
        for facet in self.facets:
            value = jnp.asarray(state[facet.name])
            away = facet.penalty.log_prior(jnp.zeros_like(value), value) + facet.penalty.at_zero
            total += float(np.asarray(away, np.float64).sum())
        return total

    def put(self, state: Any, marginals: Marginals) -> None:
        """What is 0 for all purposes is put to 0."""
        marginals.point.update({name: np.where(np.abs(value) < ZERO, 0.0, value) for name, value in state.items()})


def warmed_up(topics: Any, state: Any, expect: Callable[..., Any]) -> Any:
    """A form's state after some turns of EM with additive ``topics`` under the normal prior; as it is with others.

    The state has ``topics`` and ``counts``.
    """
    if not isinstance(topics, AdditiveSite):
        return state
    for _ in range(WARM_UP):
        state = expect(state, fresh=True)
        state = state._replace(topics=topics.warm(state.counts, state.topics))
    return state._replace(topics=topics.complete(state.counts, state.topics))


def dealt_counts(
    rng: np.random.Generator, corpus: Corpus, num_topics: int, label_shares: np.ndarray | None = None
) -> np.ndarray:
    """Counts [topics, terms] of documents dealt to topics by chance; with shares of labels [labels, documents] for each."""
    owner = rng.integers(0, num_topics, corpus.num_documents)
    dealt = (owner == np.arange(num_topics)[:, None]).astype(np.float32)
    if label_shares is None:
        return counts_of(dealt, corpus)
    return np.stack([counts_of(dealt * shares, corpus) for shares in label_shares])


def counts_of(shares: np.ndarray, corpus: Corpus) -> np.ndarray:
    """Expected counts [components, terms] of documents that belong to components by ``shares`` [components, documents]."""
    return np.asarray((corpus.counts.T @ shares.T).T, np.float64)
