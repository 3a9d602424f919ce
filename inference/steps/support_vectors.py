"""Support vector machines with their duals: the best coefficients under a margin, and what each document pulls.

With features x_d [K], coefficients lambda [K, C], prior variances V [K, C] and a loss l_d of the scores lambda' x_d,

    primal  sum lambda^2 / (2 V) + sum_d l_d(lambda' x_d)
    dual    -sum V (X'A)^2 / 2 - sum_d l*_d(a_d),    lambda = -V X'A

where a_d [C] is a subgradient of document d's loss at the optimum. A loss is known by four functions: its value, a
subgradient, its conjugate l*, and the proximal step of that, argmin_a q |a - v|^2 / 2 + l*(a). It is scaled by ``weight``.

Two ways to the same optimum: n-slack, coordinate ascent in the a_d one document after the other (Hsieh et al. 2008; Keerthi
et al. 2008), and 1-slack, a cutting plane through all documents at a time (Joachims et al. 2009; Teo et al. 2010).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..programs.compiling import jitted

GAP = 1e-4  # of the primal: where a solution is good enough
LOOSE_GAP = 1e-2  # and where it is for a turn of EM by cutting planes, which come near soon and nearer late
MOST_EPOCHS, MOST_CUTS, MOST_MOVES = 200, 150, 500


class Loss(NamedTuple):
    """A loss of scores [..., C] given targets; functions are of (scores or duals, targets [...], parameters)."""

    value: Callable  # [...]
    subgradient: Callable  # [..., C]
    conjugate: Callable  # of duals inside its domain, [...]
    prox: Callable  # (v, q, targets, parameters) -> duals


class Solution(NamedTuple):
    """Coefficients and duals, the primal's value there, and how far the dual's lies below."""

    coefficients: np.ndarray  # [K, C]
    duals: np.ndarray  # [D, C]
    primal: float
    gap: float
    steps: int  # epochs, or cuts


def _hinge_signs(scores: jax.Array, target: jax.Array) -> jax.Array:
    """1 where the class is the target and -1 elsewhere; of one score, 1 for target 1."""
    if scores.shape[-1] == 1:
        return 2.0 * target[..., None] - 1
    return jnp.where(jnp.arange(scores.shape[-1]) == target[..., None], 1.0, -1.0)


def _hinges(scores: jax.Array, target: jax.Array, cost: jax.Array) -> jax.Array:
    return cost - _hinge_signs(scores, target) * scores


HINGES = Loss(  # one hinge a score: two classes with one score, or one against all
    lambda f, y, p: p["weight"] * jnp.maximum(0.0, _hinges(f, y, p["cost"])).sum(-1),
    lambda f, y, p: jnp.where(_hinges(f, y, p["cost"]) > 0, -p["weight"] * _hinge_signs(f, y), 0.0),
    lambda a, y, p: p["cost"] * (_hinge_signs(a, y) * a).sum(-1),
    lambda v, q, y, p: -_hinge_signs(v, y) * jnp.clip(p["cost"] / q - _hinge_signs(v, y) * v, 0.0, p["weight"]),
)


def _violations(scores: jax.Array, target: jax.Array, cost: jax.Array) -> jax.Array:
    """cost [c is not y] + score_c - score_y, [..., C]."""
    away = (jnp.arange(scores.shape[-1]) != target[..., None]).astype(scores.dtype)
    return cost * away + scores - jnp.take_along_axis(scores, target[..., None], -1)


def _worst(scores: jax.Array, target: jax.Array, cost: jax.Array) -> jax.Array:
    return jax.nn.one_hot(_violations(scores, target, cost).argmax(-1), scores.shape[-1])


def _onto_simplex(v: jax.Array, size: jax.Array) -> jax.Array:
    """The nearest point of {b >= 0, sum b = size} (Held, Wolfe & Crowder 1974)."""
    falling = -jnp.sort(-v, -1)
    above = (jnp.cumsum(falling, -1) - size) / jnp.arange(1, v.shape[-1] + 1)
    last = (falling > above).sum(-1, keepdims=True) - 1
    return jnp.maximum(v - jnp.take_along_axis(above, last, -1), 0.0)


def _crammer_singer_prox(v: jax.Array, q: jax.Array, target: jax.Array, p: dict) -> jax.Array:
    own = jax.nn.one_hot(target, v.shape[-1])
    return _onto_simplex(v + p["weight"] * own + p["cost"] / q * (1 - own), p["weight"]) - p["weight"] * own


CRAMMER_SINGER = Loss(
    lambda f, y, p: p["weight"] * _violations(f, y, p["cost"]).max(-1),
    lambda f, y, p: p["weight"] * (_worst(f, y, p["cost"]) - jax.nn.one_hot(y, f.shape[-1])),
    lambda a, y, p: -p["cost"] * jnp.where(jnp.arange(a.shape[-1]) == y[..., None], 0.0, a).sum(-1),
    _crammer_singer_prox,
)


def _tube_prox(v: jax.Array, q: jax.Array, y: jax.Array, p: dict) -> jax.Array:
    shifted = v - y[..., None] / q
    shrunk = jnp.sign(shifted) * jnp.maximum(jnp.abs(shifted) - p["epsilon"] / q, 0.0)
    return jnp.clip(shrunk, -p["weight"], p["weight"])


def _beyond(f: jax.Array, y: jax.Array, p: dict) -> jax.Array:
    return jnp.abs(f[..., 0] - y) - p["epsilon"]


TUBE = Loss(
    lambda f, y, p: p["weight"] * jnp.maximum(0.0, _beyond(f, y, p)),
    lambda f, y, p: p["weight"] * jnp.where(_beyond(f, y, p) > 0, jnp.sign(f[..., 0] - y), 0.0)[..., None],
    lambda a, y, p: a[..., 0] * y + p["epsilon"] * jnp.abs(a[..., 0]),
    _tube_prox,
)


@jitted(static_argnames="loss")
def _epoch(
    loss: Loss, key: jax.Array, duals: jax.Array, coefficients: jax.Array, x: jax.Array, y: jax.Array, variance: jax.Array,
    parameters: dict,
) -> tuple:  # fmt: skip
    """Every document's duals once, in random order; then the primal, the dual and both variables."""
    order = jax.random.permutation(key, len(x))
    curvature = jnp.maximum((x**2 @ variance).max(-1), 1e-12)  # of the dual in a_d, at the most

    def one(coefficients: jax.Array, document: tuple) -> tuple[jax.Array, jax.Array]:
        row, target, old, q = document
        new = loss.prox(old + row @ coefficients / q, q, target, parameters)
        return coefficients - variance * jnp.outer(row, new - old), new

    # a scan over documents laid out in the order of their turns: XLA would copy all duals for each that is changed in place
    in_turn = jax.tree.map(lambda part: part[order], (x, y, duals, curvature))
    _, moved = jax.lax.scan(one, coefficients, in_turn)
    duals = duals.at[order].set(moved)
    coefficients = -variance * (x.T @ duals)  # anew: rounding adds up
    half, lost = (coefficients**2 / variance).sum() / 2, loss.value(x @ coefficients, y, parameters).sum()
    return duals, coefficients, half + lost, -half - loss.conjugate(duals, y, parameters).sum()


