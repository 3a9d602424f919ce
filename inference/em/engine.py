"""Variational EM: for stories whose expectations are known in closed form.

The engine reads the story and takes the form that fits:

* words alone: a Dirichlet theta for each document, Dirichlet topics (:mod:`.expectations_words`);
* the same with topics of a label, which is observed or latent (:mod:`.expectations_labels`);
* words and any response of one ``zbar @ eta`` (:mod:`.expectations_general`), or token by token for a normal one with mean
  ``zbar @ eta`` (:mod:`.expectations_normal`);
* words and a margin of ``zbar @ eta`` (:mod:`.expectations_margin`), with a normal response beside it
  (:mod:`.expectations_margin_normal`);
* one discrete z a document and Dirichlet sites (:mod:`.expectations_enumerated`);
* one observed class a document and components that add up in log-space (:mod:`.expectations_additive`); such components also
  stand in the place of Dirichlet topics in all other forms.

A form has ``start(rng)``, ``expect(state, fresh)`` (the E-step), ``maximise(state, fresh)`` (the M-step),
``bound(state)`` and ``marginals(state)``. One whose mathematics does not promise a rising bound says ``monotone = False``,
one whose E-step has nothing to start afresh ``afresh = False``.

An E-step that starts where the last one ended can only raise the bound, but keeps documents with the topics they
first took: from uniform topics it ends several percent lower than E-steps that start afresh. So E-steps start afresh
until the bound rests or a fresh one would let it fall, and from then on where the last one ended, until it rests again.
alpha is estimated only then: while topics are still alike, all documents look alike, and alpha would run away.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from tqdm.auto import tqdm

from topiczoo.corpora import Corpus

from ..kernels.word_steps import fold_in
from ..posterior.posterior import Posterior
from ..story.bound import BoundGraph
from ..story.graph import LABEL
from ..story.reading import read
from ..story.tracing import circumstances
from ..story.validation import check_counts, check_numbers, check_seed
from .expectations import Marginals, Settings
from .expectations_additive import Bags, has_sparse_prior
from .expectations_enumerated import Enumerated
from .expectations_general import GlmWords
from .expectations_labels import LatentLabels
from .expectations_margin import MarginWords, is_margin
from .expectations_margin_normal import MarginNormalWords
from .expectations_normal import NormalWords
from .expectations_words import Words

__all__ = ["fold_in", "vem"]

LARGEST_SITE = 2**28  # bytes: the draws of the largest site stay below
FRESH = 10  # E-steps that start afresh at least: nearly equal topics rise slowly at first
ROUNDING = 1e-6  # relative fall of the bound that float32 explains


class Form(Protocol):
    """What the loop below asks of a form of story."""

    def start(self, rng: np.random.Generator) -> Any: ...
    def expect(self, state: Any, fresh: bool) -> Any: ...
    def maximise(self, state: Any, fresh: bool) -> Any: ...
    def bound(self, state: Any) -> float: ...
    def marginals(self, state: Any) -> Marginals: ...


def vem(
    story: str | Callable,
    corpus: Corpus,
    y: Any = None,
    *,
    seed: int = 0,
    topics: str = "dirichlet",
    point: str = "map",
    estimate_alpha: bool = False,
    start: str = "response",
    order: str = "parallel",
    expectation: str = "sigma points",
    slack: str = "n",
    guarded: bool = True,
    start_variance: float | None = None,
    num_iterations: int = 200,
    tolerance: float = 1e-4,
    e_tolerance: float = 1e-4,
    e_iterations: int = 20,
    num_draws: int = 200,
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
    topics
        "dirichlet": topics have a variational Dirichlet posterior under the story's prior. "mle": topics are point
        estimates and their prior is left out, as in Blei & McAuliffe (2007).
    point
        "map": coefficients and noise are estimated under the story's priors. "mle": without them, as in the paper.
    estimate_alpha
        Fit theta's prior by Newton's method, one alpha a topic, once the topics have settled under the story's.
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
    num_iterations, tolerance
        EM ends when the bound's relative change falls below ``tolerance``, or after so many iterations.
    e_iterations, e_tolerance
        The same for a document's part of the bound within one E-step.
    num_draws
        Draws from the approximate posterior; fewer where a site's would take more than 256 MB.

    The Fit's ``info`` holds "bound" (one number an iteration, the first before any M-step), "converged",
    "interrupted", "seconds", and "alpha" where it is common to all documents.
    """
    _check_choice("topics", topics, ("dirichlet", "mle"))
    _check_choice("point", point, ("map", "mle"))
    _check_choice("start", start, ("response", "uniform"))
    _check_choice("order", order, ("parallel", "sequential"))
    _check_choice("expectation", expectation, ("sigma points", "delta"))
    _check_choice("slack", slack, ("n", "one"))
    check_seed(seed)
    check_counts(num_iterations=num_iterations, e_iterations=e_iterations, num_draws=num_draws)
    check_numbers(zero=True, tolerance=tolerance, e_tolerance=e_tolerance)
    if start_variance is not None:
        check_numbers(or_a=", or None", start_variance=start_variance)
    graph = read(story, corpus, y, arguments, latent_classes=True)
    settings = Settings(
        topics, point, estimate_alpha, e_tolerance, e_iterations, start, expectation, slack, guarded, start_variance
    )
    form = form_of(graph, settings, order)
    rng = np.random.default_rng(seed)
    state, info = _ascend(form, form.start(rng), graph, num_iterations, tolerance, progress_bar)
    info |= {"seed": seed, **circumstances()}
    info |= form.report(state) if hasattr(form, "report") else {}
    alpha = getattr(state, "alpha", None)
    if alpha is not None and not (alpha.ndim == 2 and np.ptp(alpha, axis=0).any()):
        info["alpha"] = alpha if alpha.ndim == 1 else alpha[0]
    marginals = form.marginals(state)
    means = {name: _share(value)[None] for name, value in marginals.dirichlet.items()}
    means.update({name: value[None] for name, value in marginals.point.items()})
    means.update({name: mean[None] for name, (mean, _) in marginals.normal.items()})
    return Posterior.of(
        graph, _draw(marginals, rng, num_draws), engine="vem", info=info,
        means={name: np.asarray(value, np.float32) for name, value in means.items()},
    )  # fmt: skip


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose from {', '.join(map(repr, choices))}.")


