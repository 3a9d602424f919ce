"""Variational EM for words with any response of one linear predictor, all words of a document side by side.

The response enters the bound as F_d(m_d, v_d) = E[log p(y_d | x)], x the predictor eta . zbar_d with mean m_d and
covariance v_d under q, averaged over sigma points; nothing else of the story is known. q keeps, for each document, gamma
and a tilt of its topics' weights:

    phi_dw,k  proportional to  exp{ E[log theta_dk] + E[log beta_kw] + c_d . eta_k + eta_k' E_d eta_k }

so that all occurrences of a term share one phi, phi need not be stored, and an E-step costs little more than LDA's. The
bound is stationary at E = F_v / N^2 and c = F_m / N - 2 E m (equation 7, the word's own share of the mean taken at the
document's). c moves by Newton's step of that equation: raising c by dc raises m by N v dc, so the right-hand side by
F_mm v dc. A document whose bound would fall takes half the step, so the bound never does.

Equation numbers are those of Blei & McAuliffe (2007).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln

from topiczoo.corpora.layouts import documents

from .expectations import refuse
from .expectations_words import PairBlocks
from .marginal import sigma_points
from .reading import ZBAR, Answer, Reading, run, total

NODES = 9
SMALLEST_STEP = 1 / 64  # of a document's tilt; below it the document rests


class GlmResponse:
    """The observed sites below zbar, the coefficients eta, and the other parameters they read."""

    def __init__(self, reading: Reading, point: str) -> None:
        self.reading, self.map = reading, point == "map"
        for name in reading.below:
            if name in reading.latent:
                refuse(reading, name, "it is latent and depends on zbar")
            if reading.density_axis[name] is None:
                refuse(reading, name, "it has no axis of documents")
        first = reading.below[0]
        if not reading.linear or len(reading.predictor_shapes) != 1 or len(reading.predictor_shapes[0]) > 1:
            refuse(reading, first, "it uses zbar otherwise than through one zbar @ eta, eta [K] or [K, C]")
        reading.refuse_linked_documents()
        self.eta = self._coefficients(first)
        self.shape = reading.latent[self.eta].shape  # [K] or [K, C]
        read = set().union(*(reading.parents[name] for name in reading.below)) - {ZBAR}
        self.others = sorted((read & set(reading.latent)) - {self.eta})
        for name in self.others:
            if reading.latent[name].document_axis is not None or reading.latent[name].discrete:
                refuse(reading, name, "the response reads it and it belongs to documents or is discrete")
        self.sites = {*reading.below, self.eta, *self.others}
        self.data = documents(reading.corpus), jax.tree.map(jnp.asarray, reading.y)

    def _coefficients(self, response: str) -> str:
        reading, answer = self.reading, Answer(lambda theta: theta)
        trace = run(reading.story, reading.few_documents, reading.few_y, reading.few_values, answer)
        for name in reading.latent:
            if trace[name]["value"] is answer.coefficients[0]:
                return name
        refuse(reading, response, "the eta of its zbar @ eta is computed, not a site itself")

    def start(self) -> dict[str, jax.Array]:
        """eta on a grid, as in the paper's section 3; the rest at feasible values."""
        grid = np.linspace(-1, 1, self.shape[0])
        if len(self.shape) > 1:
            grid = np.stack([np.roll(grid, 7 * c) for c in range(self.shape[1])], 1)
        values = {name: self.reading.few_values[name] for name in self.others}
        return {self.eta: jnp.asarray(grid, jnp.float32), **values}

    def terms(self, values: dict, corpus: Any, y: Any, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        """F of each document, [D], at means [D, C] and covariances [D, C, C] of the predictor."""
        points, log_weights = sigma_points(mean, covariance, NODES)
        scalar = len(self.shape) == 1

        def at(point: jax.Array) -> jax.Array:
            answer = Answer(lambda theta: theta, [point[:, 0] if scalar else point])
            return self.reading.document_terms(self.reading.below, corpus, y, values, answer)

        return (jnp.exp(log_weights)[:, None] * jax.vmap(at)(points)).sum(0)

    def log_prior(self, values: dict) -> jax.Array:
        """log p of eta and the other parameters; nothing under maximum likelihood."""
        if not self.map:
            return jnp.zeros(())
        few = self.reading.few_documents, self.reading.few_y
        trace = run(self.reading.story, *few, values, Answer(lambda theta: theta))
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


def _phi(pairs: PairBlocks, log_beta: jax.Array, place: jax.Array, weights: jax.Array) -> tuple:
    """count * phi of the pairs at a place, [K, width], count * log of phi's normaliser, phi, and the terms."""
    term, count = pairs.blocks.terms[0, place], pairs.repeats[place]
    logits = weights + log_beta.at[term].get(mode="clip").T  # clip: padding
    top = logits.max(0)
    weight = jnp.exp(logits - top)
    mass = weight.sum(0)
    phi = weight / mass
    return phi * count, count * (top + jnp.log(mass)), phi, term


@partial(jax.jit, static_argnums=0)
def settle_glm(
    response: GlmResponse, data: tuple, pairs: PairBlocks, log_beta: jax.Array, alpha: jax.Array, values: dict,
    start: Settled, e_tolerance: float, e_iterations: int,
) -> tuple[Settled, jax.Array]:  # fmt: skip
    """The E-step from a given state, and expected counts [V, K]. ``alpha`` is [D, K], ``log_beta`` [V, K]."""
    blocks = pairs.blocks
    eta = values[response.eta].reshape(values[response.eta].shape[0], -1)  # [K, C]
    corpus, y = data

    def block(b: jax.Array, carry: tuple) -> tuple:
        counts, out = carry
        rows, first, depth = blocks.rows[0, b], blocks.start[0, b], blocks.depth[0, b]
        inside = blocks.lengths[0, b] > 0
        prior = alpha[rows].T
        length = jnp.maximum(corpus.lengths[rows], 1.0)
        few = corpus.take(rows), jax.tree.map(lambda leaf: leaf[rows], y)
        constant = gammaln(prior.sum(0)) - gammaln(prior).sum(0)

        def expected(mean: jax.Array, covariance: jax.Array) -> jax.Array:
            return response.terms(values, *few, mean.T, jnp.moveaxis(covariance, -1, 0))

        def summed(mean: jax.Array, covariance: jax.Array) -> jax.Array:
            return expected(mean, covariance).sum()

        def evaluate(gamma: jax.Array, tilt: jax.Array, linear: jax.Array) -> _Lanes:
            e_log_theta = digamma(gamma) - digamma(gamma.sum(0))

            def place(n: jax.Array, carry: tuple) -> tuple:
                tokens, words, outer = carry
                here, log_mass, phi, _ = _phi(pairs, log_beta, first + n, e_log_theta + tilt)
                mean = eta.T @ phi
                return tokens + here, words + log_mass, outer + (mean * pairs.repeats[first + n])[:, None] * mean

            width, size = gamma.shape[1], eta.shape[1]
            zero = jnp.zeros_like(gamma), jnp.zeros(width), jnp.zeros((size, size, width))
            tokens, words, outer = jax.lax.fori_loop(0, depth, place, zero)
            mean = eta.T @ tokens / length
            covariance = no_less_than_rounding(jnp.einsum("kc,kw,ke->cew", eta, tokens, eta), outer) / length**2
            proportions = ((prior - gamma) * e_log_theta + gammaln(gamma)).sum(0) - gammaln(gamma.sum(0))
            words = words - (tokens * tilt).sum(0)
            bound = words + proportions + constant + expected(mean, covariance)
            return _Lanes(gamma, tilt, linear, tokens, mean, covariance, bound)

        def step(state: tuple) -> tuple:
            i, old, size, moving = state
            slope, curve = jax.grad(summed, (0, 1))(old.mean, old.covariance)
            # F_mm [C, C, width]: a document's terms read no other's mean, so one direction a predictor gives it
            bend = jax.vmap(
                lambda direction: jax.jvp(
                    lambda mean: jax.grad(summed)(mean, old.covariance),
                    (old.mean,),
                    (jnp.broadcast_to(direction[:, None], old.mean.shape),),
                )[1]
            )(jnp.eye(eta.shape[1]))
            square = (curve + jnp.swapaxes(curve, 0, 1)) / 2 / length**2
            target = slope / length - 2 * jnp.einsum("cew,ew->cw", square, old.mean)
            newton = jnp.eye(eta.shape[1]) - jnp.einsum("cew,efw->wcf", bend, old.covariance)
            move = jnp.linalg.solve(newton, (target - old.linear).T[..., None])[..., 0].T
            linear = old.linear + move
            tilt = eta @ linear + jnp.einsum("kc,cew,ke->kw", eta, square, eta)
            new = evaluate(prior + old.tokens, old.tilt + size * (tilt - old.tilt), old.linear + size * move)
            better = moving & (new.bound >= old.bound)
            gain = jnp.abs(new.bound - old.bound) > e_tolerance * jnp.abs(new.bound)
            kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), new, old)
            size = jnp.where(better, jnp.minimum(2 * size, 1.0), size / 2)
            return i + 1, kept, size, moving & (jnp.where(better, gain, size > SMALLEST_STEP))

        lanes = evaluate(start.gamma[rows].T, start.tilt[rows].T, start.linear[rows].T)
        state = 0, lanes, jnp.ones(len(rows)), inside
        state = jax.lax.while_loop(lambda state: (state[0] < e_iterations) & state[3].any(), step, state)
        lanes = state[1]
        e_log_theta = digamma(lanes.gamma) - digamma(lanes.gamma.sum(0))
        weights = e_log_theta + lanes.tilt

        def add(n: jax.Array, counts: jax.Array) -> jax.Array:
            here, _, _, term = _phi(pairs, log_beta, first + n, weights)
            return counts.at[term].add(here.T)

        counts = jax.lax.fori_loop(0, depth, add, counts)
        settled = Settled(
            lanes.gamma.T, lanes.tilt.T, lanes.linear.T, lanes.tokens.T, lanes.mean.T,
            jnp.moveaxis(lanes.covariance, -1, 0), lanes.bound,
        )  # fmt: skip
        return counts, jax.tree.map(lambda whole, part: whole.at[b].set(part), out, settled)

    shape = blocks.rows.shape[1:]
    out = jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape[1:])), start)
    counts, out = jax.lax.fori_loop(0, shape[0], block, (jnp.zeros_like(log_beta), out))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[blocks.lane], out), counts


