"""What a fit expects of some documents at each posterior draw, for questions about the draws themselves.

``predict`` draws topics and responses anew, which is right for a predictive distribution. Whether chains agree is better
asked of E[y | words, draw]: it has no noise of its own that would hide how the chains move.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from topiczoo.corpora import Corpus

from ..posterior.posterior import Posterior
from .class_posterior import ClassPosterior, answers, label_above
from .fold_in import FoldIn
from .responding import respond

MOST_TRIALS = 2000  # of a class above the words, over all draws and chains: some seconds


class Expected(NamedTuple):
    """One response of some documents; the last axis is that of its parts, for a class the probabilities of each."""

    values: np.ndarray  # E[y | words, draw], [chain, draw, documents, parts]
    variance: np.ndarray  # of the response itself, what is not known of it and its noise, [documents, parts]
    of_classes: bool


def expected_responses(fit: Posterior, corpus: Corpus, *, most_draws: int = 400, seed: int = 0) -> dict[str, Expected]:
    """E[y | words, draw] of every response, the documents' topics at their expectation given the words.

    At most ``most_draws`` a chain, evenly spaced; fewer where each class has to be tried at each draw. A response without a
    mean in closed form is drawn. Empty for a story without a response.
    """
    fold = FoldIn(fit, corpus)
    above = label_above(fold.graph, fit.sites)
    if not (fold.responses if above is None else answers(fold, above)):
        return {}
    key = jax.random.key(seed)
    if above is not None:
        classes = ClassPosterior(fold, above)
        most_draws = int(np.clip(MOST_TRIALS // (len(fold.chains) * len(classes.classes)), 8, most_draws))
        points = enumerate(fold.points(most_draws))
        found = [classes.part(jax.random.fold_in(key, i), values, 1) for i, values in points]
        parts = jax.tree.map(lambda *each: np.stack(each), *found)
    else:
        draws, compiled = fit.global_draws(most_draws), fold.compiled(_through_draws)
        found = [
            compiled(fold.data, jax.random.fold_in(key, chain), {name: value[chain] for name, value in draws.items()})
            for chain in fold.chains
        ]
        parts = jax.tree.map(lambda *each: np.concatenate(each), *found)
    return {name: _expected(part, len(fold.chains)) for name, part in parts.items()}


def _through_draws(fold: FoldIn, data: tuple, key: jax.Array, draws: dict[str, jax.Array]) -> dict[str, dict]:
    """The responses at all draws of a chain, one after the other: one program, so that documents travel to it once."""

    def one(drawn: tuple) -> dict[str, dict]:
        key, values = drawn
        zbar, given = fold.expected_topics(data[0], values)
        return respond(fold.graph, tuple(fold.responses), 1, key, data[0], zbar, given)

    return jax.lax.map(one, (jax.random.split(key, len(next(iter(draws.values())))), draws))


def _expected(part: dict[str, np.ndarray], num_chains: int) -> Expected:
    """Of one response what was found at all draws, chain after chain; draws have one repeat."""
    of_classes = part.get("probabilities", np.zeros(0)).ndim == 3
    means = np.asarray(part["probabilities" if of_classes else "mean"], float)
    values = means.reshape(num_chains, -1, means.shape[1], int(np.prod(means.shape[2:])))
    if of_classes:
        share = values.mean((0, 1))
        return Expected(values, share * (1 - share), True)
    drawn = np.asarray(part["draw"], float)[:, 0]
    return Expected(values, drawn.reshape(*drawn.shape[:2], -1).var(0), False)
