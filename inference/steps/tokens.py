"""The E-step for words with one normal response, token by token: y_d ~ N(eta . zbar_d + offset_d, scale_d^2).

Blei & McAuliffe (2007), equations 4-11. The response ties the words of a document together, so phi is updated token
by token in sequence (documents side by side), and distinct occurrences of a term have distinct phi.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.special import digamma, gammaln
from ..programs.compiling import jitted


class Tilt(NamedTuple):
    """The response as the E-step sees it; precision 0 means unlabelled."""

    eta: jax.Array  # [K]
    target: jax.Array  # [D] y less the offset
    precision: jax.Array  # [D] 1 / scale^2


def expected_response(
    eta: jax.Array, target: jax.Array, precision: jax.Array, length: jax.Array, total: jax.Array, squares: jax.Array
) -> jax.Array:
    """E[log p(y | zbar)], equations 4 and 5, for documents side by side, [D].

    ``total`` [K, D] is sum_n phi_n and ``squares`` [D] is sum_n (eta . phi_n)^2. Written with mean and variance of eta .
    zbar, which loses no digits: E[(y - eta . zbar)^2] = (y - eta . phibar)^2 + sum_n Var(eta_{z_n}) / N^2.
    """
    mean = eta @ total / length
    variance = jnp.maximum(eta**2 @ total - squares, 0.0) / length**2
    density = 0.5 * jnp.log(precision / (2 * jnp.pi)) - 0.5 * precision * ((target - mean) ** 2 + variance)
    return jnp.where(precision > 0, density, 0.0)


@jitted(donate_argnums=0)
def coordinate_ascent(
    phi: jax.Array,
    batches: PaddedBatches,
    log_beta: jax.Array,
    alpha: jax.Array,
    tokens: jax.Array,
    tilt: Tilt,
    e_tolerance: float,
    e_iterations: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The E-step: phi [places, K, width], its sums over each document [D, K], and of each document's bound the part
    of words and response [D].

    ``log_beta`` is [V, K], ``alpha`` [D, K], ``tokens`` the sums of the phi to start from. gamma is alpha plus these
    sums throughout (equation 6). A batch of documents is swept until every one's bound rises by less than
    ``e_tolerance`` of itself; those that do rest meanwhile.
    """
    terms = batches.terms[0]
    eta = tilt.eta[:, None]

    def batch(b: jax.Array, carry: tuple) -> tuple:
        phi, totals, parts = carry
        rows, lengths, first = batches.rows[0, b], batches.lengths[0, b], batches.start[0, b]
        prior, target, precision = alpha[rows].T, tilt.target[rows], tilt.precision[rows]
        length = jnp.maximum(lengths, 1).astype(jnp.float32)
        constant = gammaln(prior.sum(0)) - gammaln(prior).sum(0)

        def sweep(state: tuple) -> tuple:
            i, phi, total, bound, part, moving = state
            gamma = prior + total
            e_log_theta = digamma(gamma) - digamma(gamma.sum(0))

            def token(n: jax.Array, carry: tuple) -> tuple:
                phi, old, predictor, total, words, squares = carry
                log_beta_w = log_beta.at[terms[first + n]].get(mode="clip").T  # clip: padding
                others = predictor - (old * eta).sum(0)  # eta . phi_{-n}
                # (7), phi_{-n} being the other tokens as they stand now
                response = (precision / length) * ((target - others / length) * eta - eta**2 / (2 * length))
                logits = e_log_theta + log_beta_w + response
                top = logits.max(0)
                weight = jnp.exp(logits - top)
                mass = weight.sum(0)
                new = jnp.where((n < lengths) & moving, weight / mass, old)
                product = (new * eta).sum(0)
                # E[log p(w_n | z_n)] + H(q(z_n)), log phi being logits - top - log mass
                words += (new * (log_beta_w - logits)).sum(0) + new.sum(0) * (top + jnp.log(mass))
                phi = phi.at[first + n].set(new)
                # read ahead, after the write: XLA then updates phi in place instead of copying it for every token
                ahead = phi[first + n + 1]
                return phi, ahead, others + product, total + new, words, squares + product**2

            nothing = jnp.zeros_like(length)
            carry = phi, phi[first], tilt.eta @ total, jnp.zeros_like(total), nothing, nothing
            phi, _, _, fresh, words, squares = jax.lax.fori_loop(0, batches.depth[0, b], token, carry)
            # (2) at gamma = alpha + sum_n phi_n, where E[log p(theta)] + E[log p(z)] - E[log q(theta)] is a ratio of
            # normalisers
            gamma = prior + fresh
            words += expected_response(tilt.eta, target, precision, length, fresh, squares)
            new = words + gammaln(gamma).sum(0) - gammaln(gamma.sum(0)) + constant
            pairs = (fresh, total), (new, bound), (words, part)
            total, new, part = (jnp.where(moving, *pair) for pair in pairs)
            return i + 1, phi, total, new, part, moving & (jnp.abs(new - bound) > e_tolerance * jnp.abs(new))

        nothing = jnp.zeros_like(length)
        state = 0, phi, tokens[rows].T, nothing - jnp.inf, nothing, lengths > 0
        state = jax.lax.while_loop(lambda state: (state[0] < e_iterations) & state[5].any(), sweep, state)
        _, phi, total, _, part, _ = state
        return phi, totals.at[b].set(total.T), parts.at[b].set(part)

    shape = batches.rows.shape[1:]
    carry = phi, jnp.zeros((*shape, len(eta))), jnp.zeros(shape)
    phi, totals, parts = jax.lax.fori_loop(0, shape[0], batch, carry)
    return phi, totals.reshape(-1, len(eta))[batches.lane], parts.reshape(-1)[batches.lane]


@jitted(static_argnames="num_terms")
def token_sums(
    phi: jax.Array, batches: PaddedBatches, weight: jax.Array, num_terms: int
) -> tuple[jax.Array, jax.Array]:
    """Expected counts [V, K], the sums of equation 8, and sum_d weight_d sum_n phi_dn phi_dn' [K, K] for equation 5."""

    def batch(b: jax.Array, carry: tuple) -> tuple:
        in_lane = weight[batches.rows[0, b]]

        def place(n: jax.Array, carry: tuple) -> tuple:
            counts, products = carry
            here = phi[batches.start[0, b] + n]
            counts = counts.at[batches.terms[0, batches.start[0, b] + n]].add(here.T)
            return counts, products + (in_lane * here) @ here.T

        return jax.lax.fori_loop(0, batches.depth[0, b], place, carry)

    num_topics = phi.shape[1]
    carry = jnp.zeros((num_terms, num_topics)), jnp.zeros((num_topics, num_topics))
    return jax.lax.fori_loop(0, batches.rows.shape[1], batch, carry)


@jitted
def squared_products(phi: jax.Array, batches: PaddedBatches, eta: jax.Array) -> jax.Array:
    """sum_n (eta . phi_dn)^2 of each document, [D]."""

    def batch(b: jax.Array, totals: jax.Array) -> jax.Array:
        def place(n: jax.Array, total: jax.Array) -> jax.Array:
            return total + (eta @ phi[batches.start[0, b] + n]) ** 2

        total = jax.lax.fori_loop(0, batches.depth[0, b], place, jnp.zeros(totals.shape[1]))
        return totals.at[b].set(total)

    totals = jax.lax.fori_loop(0, batches.rows.shape[1], batch, jnp.zeros(batches.rows.shape[1:]))
    return totals.reshape(-1)[batches.lane]
