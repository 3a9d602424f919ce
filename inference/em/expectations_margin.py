"""Variational EM for words with a margin: the loss of an expectation (Zhu, Ahmed & Xing 2012).

    minimise  -L(q) + KL(q(eta) || p(eta)) + sum_d loss(y_d, E[eta]' E[zbar_d])

where L is the bound of the words. q(eta) is N(lambda, V), lambda a support vector machine on E[zbar] with duals a_d
(:mod:`.support_vectors`), and V the prior's variances. The duals tilt the topics of every word of a document by
-lambda a_d / N_d, equations 21 and 23. The duals belong to the topics as they were: taken whole, as in the paper, the tilt
may raise the objective, and with a large weight and short documents it oscillates. So documents go towards it by steps that
serve them (:meth:`MarginWords.expect`); ``guarded=False`` is the paper's own.

A Laplace prior is a normal one whose variances follow the coefficients, V = nu sqrt(E[eta^2]).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora.layouts import documents
from topiczoo.models.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll

from ..kernels.word_steps import Rival
from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.tracing import ZbarHandler, base_distribution, run
from .additive_site import counts_of
from .expectations import Marginals, Settings, coefficients_site, refuse
from .expectations_tilted import TiltedWords
from .starts import topics_by_response
from .support_vectors import CRAMMER_SINGER, HINGES, TUBE, Loss, support_vectors

LOSSES: dict[Any, Loss] = {
    EpsilonInsensitive: TUBE,
    Hinge: HINGES,
    MultiClassHinge: CRAMMER_SINGER,
    OneAgainstAll: HINGES,
}
WIDER, NARROWER = 1.5, 0.3  # a document's next step, where the last one served it and where it did not
SMALLEST_VARIANCE = 1e-6  # of a coefficient under a Laplace prior, in units of the prior's


def is_margin(graph: BoundGraph) -> bool:
    """Whether some site below zbar is a margin."""
    return any(graph.family(name) in LOSSES for name in graph.response_sites)


class MarginResponse:
    """The one margin below zbar, as the story gives it: its loss, its targets, and the prior of its coefficients."""

    def __init__(self, graph: BoundGraph) -> None:
        self.graph = graph
        self.name = next(name for name in graph.response_sites if graph.family(name) in LOSSES)
        self.others = [name for name in graph.response_sites if name != self.name]
        self.loss = LOSSES[graph.family(self.name)]
        shapes = graph.predictor_shapes
        if not graph.linear or len(shapes) != 1 or len(shapes[0]) > 1:
            refuse(graph, self.name, "it uses zbar otherwise than through one zbar @ eta, eta [K] or [K, C]")
        self.outputs = shapes[0][0] if shapes[0] else 1
        self.eta = coefficients_site(graph, self.name)
        if others := sorted(graph.parents[self.name] - {ZBAR, self.name, self.eta}):
            refuse(graph, others[0], f"the margin {self.name!r} reads it")
        if above := sorted(graph.parents[self.eta] - {self.eta}):
            refuse(graph, above[0], f"it is a latent parameter of the prior of {self.eta!r}")
        self.shape = graph.latent[self.eta].shape
        prior = base_distribution(graph.latent[self.eta].fn)
        if not isinstance(prior, dist.Normal | dist.Laplace) or np.any(np.asarray(prior.loc)):
            refuse(graph, self.eta, f"its prior is {type(prior).__name__} where a Normal or Laplace around 0 is needed")
        self.laplace = isinstance(prior, dist.Laplace)
        columns = (self.shape[0], self.outputs)
        self.scale = np.broadcast_to(np.asarray(prior.scale, float), self.shape).reshape(columns)
        self._read_targets()

    def _read_targets(self) -> None:
        """Targets, labelled documents and the loss's parameters; scores must be the predictor itself."""
        graph = self.graph

        @jax.jit
        def look(corpus: Any, y: Any, x: jax.Array) -> tuple:
            trace = run(graph.story, corpus, y, {}, ZbarHandler(lambda theta: theta, [x]))
            fn = base_distribution(trace[self.name]["fn"])
            parts = {name: getattr(fn, name) for name in ("weight", "cost", "epsilon") if hasattr(fn, name)}
            places = [getattr(fn, name) for name in ("loc", "scores") if hasattr(fn, name)]
            return trace[self.name]["value"], parts, places[0]

        num_documents = len(graph.corpus)
        x = jax.random.normal(jax.random.key(0), (num_documents, *graph.predictor_shapes[0]))
        y = jax.tree.map(jnp.asarray, graph.y)
        target, parts, scores = look(documents(graph.corpus), y, x)
        if not np.allclose(scores, x, rtol=1e-5):
            refuse(graph, self.name, "its scores are not zbar @ eta alone")
        for name, part in parts.items():
            if np.size(part) > 1 and np.ptp(np.asarray(part)):
                refuse(graph, self.name, f"its {name} differs between documents")
        self.parameters = {name: jnp.float32(np.ravel(part)[0]) for name, part in parts.items()}
        told = np.concatenate(
            [np.asarray(leaf, float).reshape(num_documents, -1) for leaf in jax.tree.leaves(graph.y)], 1
        )
        self.labelled = ~np.isnan(told).any(1)
        self.target = np.asarray(target)[self.labelled]

    @property
    def of_classes(self) -> bool:
        return self.loss is not TUBE