def n_slack(
    loss: Loss, x: np.ndarray, y: np.ndarray, variance: np.ndarray, parameters: dict, start: np.ndarray | None = None,
    *, seed: int = 0, gap: float = GAP,
) -> Solution:  # fmt: skip
    """Dual coordinate ascent until the gap is small."""
    features, spread = jnp.asarray(x, jnp.float32), jnp.asarray(variance, jnp.float32)
    duals = jnp.zeros((len(x), variance.shape[1])) if start is None else jnp.asarray(start, jnp.float32)
    coefficients, problem = -spread * (features.T @ duals), (features, jnp.asarray(y), spread, parameters)
    keys = jax.random.split(jax.random.key(seed), MOST_EPOCHS)
    for epoch, key in enumerate(keys, 1):
        duals, coefficients, primal, dual = _epoch(loss, key, duals, coefficients, *problem)
        if primal - dual <= gap * abs(primal) or epoch == MOST_EPOCHS:
            break
    return Solution(np.asarray(coefficients), np.asarray(duals), float(primal), float(primal - dual), epoch)


@jitted(static_argnames="loss")
def _cut(loss: Loss, coefficients: jax.Array, x: jax.Array, y: jax.Array, parameters: dict) -> tuple:
    """The total loss, its duals, their sum X'A and the plane's height at 0."""
    scores = x @ coefficients
    duals = loss.subgradient(scores, y, parameters)
    total, slope = loss.value(scores, y, parameters).sum(), x.T @ duals
    return total, duals, slope, total - (slope * coefficients).sum()


