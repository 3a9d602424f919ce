"""p(w_d | alpha, beta): the probability of whole documents with their proportions and topics summed out.

    p(w_d | alpha, beta)  =  sum over z of  p(z | alpha)  prod_n beta_{z_n, w_n},

with theta_d integrated out of p(z | alpha). The sum has K^N terms, so it is estimated, for all documents side by side:

* :func:`left_to_right`: particles that read the document word by word (Wallach et al. 2009; Buntine 2009);
* :func:`chib`: p(w, z*) / p(z* | w) at one good z*, the denominator by a chain through z* (Murray & Salakhutdinov 2009);
* :func:`completion`: p(second half | first half), particles folded in on the first half.

Everything here is plain arrays; :func:`diagnostics.perplexity` does the same for a Fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.special import gammaln, logsumexp

from topiczoo.corpora import Corpus

from .evidence_walks import Batch, chib_walk, particle_walk

LANES = 512  # documents x copies that move side by side: their counts stay in a core's second cache
FLOOR = 1e-30  # as in the engines, a topic's probability of a term is never taken smaller


@dataclass(frozen=True)
class Evidence:
    """log p(w_d) of each document and its Monte Carlo error."""

    log_likelihood: np.ndarray  # [documents]
    error: np.ndarray  # [documents]; NaN after a single repeat
    repeats: np.ndarray  # log of each independent estimate of p(w_d), [repeats, documents]


def left_to_right(
    beta: Any, alpha: Any, corpus: Corpus,
    *, particles: int = 20, resample_tokens: int = 10, repeats: int = 5, seed: int = 0,
) -> Evidence:  # fmt: skip
    """log p(w_d) by particles that read a document from left to right, its words in random order.

    p(w) = prod_n p(w_n | w_<n), and each factor is the weighted mean over particles of

        p(w_n | z_<n) = sum_k beta_{k, w_n} (n_k + alpha_k) / (n - 1 + sum_k alpha_k).

    Then z_n is drawn from the terms of that sum. Particles are drawn anew by their weights (systematically) once these
    have become unequal, and before every word ``resample_tokens`` earlier tokens of each particle get new topics by
    Gibbs moves: all earlier tokens while there are no more than that, else a stretch at a random place, so that the
    cost grows with the length of a document and not with its square. This is sequential Monte Carlo, for which the mean
    of the estimates is p(w) exactly, with any number of particles and moves (Wallach et al.'s own algorithm, without
    weights, has a small bias). Its logarithm is low by about half the squared error; in documents of a thousand words
    :func:`chib` has the smaller error.

    Parameters
    ----------
    beta, alpha
        Topics [topics, terms], and the Dirichlet's concentration: one number, [topics] or [documents, topics].
    particles, resample_tokens
        More of either makes the error smaller.
    repeats
        Independent runs, whose mean is taken and whose differences give the error (jackknife, bias of the logarithm
        included).

    A document without words has p = 1; one with a term that no topic can produce has p = 0.
    """
    _check_counts(particles=particles, repeats=repeats)
    _check_counts(resample_tokens=resample_tokens, least=0)
    return _by_particles(beta, alpha, (corpus,), particles, resample_tokens, 0, repeats, seed)


def completion(
    beta: Any, alpha: Any, first: Corpus, second: Corpus,
    *, particles: int = 20, resample_tokens: int = 10, num_burn: int = 20, repeats: int = 5, seed: int = 0,
) -> Evidence:  # fmt: skip
    """log p(second_d | first_d): the rest of each document given its beginning; :func:`split` makes the two.

    The particles' topics of ``first`` are drawn by ``num_burn`` Gibbs sweeps; from there on they read ``second`` as in
    :func:`left_to_right`. Unbiased but for what is left of the sweeps' start.
    """
    _check_counts(particles=particles, repeats=repeats)
    _check_counts(resample_tokens=resample_tokens, num_burn=num_burn, least=0)
    if len(first) != len(second):
        raise ValueError(f"first has {len(first)} documents and second {len(second)}; give halves of the same ones.")
    return _by_particles(beta, alpha, (first, second), particles, resample_tokens, num_burn, repeats, seed)


def chib(
    beta: Any, alpha: Any, corpus: Corpus,
    *, num_sweeps: int = 30, num_burn: int = 20, num_greedy: int = 0, repeats: int = 5, seed: int = 0,
) -> Evidence:  # fmt: skip
    """log p(w_d) = log p(w, z*) - log p(z* | w), the second by Murray & Salakhutdinov's (2009) unbiased chain.

    z* is where ``num_burn`` Gibbs sweeps end, and ``num_greedy`` sweeps to the most probable topic if asked for: in long
    documents the top of the posterior is not typical of it, and a z* from there makes the error many times larger (of
    1300 words and 10 topics 5 nats in place of 1). A chain of S = ``num_sweeps`` states has z* put before one of them, at
    a uniformly random place s: z^(s) is drawn from z* by a sweep in reversed order, later states by sweeps T, earlier
    ones by reversed sweeps. Then

        p(w)  is estimated by  p(w, z*)  /  (1/S) sum_s T(z* <- z^(s)),

    T(z* <- z) = prod_n p(z*_n | z*_<n, z_>n, w), and the mean of the estimates is p(w) exactly. The parameters are else
    those of :func:`left_to_right`.
    """
    _check_counts(num_sweeps=num_sweeps, repeats=repeats)
    _check_counts(num_burn=num_burn, num_greedy=num_greedy, least=0)
    beta, alpha = check_topics(beta, alpha, corpus)
    log_beta = np.log(np.maximum(beta, FLOOR))

    def estimate(key: jax.Array, term_topic: jax.Array, batch: Batch) -> np.ndarray:
        star, log_transition = chib_walk(key, term_topic, batch, num_burn, num_greedy, num_sweeps, repeats=repeats)
        star, log_transition = np.asarray(star), np.asarray(log_transition, float)  # [places, documents, repeats]
        terms, lengths = np.asarray(batch.terms), np.asarray(batch.lengths)
        present = np.arange(len(terms))[:, None, None] < lengths[:, None]
        words = np.where(present, log_beta[star, np.minimum(terms, beta.shape[1] - 1)[..., None]], 0.0).sum(0)
        counts = np.stack([(present & (star == k)).sum(0) for k in range(len(beta))], -1)
        prior = np.asarray(batch.alpha, float).T[:, None]
        topics = (gammaln(prior + counts) - gammaln(prior)).sum(-1)
        topics += gammaln(prior.sum(-1)) - gammaln(prior.sum(-1) + lengths[:, None])
        return (words + topics - log_transition).T

    return _over_batches(estimate, beta, alpha, (corpus,), repeats, repeats, seed)


def split(corpus: Corpus, seed: int = 0) -> tuple[Corpus, Corpus]:
    """Each document's tokens in two random halves; of an odd number the second gets one more."""
    document, term = _shuffled((corpus,), seed)
    lengths = corpus.lengths
    place = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    halves = []
    for chosen in (place < (lengths // 2)[document], place >= (lengths // 2)[document]):
        counts = sparse.coo_array((np.ones(chosen.sum()), (document[chosen], term[chosen])), corpus.counts.shape)
        told: dict[str, Any] = {"names": corpus.names, "covariates": corpus.covariates}
        halves.append(Corpus.from_counts(counts, corpus.vocabulary, **told, empty="keep"))
    return halves[0], halves[1]


def log_mean_exp(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log of the mean of exp(logs) over the first axis, and its error by the jackknife (NaN for one value)."""
    size = len(logs)
    value = logsumexp(logs, axis=0) - np.log(size)
    return value, jackknife_error(value, leave_one_out(logs)) if size > 1 else np.full_like(value, np.nan)


def leave_one_out(logs: np.ndarray) -> np.ndarray:
    """log-mean-exp over the first axis without each entry in turn, of the same shape as ``logs``."""
    nothing = np.full_like(logs[:1], -np.inf)
    before = np.concatenate([nothing, np.logaddexp.accumulate(logs[:-1], axis=0)])
    after = np.concatenate([np.logaddexp.accumulate(logs[:0:-1], axis=0)[::-1], nothing])
    return np.logaddexp(before, after) - np.log(len(logs) - 1)


def jackknife_error(value: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """The error of a value from those with one part left out each (first axis): root of variance plus squared bias.

    The logarithm of a mean is too low, and by the same sign in every document, so that in their sum the bias would
    outweigh the variance.
    """
    size = len(left_out)
    known = np.isfinite(value)  # p = 0 in every part is known without error
    left_out = np.where(known & np.isfinite(left_out), left_out, np.where(known, value, 0.0))
    bias = np.where(known, (size - 1) * (left_out.mean(0) - np.where(known, value, 0.0)), 0.0)
    return np.sqrt((size - 1) * left_out.var(0) + bias**2)


def check_topics(beta: Any, alpha: Any, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """beta [topics, terms] and alpha [documents, topics], or one sentence."""
    if not isinstance(corpus, Corpus):
        raise TypeError(f"corpus is a {type(corpus).__name__}; make a Corpus of it, e.g. Corpus.from_counts(counts).")
    beta = np.asarray(beta, np.float32)
    if beta.ndim != 2 or beta.shape[1] != corpus.num_terms:
        raise ValueError(f"beta has shape {beta.shape}; give [topics, {corpus.num_terms}], a column for each term.")
    sums = beta.sum(1, dtype=float)
    if not ((beta >= 0).all() and np.allclose(sums, 1, atol=1e-3)):
        raise ValueError(
            f"beta's rows are no distributions (sums {sums.min():.3g} to {sums.max():.3g}); normalise them."
        )
    alpha = np.asarray(alpha, np.float32)
    shape = len(corpus), len(beta)
    if alpha.shape not in ((), (1,) + shape[1:], shape[1:], shape):
        raise ValueError(f"alpha has shape {alpha.shape}; give one number, [{shape[1]}] or [{shape[0]}, {shape[1]}].")
    if not (alpha > 0).all():
        raise ValueError(f"alpha has the value {alpha.min():g}; a Dirichlet's concentration is above 0.")
    return beta, np.broadcast_to(alpha, shape)


def _check_counts(*, least: int = 1, **counts: Any) -> None:
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}.")


def _by_particles(
    beta: Any, alpha: Any, parts: tuple[Corpus, ...], particles: int, moves: int, num_burn: int, repeats: int, seed: int
) -> Evidence:
    beta, alpha = check_topics(beta, alpha, parts[0])

    def estimate(key: jax.Array, term_topic: jax.Array, batch: Batch) -> np.ndarray:
        factors = particle_walk(key, term_topic, batch, moves, num_burn, repeats=repeats, particles=particles)
        return np.asarray(factors, float).sum(0).T  # summed here for the sake of float32

    return _over_batches(estimate, beta, alpha, parts, repeats, repeats * particles, seed)


def _over_batches(
    estimate: Callable, beta: np.ndarray, alpha: np.ndarray, parts: tuple[Corpus, ...], repeats: int, copies: int,
    seed: int,
) -> Evidence:  # fmt: skip
    """Run an estimator over batches of documents of like length and put the documents back in order."""
    logs = np.zeros((repeats, len(alpha)))
    term_topic = jnp.asarray(np.maximum(np.pad(beta.T, ((0, 1), (0, 0))), FLOOR))
    key = jax.random.key(seed)
    for number, (rows, batch) in enumerate(_batches(parts, alpha, copies, seed)):
        logs[:, rows] = estimate(jax.random.fold_in(key, number), term_topic, batch)[:, : len(rows)]
    impossible = beta.max(0) == 0
    logs[:, (parts[-1].counts @ impossible) > 0] = -np.inf
    value, error = log_mean_exp(logs)
    error[parts[-1].lengths == 0] = 0.0
    return Evidence(value, error, logs)


def _batches(
    parts: tuple[Corpus, ...], alpha: np.ndarray, copies: int, seed: int
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Documents of like length side by side. Few shapes, so that few programs are compiled: depth is a power of 4."""
    _, term = _shuffled(parts, seed)
    lengths = np.sum([part.lengths for part in parts], axis=0)
    starts = lengths - parts[-1].lengths
    first = np.cumsum(lengths) - lengths
    filled = np.flatnonzero(parts[-1].lengths)
    order = filled[np.argsort(-lengths[filled], kind="stable")]
    width = min(max(LANES // copies, 1), 2 ** int(np.ceil(np.log2(max(len(order), 1)))))
    for begin in range(0, len(order), width):
        rows = order[begin : begin + width]
        lane = np.repeat(np.arange(len(rows)), lengths[rows])
        place = np.arange(len(lane)) - np.repeat(np.cumsum(lengths[rows]) - lengths[rows], lengths[rows])
        depth = max(16, 4 ** int(np.ceil(np.log2(lengths[rows[0]]) / 2)))
        terms = np.full((depth, width), parts[0].num_terms, np.int32)
        terms[place, lane] = term[first[rows[lane]] + place]
        padded = np.pad(rows, (0, width - len(rows)), mode="edge")
        inside = np.arange(width) < len(rows)
        yield (
            rows,
            Batch(
                jnp.asarray(terms),
                jnp.asarray(lengths[padded] * inside, jnp.int32),
                jnp.asarray(starts[padded] * inside, jnp.int32),
                jnp.asarray(alpha[padded].T),
            ),
        )


def _shuffled(parts: tuple[Corpus, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Document and term of every token: documents in order, within them the parts, within those at random."""
    tokens = [part.tokens() for part in parts]
    document, term = (np.concatenate([pair[i] for pair in tokens]) for i in (0, 1))
    part = np.repeat(np.arange(len(parts)), [len(pair[0]) for pair in tokens])
    order = np.lexsort((np.random.default_rng(seed).random(len(term)), part, document))
    return document[order], term[order]