class MarginState(NamedTuple):
    """What one turn of EM hands to the next."""

    topics: np.ndarray  # [K, V], see DirichletSite
    alpha: np.ndarray  # [K] or [D, K]
    gamma: Any  # [D, K]
    counts: np.ndarray  # [K, V] expected
    words: np.ndarray  # [D] the documents' part of the bound
    coefficients: np.ndarray  # [K, C], the mean of q(eta)
    variance: np.ndarray  # [K, C]
    duals: np.ndarray  # [D, C], 0 where unlabelled
    tilt: np.ndarray  # [D, K], under which the words have their topics
    step: np.ndarray  # [D], the part of its way to a new tilt that a document tries next


def _loss_of_tokens(loss: Loss, tokens: jax.Array, rows: tuple, shared: tuple) -> jax.Array:
    """Of documents with expected tokens in each topic, [D]; 0 where unlabelled."""
    (target, lengths, labelled), (coefficients, parameters) = rows, shared
    return jnp.where(labelled, loss.value(tokens / lengths[:, None] @ coefficients, target, parameters), 0.0)


class MarginWords(TiltedWords):
    """Stories of a Dirichlet theta for each document, Dirichlet topics, and one margin of zbar @ eta."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        super().__init__(graph, settings)
        self.response = MarginResponse(graph)
        self.labelled = self.response.labelled
        if self.response.others:
            refuse(graph, self.response.others[0], f"it is a second response beside the margin {self.response.name!r}")
        self.refuse_others({self.response.name, self.response.eta}, "margin")
        target = np.zeros(len(self.lengths), self.response.target.dtype)
        target[self.labelled] = self.response.target
        self.rows = jax.tree.map(jnp.asarray, (target, self.lengths.astype(np.float32), self.labelled))
        self.loss = partial(_loss_of_tokens, self.response.loss)

    def start(self, rng: np.random.Generator) -> MarginState:
        """Coefficients 0, as in the paper; topics by the response, or uniform plus noise."""
        response = self.response
        counts: Any = self._first_counts(rng) if self.settings.start == "response" else 0.0
        nothing, shape = np.zeros(0), response.scale.shape
        variance = response.scale**2 * (2 if response.laplace else 1)
        number = len(self.lengths)
        duals, tilt = np.zeros((number, response.outputs), np.float32), np.zeros((number, self.num_topics))
        return MarginState(
            self.topics.start(rng, counts), self.alpha, None, nothing, nothing, np.zeros(shape), variance, duals, tilt,
            np.ones(number),
        )  # fmt: skip

    def _first_counts(self, rng: np.random.Generator) -> np.ndarray:
        """Counts of the documents of a class, dealt to its topics by chance; topics in the order of y where that fails.

        Noise on each count would be the simpler way to have topics differ, and drown classes that differ by less. The more
        topics a class has, the more evenly its documents are dealt: a topic of few would know them, not the class.
        """
        corpus, response = self.graph.corpus, self.response
        classes, topics = max(response.outputs, 2), np.arange(self.num_topics)
        if not response.of_classes or classes > self.num_topics:
            ordered = topics_by_response(corpus.counts, self.graph.y, self.num_topics)[0]
            return ordered * rng.gamma(1.0, 1.0, ordered.shape)
        own = topics % classes == response.target[:, None]  # [documents, topics]
        evenness = np.clip(self.num_topics / classes / 20, 0.5, 2.0)
        shares = own * rng.gamma(evenness, 1.0, own.shape)
        shares /= shares.sum(1, keepdims=True)
        return counts_of(shares.T, corpus[np.flatnonzero(response.labelled)])

    def tilt(self, state: MarginState) -> np.ndarray:
        """What each word of a document gains in each topic, [D, K]."""
        return -(state.duals @ state.coefficients.T) / self.lengths[:, None]

    def expect(self, state: MarginState, fresh: bool) -> MarginState:
        """An E-step that no document takes to its own loss.

        A document's loss bends as its topics move, so that with the whole tilt it may end beyond the margin on the other
        side. Each has a step size: it goes that part of the way from its old tilt to the new one, keeps its topics where its
        share of the objective would fall, and then tries a smaller step.
        """
        target, start, steps = self.tilt(state), self.first_gamma(state, fresh), self.settings.e_iterations
        if not self.settings.guarded:
            return self.settled(state, start, target, steps)[0]._replace(tilt=target)
        tilt = state.tilt + state.step[:, None] * (target - state.tilt)
        shared = jnp.asarray(state.coefficients, jnp.float32), self.response.parameters
        rival = Rival(self.first_gamma(state, False), state.tilt.astype(np.float32), self.rows, shared)
        new, moved = self.settled(state, start, tilt, steps, rival=rival, loss=self.loss)
        step = np.where(moved, np.minimum(1.0, WIDER * state.step), NARROWER * state.step)
        return new._replace(tilt=np.where(moved[:, None], tilt, state.tilt), step=step)

    def maximise(self, state: MarginState, fresh: bool) -> MarginState:
        response, variance = self.response, state.variance
        if response.laplace:
            second = state.coefficients**2 + variance
            variance = np.maximum(response.scale * np.sqrt(second), SMALLEST_VARIANCE * response.scale**2)
        x = self.mean_topics(state)[self.labelled]
        problem = response.loss, x, response.target, variance, response.parameters
        found, duals = self.machine(state, *problem, state.coefficients)
        alpha, topics = self.next_alpha(state, fresh), self.topics.update(state.counts, state.topics)
        return state._replace(
            topics=topics, alpha=alpha, coefficients=found.coefficients.astype(float), variance=variance, duals=duals
        )

    def losses(self, state: MarginState) -> np.ndarray:
        """Of each document, [D]; 0 where unlabelled."""
        tokens, coefficients = state.gamma - state.alpha, jnp.asarray(state.coefficients, jnp.float32)
        return np.asarray(self.loss(tokens, self.rows, (coefficients, self.response.parameters)), float)

    def margin_bound(self, state: MarginState) -> float:
        """Minus the machine's objective, at the normal prior with the variances of now."""
        return -float((state.coefficients**2 / state.variance).sum() / 2) - float(self.losses(state).sum())

    def bound(self, state: MarginState) -> float:
        """Minus the objective."""
        return float(state.words.sum()) + self.topics.bound(state.topics) + self.margin_bound(state)

    def marginals(self, state: MarginState) -> Marginals:
        marginals = Marginals(dirichlet={self.theta: np.asarray(state.gamma)})
        self.topics.put(state.topics, marginals)
        shape = self.response.shape
        marginals.normal[self.response.eta] = state.coefficients.reshape(shape), state.variance.reshape(shape)
        return marginals

    def report(self, state: MarginState) -> dict[str, Any]:
        """For the fit's info."""
        response, own = self.response, state.duals[self.labelled]
        held = support_vectors(response.loss, own, response.target, response.parameters)
        return {"support_vectors": held, "tilt": float(np.abs(self.tilt(state)).max())}
