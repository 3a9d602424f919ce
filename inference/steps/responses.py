"""The E-step for words with a smooth response of a linear predictor, all words of a document side by side.

The response enters the bound as R_d(m_d, v_d) = E[log p(y_d | x)], x the predictor eta . zbar_d with mean m_d and
covariance v_d under q; nothing else is known of it. q keeps, for each document, gamma and a tilt of its topics' weights:

    phi_dw,k  proportional to  exp{ E[log theta_dk] + E[log beta_kw] + c_d . eta_k + eta_k' E_d eta_k }

so that all occurrences of a term share one phi, phi need not be stored, and an E-step costs little more than LDA's. The tilt
is the derivative of R with respect to the expected counts of topics: the bound is stationary at E = R_v / N^2 and
c = R_m / N - 2 E m (equation 7, the word's own share of the mean taken at the document's). c moves by Newton's step of that
equation: raising c by dc raises m by N v dc, so the right-hand side by R_mm v dc. A document whose bound would fall takes
half the step, so the bound never does.

Where log p(y | x) = A x - B exp(x) + C, as for a Poisson response, the expectation is a product over words, and exact if v_d
is taken as 2 (log E[exp(x)] - m_d): exp(m + v / 2) is what sigma points make of it.

Equation numbers are those of Blei & McAuliffe (2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import Documents

from ..kernels.sharding import by_threads, over_shards
from ..kernels.small_matrices import solve
from ..kernels.special import digamma, gammaln
from ..kernels.sweep import CHUNK, look_up, room, topics_of_terms, with_padding
from ..programs.compiling import jitted
from .words import Chunk, PairBlocks, Weighed, by_document, out_of_logs, phi_at

SMALLEST_STEP = 1 / 64  # of a document's tilt; below it the document rests


Values = Mapping[str, Any]  # parameters of a response by name


class Expectation(Protocol):
    """R and its derivatives; ``values`` are parameters, ``data`` whatever a batch of documents is for it."""

    log_linear: bool  # whether log p(y | x) = A x - B exp(x) + C

    def terms(self, values: Values, corpus: Documents, y: Any, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        """R of each document, [D], at means [D, C] and covariances [D, C, C] of the predictor."""
        ...

    def slopes(self, values: Values, corpus: Documents, y: Any, mean: jax.Array, covariance: jax.Array) -> tuple:
        """R_m [C, D], R_v [C, C, D] and R_mm [C, C, D] at means [C, D] and covariances [C, C, D], documents last."""
        ...


class LocalPosterior(NamedTuple):
    """What the E-step leaves of each document."""

    gamma: jax.Array  # [D, K]
    tilt: jax.Array  # [D, K], of the topics' log weights
    linear: jax.Array  # [D, C], the c it came from
    tokens: jax.Array  # [D, K] sums of phi
    mean: jax.Array  # [D, C]
    covariance: jax.Array  # [D, C, C]
    bound: jax.Array  # [D]


class _BatchState(NamedTuple):
    """The same for a batch of documents, topics first."""

    gamma: jax.Array  # [K, width]
    tilt: jax.Array  # [K, width]
    linear: jax.Array  # [C, width]
    tokens: jax.Array  # [K, width]
    mean: jax.Array  # [C, width]
    covariance: jax.Array  # [C, C, width]
    bound: jax.Array  # [width]


def no_less_than_rounding(second: jax.Array, outer: jax.Array) -> jax.Array:
    """second - outer, a covariance [C, C, ...] times something, kept positive where float32 loses what is left."""
    size = second.shape[0]
    each, covariance = jnp.arange(size), second - outer
    if size == 1:
        return jnp.maximum(covariance, 0.0)
    return covariance.at[each, each].add(2e-6 * second[each, each].sum(0))


class Sums(NamedTuple):
    """What the M-step needs of phi, summed over all pairs, with R_v the response's slope in the predictor's covariance."""

    counts: jax.Array  # [V, K], the sums of equation 8
    products: jax.Array  # [C, K, K], sum_d R_v,cc / N^2 sum_n phi_n phi_n', see own_curves
    pull: jax.Array  # [K, C], sum_d sum_n phi_n (R_v eta' phi_n)' / N^2, or what takes its place in sums_of


def coordinate_ascent(
    response: Expectation, data: tuple, pairs: PairBlocks, log_beta: jax.Array, alpha: jax.Array, eta: jax.Array,
    values: Values, start: LocalPosterior, limits: tuple, shares: jax.Array | None = None,
) -> tuple[LocalPosterior, Sums]:  # fmt: skip
    """The E-step from a given state. ``alpha`` is [D, K], ``log_beta`` [V, K], ``eta`` [K, C]; ``limits`` are tolerance and
    iterations; ``shares`` [D] are how far documents count in the sums, where that is not wholly."""
    limits = jnp.float32(limits[0]), jnp.int32(limits[1])
    sums, out = by_threads(
        _ascend_shards, pairs.batches, pairs, (data, shares), log_beta, alpha, eta, values, start, limits,
        response=response, deepest=pairs.deepest,
    )  # fmt: skip
    sums = Sums(*(jnp.asarray(leaf.sum(0)) for leaf in sums))
    found = LocalPosterior(*(by_document(leaf, pairs.batches) for leaf in out))
    return found, sums._replace(counts=sums.counts[:-1])


@jitted(static_argnames=("response", "deepest"))
def _ascend_shards(
    between: tuple, pairs: PairBlocks, data: tuple, log_beta: jax.Array, alpha: jax.Array, eta: jax.Array, values: Values,
    start: LocalPosterior, limits: tuple, *, response: Expectation, deepest: int,
) -> tuple[Sums, LocalPosterior]:  # fmt: skip
    """The same for the shards between two: their sums, and what documents end with in their documents."""

    def one_shard(
        shard: tuple, log_beta: jax.Array, alpha: jax.Array, eta: jax.Array, values: Values, begin: LocalPosterior,
        rest: tuple,
    ) -> tuple:  # fmt: skip
        terms, repeats, firsts, depths, rows_of, lengths_of = shard
        terms, repeats = with_padding(terms, log_beta.shape[0]), with_padding(repeats, 0)
        ((corpus, y), shares), (e_tolerance, e_iterations) = rest
        beta_of_terms = out_of_logs(log_beta)
        num_topics, size = eta.shape

        def batch(b: jax.Array, carry: tuple) -> tuple:
            sums, out, beta = carry
            rows, first, depth = rows_of[b], firsts[b], depths[b]
            beta = look_up(beta, beta_of_terms, terms, first, depth)
            few = corpus.take(rows), jax.tree.map(lambda leaf: leaf[rows], y)
            length = jnp.maximum(few[0].lengths, 1.0)
            documents = _Batch(response, values, eta, alpha[rows].T, length, few, beta, repeats, first, depth)
            at = documents.evaluate(begin.gamma[rows].T, begin.tilt[rows].T, begin.linear[rows].T)
            state = 0, at, jnp.ones(len(rows)), lengths_of[b] > 0
            state = jax.lax.while_loop(
                lambda state: (state[0] < e_iterations) & state[3].any(), partial(documents.step, e_tolerance), state
            )
            at = state[1]
            weighed = Weighed.of(expected_log_of(at.gamma) + at.tilt)
            _, curve, bend = (part / length**2 for part in response.slopes(values, *few, at.mean, at.covariance))
            own_curve = own_curves(curve, bend)

            def add(chunk: jax.Array, sums: Sums) -> Sums:
                part = Chunk.of(beta, terms, repeats, (first, depth), chunk, weighed)
                if shares is not None:
                    part = part._replace(counted=part.counted * jnp.tile(shares[rows], CHUNK)[:, None])
                products, pull = sums_of(part, curve, own_curve, eta, length if response.log_linear else None)
                return Sums(part.add(sums.counts), sums.products + products, sums.pull + pull)

            sums = jax.lax.fori_loop(0, -(-depth // CHUNK), add, sums)
            found = LocalPosterior(
                at.gamma.T, at.tilt.T, at.linear.T, at.tokens.T, at.mean.T, jnp.moveaxis(at.covariance, -1, 0), at.bound
            )
            return sums, jax.tree.map(lambda whole, part: whole.at[b].set(part), out, found), beta

        out = jax.tree.map(lambda leaf: jnp.zeros((*rows_of.shape, *leaf.shape[1:])), begin)
        sums = Sums(jnp.zeros_like(beta_of_terms), jnp.zeros((size, num_topics, num_topics)), jnp.zeros_like(eta))
        buffer = room(deepest, num_topics, rows_of.shape[1])
        return jax.lax.fori_loop(0, rows_of.shape[0], batch, (sums, out, buffer))[:2]

    return over_shards(one_shard, pairs.shards, (log_beta, alpha, eta, values, start, (data, limits)), between)


def sums_of(
    part: Chunk, curve: jax.Array, own_curve: jax.Array, eta: jax.Array, exact: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """What the pairs of a chunk add to ``products`` and ``pull`` of :class:`Sums`; ``curve`` is R_v / N^2, [C, C, width],
    and ``own_curve`` that of each predictor with itself as Newton's steps take it, [C, width].

    ``exact`` are the lengths N of documents [width] where the response is log-linear and v a cumulant: half its slope in eta
    is sum_n (phi'_n - phi_n) / N, with phi' proportional to phi exp(eta / N), where that of the variance is S eta.
    """
    if len(curve) == 1:
        weighed = part.counted * jnp.tile(own_curve[0], CHUNK)[:, None]
        if exact is None:
            return (weighed.T @ part.phi)[None], weighed.T @ (part.phi @ eta)
        length = jnp.tile(exact, CHUNK)[:, None]
        share = eta[:, 0] / length
        raised = jnp.expm1(share - jnp.log1p((part.phi * jnp.expm1(share)).sum(1, keepdims=True)))
        return (weighed.T @ part.phi)[None], (weighed * (eta[:, 0] - length * raised)).sum(0)[:, None]
    counted, phi = (pairs.reshape(CHUNK, -1, pairs.shape[1]) for pairs in (part.counted, part.phi))
    own = jnp.einsum("nwk,nwl->wkl", counted, phi)  # of each document, for all its predictors
    return jnp.einsum("cw,wkl->ckl", own_curve, own), jnp.einsum("wkl,le,cew->kc", own, eta, curve)


def own_curves(curve: jax.Array, bend: jax.Array) -> jax.Array:
    """R_v of each predictor with itself, [C, width], from R_v and R_mm, [C, C, width]: of several R_mm / 2, which is the
    same for a normal predictor. Under sigma points R_v may be positive where the covariance is not of full rank."""
    return curve[0] if len(curve) == 1 else jnp.einsum("ccw->cw", bend) / 2


def times(eta: jax.Array, phi: jax.Array) -> jax.Array:
    """eta' phi, [C, width]; a product of a vector and a matrix is quicker than one of two matrices."""
    return (eta[:, 0] @ phi)[None] if eta.shape[1] == 1 else eta.T @ phi


def growth(eta: jax.Array, length: jax.Array) -> jax.Array:
    """exp(a) - 1 - a at a = eta_k / N of each document, [K, width]; small numbers keep their digits."""
    share = eta[:, :1] / length
    series = share**2 / 2 * (1 + share / 3 * (1 + share / 4 * (1 + share / 5)))
    return jnp.where(jnp.abs(share) < 0.1, series, jnp.expm1(share) - share)


def of_word(eta: jax.Array, product: jax.Array, scale: jax.Array, length: jax.Array, exact: Any) -> jax.Array:
    """What a word adds to the predictor's covariance, [C, C, width]: (eta . phi)(eta . phi)', to be taken from the second
    moment; or, with :func:`growth`, log E[exp(a)] - E[a] of its share a of the predictor, of which the covariance is twice.
    """
    mean = times(eta, product) * scale
    if exact is None:
        return mean[:, None] * mean
    share = mean[0] / length
    return (jnp.log1p(share + (exact * product).sum(0) * scale) - share)[None, None]


def expected_log_of(gamma: jax.Array) -> jax.Array:
    """E[log theta], topics first."""
    return digamma(gamma) - digamma(gamma.sum(0))


class _Batch(NamedTuple):
    """A batch of documents and all that its E-step reads."""

    response: Expectation
    values: Values
    eta: jax.Array  # [K, C]
    prior: jax.Array  # [K, width]
    length: jax.Array  # [width]
    few: tuple[Any, Any]  # the documents and their responses
    beta: jax.Array  # [places, K, width]
    repeats: jax.Array
    first: jax.Array
    depth: jax.Array

    def expected(self, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        return self.response.terms(self.values, *self.few, mean.T, jnp.moveaxis(covariance, -1, 0))

    def evaluate(self, gamma: jax.Array, tilt: jax.Array, linear: jax.Array) -> _BatchState:
        """The bound at gamma and a tilt, with what follows from them."""
        eta, prior, length = self.eta, self.prior, self.length
        e_log_theta = expected_log_of(gamma)
        weighed = Weighed.of(e_log_theta + tilt)

        exact = growth(eta, length) if self.response.log_linear else None

        def place(n: jax.Array, carry: tuple) -> tuple:
            tokens, words, outer = carry
            product, scale = phi_at(self.beta[n], weighed)
            repeat = self.repeats[self.first + n]
            words = words + repeat * (weighed.top - jnp.log(scale))
            return (
                tokens + product * (scale * repeat),
                words,
                outer + repeat * of_word(eta, product, scale, length, exact),
            )

        width, size = gamma.shape[1], eta.shape[1]
        nothing = jnp.zeros_like(gamma), jnp.zeros(width), jnp.zeros((size, size, width))
        tokens, words, outer = jax.lax.fori_loop(0, self.depth, place, nothing)
        mean = eta.T @ tokens / length
        covariance = jnp.maximum(2 * outer, 0.0)
        if exact is None:
            covariance = no_less_than_rounding(jnp.einsum("kc,kw,ke->cew", eta, tokens, eta), outer) / length**2
        proportions = ((prior - gamma) * e_log_theta + gammaln(gamma)).sum(0) - gammaln(gamma.sum(0))
        constant = gammaln(prior.sum(0)) - gammaln(prior).sum(0)
        words = words - (tokens * tilt).sum(0)
        bound = words + proportions + constant + self.expected(mean, covariance)
        return _BatchState(gamma, tilt, linear, tokens, mean, covariance, bound)

    def step(self, e_tolerance: jax.Array, state: tuple) -> tuple:
        """Move gamma and the tilt of all documents that still move."""
        i, old, size, moving = state
        eta, length = self.eta, self.length
        slope, curve, bend = self.response.slopes(self.values, *self.few, old.mean, old.covariance)
        square = curve / length**2
        target = slope / length - 2 * jnp.einsum("cew,ew->cw", square, old.mean)
        move = against(jnp.einsum("cew,efw->cfw", bend, old.covariance), target - old.linear)
        linear = old.linear + move
        tilt = eta @ linear + jnp.einsum("kc,cew,ke->kw", eta, square, eta)
        gamma = old.gamma + size * (self.prior + old.tokens - old.gamma)
        new = self.evaluate(gamma, old.tilt + size * (tilt - old.tilt), old.linear + size * move)
        better = moving & (new.bound >= old.bound)
        gain = jnp.abs(new.bound - old.bound) > e_tolerance * jnp.abs(new.bound)
        kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), new, old)
        size = jnp.where(better, jnp.minimum(2 * size, 1.0), size / 2)
        return i + 1, kept, size, moving & (jnp.where(better, gain, size > SMALLEST_STEP))


