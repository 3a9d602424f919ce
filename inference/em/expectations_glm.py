"""Variational EM for words with any response of one linear predictor, all words of a document side by side.

The response enters the bound as F_d(m_d, v_d) = E[log p(y_d | x)], x the predictor eta . zbar_d with mean m_d and
covariance v_d under q, averaged over sigma points; nothing else of the story is known. For a normal response that is exact.
So it is where log p(y | x) = A x - B exp(x) + C, as for a Poisson response, if v_d is taken as 2 (log E[exp(x)] - m_d): the
expectation is a product over words, and exp(m + v / 2) is what sigma points make of it. The paper's delta method,
log p(y | m) + tr(v d^2 log p / dx^2) / 2, is there for comparison. q keeps, for each document, gamma and a tilt of its
topics' weights:

    phi_dw,k  proportional to  exp{ E[log theta_dk] + E[log beta_kw] + c_d . eta_k + eta_k' E_d eta_k }

so that all occurrences of a term share one phi, phi need not be stored, and an E-step costs little more than LDA's. The
bound is stationary at E = F_v / N^2 and c = F_m / N - 2 E m (equation 7, the word's own share of the mean taken at the
document's). c moves by Newton's step of that equation: raising c by dc raises m by N v dc, so the right-hand side by
F_mm v dc. A document whose bound would fall takes half the step, so the bound never does.

Equation numbers are those of Blei & McAuliffe (2007).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import documents

from ..kernels.sharding import by_threads, over_shards
from ..kernels.small_matrices import solve
from ..kernels.special import digamma, gammaln
from ..kernels.sweep import CHUNK, look_up, room, topics_of_terms, with_padding
from ..kernels.word_steps import Chunk, PairBlocks, Weighed, by_document, out_of_logs, phi_at
from ..marginal.model import sigma_points
from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.tracing import ZbarHandler, run, total
from .expectations import coefficients_site, refuse

NODES = 9
SMALLEST_STEP = 1 / 64  # of a document's tilt; below it the document rests


class GlmResponse:
    """The observed sites below zbar, the coefficients eta, and the other parameters they read."""

    def __init__(self, graph: BoundGraph, point: str, expectation: str = "sigma points") -> None:
        self.graph, self.map, self.delta = graph, point == "map", expectation == "delta"
        for name in graph.response_sites:
            if name in graph.latent:
                refuse(graph, name, "it is latent and depends on zbar")
            if graph.density_axis[name] is None:
                refuse(graph, name, "it has no axis of documents")
        first = graph.response_sites[0]
        if not graph.linear or len(graph.predictor_shapes) != 1 or len(graph.predictor_shapes[0]) > 1:
            refuse(graph, first, "it uses zbar otherwise than through one zbar @ eta, eta [K] or [K, C]")
        graph.refuse_linked_documents()
        self.eta = coefficients_site(graph, first)
        self.shape = graph.latent[self.eta].shape  # [K] or [K, C]
        read = set().union(*(graph.parents[name] for name in graph.response_sites)) - {ZBAR}
        self.others = sorted((read & set(graph.latent)) - {self.eta})
        for name in self.others:
            if graph.latent[name].document_axis is not None or graph.latent[name].discrete:
                refuse(graph, name, "the response reads it and it belongs to documents or is discrete")
        self.sites = {*graph.response_sites, self.eta, *self.others}
        self.data = documents(graph.corpus), jax.tree.map(jnp.asarray, graph.y)
        self.log_linear = not self.delta and len(self.shape) == 1 and self._is_log_linear()

    def _is_log_linear(self) -> bool:
        """Whether log p(y | x) = A x - B exp(x) + C: its third derivative is its second."""
        graph = self.graph

        def total_at(x: jax.Array) -> jax.Array:
            few = graph.few_documents, graph.few_y
            return graph.document_terms(graph.response_sites, *few, graph.few_values, ZbarHandler(predictors=[x])).sum()

        def derivative(function: Callable) -> Callable:
            return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]

        bend = derivative(jax.grad(total_at))
        places = jnp.asarray([[-1.5, 0.2, 0.9], [0.7, -0.4, 1.4]])
        second, third = (np.asarray(jax.jit(jax.vmap(f))(places)) for f in (bend, derivative(bend)))
        return bool((second <= 0).all() and second.min() < 0 and np.allclose(second, third, rtol=1e-4, atol=1e-6))

    def start(self) -> dict[str, jax.Array]:
        """eta on a grid, as in the paper's section 3; the rest at feasible values."""
        grid = np.linspace(-1, 1, self.shape[0])
        if len(self.shape) > 1:
            grid = np.stack([np.roll(grid, 7 * c) for c in range(self.shape[1])], 1)
        values = {name: self.graph.few_values[name] for name in self.others}
        return {self.eta: jnp.asarray(grid, jnp.float32), **values}

    def _at(self, values: dict, corpus: Any, y: Any, point: jax.Array) -> jax.Array:
        """log p(y | x) of each document, [D], at one predictor x of each, [D, C]."""
        answer = ZbarHandler(lambda theta: theta, [point[:, 0] if len(self.shape) == 1 else point])
        return self.graph.document_terms(self.graph.response_sites, corpus, y, values, answer)

    def terms(self, values: dict, corpus: Any, y: Any, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        """F of each document, [D], at means [D, C] and covariances [D, C, C] of the predictor."""
        at = partial(self._at, values, corpus, y)
        if self.delta:
            slope = jax.grad(lambda point: at(point).sum())

            def along(direction: jax.Array) -> jax.Array:
                return jax.jvp(slope, (mean,), (jnp.broadcast_to(direction, mean.shape),))[1]

            bend = jax.vmap(along, out_axes=1)(jnp.eye(mean.shape[1]))  # [D, C, C]
            return at(mean) + 0.5 * (bend * covariance).sum((1, 2))
        points, log_weights = sigma_points(mean, covariance, NODES)
        return (jnp.exp(log_weights)[:, None] * jax.vmap(at)(points)).sum(0)

    def slopes(self, values: dict, corpus: Any, y: Any, mean: jax.Array, covariance: jax.Array) -> tuple:
        """F_m [C, D], F_v [C, C, D] and F_mm [C, C, D] at means [C, D] and covariances [C, C, D], documents last.

        F_mm is for Newton's steps alone, which are guarded. With several predictors it is that of log p at the mean: over
        all sigma points it would take most of the E-step's time.
        """

        def expected(mean: jax.Array, covariance: jax.Array) -> jax.Array:
            return self.terms(values, corpus, y, mean.T, jnp.moveaxis(covariance, -1, 0)).sum()

        def bent(mean: jax.Array) -> jax.Array:
            return expected(mean, covariance) if len(mean) == 1 else self._at(values, corpus, y, mean.T).sum()

        def along(direction: jax.Array) -> jax.Array:
            return jax.jvp(jax.grad(bent), (mean,), (jnp.broadcast_to(direction[:, None], mean.shape),))[1]

        slope, curve = jax.grad(expected, (0, 1))(mean, covariance)
        bend = jax.vmap(along)(jnp.eye(len(mean)))  # one direction a predictor gives F_mm of all documents
        return slope, (curve + jnp.swapaxes(curve, 0, 1)) / 2, bend

    def log_prior(self, values: dict) -> jax.Array:
        """log p of eta and the other parameters; nothing under maximum likelihood."""
        if not self.map:
            return jnp.zeros(())
        few = self.graph.few_documents, self.graph.few_y
        trace = run(self.graph.story, *few, values, ZbarHandler(lambda theta: theta))
        return total(trace, [self.eta, *self.others])


class Settled(NamedTuple):
    """What the E-step leaves of each document."""

    gamma: jax.Array  # [D, K]
    tilt: jax.Array  # [D, K], of the topics' log weights
    linear: jax.Array  # [D, C], the c it came from
    tokens: jax.Array  # [D, K] sums of phi
    mean: jax.Array  # [D, C]
    covariance: jax.Array  # [D, C, C]
    bound: jax.Array  # [D]


class _Lanes(NamedTuple):
    """The same for a block of documents, topics first."""

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
    """What the M-step needs of phi, summed over all pairs, with F_v the response's slope in the predictor's covariance."""

    counts: jax.Array  # [V, K], the sums of equation 8
    products: jax.Array  # [C, K, K], sum_d F_v,cc / N^2 sum_n phi_n phi_n'
    pull: jax.Array  # [K, C], sum_d sum_n phi_n (F_v eta' phi_n)' / N^2


def settle_glm(
    response: GlmResponse, data: tuple, pairs: PairBlocks, log_beta: jax.Array, alpha: jax.Array, values: dict,
    start: Settled, limits: tuple,
) -> tuple[Settled, Sums]:  # fmt: skip
    """The E-step from a given state. ``alpha`` is [D, K], ``log_beta`` [V, K], ``limits`` are tolerance and iterations."""
    limits = jnp.float32(limits[0]), jnp.int32(limits[1])
    sums, out = by_threads(
        _settle_shards, pairs.batches, pairs, data, log_beta, alpha, values, start, limits,
        response=response, deepest=pairs.deepest,
    )  # fmt: skip
    sums = Sums(*(jnp.asarray(leaf.sum(0)) for leaf in sums))
    settled = Settled(*(by_document(leaf, pairs.batches) for leaf in out))
    return settled, sums._replace(counts=sums.counts[:-1])


@partial(jax.jit, static_argnames=("response", "deepest"))
def _settle_shards(
    between: tuple, pairs: PairBlocks, data: tuple, log_beta: jax.Array, alpha: jax.Array, values: dict, start: Settled,
    limits: tuple, *, response: GlmResponse, deepest: int,
) -> tuple[Sums, Settled]:  # fmt: skip
    """The same for the shards between two: their sums, and what documents end with in their lanes."""

    def one_shard(
        shard: tuple, log_beta: jax.Array, alpha: jax.Array, values: dict, begin: Settled, rest: tuple
    ) -> tuple:
        terms, repeats, firsts, depths, rows_of, lengths_of = shard
        terms, repeats = with_padding(terms, log_beta.shape[0]), with_padding(repeats, 0)
        (corpus, y), (e_tolerance, e_iterations) = rest
        beta_of_terms = out_of_logs(log_beta)
        eta = values[response.eta].reshape(log_beta.shape[1], -1)  # [K, C]
        num_topics, size = eta.shape

        def block(b: jax.Array, carry: tuple) -> tuple:
            sums, out, beta = carry
            rows, first, depth = rows_of[b], firsts[b], depths[b]
            beta = look_up(beta, beta_of_terms, terms, first, depth)
            few = corpus.take(rows), jax.tree.map(lambda leaf: leaf[rows], y)
            length = jnp.maximum(few[0].lengths, 1.0)
            lanes = _Block(response, values, eta, alpha[rows].T, length, few, beta, repeats, first, depth)
            at = lanes.evaluate(begin.gamma[rows].T, begin.tilt[rows].T, begin.linear[rows].T)
            state = 0, at, jnp.ones(len(rows)), lengths_of[b] > 0
            state = jax.lax.while_loop(
                lambda state: (state[0] < e_iterations) & state[3].any(), partial(lanes.step, e_tolerance), state
            )
            at = state[1]
            weighed = Weighed.of(expected_log_of(at.gamma) + at.tilt)
            curve = response.slopes(values, *few, at.mean, at.covariance)[1] / length**2

            def add(chunk: jax.Array, sums: Sums) -> Sums:
                part = Chunk.of(beta, terms, repeats, (first, depth), chunk, weighed)
                products, pull = sums_of(part, curve, eta)
                return Sums(part.add(sums.counts), sums.products + products, sums.pull + pull)

            sums = jax.lax.fori_loop(0, -(-depth // CHUNK), add, sums)
            settled = Settled(
                at.gamma.T, at.tilt.T, at.linear.T, at.tokens.T, at.mean.T, jnp.moveaxis(at.covariance, -1, 0), at.bound
            )
            return sums, jax.tree.map(lambda whole, part: whole.at[b].set(part), out, settled), beta

        out = jax.tree.map(lambda leaf: jnp.zeros((*rows_of.shape, *leaf.shape[1:])), begin)
        sums = Sums(jnp.zeros_like(beta_of_terms), jnp.zeros((size, num_topics, num_topics)), jnp.zeros_like(eta))
        buffer = room(deepest, num_topics, rows_of.shape[1])
        return jax.lax.fori_loop(0, rows_of.shape[0], block, (sums, out, buffer))[:2]

    return over_shards(one_shard, pairs.shards, (log_beta, alpha, values, start, (data, limits)), between)


def sums_of(part: Chunk, curve: jax.Array, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What the pairs of a chunk add to ``products`` and ``pull`` of :class:`Sums`; ``curve`` is F_v / N^2, [C, C, width]."""
    if len(curve) == 1:
        weighed = part.counted * jnp.tile(curve[0, 0], CHUNK)[:, None]
        return (weighed.T @ part.phi)[None], weighed.T @ (part.phi @ eta)
    counted, phi = (pairs.reshape(CHUNK, -1, pairs.shape[1]) for pairs in (part.counted, part.phi))
    own = jnp.einsum("nwk,nwl->wkl", counted, phi)  # of each document, for all its predictors
    return jnp.einsum("wc,wkl->ckl", jnp.diagonal(curve), own), jnp.einsum("wkl,le,cew->kc", own, eta, curve)


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


class _Block(NamedTuple):
    """A block of documents and all that its E-step reads."""

    response: GlmResponse
    values: dict
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

    def evaluate(self, gamma: jax.Array, tilt: jax.Array, linear: jax.Array) -> _Lanes:
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
        covariance = 2 * outer
        if exact is None:
            covariance = no_less_than_rounding(jnp.einsum("kc,kw,ke->cew", eta, tokens, eta), outer) / length**2
        proportions = ((prior - gamma) * e_log_theta + gammaln(gamma)).sum(0) - gammaln(gamma.sum(0))
        constant = gammaln(prior.sum(0)) - gammaln(prior).sum(0)
        words = words - (tokens * tilt).sum(0)
        bound = words + proportions + constant + self.expected(mean, covariance)
        return _Lanes(gamma, tilt, linear, tokens, mean, covariance, bound)

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
        new = self.evaluate(self.prior + old.tokens, old.tilt + size * (tilt - old.tilt), old.linear + size * move)
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


@partial(jax.jit, static_argnames=("exact",))
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

        def block(b: jax.Array) -> jax.Array:
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

        return jax.lax.map(block, jnp.arange(rows_of.shape[0]))

    return over_shards(one_shard, pairs.shards, (log_beta, weights, eta, lengths), between)
