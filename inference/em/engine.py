"""Variational EM: for stories whose expectations are known in closed form, or nearly.

The engine reads the story and composes the components that it finds (:mod:`.components`): words as a bag or token by token,
topics that are Dirichlet or add up in log-space, a response that is smooth or a margin, a class that is observed or latent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus

from ..lasting.checkpoint import Checkpoint, opened
from ..mcmc.weighing import with_weight
from ..posterior.posterior import Posterior
from ..steps.words import fold_in
from ..story.bound import BoundGraph
from ..story.reading import read
from ..story.tracing import circumstances
from ..story.validation import check_counts, check_numbers, check_seed
from .components import Settings
from .courses import climb
from .loop import draw, means, stacked, together
from .margins import margins_of
from .model import EMModel

__all__ = ["fold_in", "vem"]

STARTS = 4  # of a margin: adding them up gains two to four points of accuracy (benchmarks/results.md)

# what a setting asks of the story, for those who set it where it would do nothing
ASKED = {
    "topics": "topics with a prior",
    "point": "a response with a density",
    "estimate_alpha": "proportions theta of each document",
    "e_tolerance": "proportions theta of each document",
    "e_iterations": "proportions theta of each document",
    "start": "a response of topics",
    "order": "a response of topics with a density",
    "expectation": "a response of topics with a density",
    "slack": "a margin",
    "guarded": "a margin without another response beside it",
    "start_variance": "sparse deviations of topics",
}


def vem(
    story: str | Callable,
    corpus: Corpus,
    y: Any = None,
    *,
    seed: int = 0,
    num_starts: int | None = None,
    topics: str = "dirichlet",
    point: str = "map",
    estimate_alpha: bool = False,
    start: str = "response",
    order: str = "parallel",
    expectation: str = "sigma points",
    slack: str = "n",
    guarded: bool = True,
    start_variance: float | None = None,
    response_weight: float = 1.0,
    num_iterations: int = 200,
    tolerance: float = 1e-4,
    e_tolerance: float = 1e-4,
    e_iterations: int = 20,
    num_draws: int = 200,
    checkpoint: str | Path | Checkpoint | None = None,
    progress_bar: bool = True,
    **arguments: Any,
) -> Posterior:
    """Fit a story by variational EM.

    Parameters
    ----------
    story, corpus, y, arguments
        The story or the name of one of the zoo, its documents and responses (NaN: unlabelled), and the story's own keyword
        arguments. A class that words are drawn from may be missing as well: it is then latent in these documents, and
        their words count.
    num_starts
        Independent starts, each a chain of the Fit: predictions are their mean, and the verdict says whether they agree.
        None: 4 with a margin, which has many optima that predict worse alone than together, and else 1.
    topics
        "dirichlet": topics have a variational Dirichlet posterior under the story's prior. "mle": topics are point
        estimates and their prior is left out, as in Blei & McAuliffe (2007).
    point
        "map": coefficients and noise are estimated under the story's priors. "mle": without them, as in the paper.
    estimate_alpha
        Fit theta's prior by Newton's method, one alpha a topic, once the topics have settled under the story's.
        A story may draw its alpha and gamma instead: they are then estimated under the story's priors of them.
    start
        Where topics start, for stories with a response. "response": at the words of documents ordered by their response.
        "uniform": all alike but for noise, as in the paper; what topics become is then left to the words.
    order
        "parallel": all words of a document at once, for any response of one ``zbar @ eta``; occurrences of a term share one
        phi. "sequential": token by token, exactly, for one normal response; several times slower.
    expectation
        How E[log p(y | zbar @ eta)] is found in the parallel order: by "sigma points", or by the paper's "delta" method, a
        second-order expansion, for comparison; it is no expectation, so the bound is none either.
    slack
        How the support vector machine of a margin is solved: "n", one document after the other, or "one", by cutting planes
        through all documents, in each iteration to a hundredth of the machine's objective, which is quicker.
    guarded
        Whether topics of documents with a margin move by steps that serve the objective. False: by the paper's whole step,
        which may raise it.
    start_variance
        Of the normal prior that sparse deviations start under before the story's own takes over. Under the Jeffreys prior,
        where 0 is absorbing, it decides how many end at 0: a smaller one leaves fewer away from it. None: 10 where labels
        tell which words are a component's, 0.3 where topics or labels are latent.
    response_weight
        The power of the response's likelihood, or of a margin's. 1 is variational EM; above 1 topics serve predictions. A
        tenth of the documents, 200 at the most, are held out: scales such as sigma are estimated from them alone, so that
        they do not fall to 0 with topics that follow the response, and predictions are calibrated by them
        (docs/weights.md).
    num_iterations, tolerance
        EM ends when the bound's relative change falls below ``tolerance``, or after so many iterations.
    e_iterations, e_tolerance
        The same for a document's part of the bound within one E-step.
    num_draws
        Draws from the approximate posterior; fewer where a site's would take more than 256 MB.
    checkpoint
        A folder for checkpoints, about one a minute: ``inference.resume(folder)``, or the same call again, goes on from the
        last one, and ends with what a run without a break gives, to the last bit (docs/lasting.md).

    The Fit's ``info`` holds "bound" (one number an iteration, the first before any M-step; of several starts the best
    one's), "converged" (all of them), "interrupted", "seconds", "starts" (the last bound of each), and "alpha" where it is
    common to all documents and starts.
    """
    _check_choice("topics", topics, ("dirichlet", "mle"))
    _check_choice("point", point, ("map", "mle"))
    _check_choice("start", start, ("response", "uniform"))
    _check_choice("order", order, ("parallel", "sequential"))
    _check_choice("expectation", expectation, ("sigma points", "delta"))
    _check_choice("slack", slack, ("n", "one"))
    check_seed(seed)
    check_counts(num_iterations=num_iterations, e_iterations=e_iterations, num_draws=num_draws)
    if num_starts is not None:
        check_counts(num_starts=num_starts)
    check_numbers(zero=True, tolerance=tolerance, e_tolerance=e_tolerance)
    if start_variance is not None:
        check_numbers(or_a=", or None", start_variance=start_variance)
    graph = read(story, corpus, y, arguments, latent_classes=True)
    weighed = with_weight(graph, response_weight)
    settings = Settings(
        topics,
        point,
        estimate_alpha,
        e_tolerance,
        e_iterations,
        start,
        order,
        expectation,
        slack,
        guarded,
        start_variance,
    )
    model = EMModel(weighed, settings)
    _refuse_unread(graph, settings, model.reads)
    if num_starts is None:
        num_starts = 1 if estimate_alpha or not margins_of(graph) else STARTS
    elif num_starts > 1 and estimate_alpha:
        raise ValueError(
            f"num_starts is {num_starts}, and estimate_alpha fits one alpha to one start; leave one of them out."
        )
    climbing = (num_iterations, tolerance, progress_bar)
    found = climb(model, graph, seed, num_starts, *climbing, opened(checkpoint, graph))
    info = together([info for _, _, info in found])
    info |= {"seed": seed, "response_weight": response_weight, "held_out": list(weighed.held_out), **circumstances()}
    info |= model.report(found[info["best"]][1])
    alphas = [state.alpha.reshape(-1, state.alpha.shape[-1]) for _, state, _ in found if state.alpha.size]
    if alphas and not np.ptp(rows := np.concatenate(alphas), axis=0).any():
        info["alpha"] = rows[0]
    laws = [(rng, model.q(state)) for rng, state, _ in found]
    draws = [draw(q, rng, num_draws, len(laws)) for rng, q in laws]
    mean = [means(q) for _, q in laws]
    return Posterior.of(graph, stacked(draws), engine="vem", info=info, means=stacked(mean))


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose from {', '.join(map(repr, choices))}.")


def _refuse_unread(graph: BoundGraph, settings: Settings, read: frozenset[str]) -> None:
    """Say no to what is set and would do nothing."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != field.default and field.name not in read:
            raise ValueError(
                f"{field.name} is {value!r}, which asks for {ASKED[field.name]}, and the story {graph.story.name!r} has "
                f"none; leave {field.name} out."
            )
