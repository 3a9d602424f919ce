"""The E-step for words: phi and gamma over distinct (document, term) pairs, given topics (Blei, Ng & Jordan 2003).

All occurrences of a term in a document share one phi here, because without a response their updates are the same.
phi is never stored: given gamma it is one softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from topiczoo.corpora.layouts import LEAST_POSITIONS, Documents, PaddedBatches, Pairs, rounded_up, token_batches

from ..kernels.sharding import by_threads, over_shards
from ..kernels.special import digamma, gammaln
from ..kernels.sweep import CHUNK, look_up, room, with_padding
from ..programs.compiling import jitted
from .dirichlet import dirichlet_bound

LOWEST = 40.0  # logarithms below the top that are kept: two such factors are still a float32 number


class Room(NamedTuple):
    """What there is room for in any case, so that what is compiled for some documents serves others."""

    positions: int = LEAST_POSITIONS
    deep: int = LEAST_POSITIONS  # distinct terms of a document

    def larger(self) -> Room:
        """By half, so that other documents will do with it."""
        return Room(3 * self.positions // 2, 3 * self.deep // 2)


class PairBlocks(NamedTuple):
    """Batches of documents as for tokens, with one position a distinct term and the term's count beside it."""

    batches: PaddedBatches
    repeats: jax.Array  # [shards, positions, width], 0 in padding
    deep: int = LEAST_POSITIONS  # distinct terms of a document for which there is room in any case

    @property
    def deepest(self) -> int:
        """Room for the distinct terms of the document that has most."""
        return rounded_up(max(int(np.max(self.batches.depth)), self.deep))

    @property
    def needed(self) -> Room:
        """What these documents have."""
        return Room(int(np.sum(self.batches.depth, 1).max()), int(np.max(self.batches.depth)))

    @property
    def shards(self) -> tuple:
        """What is dealt to threads: terms, repeats, start, depth, rows, lengths."""
        batches = self.batches
        return batches.terms, self.repeats, batches.start, batches.depth, batches.rows, batches.lengths


def pair_batches(pairs: Pairs, num_documents: int, num_terms: int, room: Room = Room()) -> PairBlocks:
    """Lay distinct pairs out as if each were one token; those of no document are left out."""
    own = np.asarray(pairs.document) < num_documents
    document, term, number = (np.asarray(part)[own] for part in pairs)
    lengths = np.bincount(document, minlength=num_documents)
    rows = np.ones(len(term), np.int32), term, np.insert(np.cumsum(lengths), 0, 0)
    counts = sparse.csr_array(rows, shape=(num_documents, num_terms))
    once: Any = SimpleNamespace(
        num_documents=num_documents, num_terms=num_terms, lengths=lengths, counts=counts, sentences=None
    )
    batches = token_batches(once, least=room.positions)
    repeats = np.zeros(batches.terms.shape, np.float32)
    repeats[batches.positions()] = number
    return PairBlocks(batches, jnp.asarray(repeats), room.deep)


class Weighed(NamedTuple):
    """What phi is made of, out of logarithms: phi_dw,k is proportional to weight_dk beta_kw.

    Logarithms of a document's weights are taken from ``top``; what lies too far below for float32 is raised to where it
    still does not matter.
    """

    weight: jax.Array  # [K, width]
    top: jax.Array  # [width]

    @classmethod
    def of(cls, log_weight: jax.Array) -> Weighed:
        top = log_weight.max(0)
        return cls(jnp.exp(jnp.maximum(log_weight - top, -LOWEST)), top)


def out_of_logs(log_beta: jax.Array) -> jax.Array:
    """beta for :func:`phi_at`, [V + 1, K]; the last row is for padding."""
    return jnp.pad(jnp.exp(jnp.maximum(log_beta, -LOWEST)), ((0, 1), (0, 0)), constant_values=1.0)


def phi_at(beta: jax.Array, weighed: Weighed) -> tuple[jax.Array, jax.Array]:
    """(7): phi of one term of each document, but for the factor beside it: [K, width] and [width]."""
    product = jax.lax.optimization_barrier(beta * weighed.weight)  # computed once, not again for each use
    mass = jnp.ones(product.shape[0]) @ product  # XLA is slow at sums over the first axis
    return product, 1.0 / mass


class Fallback(NamedTuple):
    """Where a document stays if its E-step does not serve it: an older gamma and tilt.

    A document is served where its part of the bound, less what ``loss(tokens, rows, shared)`` [width] says of its expected
    tokens in each topic [width, K], does not fall.
    """

    gamma: Any  # [D, K]
    tilt: Any  # [D, K]
    rows: Any  # what the loss reads of each document, leaves [D, ...]
    shared: Any  # and of all


