"""Variational EM for words without a response: phi and gamma over distinct (document, term) pairs.

All occurrences of a term in a document share one phi here, because without a response their updates are the same.
phi is never stored: given gamma it is one softmax.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln

from topiczoo.corpora.layouts import Documents, Pairs, distinct_pairs

from .expectations import (
    DirichletSite,
    Marginals,
    Settings,
    concentrations,
    expected_log,
    fit_alpha,
    refuse,
    require_dirichlet,
)
from .reading import Reading

CHUNK = 2**20  # numbers in a chunk's table [pairs, topics]: a few MB, near the processor


class Chunks(NamedTuple):
    """Pairs in chunks of whole documents, all of one shape; a document has a slot in its chunk."""

    slot: jax.Array  # [chunks, pairs]
    term: jax.Array  # [chunks, pairs]
    count: jax.Array  # [chunks, pairs], 0 in padding
    rows: jax.Array  # [chunks, slots] document of a slot (0 where there is none)
    place: jax.Array  # [documents] position of a document in the flattened slots


def chunked(pairs: Pairs, num_documents: int, num_topics: int) -> Chunks:
    """Deal documents to chunks in order, as many as fit."""
    size = np.bincount(np.asarray(pairs.document), minlength=num_documents)
    room = max(CHUNK // num_topics, size.max(initial=1))
    end = np.cumsum(size)
    bounds = [0]
    while bounds[-1] < num_documents:
        used = end[bounds[-1] - 1] if bounds[-1] else 0
        bounds.append(max(int(np.searchsorted(end, used + room, side="right")), bounds[-1] + 1))
    chunk = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    slot = np.arange(num_documents) - np.asarray(bounds)[chunk]

    first = np.concatenate([[0], end])[np.asarray(bounds[:-1])]
    document = np.asarray(pairs.document)
    position = np.arange(len(document)) - first[chunk[document]]
    shape = len(first), int(position.max(initial=0)) + 1
    tables = [np.zeros(shape, dtype) for dtype in (np.int32, np.int32, np.float32)]
    for table, values in zip(tables, (slot[document], pairs.term, pairs.count), strict=True):
        table[chunk[document], position] = np.asarray(values)
    rows = np.zeros((len(first), slot.max() + 1), np.int32)
    rows[chunk, slot] = np.arange(num_documents)
    return Chunks(*map(jnp.asarray, (*tables, rows, chunk * rows.shape[1] + slot)))


@partial(jax.jit, static_argnames=("num_terms", "e_iterations"))
def settle(
    chunks: Chunks,
    log_beta: jax.Array,
    alpha: jax.Array,
    gamma: jax.Array,
    *,
    num_terms: int,
    e_tolerance: float,
    e_iterations: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The E-step: gamma [D, K], each document's bound [D], and expected counts [V, K].

    ``log_beta`` is [V, K]; ``alpha`` and the gamma to start from are [D, K]. A document's bound is that of gamma with
    the phi that is best for it, so it rises from step to step; a document rests when it rises by less than
    ``e_tolerance`` of itself.
    """

    def chunk(counts: jax.Array, data: tuple) -> tuple[jax.Array, tuple]:
        slot, term, count, rows = data
        prior, log_beta_w = alpha[rows], log_beta[term]

        def evaluate(gamma: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            e_log_theta = digamma(gamma) - digamma(gamma.sum(-1, keepdims=True))
            # (7) without the response: phi proportional to exp{E[log theta] + E[log p(w | beta)]}
            logits = e_log_theta[slot] + log_beta_w
            top = logits.max(-1, keepdims=True)
            weight = jnp.exp(logits - top)
            total = weight.sum(-1, keepdims=True)
            phi = weight * (count[:, None] / total)
            words = jax.ops.segment_sum(count * (jnp.log(total) + top)[:, 0], slot, len(rows))
            proportions = ((prior - gamma) * e_log_theta + gammaln(gamma) - gammaln(prior)).sum(-1)
            totals = gammaln(prior.sum(-1)) - gammaln(gamma.sum(-1))
            return words + proportions + totals, phi, jax.ops.segment_sum(phi, slot, len(rows))

        def step(state: tuple) -> tuple:
            i, gamma, bound, tokens, moving = state
            # (6), where it is not yet settled
            proposal = jnp.where(moving[:, None], prior + tokens, gamma)
            new, _, tokens = evaluate(proposal)
            return i + 1, proposal, new, tokens, moving & (jnp.abs(new - bound) > e_tolerance * jnp.abs(new))

        bound, _, tokens = evaluate(gamma[rows])
        state = 0, gamma[rows], bound, tokens, jnp.ones(len(rows), bool)
        state = jax.lax.while_loop(lambda state: (state[0] < e_iterations) & state[4].any(), step, state)
        _, settled, bound, _, _ = state
        _, phi, _ = evaluate(settled)
        return counts.at[term].add(phi), (settled, bound)

    start = jnp.zeros((num_terms, log_beta.shape[1]))
    data = chunks.slot, chunks.term, chunks.count, chunks.rows
    counts, (gamma, bound) = jax.lax.scan(chunk, start, data)
    return gamma.reshape(-1, gamma.shape[-1])[chunks.place], bound.reshape(-1)[chunks.place], counts


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
    num_topics, num_terms = beta.shape
    chunks = chunked(documents.pairs, documents.num_documents, num_topics)
    log_beta = jnp.log(jnp.maximum(beta, jnp.finfo(jnp.float32).tiny)).T
    alpha = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), (documents.num_documents, num_topics))
    start = alpha + documents.lengths[:, None] / num_topics
    gamma, _, _ = settle(
        chunks, log_beta, alpha, start, num_terms=num_terms, e_tolerance=e_tolerance, e_iterations=e_iterations
    )
    return gamma, (gamma - alpha) / jnp.maximum(documents.lengths, 1.0)[:, None]


