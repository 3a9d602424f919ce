"""What a fit expects of some documents at each posterior draw, for questions about the draws themselves.

``predict`` draws topics and responses anew, which is right for a predictive distribution. Whether chains agree is better
asked of E[y | words, draw]: it has no noise of its own that would hide how the chains move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from topiczoo.corpora import Corpus

from .folding import Folding, responses
from .prediction import plug_in
from .upstream import ClassPosterior, answers, label_above

if TYPE_CHECKING:
    from .fit import Fit

MOST_TRIALS = 2000  # of a class above the words, over all draws and chains: some seconds


class Expected(NamedTuple):
    """One response of some documents; the last axis is that of its parts, for a class the probabilities of each."""

    values: np.ndarray  # E[y | words, draw], [chain, draw, documents, parts]
    variance: np.ndarray  # of the response itself, what is not known of it and its noise, [documents, parts]
    of_classes: bool


def expected_responses(fit: Fit, corpus: Corpus, *, most_draws: int = 400, seed: int = 0) -> dict[str, Expected]:
    """E[y | words, draw] of every response, the documents' topics at their expectation given the words.

    At most ``most_draws`` a chain, evenly spaced; fewer where each class has to be tried at each draw. A response without a
    mean in closed form is drawn. Empty for a story without a response.
    """
    folding = Folding(fit, corpus)
    above = label_above(folding.reading, fit.sites)
    if not (responses(folding.reading) if above is None else answers(folding, above)):
        return {}
    if above is not None:
        classes = ClassPosterior(folding, above)
        affordable = MOST_TRIALS // (len(folding.chains) * len(classes.classes))
        most_draws = int(np.clip(affordable, 8, most_draws))
    else:
        respond = plug_in(folding, 1)

    def part(i: int, values: dict) -> dict[str, dict[str, Any]]:
        key = jax.random.fold_in(jax.random.key(seed), i)
        if above is not None:
            return classes.part(key, values, 1)
        return respond(key, *folding.expected_topics(folding.data, values), values)

    parts = [part(i, values) for i, values in enumerate(folding.points(most_draws))]
    return {name: _expected([part[name] for part in parts], len(folding.chains)) for name in parts[0]}


def _expected(parts: list[dict[str, Any]], num_chains: int) -> Expected:
    probabilities = parts[0].get("probabilities")
    of_classes = probabilities is not None and probabilities.ndim == 2
    means = np.stack([part["probabilities" if of_classes else "mean"] for part in parts]).astype(float)
    values = means.reshape(num_chains, -1, means.shape[1], int(np.prod(means.shape[2:])))
    if of_classes:
        share = values.mean((0, 1))
        return Expected(values, share * (1 - share), True)
    drawn = np.concatenate([part["draw"] for part in parts]).astype(float)
    return Expected(values, drawn.reshape(*drawn.shape[:2], -1).var(0), False)