@jitted(static_argnames=("loss", "deepest", "counted"))
def coordinate_ascent(
    between: tuple, pairs: PairBlocks, log_beta: jax.Array, alpha: jax.Array, gamma: jax.Array, limits: tuple,
    tilt: jax.Array | None, fallback: Fallback | None, *, loss: Callable | None, deepest: int, counted: bool,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """The E-step of the shards between two: of each lane gamma, its document's E[log p(w, z | theta)] + H(q(z)) and whether
    it moved (False where its fallback is better), and of each shard expected counts [V + 1, K].

    ``log_beta`` is [V, K]; ``alpha`` and the gamma to start from are [D, K]. A ``tilt`` [D, K] is added to log theta: what
    each word of a document gains in each topic beside its own probability. A document's bound is that of gamma with the phi
    that is best for it, so it rises from step to step; a document rests when it rises by less than
    the first of the ``limits`` of itself or after so many steps as the second says, a batch when all its documents rest.
    Expected counts cost as much as several steps; they are empty unless ``counted``.
    """
    num_topics = log_beta.shape[1]

    def one_shard(
        shard: tuple, log_beta: jax.Array, alpha: jax.Array, gamma: jax.Array, tilt: jax.Array | None,
        fallback: Fallback | None, limits: tuple,
    ) -> tuple:  # fmt: skip
        terms, repeats, start, depths, rows_of, _ = shard
        terms, repeats = with_padding(terms, log_beta.shape[0]), with_padding(repeats, 0)
        beta_of_terms, (e_tolerance, e_iterations) = out_of_logs(log_beta), limits

        def batch(b: jax.Array, carry: tuple) -> tuple:
            counts, gammas, words, moved, beta = carry
            rows, first, depth = rows_of[b], start[b], depths[b]
            beta = look_up(beta, beta_of_terms, terms, first, depth)
            prior, gain = alpha[rows].T, 0.0 if tilt is None else tilt[rows].T
            constant = gammaln(prior.sum(0)) - gammaln(prior).sum(0)

            def evaluate(gamma: jax.Array, gain: Any = gain) -> tuple[jax.Array, jax.Array, jax.Array]:
                """The bound at gamma and its best phi, the words' part of it, and the sums of that phi."""
                e_log_theta = digamma(gamma) - digamma(gamma.sum(0))
                weighed = Weighed.of(e_log_theta + gain)

                def position(n: jax.Array, carry: tuple) -> tuple:
                    tokens, words = carry
                    product, scale = phi_at(beta[n], weighed)
                    repeat = repeats[first + n]
                    return tokens + product * (scale * repeat), words + repeat * (weighed.top - jnp.log(scale))

                nothing = jnp.zeros_like(gamma), jnp.zeros(gamma.shape[1])
                tokens, words = jax.lax.fori_loop(0, depth, position, nothing)
                proportions = ((prior - gamma) * e_log_theta + gammaln(gamma)).sum(0) - gammaln(gamma.sum(0))
                return words + proportions + constant, words, tokens

            def step(state: tuple) -> tuple:
                i, gamma, bound, _, tokens, moving = state
                # (6)
                gamma = jnp.where(moving, prior + tokens, gamma)
                new, words, tokens = evaluate(gamma)
                return i + 1, gamma, new, words, tokens, moving & (jnp.abs(new - bound) > e_tolerance * jnp.abs(new))

            begin = gamma[rows].T
            state = 0, begin, *evaluate(begin), jnp.ones(len(rows), bool)
            state = jax.lax.while_loop(lambda state: (state[0] < e_iterations) & state[5].any(), step, state)
            _, found, bound, in_block, _, _ = state
            serves = jnp.ones(len(rows), bool)
            if fallback is not None and loss is not None:
                old, old_gain = fallback.gamma[rows].T, fallback.tilt[rows].T
                old_bound, old_words, _ = evaluate(old, old_gain)
                read = jax.tree.map(lambda leaf: leaf[rows], fallback.rows)

                def worth(bound: jax.Array, gamma: jax.Array, gain: Any) -> jax.Array:
                    tokens = gamma - prior
                    return bound - (tokens * gain).sum(0) - loss(tokens.T, read, fallback.shared)

                serves = worth(bound, found, gain) >= worth(old_bound, old, old_gain)
                found, in_block, gain = (
                    jnp.where(serves, new, kept)
                    for new, kept in ((found, old), (in_block, old_words), (gain, old_gain))
                )
            gammas, words, moved = gammas.at[b].set(found.T), words.at[b].set(in_block), moved.at[b].set(serves)
            if not counted:
                return counts, gammas, words, moved, beta
            weighed = Weighed.of(digamma(found) - digamma(found.sum(0)) + gain)

            def add(chunk: jax.Array, counts: jax.Array) -> jax.Array:
                return Chunk.of(beta, terms, repeats, (first, depth), chunk, weighed).add(counts)

            counts = jax.lax.fori_loop(0, -(-depth // CHUNK), add, counts)
            return counts, gammas, words, moved, beta

        shape = rows_of.shape
        nothing = jnp.zeros_like(beta_of_terms) if counted else jnp.zeros(0)
        carry = nothing, jnp.zeros((*shape, num_topics)), jnp.zeros(shape), jnp.ones(shape, bool)
        return jax.lax.fori_loop(0, shape[0], batch, (*carry, room(deepest, num_topics, shape[1])))[:4]

    return over_shards(one_shard, pairs.shards, (log_beta, alpha, gamma, tilt, fallback, limits), between)


@jitted
def by_document(lanes: Any, batches: PaddedBatches) -> jax.Array:
    """What stands in the lanes [shards, batches, width, ...] of each document, [documents, ...]."""
    return jnp.asarray(lanes).reshape(-1, *lanes.shape[3:])[batches.lane]


class Chunk(NamedTuple):
    """Pairs at CHUNK positions of a batch of documents, one after the other; none beyond the batch."""

    counted: jax.Array  # count * phi, [pairs, K]
    phi: jax.Array  # [pairs, K]
    terms: jax.Array  # [pairs]

    @classmethod
    def of(
        cls, beta: jax.Array, terms: jax.Array, repeats: jax.Array, position: tuple, chunk: jax.Array, weighed: Weighed
    ) -> Chunk:
        first, depth = position
        here, repeat = (jax.lax.dynamic_slice_in_dim(part, first + chunk * CHUNK, CHUNK) for part in (terms, repeats))
        inside = jnp.arange(CHUNK)[:, None] + chunk * CHUNK < depth
        product = jax.lax.dynamic_slice_in_dim(beta, chunk * CHUNK, CHUNK) * weighed.weight
        rows = jax.lax.optimization_barrier(jnp.swapaxes(product, 1, 2).reshape(-1, product.shape[1]))
        share = jnp.broadcast_to(inside, here.shape).ravel() / (rows @ jnp.ones(rows.shape[1]))
        phi = rows * share[:, None]
        return cls(phi * repeat.ravel()[:, None], phi, here.ravel())

    def add(self, counts: jax.Array) -> jax.Array:
        """Expected counts [V + 1, K], the sums of equation 8, with these added."""
        return counts.at[self.terms].add(self.counted, mode="promise_in_bounds")


class LocalPosterior(NamedTuple):
    """What an E-step ends with."""

    gamma: jax.Array  # [D, K]
    bound: np.ndarray  # [D] each document's whole part; what words gain by a tilt is none of it
    moved: np.ndarray  # [D] bool
    counts: jax.Array | np.ndarray  # [V, K] expected, empty where nobody asked for them


def e_step(
    pairs: PairBlocks, log_beta: jax.Array, alpha: Any, gamma: jax.Array, limits: tuple, tilt: np.ndarray | None = None,
    fallback: Fallback | None = None, loss: Callable | None = None, *, counted: bool = True,
) -> LocalPosterior:  # fmt: skip
    """:func:`coordinate_ascent` by all threads; ``alpha`` is [K] or [D, K], ``limits`` are tolerance and iterations."""
    gamma, fallback = jax.tree.map(jnp.asarray, (gamma, fallback))
    of_documents = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), gamma.shape)
    weight = None if tilt is None else jnp.asarray(tilt, jnp.float32)
    limits = jnp.float32(limits[0]), jnp.int32(limits[1])
    counts, *lanes = by_threads(
        coordinate_ascent, pairs.batches, pairs, log_beta, of_documents, gamma, limits, weight, fallback,
        loss=loss, deepest=pairs.deepest, counted=counted,
    )  # fmt: skip
    gamma, words, moved = (by_document(part, pairs.batches) for part in lanes)
    counts = jnp.asarray(counts.sum(0)[:-1]) if counted else counts
    prior, posterior, served = np.asarray(alpha, np.float64), np.asarray(gamma, np.float64), np.asarray(moved)
    bound = np.asarray(words, np.float64) + dirichlet_bound(prior, posterior)
    if tilt is not None:
        own = tilt if fallback is None else np.where(served[:, None], tilt, fallback.tilt)
        bound -= ((posterior - prior) * own).sum(1)
    return LocalPosterior(gamma, bound, served, counts)


def fold_in(
    beta: jax.Array,
    alpha: jax.Array,
    documents: Documents,
    *,
    e_tolerance: float = 1e-6,
    e_iterations: int = 200,
) -> tuple[jax.Array, jax.Array]:
    """gamma and phibar, both [D, K], of documents (with their pairs) under given topics, without a response.

    ``beta`` is [K, V], ``alpha`` a number, [K] or [D, K]. A document without words keeps its prior and has a phibar
    of zeros, as its zbar.
    """
    assert documents.pairs is not None
    num_topics = beta.shape[0]
    pairs = pair_batches(documents.pairs, documents.num_documents, beta.shape[1])
    log_beta = jnp.log(jnp.maximum(beta, jnp.finfo(jnp.float32).tiny)).T
    alpha = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), (documents.num_documents, num_topics))
    start = first_gamma(alpha, documents.lengths)
    gamma = e_step(pairs, log_beta, alpha, start, (e_tolerance, e_iterations), counted=False).gamma
    return gamma, (gamma - alpha) / jnp.maximum(documents.lengths, 1.0)[:, None]


def first_gamma(alpha: Any, lengths: Any) -> jax.Array:
    """gamma [D, K] before anything is known, alpha [K] or [D, K]: words have topics as the prior has them. Even topics would
    be a trap where some documents may hardly take some of them."""
    alpha, lengths = (jnp.asarray(part, jnp.float32) for part in (alpha, lengths))
    return alpha * (1 + lengths[:, None] / alpha.sum(-1, keepdims=True))
