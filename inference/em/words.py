"""The words of documents with a Dirichlet theta each: as a bag of terms, or token by token.

A tilt is what each word of a document gains in each topic beside its own probability, [D, K]: it comes from the response.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import sparse

from topiczoo.corpora.layouts import Documents, distinct_pairs, documents, token_batches

from ..kernels.special import digamma
from ..programs.compiling import jitted
from ..steps import responses as response_steps
from ..steps import tokens as token_steps
from ..steps import words as word_steps
from ..steps.dirichlet import expected_log, fit_alpha, log_normaliser
from ..steps.responses import Sums, no_less_than_rounding, sums_of_words
from ..steps.words import Fallback, Room, pair_batches
from ..story.bound import BoundGraph
from ..story.graph import LABEL
from ..story.response import Y
from ..story.tracing import Values, ZbarHandler, run
from .components import Posterior, Settings, State, refuse
from .priors import sites_above
from .sites import concentrations, require_dirichlet


class Proportions:
    """theta, a Dirichlet for each document that only the words read, and its prior's alpha.

    alpha comes as [D, K]; as [K] when it is to be estimated, which asks that documents share it; as [classes, D, K] where it
    depends on a latent class, of which ``classes`` gives the name and the values.
    """

    reads: frozenset[str] = frozenset({"estimate_alpha", "e_tolerance", "e_iterations"})

    def __init__(self, graph: BoundGraph, settings: Settings, classes: tuple[str, np.ndarray] | None = None) -> None:
        self.graph, self.settings = graph, settings
        self.theta = require_given(graph, graph.theta, "theta", {classes[0]} if classes else frozenset())
        if graph.latent[self.theta].document_axis is None:
            refuse(graph, self.theta, "it has no axis of documents")
        if classes and classes[0] in graph.parents[self.theta]:
            each = [{classes[0]: jnp.full(len(graph.corpus), value)} for value in classes[1]]
            self.alpha = np.stack([concentrations(graph, [self.theta], values)[self.theta] for values in each])
        else:
            self.alpha = concentrations(graph, [self.theta])[self.theta]
        if settings.estimate_alpha:
            if np.ptp(self.alpha.reshape(-1, self.alpha.shape[-1]), axis=0).any():
                refuse(graph, self.theta, "estimate_alpha=True asks for one alpha for all documents, and theirs differ")
            self.alpha = self.alpha.reshape(-1, self.alpha.shape[-1])[0]
        self.num_topics = self.alpha.shape[-1]
        self.lengths = graph.corpus.lengths.astype(np.float64)

    def first_gamma(self, alpha: np.ndarray) -> jax.Array:
        """Where an E-step that starts afresh starts, [D, K]."""
        return word_steps.first_gamma(alpha, self.lengths)

    def next_alpha(self, state: State, fresh: bool) -> np.ndarray:
        """theta's prior, fitted where that is asked for and topics have settled."""
        if not self.settings.estimate_alpha or fresh:
            return state.alpha
        logs, shares = expected_log(np.asarray(state.local.gamma, np.float64)), getattr(state.local, "shares", None)
        return fit_alpha(state.alpha, logs if shares is None else (shares[..., None] * logs).sum(0))

    def mean_topics(self, gamma: Any, alpha: np.ndarray) -> np.ndarray:
        """E[zbar], [D, K]."""
        return (np.asarray(gamma, np.float64) - alpha) / self.lengths[:, None]

    def q(self, state: State) -> Posterior:
        """Given a latent class theta is a mixture: a Dirichlet with the mixture's mean concentration stands for it."""
        gamma, shares = np.asarray(state.local.gamma), getattr(state.local, "shares", None)
        return {self.theta: dist.Dirichlet(gamma if shares is None else (shares[..., None] * gamma).sum(0))}