def form_of(graph: BoundGraph, settings: Settings, order: str) -> Form:
    """The form that serves a story."""
    if not graph.has_words:
        latent = graph.latent.values()
        if not any(site.discrete for site in latent) and any(has_sparse_prior(graph, site.name) for site in latent):
            return Bags(graph, settings)
        return Enumerated(graph, settings)
    if not graph.response_sites:
        return (LatentLabels if graph.parents.get(LABEL) else Words)(graph, settings)
    if is_margin(graph):
        return (MarginWords if len(graph.response_sites) == 1 else MarginNormalWords)(graph, settings)
    return NormalWords(graph, settings) if order == "sequential" else GlmWords(graph, settings)


def _ascend(
    form: Form, state: Any, graph: BoundGraph, num_iterations: int, tolerance: float, progress_bar: bool
) -> tuple[Any, dict[str, Any]]:
    """E-steps and M-steps in turn until the bound rests."""
    began, fresh = time.perf_counter(), getattr(form, "afresh", True)
    bounds: list[float] = []
    info: dict[str, Any] = {"bound": bounds, "converged": False, "interrupted": False}
    monotone = getattr(form, "monotone", True)
    with tqdm(total=num_iterations, desc="EM", disable=not progress_bar) as bar:
        state = form.expect(state, fresh=True)
        bounds.append(_finite(form, state, graph))
        try:
            for i in range(1, num_iterations + 1):
                moved, was_fresh = form.maximise(state, fresh), fresh
                new = form.expect(moved, fresh=fresh)
                bound = _finite(form, new, graph)
                if fresh and bound - bounds[-1] < -ROUNDING * abs(bounds[-1]):
                    fresh, new = False, form.expect(moved, fresh=False)
                    bound = _finite(form, new, graph)
                rise = (bound - bounds[-1]) / abs(bounds[-1])
                fresh = fresh and not (i >= FRESH and rise < tolerance)
                if monotone and rise < -ROUNDING:
                    info["warning"] = f"the bound fell from {bounds[-1]:.8g} to {bound:.8g} in iteration {i}"
                    warnings.warn(f"vem stopped: {info['warning']}.", RuntimeWarning, stacklevel=4)
                    break
                state = new
                bounds.append(bound)
                bar.update()
                bar.set_postfix_str(f"bound {bound:.6g}")
                if not was_fresh and abs(rise) < tolerance:
                    info["converged"] = True
                    break
        except KeyboardInterrupt:
            info["interrupted"] = True
    info["seconds"] = time.perf_counter() - began
    return state, info


def _finite(form: Form, state: Any, graph: BoundGraph) -> float:
    """The bound, if it is a number; else name the site that is none."""
    bound = form.bound(state)
    if np.isfinite(bound):
        return bound
    marginals = form.marginals(state)
    values = marginals.point | marginals.dirichlet | marginals.categorical
    values |= {name: mean for name, (mean, _) in marginals.normal.items()}
    bad = [name for name, value in values.items() if not np.isfinite(value).all()] or list(graph.response_sites)
    raise FloatingPointError(
        f"The bound of the story {graph.story.name!r} became {bound} at the site {(bad or ['w'])[0]!r}; look at its "
        "prior and at the scale of y."
    )


def _share(concentration: np.ndarray) -> np.ndarray:
    return concentration / concentration.sum(-1, keepdims=True)


def _draw(marginals: Marginals, rng: np.random.Generator, num_draws: int) -> dict[str, np.ndarray]:
    """Draws from the approximate posterior, [1 chain, draws, ...] for each site."""
    free = marginals.dirichlet or marginals.categorical or marginals.normal
    largest = max(value.size * 4 for value in (*marginals.dirichlet.values(), *marginals.point.values(), np.zeros(1)))
    draws = int(max(1, min(num_draws, LARGEST_SITE // largest))) if free else 1  # one says all of what is but estimated
    tiny = np.finfo(np.float32).tiny
    posterior = {}
    for name, concentration in marginals.dirichlet.items():
        out = np.empty((1, draws, *concentration.shape), np.float32)
        for draw in out[0]:
            draw[:] = _share(np.maximum(rng.standard_gamma(concentration), tiny))
        posterior[name] = np.maximum(out, tiny)
    for name, probabilities in marginals.categorical.items():
        ends = probabilities.cumsum(-1)
        ends /= ends[..., -1:]
        uniform = rng.random((draws, *ends.shape[:-1], 1))
        posterior[name] = (uniform > ends).sum(-1, dtype=np.int32)[None]
    for name, (mean, variance) in marginals.normal.items():
        if variance.ndim > mean.ndim:
            drawn = rng.multivariate_normal(mean, variance, (1, draws))
        else:
            drawn = rng.normal(mean, np.sqrt(variance), (1, draws, *mean.shape))
        posterior[name] = drawn.astype(np.float32)
    for name, value in marginals.point.items():
        posterior[name] = np.broadcast_to(np.asarray(value, np.float32), (1, draws, *value.shape))
    return posterior
