"""Few topics that stand in for all: coefficients whose predictions come nearest to the fit's own.

What is near is the response's to say. Two predictors of a yes-or-no response are near where they give the same
probabilities, in the Kullback-Leibler divergence of the story's own response (as in projection predictive selection;
Piironen & Vehtari 2017). Any other response takes the mean square between predictors, for a normal one the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from ..programs.compiling import jitted
from ..story.tracing import Values, ZbarHandler, base_distribution, run
from .fold_in import FoldIn

LogScore = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Of a predictor [documents]: how near it comes, the slope and the (negative) curvature of that, each [documents]."""

SMALL = 1e-6  # ridge in units of the mean curvature: a topic nobody uses keeps the coefficient it starts at
SETTLED = 1e-6  # Newton's steps end when a document's log_score gains less
MOST_STEPS, MOST_HALVINGS = 60, 30


def squared(target: np.ndarray) -> LogScore:
    """Minus half the square between a predictor and the target."""
    return lambda predictor: (-0.5 * (target - predictor) ** 2, target - predictor, np.ones_like(target))


def yes_or_no(fold: FoldIn, values: Values, theta: Any, draws: np.ndarray, zbar: np.ndarray) -> list[LogScore] | None:
    """For each output, minus the divergence from the probabilities of ``draws`` [draw, topics, ...] at ``zbar``.

    None where the response is not yes or no, has no probabilities (a hinge), or is not that of one ``zbar @ eta``.
    """
    graph, corpus = fold.graph, fold.corpus
    names = fold.responses
    values = {**values, graph.theta: theta}
    answer = ZbarHandler(jnp.asarray(zbar, jnp.float32))
    trace = run(graph.story, corpus, None, values, answer, prior=True)
    latent = {name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}
    if not answer.linear or len(answer.coefficients) != 1 or len(names) != 1 or latent - {*values, *names}:
        return None
    (name,), shape = names, (len(zbar), *draws.shape[2:])
    fn = base_distribution(trace[name]["fn"])
    if getattr(fn, "support", None) is not constraints.boolean or fn.batch_shape != shape:
        return None
    if not np.allclose(sum(np.exp(fn.log_prob(jnp.full(shape, told))) for told in (0.0, 1.0)), 1, atol=1e-3):
        return None

    def log_probability(data: tuple, predictor: jax.Array, yes: float) -> jax.Array:
        corpus, values = data
        trace = run(graph.story, corpus, None, values, ZbarHandler(predictors=[predictor]), prior=True)
        return base_distribution(trace[name]["fn"]).log_prob(jnp.full(shape, yes))

    @jitted
    def parts(data: tuple, predictor: jax.Array, share: jax.Array) -> tuple[jax.Array, ...]:
        def near(predictor: jax.Array) -> jax.Array:
            yes, no = (log_probability(data, predictor, told) for told in (1.0, 0.0))
            return jnp.where(share > 0, share * yes, 0.0) + jnp.where(share < 1, (1 - share) * no, 0.0)

        slope = jax.grad(lambda predictor: near(predictor).sum())
        return near(predictor), *jax.jvp(slope, (predictor,), (jnp.ones(shape),))

    data = corpus, values
    probability = jitted(lambda data, predictor: jnp.exp(log_probability(data, predictor, 1.0)))
    share = np.mean([probability(data, jnp.asarray(zbar @ eta, jnp.float32)) for eta in draws], axis=0)

    def of_output(place: tuple) -> LogScore:
        own = jnp.broadcast_to(share[(slice(None), *place)].reshape(-1, *[1] * len(place)), shape)

        def log_score(predictor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            wide = np.broadcast_to(predictor.reshape(-1, *[1] * len(place)), shape).astype(np.float32)
            near, slope, curve = (np.asarray(part, float)[(slice(None), *place)] for part in parts(data, wide, own))
            return near, slope, np.maximum(-curve, 0.0)

        return log_score

    return [of_output(place) for place in np.ndindex(*shape[1:])]


def project(
    zbar: np.ndarray, mean: np.ndarray, log_score: LogScore, intercept: bool, order: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest coefficients of 0, 1, ... topics: the order, coefficients [topics + 1, topics], log_score [topics + 1].

    Without an ``order`` each step adds the topic that promises the greatest gain (its score statistic). A coefficient starts
    at ``mean``. With an intercept, topics that are not among the first have one number in common in the place of 0.
    """
    num_documents, num_topics = zbar.shape
    first = int(intercept)
    columns = np.concatenate([np.ones((num_documents, first)), np.zeros((num_documents, num_topics))], 1)
    chosen: list[int] = []
    found, path, near = np.zeros(first), np.zeros((num_topics + 1, num_topics)), np.zeros(num_topics + 1)
    for size in range(num_topics + 1):
        inside = columns[:, : first + size]
        found = newton(inside, log_score, found)
        path[size, chosen] = found[first:]
        path[size] += found[:first].sum()
        value, slope, curve = log_score(inside @ found)
        near[size] = value.mean()
        if size < num_topics:
            after = int(_promise(zbar, inside, slope, curve, chosen).argmax()) if order is None else int(order[size])
            chosen.append(after)
            columns[:, first + size] = zbar[:, after]
            found = np.append(found, mean[after])
    return np.asarray(chosen, int), path, near


def newton(columns: np.ndarray, log_score: LogScore, start: np.ndarray) -> np.ndarray:
    """Newton's method with halved steps."""
    found = start
    for _ in range(MOST_STEPS if len(start) else 0):
        value, slope, curve = log_score(columns @ found)
        uphill, bend = columns.T @ slope, columns.T @ (curve[:, None] * columns)
        bend[np.diag_indices(len(found))] += SMALL * max(np.diag(bend).mean(), 1e-12)
        step = np.linalg.solve(bend, uphill)
        if uphill @ step < SETTLED * len(columns):
            break
        for _ in range(MOST_HALVINGS):
            if log_score(columns @ (found + step))[0].sum() >= value.sum():
                found = found + step
                break
            step = step / 2
        else:
            break
    return found


def _promise(
    zbar: np.ndarray, inside: np.ndarray, slope: np.ndarray, curve: np.ndarray, chosen: Sequence[int]
) -> np.ndarray:
    """The gain that a quadratic expects of each topic beside those inside, [topics]; -1 for those."""
    weighted = curve[:, None] * zbar
    own = (weighted * zbar).sum(0)
    left = own.copy()
    if inside.shape[1]:
        gram = inside.T @ (curve[:, None] * inside)
        gram[np.diag_indices(len(gram))] += SMALL * max(np.diag(gram).mean(), 1e-12)
        shared = inside.T @ weighted
        left -= (shared * np.linalg.solve(gram, shared)).sum(0)
    promise = (zbar.T @ slope) ** 2 / np.maximum(left, 1e-4 * max(own.max(), 1e-12))
    promise[list(chosen)] = -1.0
    return promise
