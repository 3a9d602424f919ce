"""Variational EM for words without a response: phi and gamma over distinct (document, term) pairs.

All occurrences of a term in a document share one phi here, because without a response their updates are the same.
phi is never stored: given gamma it is one softmax.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln

from topiczoo.corpora.layouts import Blocks, Documents, Pairs, distinct_pairs, token_blocks

from .expectations import (
    DirichletSite,
    Marginals,
    Settings,
    concentrations,
    dirichlet_bound,
    expected_log,
    fit_alpha,
    refuse,
    require_dirichlet,
)
from .reading import Reading


class PairBlocks(NamedTuple):
    """Blocks of documents as for tokens, with one place a distinct term and the term's count beside it."""

    blocks: Blocks
    repeats: jax.Array  # [places, width], 0 in padding


def pair_blocks(pairs: Pairs, num_documents: int, num_terms: int) -> PairBlocks:
    """Lay distinct pairs out as if each were one token."""
    document, term = np.asarray(pairs.document), np.asarray(pairs.term)
    lengths = np.bincount(document, minlength=num_documents)
    once: Any = SimpleNamespace(num_documents=num_documents, num_terms=num_terms, lengths=lengths)
    once.tokens = lambda: (document, term)
    blocks = token_blocks(once)
    block, lane = np.divmod(np.asarray(blocks.lane)[document], blocks.rows.shape[-1])
    position = np.arange(len(document)) - (np.cumsum(lengths) - lengths)[document]
    repeats = np.zeros(blocks.terms.shape[1:], np.float32)
    repeats[np.asarray(blocks.start[0])[block] + position, lane] = np.asarray(pairs.count)
    return PairBlocks(blocks, jnp.asarray(repeats))


@jax.jit
def settle(
    pairs: PairBlocks,
    log_beta: jax.Array,
    alpha: jax.Array,
    gamma: jax.Array,
    e_tolerance: float,
    e_iterations: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The E-step: gamma [D, K], each document's E[log p(w, z | theta)] + H(q(z)) [D], and expected counts [V, K].

    ``log_beta`` is [V, K]; ``alpha`` and the gamma to start from are [D, K]. A document's bound is that of gamma
    with the phi that is best for it, so it rises from step to step; a document rests when it rises by less than
    ``e_tolerance`` of itself, a block when all its documents rest.
    """
    blocks, num_topics = pairs.blocks, log_beta.shape[1]

    def block(b: jax.Array, carry: tuple) -> tuple:
        counts, gammas, words = carry
        rows, first, depth = blocks.rows[0, b], blocks.start[0, b], blocks.depth[0, b]
        prior = alpha[rows].T
        constant = gammaln(prior.sum(0)) - gammaln(prior).sum(0)

        def phi(n: jax.Array, e_log_theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            """count * phi of the block's n-th pairs, count * log of phi's normaliser, and the terms."""
            term, count = blocks.terms[0, first + n], pairs.repeats[first + n]
            # (7) without the response: phi proportional to exp{E[log theta] + E[log p(w | beta)]}
            logits = e_log_theta + log_beta.at[term].get(mode="clip").T  # clip: padding
            top = logits.max(0)
            weight = jnp.exp(logits - top)
            mass = weight.sum(0)
            return weight * (count / mass), count * (top + jnp.log(mass)), term

        def evaluate(gamma: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            """The bound at gamma and its best phi, the words' part of it, and the sums of that phi."""
            e_log_theta = digamma(gamma) - digamma(gamma.sum(0))

            def place(n: jax.Array, carry: tuple) -> tuple:
                tokens, words = carry
                here, log_mass, _ = phi(n, e_log_theta)
                return tokens + here, words + log_mass

            start = jnp.zeros_like(gamma), jnp.zeros(gamma.shape[1])
            tokens, words = jax.lax.fori_loop(0, depth, place, start)
            proportions = ((prior - gamma) * e_log_theta + gammaln(gamma)).sum(0) - gammaln(gamma.sum(0))
            return words + proportions + constant, words, tokens

        def step(state: tuple) -> tuple:
            i, gamma, bound, _, tokens, moving = state
            # (6)
            gamma = jnp.where(moving, prior + tokens, gamma)
            new, words, tokens = evaluate(gamma)
            return i + 1, gamma, new, words, tokens, moving & (jnp.abs(new - bound) > e_tolerance * jnp.abs(new))

        start = gamma[rows].T
        state = 0, start, *evaluate(start), jnp.ones(len(rows), bool)
        state = jax.lax.while_loop(lambda state: (state[0] < e_iterations) & state[5].any(), step, state)
        _, settled, _, in_block, _, _ = state
        e_log_theta = digamma(settled) - digamma(settled.sum(0))

        def add(n: jax.Array, counts: jax.Array) -> jax.Array:
            here, _, term = phi(n, e_log_theta)
            return counts.at[term].add(here.T)

        counts = jax.lax.fori_loop(0, depth, add, counts)
        return counts, gammas.at[b].set(settled.T), words.at[b].set(in_block)

    shape = blocks.rows.shape[1:]
    carry = jnp.zeros_like(log_beta), jnp.zeros((*shape, num_topics)), jnp.zeros(shape)
    counts, gammas, words = jax.lax.fori_loop(0, shape[0], block, carry)
    return gammas.reshape(-1, num_topics)[blocks.lane], words.reshape(-1)[blocks.lane], counts


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
    pairs = pair_blocks(documents.pairs, documents.num_documents, beta.shape[1])
    log_beta = jnp.log(jnp.maximum(beta, jnp.finfo(jnp.float32).tiny)).T
    alpha = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), (documents.num_documents, num_topics))
    start = alpha + documents.lengths[:, None] / num_topics
    gamma, _, _ = settle(pairs, log_beta, alpha, start, e_tolerance, e_iterations)
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
        self.num_topics = len(self.topics.prior)
        self.pairs = pair_blocks(distinct_pairs(reading.corpus), *reading.corpus.counts.shape)
        self.lengths = reading.corpus.lengths.astype(np.float64)

    def start(self, rng: np.random.Generator) -> WordsState:
        nothing = np.zeros(0)
        return WordsState(self.topics.start(rng), self.alpha, jnp.zeros(0), nothing, nothing)

    def expect(self, state: WordsState, fresh: bool) -> WordsState:
        log_beta = jnp.asarray(self.topics.log_mean(state.topics).T, jnp.float32)
        shape = len(self.lengths), self.num_topics
        alpha = jnp.broadcast_to(jnp.asarray(state.alpha, jnp.float32), shape)
        start = alpha + jnp.asarray(self.lengths, jnp.float32)[:, None] / self.num_topics if fresh else state.gamma
        limits = self.settings.e_tolerance, self.settings.e_iterations
        gamma, words, counts = settle(self.pairs, log_beta, alpha, start, *limits)
        bound = np.asarray(words, np.float64) + dirichlet_bound(state.alpha, np.asarray(gamma, np.float64))
        counts = np.asarray(counts, np.float64).T
        return state._replace(gamma=gamma, counts=counts, bound=bound)

    def maximise(self, state: WordsState, fresh: bool) -> WordsState:
        alpha = state.alpha
        if self.settings.estimate_alpha and not fresh:
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