class BagWords(Proportions):
    """Words whose occurrences in a document share one phi, which is never stored.

    Where topics are those of an observed label, a term said under another label is another term.
    """

    def __init__(self, graph: BoundGraph, settings: Settings, classes: tuple[str, np.ndarray] | None = None) -> None:
        super().__init__(graph, settings, classes)
        pairs, shape = distinct_pairs(graph.corpus.counts), graph.corpus.counts.shape
        self.labels = observed_labels(graph) if graph.has_labels and not graph.parents[LABEL] else None
        if self.labels is not None:  # term v under label j is term j V + v
            shift = self.labels[np.asarray(pairs.document)] * shape[1]
            pairs = pairs._replace(term=pairs.term + jnp.asarray(shift, jnp.int32))
            shape = shape[0], (int(self.labels.max()) + 1) * shape[1]
        self.pairs = pair_batches(pairs, *shape)
        self._document_of = np.asarray(pairs.document)

    def of_others(self, counts: sparse.csr_array, alpha: np.ndarray, room: Room) -> BagWords:
        """The same for other documents."""
        others, pairs = copy.copy(self), distinct_pairs(counts)
        others.alpha, others.lengths = alpha, np.asarray(counts.sum(axis=1), np.float64)
        others.pairs = pair_batches(pairs, counts.shape[0], counts.shape[1], room)
        others._document_of = np.asarray(pairs.document)
        return others

    def e_step(
        self, log_mean: np.ndarray, alpha: np.ndarray, gamma: jax.Array, tilt: np.ndarray | None = None,
        fallback: Fallback | None = None, loss: Callable | None = None, *, steps: int | None = None,
        counted: bool = True, weights: np.ndarray | None = None,
    ) -> word_steps.LocalPosterior:  # fmt: skip
        """Under a given tilt, from a given gamma; ``log_mean`` is E[log beta], [K, V] or [labels, K, V].

        ``weights`` [D] are shares of documents that count.
        """
        pairs = self.pairs
        if weights is not None:
            place = np.zeros(pairs.batches.terms.shape, np.float32)
            place[pairs.batches.positions()] = weights[self._document_of]
            pairs = pairs._replace(repeats=pairs.repeats * place)
        limits = self.settings.e_tolerance, self.settings.e_iterations if steps is None else steps
        found = word_steps.e_step(
            pairs, of_terms(log_mean), alpha, gamma, limits, tilt, fallback, loss, counted=counted
        )
        if not counted:
            return found
        return found._replace(counts=of_topics(found.counts, log_mean.shape))

    def with_response(
        self, response: Any, values: Values, log_mean: np.ndarray, alpha: np.ndarray, start: Any,
        shares: np.ndarray | None = None,
    ) -> tuple[response_steps.LocalPosterior, Sums]:  # fmt: skip
        """Under the tilt of a smooth response, which is found with phi; afresh where there is no start. With ``shares`` [D]
        nothing moves: the sums at the start, in which documents count so far."""
        number, size = (len(self.lengths), self.num_topics), response.size
        prior = np.broadcast_to(np.asarray(alpha, np.float32), number)
        if start is None:
            nothing, still = np.zeros((number[0], size), np.float32), np.zeros_like(prior)
            tokens = np.broadcast_to(
                np.asarray(self.lengths, np.float32)[:, None] / np.float32(self.num_topics), number
            )
            covariance, bound = np.zeros((number[0], size, size), np.float32), np.zeros(number[0], np.float32)
            parts = prior + tokens, still, nothing, tokens, nothing, covariance, bound
            start = response_steps.LocalPosterior(*map(jnp.asarray, parts))
        limits = self.settings.e_tolerance, self.settings.e_iterations if shares is None else 0
        eta, log_beta = values[response.eta].reshape(self.num_topics, -1), of_terms(log_mean)
        concentration, weights = jnp.asarray(prior), None if shares is None else jnp.asarray(shares, jnp.float32)
        return response_steps.coordinate_ascent(
            response.for_kernels,
            response.data,
            self.pairs,
            log_beta,
            concentration,
            eta,
            values,
            start,
            limits,
            weights,
        )

    def moments(
        self, eta: jax.Array, local: response_steps.LocalPosterior, log_beta: jax.Array, exact: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Mean [D, C] and covariance [D, C, C] of the predictor under the E-step's phi and any eta [K, C]; ``exact`` where
        the response is log-linear."""
        lengths = jnp.maximum(jnp.asarray(self.lengths, jnp.float32), 1.0)
        outer = sums_of_words(self.pairs, log_beta, _tilted(local.gamma, local.tilt), eta, lengths, exact=exact)
        return _moments(outer, lengths, local.tokens, eta, exact=exact)


@jitted
def _tilted(gamma: jax.Array, tilt: jax.Array) -> jax.Array:
    """E[log theta] of each document, and what the response adds."""
    return digamma(gamma) - digamma(gamma.sum(-1, keepdims=True)) + tilt


@jitted(static_argnames=("exact",))
def _moments(
    outer: jax.Array, lengths: jax.Array, tokens: jax.Array, eta: jax.Array, exact: bool
) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of the predictor, of sums over words and expected numbers of tokens."""
    length = lengths[:, None]
    mean = tokens @ eta / length
    if exact:
        return mean, jnp.maximum(2 * outer, 0.0)
    second = jnp.einsum("kc,dk,ke->ced", eta, tokens, eta)
    spread = jnp.moveaxis(no_less_than_rounding(second, jnp.moveaxis(outer, 0, -1)), -1, 0)
    return mean, spread / length[..., None] ** 2


class TokenPosterior(NamedTuple):
    """What the E-step by tokens leaves. One that does not start afresh writes its phi over the last one's."""

    phi: jax.Array  # [places, K, width]
    gamma: np.ndarray  # [D, K]
    tokens: jax.Array  # [D, K] sums of phi
    mean: Any  # [D, 1] of the predictor
    covariance: Any  # [D, 1, 1]
    bound: np.ndarray  # [D]


class TokenWords(Proportions):
    """Words updated one after the other, each with a phi of its own: the reference for one normal response."""

    def __init__(self, graph: BoundGraph, settings: Settings, classes: tuple[str, np.ndarray] | None = None) -> None:
        super().__init__(graph, settings, classes)
        self.batches = token_batches(graph.corpus, shards=1)

    def with_response(
        self, response: Any, values: Values, log_mean: np.ndarray, alpha: np.ndarray, start: TokenPosterior | None
    ) -> tuple[TokenPosterior, Sums]:
        """Equations 6 and 7, token by token; the response is told by its target and precision."""
        target, precision = response.as_normal(values)
        eta = jnp.asarray(values[response.eta], jnp.float32)
        tilt = token_steps.Tilt(eta, *(jnp.asarray(part, jnp.float32) for part in (target, precision)))
        phi, tokens = self._uniform() if start is None else (start.phi, start.tokens)
        prior = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), tokens.shape)
        limits = self.settings.e_tolerance, self.settings.e_iterations
        phi, tokens, part = token_steps.coordinate_ascent(
            phi, self.batches, of_terms(log_mean), prior, tokens, tilt, *limits
        )
        gamma = alpha + np.asarray(tokens, np.float64)
        bound = np.asarray(part, np.float64) + log_normaliser(gamma) - log_normaliser(alpha)
        weight = jnp.asarray(-0.5 * precision / self.lengths**2, jnp.float32)
        counts, products = token_steps.token_sums(phi, self.batches, weight, log_mean.shape[-1])
        found = TokenPosterior(phi, gamma, tokens, *self._moments(eta[:, None], phi, tokens), bound)
        return found, Sums(counts, products[None], products @ eta[:, None])

    def moments(self, eta: jax.Array, local: TokenPosterior, *same: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the predictor under the E-step's phi and any eta [K, 1]."""
        return self._moments(eta, local.phi, local.tokens)

    def _moments(self, eta: jax.Array, phi: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        length = jnp.asarray(self.lengths, jnp.float32)[:, None]
        squares = token_steps.squared_products(phi, self.batches, eta[:, 0])[:, None]
        variance = jnp.maximum(tokens @ eta**2 - squares, 0.0) / length**2
        return tokens @ eta / length, variance[..., None]

    def _uniform(self) -> tuple[jax.Array, jax.Array]:
        """phi of 1/K for every token, and its sums."""
        depth, lengths = np.asarray(self.batches.depth[0]), np.asarray(self.batches.lengths[0])
        position = np.arange(depth.sum()) - np.repeat(np.asarray(self.batches.start[0]), depth)
        inside = jnp.asarray(position[:, None] < np.repeat(lengths, depth, axis=0))[:, None]
        share = jnp.full(self.num_topics, 1 / self.num_topics)
        return jnp.where(inside, share[:, None], 0.0), jnp.asarray(self.lengths, jnp.float32)[:, None] * share


def of_terms(log_mean: np.ndarray) -> jax.Array:
    """E[log beta] as kernels read it, [V, K]; of labels one below the other."""
    swapped = np.swapaxes(log_mean, -1, -2)
    return jnp.asarray(swapped.reshape(-1, swapped.shape[-1]), jnp.float32)


def of_topics(counts: jax.Array | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Expected counts of terms [V, K] the other way, in the shape [K, V] or [labels, K, V] of topics."""
    return np.swapaxes(np.asarray(counts, np.float64).reshape(*shape[:-2], shape[-1], shape[-2]), -1, -2)


def require_given(
    graph: BoundGraph, name: str | None, what: str, above: set[str] | frozenset[str] = frozenset()
) -> str:
    """What the story gives to draw_words as theta or beta: a Dirichlet site that only the words read."""
    if not name:
        others = sorted(graph.parents["~" + what] - {"~" + what}) or ["draw_words"]
        refuse(graph, others[0], f"the {what} given to draw_words is computed, not a Dirichlet site itself")
    require_dirichlet(graph, name, above | sites_above(graph, name))
    if others := sorted(graph.children([name]) - {name}):
        refuse(graph, others[0], f"it reads {name!r}, which vem wants read by the words alone")
    return name


def observed_labels(graph: BoundGraph, values: Values | None = None) -> np.ndarray:
    """The label that the story gives to draw_words for each document, [D]."""

    @jitted
    def look(corpus: Documents, y: Y, values: Any) -> jax.Array:
        answer = ZbarHandler(lambda theta: theta)
        run(graph.story, corpus, y, values, answer)
        return answer.label

    return np.asarray(look(documents(graph.corpus), jax.tree.map(jnp.asarray, graph.y), values or {}))