def one_slack(
    loss: Loss, x: np.ndarray, y: np.ndarray, variance: np.ndarray, parameters: dict, start: np.ndarray | None = None,
    *, first: np.ndarray | None = None, gap: float = GAP,
) -> Solution:  # fmt: skip
    """Cutting planes: the loss of all documents is bounded from below by a plane at each place tried.

    Any duals are such a plane, those to ``start`` with too: its height at 0 does not depend on features, so that duals found
    under others, as of a machine solved before topics moved, still cut. ``first`` are coefficients to try first; the
    solution is at least as good as they are.
    """
    features, targets = jnp.asarray(x, jnp.float32), jnp.asarray(y)
    spread, shape = np.ravel(variance), variance.shape
    duals = [np.zeros((len(x), shape[1]), np.float32)]
    slopes, heights = [np.zeros(variance.size)], [0.0]
    if start is not None:
        duals.append(np.asarray(start, np.float32))
        slopes.append(np.asarray(features.T @ duals[1], float).ravel())
        heights.append(-float(loss.conjugate(jnp.asarray(duals[1]), targets, parameters).sum()))
    shares, upper, best = np.eye(len(slopes))[-1], np.inf, np.zeros(shape)
    coefficients = -(spread * slopes[-1]).reshape(shape) if first is None else first
    while True:
        total, own, slope, height = _cut(loss, jnp.asarray(coefficients, jnp.float32), features, targets, parameters)
        primal = float((coefficients**2 / variance).sum() / 2 + total)
        if primal < upper:
            upper, best = primal, coefficients
        slopes.append(np.asarray(slope, float).ravel())
        heights.append(float(height))
        duals.append(np.asarray(own))
        planes, offsets = np.array(slopes), np.array(heights)
        gram = (planes * spread) @ planes.T
        shares = _best_shares(gram, offsets, np.append(shares, 0.0))
        coefficients = -(spread * (shares @ planes)).reshape(shape)
        lower = float(shares @ offsets - shares @ gram @ shares / 2)
        if upper - lower <= gap * abs(upper) or len(slopes) > MOST_CUTS:
            break
    return Solution(best, np.tensordot(shares, np.array(duals), 1), upper, upper - lower, len(slopes) - 1)


def _best_shares(gram: np.ndarray, offsets: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """max shares . offsets - shares' gram shares / 2 over the simplex: weight moves from the worst cut to the best."""
    slope = offsets - gram @ shares
    for _ in range(MOST_MOVES):
        held = np.where(shares > 0, slope, np.inf)
        up, down = int(slope.argmax()), int(held.argmin())
        gain = slope[up] - slope[down]
        if gain <= 1e-7 * max(1.0, abs(offsets).max()):
            break
        curve = max(gram[up, up] - 2 * gram[up, down] + gram[down, down], 1e-12)
        step = min(gain / curve, shares[down])
        shares[up] += step
        shares[down] = 0.0 if step == shares[down] else shares[down] - step
        slope -= step * (gram[:, up] - gram[:, down])
    return shares


def residual(loss: Loss, solution: Solution, x: np.ndarray, y: np.ndarray, parameters: dict) -> float:
    """How far the duals are from optimal (KKT): 0 where each is a subgradient of its document's loss at the coefficients."""
    scores = jnp.asarray(x, jnp.float32) @ jnp.asarray(solution.coefficients, jnp.float32)
    moved = loss.prox(jnp.asarray(solution.duals) + scores, jnp.float32(1.0), jnp.asarray(y), parameters)
    return float(jnp.abs(moved - solution.duals).max())


def support_vectors(loss: Loss, duals: np.ndarray, y: np.ndarray, parameters: dict) -> int:
    """Documents (with a class, where there are several) whose dual is not 0; a document's own class counts for nothing."""
    held = np.abs(duals) > 1e-6 * float(parameters["weight"])
    if loss is CRAMMER_SINGER:
        held[np.arange(len(y)), y] = False
    return int(held.sum())
