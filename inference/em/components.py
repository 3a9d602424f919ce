"""The parts that variational EM is composed of, and the one bound that they share.

    bound = sum_d [ words_d + theta_d + R(m_d, v_d; parameters) ] + log p(parameters) + topics + classes

The words of a document enter with E[log p(w, z | theta)] + H(q(z)), its proportions with minus their divergence from the
prior, and its response with R, the expected log-density at mean and covariance of its predictor, or minus a loss. The tilt
of the words' topics is the derivative of R with respect to their expected counts; the M-step ascends R plus the log-prior.

A model (:class:`.model.EMModel`) has one component of each kind:

* words: :class:`.words.BagWords`, all occurrences of a term alike, or :class:`.words.TokenWords`, one token after the other;
  none where a document has one topic;
* topics: :class:`.sites.DirichletSite` or :class:`.additive.AdditiveSite`;
* a response: :class:`NoResponse`, :class:`.responses.SmoothResponse`, :class:`.margins.Margin`, or
  :class:`.margin_beside.MarginBeside`, a margin with a normal response beside it;
* a class of documents: :class:`.classes.ObservedClass` (or none), or :class:`.classes.LatentClass`;
* what stands above the priors of theta and beta, if anything does: :class:`.priors.LearnedPriors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

import jax
import numpy as np
import numpyro.distributions as dist

from ..story.bound import BoundGraph
from ..story.tracing import ZbarHandler, run
from ..story.validation import Unserved

Posterior = dict[str, dist.Distribution]  # of each site: Dirichlet, Categorical, Normal, MultivariateNormal, or Delta


@dataclass(frozen=True)
class Settings:
    """How to estimate: the keyword arguments of ``vem`` that components read, each under its name."""

    topics: str = "dirichlet"
    point: str = "map"
    estimate_alpha: bool = False
    e_tolerance: float = 1e-4
    e_iterations: int = 20
    start: str = "response"
    order: str = "parallel"
    expectation: str = "sigma points"
    slack: str = "n"
    guarded: bool = True
    start_variance: float | None = None


class State(NamedTuple):
    """What one turn of EM hands to the next; each component knows its own part."""

    topics: Any
    alpha: np.ndarray  # of theta's prior: [K], [D, K], or [classes, D, K]; empty without theta
    response: Any = None  # parameters of the response
    classes: Any = None  # what documents' classes generate from
    local: Any = None  # q of the documents, with ``bound`` [D], once there was an E-step
    counts: Any = None  # [K, V] expected, where topics are a label's [labels, K, V]
    statistics: Any = None  # what else of the E-step the response's M-step reads
    priors: Any = None  # values by site of what stands above the priors of theta and beta
    shift: float = 0.0  # what the last M-step has done to the bound by moving what climbs something else


class Component(Protocol):
    """What every component has. ``reads`` are the settings that it uses; the others are refused where no component does."""

    reads: frozenset[str]

    def bound(self, state: State) -> float:
        """Its part of the bound that is not of documents: minus the divergence from a prior, or a log-prior."""
        ...

    def q(self, state: State) -> Posterior:
        """The approximate posterior of its sites."""
        ...


class Response(Component, Protocol):
    """What stands below zbar."""

    monotone: ClassVar[bool]  # whether the mathematics promises a rising bound
    latent: str  # the latent class that documents have, where it stands below that

    def start(self, rng: np.random.Generator) -> tuple[Any, np.ndarray | float]:
        """Its part of the first state, and the expected counts [K, V] that topics start with."""
        ...

    def e_step(self, words: Any, log_mean: np.ndarray, state: State, fresh: bool) -> State:
        """The documents' q, expected counts and statistics given ``log_mean``, E[log beta] [K, V]."""
        ...

    def m_step(self, words: Any, log_mean: np.ndarray, state: State) -> Any:
        """Its part of the next state, with R plus the log-prior no lower."""
        ...

    def report(self, state: State) -> Mapping[str, float]:
        """For the fit's info."""
        ...


class NoResponse:
    """Nothing stands below zbar: R is 0."""

    reads: frozenset[str] = frozenset()
    monotone: ClassVar[bool] = True
    latent: str = ""

    def start(self, rng: np.random.Generator) -> tuple[None, float]:
        return None, 0.0

    def e_step(self, words: Any, log_mean: np.ndarray, state: State, fresh: bool) -> State:
        start = words.first_gamma(state.alpha) if fresh else state.local.gamma
        found = words.e_step(log_mean, state.alpha, start)
        return state._replace(local=found, counts=found.counts)

    def m_step(self, words: Any, log_mean: np.ndarray, state: State) -> None:
        return None

    def bound(self, state: State) -> float:
        return 0.0

    def q(self, state: State) -> Posterior:
        return {}

    def report(self, state: State) -> Mapping[str, float]:
        return {}


def refuse(graph: BoundGraph, site: str, why: str) -> NoReturn:
    """Say which site stands in the way, and what would work."""
    raise Unserved(graph, ["vem"], f"vem cannot serve the site {site!r} of the story {graph.story.name!r}: {why}")


def coefficients_site(graph: BoundGraph, response: str) -> str:
    """The site whose value is the eta of the story's one ``zbar @ eta``, [K] or [K, C]."""
    shapes = graph.predictor_shapes
    if not graph.linear or len(shapes) != 1 or len(shapes[0]) > 1:
        refuse(graph, response, "it uses zbar otherwise than through one zbar @ eta, eta [K] or [K, C]")
    values = graph.few_values
    found: list[str] = []

    def look() -> None:  # nothing is computed
        answer = ZbarHandler(lambda theta: theta)
        trace = run(graph.story, graph.few_documents, graph.few_y, values, answer)
        found.extend(name for name in graph.latent if trace[name]["value"] is answer.coefficients[0])

    jax.eval_shape(look)
    if found:
        return found[0]
    refuse(graph, response, "the eta of its zbar @ eta is computed, not a site itself")


def labelled_documents(y: Any, num_documents: int) -> np.ndarray:
    """Documents all of whose responses are known, [D] bool."""
    columns = [np.asarray(leaf, float).reshape(num_documents, -1) for leaf in jax.tree.leaves(y)]
    return ~np.isnan(np.concatenate(columns, 1)).any(1)
