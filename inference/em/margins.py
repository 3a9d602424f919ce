"""Margins: the loss of an expectation (Zhu, Ahmed & Xing 2012).

    minimise  -L(q) + KL(q(eta) || p(eta)) + sum_d loss(y_d, E[eta]' E[zbar_d])

where L is the bound of the words. q(eta) is N(lambda, V), lambda a support vector machine on E[zbar] with duals a_d
(:mod:`..steps.support_vectors`), and V the prior's variances. The duals tilt the topics of every word of a document by
-lambda a_d / N_d, equations 21 and 23. The duals belong to the topics as they were: taken whole, as in the paper, the tilt
may raise the objective, and with a large weight and short documents it oscillates. So documents go towards it by steps that
serve them (:meth:`Margin.e_step`); ``guarded=False`` is the paper's own.

A Laplace prior is a normal one whose variances follow the coefficients, V = nu sqrt(E[eta^2]).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora.layouts import Documents, documents
from topiczoo.models.vocabulary.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll

from ..mcmc.weighing import as_seen
from ..programs.compiling import jitted
from ..steps.support_vectors import (
    CRAMMER_SINGER,
    HINGES,
    LOOSE_GAP,
    TUBE,
    Loss,
    Solution,
    n_slack,
    one_slack,
    support_vectors,
)
from ..steps.words import Fallback
from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.response import Y
from ..story.tracing import ZbarHandler, base_distribution, run
from .components import Posterior, Settings, State, coefficients_site, labelled_documents, refuse
from .starts import counts_of, topics_by_response

LOSSES: dict[type, Loss] = {
    EpsilonInsensitive: TUBE,
    Hinge: HINGES,
    MultiClassHinge: CRAMMER_SINGER,
    OneAgainstAll: HINGES,
}
WIDER, NARROWER = 1.5, 0.3  # a document's next step, where the last one served it and where it did not
SMALLEST_VARIANCE = 1e-6  # of a coefficient under a Laplace prior, in units of the prior's


def margins_of(graph: BoundGraph) -> list[str]:
    """Sites below zbar that are margins."""
    return [name for name in graph.response_sites if graph.family(name) in LOSSES]


class MarginState(NamedTuple):
    """What one turn of EM hands to the next."""

    coefficients: np.ndarray  # [K, C], the mean of q(eta)
    variance: np.ndarray  # [K, C]
    duals: np.ndarray  # [D, C], 0 where unlabelled
    tilt: np.ndarray  # [D, K], under which the words have their topics
    step: np.ndarray  # [D], the part of its way to a new tilt that a document tries next


def _loss_of_tokens(loss: Loss, tokens: jax.Array, rows: tuple, shared: tuple) -> jax.Array:
    """Of documents with expected tokens in each topic, [D]; 0 where unlabelled."""
    (target, lengths, labelled), (coefficients, parameters) = rows, shared
    return jnp.where(labelled, loss.value(tokens / lengths[:, None] @ coefficients, target, parameters), 0.0)


class Margin:
    """One margin of zbar @ eta: its loss, its targets, and the prior of its coefficients as the story gives them."""

    reads: frozenset[str] = frozenset({"start", "slack", "guarded"})
    monotone: ClassVar[bool] = False
    latent: str = ""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.settings = graph, settings = as_seen(graph), settings
        self.name = margins_of(graph)[0]
        self.loss = LOSSES[graph.family(self.name)]
        self.eta = coefficients_site(graph, self.name)
        self.outputs = graph.predictor_shapes[0][0] if graph.predictor_shapes[0] else 1
        if others := sorted(graph.parents[self.name] - {ZBAR, self.name, self.eta}):
            refuse(graph, others[0], f"the margin {self.name!r} reads it")
        if above := sorted(graph.parents[self.eta] - {self.eta}):
            refuse(graph, above[0], f"it is a latent parameter of the prior of {self.eta!r}")
        self.names = {self.name, self.eta}
        self.shape = graph.latent[self.eta].shape
        prior = base_distribution(graph.latent[self.eta].fn)
        if not isinstance(prior, dist.Normal | dist.Laplace) or np.any(np.asarray(prior.loc)):
            refuse(graph, self.eta, f"its prior is {type(prior).__name__} where a Normal or Laplace around 0 is needed")
        self.laplace = isinstance(prior, dist.Laplace)
        self.num_topics = self.shape[0]
        self.scale = np.broadcast_to(np.asarray(prior.scale, float), self.shape).reshape(self.num_topics, self.outputs)
        self.lengths = graph.corpus.lengths.astype(np.float64)
        self._read_targets()
        self.loss_of = partial(_loss_of_tokens, self.loss)

    def _read_targets(self) -> None:
        """Targets, labelled documents and the loss's parameters; scores must be the predictor itself."""
        graph = self.graph

        @jitted
        def look(corpus: Documents, y: Y, x: jax.Array) -> tuple:
            trace = run(graph.story, corpus, y, {}, ZbarHandler(lambda theta: theta, [x]))
            fn = base_distribution(trace[self.name]["fn"])
            parts = {name: getattr(fn, name) for name in ("weight", "cost", "epsilon") if hasattr(fn, name)}
            places = [getattr(fn, name) for name in ("loc", "scores") if hasattr(fn, name)]
            return trace[self.name]["value"], parts, places[0]

        x = jax.random.normal(jax.random.key(0), (len(graph.corpus), *graph.predictor_shapes[0]))
        target, parts, scores = look(documents(graph.corpus), jax.tree.map(jnp.asarray, graph.y), x)
        if not np.allclose(scores, x, rtol=1e-5):
            refuse(graph, self.name, "its scores are not zbar @ eta alone")
        for name, part in parts.items():
            if np.size(part) > 1 and np.ptp(np.asarray(part)):
                refuse(graph, self.name, f"its {name} differs between documents")
        self.parameters = {name: jnp.float32(np.ravel(part)[0]) for name, part in parts.items()}
        self.parameters["weight"] *= graph.story.weight
        self.labelled = labelled_documents(graph.y, len(graph.corpus))
        self.target = np.asarray(target)[self.labelled]
        whole = np.zeros(len(graph.corpus), self.target.dtype)
        whole[self.labelled] = self.target
        self.rows = jax.tree.map(jnp.asarray, (whole, self.lengths.astype(np.float32), self.labelled))

    def machine(
        self, duals: np.ndarray, loss: Loss, x: np.ndarray, y: np.ndarray, variance: np.ndarray,
        start: np.ndarray | None = None,
    ) -> tuple[Solution, np.ndarray]:  # fmt: skip
        """The machine of the labelled documents, from duals and coefficients to start with, and duals of all documents, 0
        where unlabelled."""
        problem = loss, x, y, variance, self.parameters, duals[self.labelled]
        if self.settings.slack == "one":
            found = one_slack(*problem, first=start, gap=LOOSE_GAP)
        else:
            found = n_slack(*problem)
        whole = np.zeros_like(duals)
        whole[self.labelled] = found.duals
        return found, whole

    # what EM asks

    def start(self, rng: np.random.Generator) -> tuple[Any, np.ndarray | float]:
        """Coefficients 0, as in the paper; topics by the response, or uniform plus noise."""
        counts = self._first_counts(rng) if self.settings.start == "response" else 0.0
        number, variance = len(self.lengths), self.scale**2 * (2 if self.laplace else 1)
        duals, tilt = np.zeros((number, self.outputs), np.float32), np.zeros((number, self.num_topics))
        return MarginState(np.zeros(self.scale.shape), variance, duals, tilt, np.ones(number)), counts

    def _first_counts(self, rng: np.random.Generator) -> np.ndarray:
        """Counts of the documents of a class, dealt to its topics by chance; topics in the order of y where that fails.

        Noise on each count would be the simpler way to have topics differ, and drown classes that differ by less. The more
        topics a class has, the more evenly its documents are dealt: a topic of few would know them, not the class.
        """
        corpus, classes = self.graph.corpus, max(self.outputs, 2)
        if self.loss is TUBE or classes > self.num_topics:
            ordered = topics_by_response(corpus.counts, self.graph.y, self.num_topics)[0]
            return ordered * rng.gamma(1.0, 1.0, ordered.shape)
        own = np.arange(self.num_topics) % classes == self.target[:, None]  # [documents, topics]
        evenness = np.clip(self.num_topics / classes / 20, 0.5, 2.0)
        shares = own * rng.gamma(evenness, 1.0, own.shape)
        shares /= shares.sum(1, keepdims=True)
        return counts_of(shares.T, corpus[np.flatnonzero(self.labelled)])

    def tilt(self, state: State) -> np.ndarray:
        """What each word of a document gains in each topic, [D, K]: minus the loss' slope in expected counts."""
        return -(state.response.duals @ state.response.coefficients.T) / self.lengths[:, None]

    def e_step(self, words: Any, log_mean: np.ndarray, state: State, fresh: bool) -> State:
        """An E-step that no document takes to its own loss.

        A document's loss bends as its topics move, so that with the whole tilt it may end beyond the margin on the other
        side. Each has a step size: it goes that part of the way from its old tilt to the new one, keeps its topics where its
        share of the objective would fall, and then tries a smaller step.
        """
        own, target = state.response, self.tilt(state)
        start = words.first_gamma(state.alpha) if fresh or state.local is None else state.local.gamma
        if not self.settings.guarded:
            found = words.e_step(log_mean, state.alpha, start, target)
            return state._replace(local=found, counts=found.counts, response=own._replace(tilt=target))
        tilt = own.tilt + own.step[:, None] * (target - own.tilt)
        shared = jnp.asarray(own.coefficients, jnp.float32), self.parameters
        old = words.first_gamma(state.alpha) if state.local is None else state.local.gamma
        fallback = Fallback(old, own.tilt.astype(np.float32), self.rows, shared)
        found = words.e_step(log_mean, state.alpha, start, tilt, fallback, self.loss_of)
        step = np.where(found.moved, np.minimum(1.0, WIDER * own.step), NARROWER * own.step)
        own = own._replace(tilt=np.where(found.moved[:, None], tilt, own.tilt), step=step)
        return state._replace(local=found, counts=found.counts, response=own)

    def m_step(self, words: Any, log_mean: np.ndarray, state: State) -> Any:
        own, variance = state.response, state.response.variance
        if self.laplace:
            second = own.coefficients**2 + variance
            variance = np.maximum(self.scale * np.sqrt(second), SMALLEST_VARIANCE * self.scale**2)
        x = words.mean_topics(state.local.gamma, state.alpha)[self.labelled]
        found, duals = self.machine(own.duals, self.loss, x, self.target, variance, own.coefficients)
        return own._replace(coefficients=found.coefficients.astype(float), variance=variance, duals=duals)

    def losses(self, state: State) -> np.ndarray:
        """Of each document, [D]; 0 where unlabelled."""
        tokens = state.local.gamma - state.alpha
        shared = jnp.asarray(state.response.coefficients, jnp.float32), self.parameters
        return np.asarray(self.loss_of(tokens, self.rows, shared), float)

    def bound(self, state: State) -> float:
        """Minus the machine's objective, at the normal prior with the variances of now."""
        own = state.response
        return -float((own.coefficients**2 / own.variance).sum() / 2) - float(self.losses(state).sum())

    def q(self, state: State) -> Posterior:
        mean, variance = (part.reshape(self.shape) for part in (state.response.coefficients, state.response.variance))
        return {self.eta: dist.Normal(mean, np.sqrt(variance))}

    def report(self, state: State) -> Mapping[str, float]:
        held = support_vectors(self.loss, state.response.duals[self.labelled], self.target, self.parameters)
        return {"support_vectors": held, "tilt": float(np.abs(self.tilt(state)).max())}