@jax.jit
def second_moments(
    pairs: PairBlocks, log_beta: jax.Array, weights: jax.Array, eta: jax.Array, weight: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Of phi at given log weights of topics [D, K]: sum_n (eta . phi_n)(eta . phi_n)' of each document, [D, C, C], and
    sum_d weight_d,ce sum_n phi_dn phi_dn' [C, C, K, K], for weights [D, C, C]."""
    blocks = pairs.blocks
    num_topics, size = eta.shape

    def block(b: jax.Array, carry: tuple) -> tuple:
        products, outers = carry
        rows, first = blocks.rows[0, b], blocks.start[0, b]
        here, scale = weights[rows].T, jnp.moveaxis(weight[rows], 0, -1)

        def place(n: jax.Array, carry: tuple) -> tuple:
            products, outer = carry
            counted, _, phi, _ = _phi(pairs, log_beta, first + n, here)
            mean = eta.T @ phi
            products = products + jnp.einsum("kw,cew,lw->cekl", counted, scale, phi)
            return products, outer + (mean * pairs.repeats[first + n])[:, None] * mean

        start = products, jnp.zeros((size, size, len(rows)))
        products, outer = jax.lax.fori_loop(0, blocks.depth[0, b], place, start)
        return products, outers.at[b].set(jnp.moveaxis(outer, -1, 0))

    shape = blocks.rows.shape[1:]
    carry = jnp.zeros((size, size, num_topics, num_topics)), jnp.zeros((*shape, size, size))
    products, outers = jax.lax.fori_loop(0, shape[0], block, carry)
    return outers.reshape(-1, size, size)[blocks.lane], products