class WordsState(NamedTuple):
    """What one turn of EM hands to the next."""

    topics: np.ndarray  # [K, V], see DirichletSite
    alpha: np.ndarray  # [K] or [D, K]
    gamma: jax.Array  # [D, K]
    counts: np.ndarray  # [K, V] expected
    bound: np.ndarray  # [D]


class Words:
    """Stories of a Dirichlet theta for each document, Dirichlet topics, and nothing else."""

    def __init__(self, reading: Reading, settings: Settings) -> None:
        self.reading, self.settings = reading, settings
        self.theta, self.topics, self.alpha = read_words(reading, settings)
        extra = sorted((set(reading.latent) | set(reading.observed)) - {self.theta, self.topics.name})
        if extra:
            refuse(reading, extra[0], "no words depend on it and it is no response that vem knows")
        self.num_topics, self.num_terms = self.topics.prior.shape
        self.pairs = chunked(distinct_pairs(reading.corpus), len(reading.corpus), self.num_topics)
        self.lengths = reading.corpus.lengths.astype(np.float64)

    def start(self, rng: np.random.Generator) -> WordsState:
        nothing = np.zeros(0)
        return WordsState(self.topics.start(rng), self.alpha, jnp.zeros(0), nothing, nothing)

    def expect(self, state: WordsState, fresh: bool) -> WordsState:
        log_beta = jnp.asarray(self.topics.log_mean(state.topics).T, jnp.float32)
        shape = len(self.lengths), self.num_topics
        alpha = jnp.broadcast_to(jnp.asarray(state.alpha, jnp.float32), shape)
        start = alpha + jnp.asarray(self.lengths, jnp.float32)[:, None] / self.num_topics if fresh else state.gamma
        gamma, bound, counts = settle(
            self.pairs, log_beta, alpha, start, num_terms=self.num_terms,
            e_tolerance=self.settings.e_tolerance, e_iterations=self.settings.e_iterations,
        )  # fmt: skip
        counts = np.asarray(counts, np.float64).T
        return state._replace(gamma=gamma, counts=counts, bound=np.asarray(bound, np.float64))

    def maximise(self, state: WordsState) -> WordsState:
        alpha = state.alpha
        if self.settings.estimate_alpha:
            alpha = fit_alpha(alpha, expected_log(np.asarray(state.gamma, np.float64)))
        return state._replace(topics=self.topics.update(state.counts), alpha=alpha)

    def bound(self, state: WordsState) -> float:
        return float(state.bound.sum()) + self.topics.bound(state.topics)

    def marginals(self, state: WordsState) -> Marginals:
        marginals = Marginals(dirichlet={self.theta: np.asarray(state.gamma)})
        self.topics.put(state.topics, marginals)
        return marginals


def read_words(reading: Reading, settings: Settings) -> tuple[str, DirichletSite, np.ndarray]:
    """The names and priors of theta and beta, where both are Dirichlet sites that only the words read.

    alpha comes as [D, K]; as [K] when it is to be estimated, which asks that documents share it.
    """
    theta, beta = reading.theta, reading.beta
    for name, what in ((theta, "theta"), (beta, "beta")):
        if name is None:
            above = sorted(reading.parents["~" + what] - {"~" + what}) or ["draw_words"]
            refuse(reading, above[0], f"the {what} given to draw_words is computed, not a Dirichlet site itself")
        require_dirichlet(reading, name)
        if others := sorted(reading.children([name]) - {name}):
            refuse(reading, others[0], f"it reads {name!r}, which vem wants read by the words alone")
    if reading.latent[theta].document_axis is None:
        refuse(reading, theta, "it has no axis of documents")
    if reading.latent[beta].document_axis is not None:
        refuse(reading, beta, "it has an axis of documents")
    priors = concentrations(reading, [theta, beta])
    alpha = priors[theta]
    if settings.estimate_alpha:
        if np.ptp(alpha, axis=0).any():
            refuse(reading, theta, "estimate_alpha=True asks for one alpha for all documents, and theirs differ")
        alpha = alpha[0]
    return theta, DirichletSite(beta, priors[beta], settings.topics == "mle"), alpha