def against(feedback: jax.Array, change: jax.Array) -> jax.Array:
    """(I - feedback)^-1 change of each document, [C, width]; feedback is [C, C, width]."""
    if len(change) == 1:
        return change / (1 - feedback[0])
    newton = jnp.eye(len(change)) - jnp.moveaxis(feedback, -1, 0)
    return jax.vmap(solve)(newton, change.T).T


def sums_of_words(
    pairs: PairBlocks, log_beta: jax.Array, weights: jax.Array, eta: jax.Array, lengths: jax.Array, *, exact: bool
) -> jax.Array:
    """The sum of :func:`of_word` over each document, [D, C, C], of phi at given log weights of topics [D, K]."""
    found = by_threads(_sums_of_shards, pairs.batches, pairs, log_beta, weights, eta, lengths, exact=exact)
    return by_document(found, pairs.batches)


@jitted(static_argnames=("exact",))
def _sums_of_shards(
    between: tuple, pairs: PairBlocks, log_beta: jax.Array, weights: jax.Array, eta: jax.Array, lengths: jax.Array,
    *, exact: bool,
) -> jax.Array:  # fmt: skip
    size = eta.shape[1]

    def one_shard(
        shard: tuple, log_beta: jax.Array, weights: jax.Array, eta: jax.Array, lengths: jax.Array
    ) -> jax.Array:
        terms, repeats, firsts, depths, rows_of, _ = shard
        terms, repeats = with_padding(terms, log_beta.shape[0]), with_padding(repeats, 0)
        beta_of_terms = out_of_logs(log_beta)

        def batch(b: jax.Array) -> jax.Array:
            weighed, length = Weighed.of(weights[rows_of[b]].T), lengths[rows_of[b]]
            grown = growth(eta, length) if exact else None

            def add(chunk: jax.Array, outer: jax.Array) -> jax.Array:
                beta = topics_of_terms(beta_of_terms, terms, firsts[b] + chunk * CHUNK)

                def place(i: jax.Array, outer: jax.Array) -> jax.Array:
                    repeat = repeats[firsts[b] + chunk * CHUNK + i]
                    return outer + repeat * of_word(eta, *phi_at(beta[i], weighed), length, grown)

                return jax.lax.fori_loop(0, jnp.minimum(depths[b] - chunk * CHUNK, CHUNK), place, outer)

            nothing = jnp.zeros((size, size, rows_of.shape[1]))
            outer = jax.lax.fori_loop(0, -(-depths[b] // CHUNK), add, nothing)
            return jnp.moveaxis(outer, -1, 0)

        return jax.lax.map(batch, jnp.arange(rows_of.shape[0]))

    return over_shards(one_shard, pairs.shards, (log_beta, weights, eta, lengths), between)


def sums_of_products(
    pairs: PairBlocks, log_beta: jax.Array, log_weight: jax.Array, of_document: jax.Array
) -> jax.Array:
    """sum_d of_document_d sum_n phi_dn phi_dn', [K, K]; phi is proportional to exp(log_weight_d) beta_w."""
    parts = pairs, log_beta, log_weight, of_document
    return by_threads(_products_of_shards, pairs.batches, *parts, deepest=pairs.deepest).sum(0)


@jitted(static_argnames=("deepest",))
def _products_of_shards(
    between: tuple,
    pairs: PairBlocks,
    log_beta: jax.Array,
    log_weight: jax.Array,
    of_document: jax.Array,
    *,
    deepest: int,
) -> jax.Array:
    """sum_d of_document_d sum_n phi_dn phi_dn' of each shard between two, [shards, K, K]; phi is proportional to
    exp(log_weight_d) beta_w."""
    num_topics = log_beta.shape[1]

    def one_shard(shard: tuple, log_beta: jax.Array, log_weight: jax.Array, of_document: jax.Array) -> jax.Array:
        terms, repeats, start, depths, rows_of, _ = shard
        terms, repeats = with_padding(terms, log_beta.shape[0]), with_padding(repeats, 0)
        beta_of_terms = out_of_logs(log_beta)

        def batch(b: jax.Array, carry: tuple) -> tuple:
            products, beta = carry
            rows, first, depth = rows_of[b], start[b], depths[b]
            beta = look_up(beta, beta_of_terms, terms, first, depth)
            weighed, factor = Weighed.of(log_weight[rows].T), jnp.tile(of_document[rows], CHUNK)

            def add(chunk: jax.Array, products: jax.Array) -> jax.Array:
                part = Chunk.of(beta, terms, repeats, (first, depth), chunk, weighed)
                return products + (part.counted * factor[:, None]).T @ part.phi

            return jax.lax.fori_loop(0, -(-depth // CHUNK), add, products), beta

        carry = jnp.zeros((num_topics, num_topics)), room(deepest, num_topics, rows_of.shape[1])
        return jax.lax.fori_loop(0, rows_of.shape[0], batch, carry)[0]

    return over_shards(one_shard, pairs.shards, (log_beta, log_weight, of_document), between)
