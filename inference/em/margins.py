"""Margins: the loss of an expectation (Zhu, Ahmed & Xing 2012), alone or with a normal response beside it.

    minimise  -L(q) + KL(q(eta) || p(eta)) + sum_d loss(y_d, E[eta]' E[zbar_d])

where L is the bound of the words. q(eta) is N(lambda, V), lambda a support vector machine on E[zbar] with duals a_d
(:mod:`.support_vectors`), and V the prior's variances. The duals tilt the topics of every word of a document by
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
from topiczoo.models.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll

from ..kernels.response_steps import sums_of_products
from ..kernels.special import digamma
from ..kernels.word_steps import Fallback
from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.response import Y
from ..story.tracing import ZbarHandler, base_distribution, run
from .components import Posterior, Settings, State, coefficients_site, labelled_documents, refuse
from .responses import SmoothResponse
from .sites import Points, log_prior
from .starts import counts_of, topics_by_response
from .support_vectors import (
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
from .words import of_terms

LOSSES: dict[type, Loss] = {
    EpsilonInsensitive: TUBE,
    Hinge: HINGES,
    MultiClassHinge: CRAMMER_SINGER,
    OneAgainstAll: HINGES,
}
WIDER, NARROWER = 1.5, 0.3  # a document's next step, where the last one served it and where it did not
SMALLEST_VARIANCE = 1e-6  # of a coefficient under a Laplace prior, in units of the prior's
ROUNDS = 4  # of the normal response's slope within an E-step


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

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.settings = graph, settings
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

        @jax.jit
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


class BesideState(NamedTuple):
    """The same where a normal response stands beside the margin."""

    coefficients: np.ndarray  # [K] lambda
    covariance: np.ndarray  # [K, K] Sigma
    duals: np.ndarray  # [D, 1], 0 where unlabelled
    values: Points  # the normal response's other parameters


class MarginBeside(Margin):
    """A margin of numbers with a normal response beside it: MedLDA's regression.

        minimise  -L(q) + KL(q(eta) || p(eta)) - E[log N(y_d; eta . zbar_d, sigma^2)] + sum_d loss(y_d, lambda . E[zbar_d])

    q(eta) is N(lambda, Sigma) with Sigma^-1 = 1/V + E[A'A] / sigma^2 (corollary 3), lambda a support vector regression after
    a change of variables (equation 17). Words are tilted by equation 14: by the duals as for a margin alone, and by the
    slope of the normal response, which depends on the topics themselves. That slope is taken at their mean and renewed a few
    times within an E-step, half the way each time. The objective is exact, and may rise a little from one iteration to the
    next.

    The statistic of the E-step is E[A'A] of the labelled documents, [K, K].
    """

    reads: frozenset[str] = frozenset({"start", "slack", "point"})

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        super().__init__(graph, settings)
        others = tuple(name for name in graph.response_sites if name != self.name)
        if len(others) > 1 or not issubclass(graph.family(others[0]), dist.Normal):
            refuse(graph, others[0], "beside a margin one normal response is served, and nothing else")
        if self.loss is not TUBE or self.laplace:
            refuse(graph, self.eta, "beside a normal response it needs a normal prior and a margin for numbers")
        self.normal = SmoothResponse(graph, settings, others)
        self.normal.require_normal()
        self.names |= self.normal.names
        self.y, precision = self.normal.as_normal(self.normal.first_values())
        if np.ptp(precision[self.labelled]) > 1e-5 * precision.max():
            refuse(graph, others[0], "beside a margin its scale must be that of all documents")

    def start(self, rng: np.random.Generator) -> tuple[BesideState, np.ndarray | float]:
        """eta on a grid, sigma the deviation of y; topics by the response, or uniform plus noise."""
        values, counts = self.normal.start(rng)
        values = self.normal.at_deviation_of_y(values)
        grid, duals = np.asarray(values.pop(self.eta), np.float64), np.zeros((len(self.lengths), 1))
        return BesideState(grid, 1e-4 * np.eye(self.num_topics), duals, values), counts

    def noise(self, state: State) -> float:
        """sigma^2."""
        eta = jnp.asarray(state.response.coefficients, jnp.float32)
        return 1 / float(self.normal.as_normal({**state.response.values, self.eta: eta})[1].max())

    def tilt_at(self, state: State, mean_topics: np.ndarray, noise: float) -> np.ndarray:
        """Equation 14 at given mean topics, [D, K]; of a word's own part of them the mean is taken."""
        own, length = state.response, self.lengths[:, None]
        second = own.covariance + np.outer(own.coefficients, own.coefficients)
        linear = (self.y / noise - own.duals[:, 0])[:, None] * own.coefficients / length
        others = ((length - 1) * (mean_topics @ second) + np.diag(second) / 2) / (length**2 * noise)
        return np.where(self.labelled[:, None], linear - others, 0.0)

    def e_step(self, words: Any, log_mean: np.ndarray, state: State, fresh: bool) -> State:
        gamma = words.first_gamma(state.alpha) if fresh or state.local is None else state.local.gamma
        mean_topics, noise = words.mean_topics(gamma, state.alpha), self.noise(state)
        for _ in range(ROUNDS):
            tilt = self.tilt_at(state, mean_topics, noise)
            steps = max(1, self.settings.e_iterations // ROUNDS)
            found = words.e_step(log_mean, state.alpha, gamma, tilt, steps=steps)
            gamma = found.gamma
            mean_topics = (mean_topics + words.mean_topics(gamma, state.alpha)) / 2
        log_weight = digamma(gamma) - digamma(gamma.sum(-1, keepdims=True)) + jnp.asarray(tilt, jnp.float32)
        weight = jnp.asarray(np.where(self.labelled, self.lengths**-2, 0.0), jnp.float32)
        same = np.asarray(sums_of_products(words.pairs, of_terms(log_mean), log_weight, weight), np.float64)
        x = words.mean_topics(gamma, state.alpha)[self.labelled]
        once = np.diag((x / self.lengths[self.labelled, None]).sum(0))
        return state._replace(local=found, counts=found.counts, statistics=x.T @ x + once - same)

    def m_step(self, words: Any, log_mean: np.ndarray, state: State) -> BesideState:
        x, y = words.mean_topics(state.local.gamma, state.alpha)[self.labelled], self.y[self.labelled]
        noise = self.noise(state)
        root = np.linalg.cholesky(np.diag(self.scale[:, 0] ** -2) + state.statistics / noise)
        covariance = np.linalg.solve(root.T, np.linalg.solve(root, np.eye(self.num_topics)))
        centre = covariance @ (x.T @ y) / noise
        features, ones = np.linalg.solve(root, x.T).T, np.ones((self.num_topics, 1))
        found, duals = self.machine(state.response.duals, TUBE, features, y - x @ centre, ones)
        coefficients = centre + np.linalg.solve(root.T, found.coefficients[:, 0].astype(float))
        own = BesideState(coefficients, covariance, duals, state.response.values)
        points, moments = self.normal.points, self._moments(state._replace(response=own), x)
        eta = jnp.asarray(coefficients, jnp.float32)
        return own._replace(values=points.m_step(own.values, self.normal.data, eta, *moments))

    def _moments(self, state: State, x: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of predictors that together have R of the documents: all of sum_d E[(y_d - eta . zbar_d)^2],
        equation 11, as variance around the target."""
        own, y = state.response, self.y[self.labelled]
        second = own.covariance + np.outer(own.coefficients, own.coefficients)
        residual = float(y @ y - 2 * y @ (x @ own.coefficients) + (state.statistics * second).sum())
        variance = np.full((len(self.y), 1, 1), residual / max(len(y), 1))
        return jnp.asarray(self.y, jnp.float32)[:, None], jnp.asarray(variance, jnp.float32)

    def bound(self, state: State) -> float:
        """Minus the objective."""
        own, (y, variance) = state.response, (self.y[self.labelled], self.scale[:, 0] ** 2)
        x = ((np.asarray(state.local.gamma, np.float64) - state.alpha) / self.lengths[:, None])[self.labelled]
        scores = jnp.asarray(x @ own.coefficients, jnp.float32)[:, None]
        loss = float(TUBE.value(scores, jnp.asarray(y, jnp.float32), self.parameters).sum())
        values = {**own.values, self.eta: jnp.asarray(own.coefficients, jnp.float32)}
        expected = float(self.normal.terms(values, *self.normal.data, *self._moments(state, x)).sum())
        spread = (np.diag(own.covariance) + own.coefficients**2) / variance - 1 + np.log(variance)
        divergence = 0.5 * (spread.sum() - np.linalg.slogdet(own.covariance)[1])
        prior = float(log_prior(self.graph, self.normal.others if self.normal.map else [], own.values))
        return expected - divergence + prior - loss

    def q(self, state: State) -> Posterior:
        own = state.response
        points: Posterior = {name: dist.Delta(np.asarray(value)) for name, value in own.values.items()}
        return points | {
            self.eta: dist.MultivariateNormal(own.coefficients, scale_tril=np.linalg.cholesky(own.covariance))
        }

    def report(self, state: State) -> Mapping[str, float]:
        own = state.response.duals[self.labelled]
        return {"support_vectors": support_vectors(TUBE, own, self.y[self.labelled], self.parameters)}
