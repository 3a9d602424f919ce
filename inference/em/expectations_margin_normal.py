"""Variational EM for words with a normal response and a margin beside it: MedLDA's regression (Zhu, Ahmed & Xing 2012).

    minimise  -L(q) + KL(q(eta) || p(eta)) - E[log N(y_d; eta . zbar_d, sigma^2)] + sum_d loss(y_d, lambda . E[zbar_d])

q(eta) is N(lambda, Sigma) with Sigma^-1 = 1/V + E[A'A] / sigma^2 (corollary 3), lambda a support vector regression after a
change of variables (equation 17). Words are tilted by equation 14: by the duals as for a margin alone, and by the slope of
the normal response, which depends on the topics themselves. That slope is taken at their mean and renewed a few times within
an E-step, half the way each time. The objective is exact, and may rise a little from one iteration to the next.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ..kernels.sharding import by_threads, over_shards
from ..kernels.special import digamma
from ..kernels.sweep import CHUNK, look_up, room, with_padding
from ..kernels.word_steps import Chunk, PairBlocks, Weighed, out_of_logs
from ..story.bound import BoundGraph
from .expectations import Marginals, Settings, refuse
from .expectations_margin import MarginResponse
from .expectations_response import NormalResponse
from .expectations_tilted import TiltedWords
from .starts import topics_by_response
from .support_vectors import TUBE, support_vectors

ROUNDS = 4  # of the normal response's slope within an E-step


class _NormalBeside(NormalResponse):
    """The normal response beside a margin."""

    def _one_site(self) -> str:
        graph = self.graph
        others = [name for name in graph.response_sites if issubclass(graph.family(name), dist.Normal)]
        if len(graph.response_sites) != 2 or len(others) != 1:
            refuse(graph, graph.response_sites[0], "beside a margin one normal response is served, and nothing else")
        if not graph.linear or graph.predictor_shapes != ((),):
            refuse(graph, others[0], "it uses zbar otherwise than through one zbar @ eta, eta [K]")
        return others[0]


@partial(jax.jit, static_argnames=("deepest",))
def sums_of_products(
    between: tuple,
    pairs: PairBlocks,
    log_beta: jax.Array,
    log_weight: jax.Array,
    of_document: jax.Array,
    *,
    deepest: int,
) -> jax.Array:
    """sum_d of_document_d sum_n phi_dn phi_dn' of each shard between two, [shards, K, K]; phi is proportional to
    exp(log_weight_d) beta_w."""
    num_topics = log_beta.shape[1]

    def one_shard(shard: tuple, log_beta: jax.Array, log_weight: jax.Array, of_document: jax.Array) -> jax.Array:
        terms, repeats, start, depths, rows_of, _ = shard
        terms, repeats = with_padding(terms, log_beta.shape[0]), with_padding(repeats, 0)
        beta_of_terms = out_of_logs(log_beta)

        def block(b: jax.Array, carry: tuple) -> tuple:
            products, beta = carry
            rows, first, depth = rows_of[b], start[b], depths[b]
            beta = look_up(beta, beta_of_terms, terms, first, depth)
            weighed, factor = Weighed.of(log_weight[rows].T), jnp.tile(of_document[rows], CHUNK)

            def add(chunk: jax.Array, products: jax.Array) -> jax.Array:
                part = Chunk.of(beta, terms, repeats, (first, depth), chunk, weighed)
                return products + (part.counted * factor[:, None]).T @ part.phi

            return jax.lax.fori_loop(0, -(-depth // CHUNK), add, products), beta

        carry = jnp.zeros((num_topics, num_topics)), room(deepest, num_topics, rows_of.shape[1])
        return jax.lax.fori_loop(0, rows_of.shape[0], block, carry)[0]

    return over_shards(one_shard, pairs.shards, (log_beta, log_weight, of_document), between)


class MarginNormalState(NamedTuple):
    """What one turn of EM hands to the next."""

    topics: np.ndarray  # [K, V], see DirichletSite
    alpha: np.ndarray  # [K] or [D, K]
    gamma: Any  # [D, K]
    counts: np.ndarray  # [K, V] expected
    words: np.ndarray  # [D] the documents' part of the bound, without responses
    gram: np.ndarray  # [K, K] E[A'A] of the labelled documents
    coefficients: np.ndarray  # [K] lambda
    covariance: np.ndarray  # [K, K] Sigma
    duals: np.ndarray  # [D, 1], 0 where unlabelled
    spread: float  # value of the site behind the scale


class MarginNormalWords(TiltedWords):
    """Stories of a Dirichlet theta for each document, Dirichlet topics, one normal response and one margin of zbar @ eta."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        super().__init__(graph, settings)
        self.normal, self.margin = _NormalBeside(graph, settings.point), MarginResponse(graph)
        if self.margin.loss is not TUBE or self.margin.laplace:
            refuse(graph, self.margin.eta, "beside a normal response it needs a normal prior and a margin for numbers")
        self.refuse_others({self.margin.name, *self.normal.sites}, "response and margin")
        self.labelled, self.variance = self.margin.labelled, self.margin.scale[:, 0] ** 2
        self.y = np.where(self.labelled, self.normal.target, 0.0)

    def start(self, rng: np.random.Generator) -> MarginNormalState:
        """eta on a grid, sigma the deviation of y; topics by the response, or uniform plus noise."""
        counts: Any = 0.0
        if self.settings.start == "response":
            counts, _ = topics_by_response(self.graph.corpus.counts, self.graph.y, self.num_topics)
        nothing, num_topics = np.zeros(0), self.num_topics
        return MarginNormalState(
            self.topics.start(rng, counts), self.alpha, None, nothing, nothing, nothing, np.linspace(-1, 1, num_topics),
            1e-4 * np.eye(num_topics), np.zeros((len(self.lengths), 1)), self.normal.first_spread(),
        )  # fmt: skip

    def _noise(self, state: MarginNormalState) -> float:
        """sigma^2."""
        return float(self.normal.scale(state.spread)[0][0]) ** 2

    def tilt(self, state: MarginNormalState, mean_topics: np.ndarray) -> np.ndarray:
        """Equation 14 at given mean topics, [D, K]; of a word's own part of them the mean is taken."""
        noise, length = self._noise(state), self.lengths[:, None]
        second = state.covariance + np.outer(state.coefficients, state.coefficients)
        linear = (self.y / noise - state.duals[:, 0])[:, None] * state.coefficients / length
        others = ((length - 1) * (mean_topics @ second) + np.diag(second) / 2) / (length**2 * noise)
        return np.where(self.labelled[:, None], linear - others, 0.0)

    def expect(self, state: MarginNormalState, fresh: bool) -> MarginNormalState:
        new = state._replace(gamma=self.first_gamma(state, fresh))
        mean_topics = self.mean_topics(new)
        for _ in range(ROUNDS):
            tilt = self.tilt(state, mean_topics)
            new, _ = self.settled(new, new.gamma, tilt, max(1, self.settings.e_iterations // ROUNDS))
            mean_topics = (mean_topics + self.mean_topics(new)) / 2
        log_weight = digamma(new.gamma) - digamma(new.gamma.sum(-1, keepdims=True)) + jnp.asarray(tilt, jnp.float32)
        weight = jnp.asarray(np.where(self.labelled, self.lengths**-2, 0.0), jnp.float32)
        shared = self.pairs, self.log_beta(state), log_weight, weight
        same = by_threads(sums_of_products, self.pairs.batches, *shared, deepest=self.pairs.deepest).sum(0)
        x = self.mean_topics(new)[self.labelled]
        once = np.diag((x / self.lengths[self.labelled, None]).sum(0))
        return new._replace(gram=x.T @ x + once - np.asarray(same, np.float64))

    def maximise(self, state: MarginNormalState, fresh: bool) -> MarginNormalState:
        x, y = self.mean_topics(state)[self.labelled], self.y[self.labelled]
        noise = self._noise(state)
        root = np.linalg.cholesky(np.diag(1 / self.variance) + state.gram / noise)
        covariance = np.linalg.solve(root.T, np.linalg.solve(root, np.eye(self.num_topics)))
        centre = covariance @ (x.T @ y) / noise
        features, ones = np.linalg.solve(root, x.T).T, np.ones((self.num_topics, 1))
        found, duals = self.machine(state, TUBE, features, y - x @ centre, ones, self.margin.parameters)
        coefficients = centre + np.linalg.solve(root.T, found.coefficients[:, 0].astype(float))
        moved = state._replace(coefficients=coefficients, covariance=covariance, duals=duals)
        residual = np.full(len(self.lengths), self._residual(moved) / max(self.labelled.sum(), 1))
        spread, topics = (
            self.normal.spread_given(residual, state.spread),
            self.topics.update(state.counts, state.topics),
        )
        return moved._replace(spread=spread, topics=topics, alpha=self.next_alpha(state, fresh))

    def _residual(self, state: MarginNormalState) -> float:
        """sum_d E[(y_d - eta . zbar_d)^2], equation 11."""
        x, y = self.mean_topics(state)[self.labelled], self.y[self.labelled]
        second = state.covariance + np.outer(state.coefficients, state.coefficients)
        return float(y @ y - 2 * y @ (x @ state.coefficients) + (state.gram * second).sum())

    def bound(self, state: MarginNormalState) -> float:
        """Minus the objective."""
        noise, number = self._noise(state), int(self.labelled.sum())
        scores = self.mean_topics(state)[self.labelled] @ state.coefficients
        target, parameters = jnp.asarray(self.y[self.labelled], jnp.float32), self.margin.parameters
        loss = float(TUBE.value(jnp.asarray(scores, jnp.float32)[:, None], target, parameters).sum())
        response = -0.5 * number * np.log(2 * np.pi * noise) - self._residual(state) / (2 * noise)
        spread = (np.diag(state.covariance) + state.coefficients**2) / self.variance - 1 + np.log(self.variance)
        divergence = 0.5 * (spread.sum() - np.linalg.slogdet(state.covariance)[1])
        prior = self.normal.scale(state.spread)[1] if self.normal.map else 0.0
        return float(state.words.sum()) + self.topics.bound(state.topics) + response - divergence + prior - loss

    def marginals(self, state: MarginNormalState) -> Marginals:
        marginals = Marginals(dirichlet={self.theta: np.asarray(state.gamma)})
        self.topics.put(state.topics, marginals)
        points = self.normal.points(state.coefficients, state.spread)
        marginals.point.update({name: value for name, value in points.items() if name != self.normal.eta})
        marginals.normal[self.normal.eta] = state.coefficients, state.covariance
        return marginals

    def report(self, state: MarginNormalState) -> dict[str, Any]:
        """For the fit's info."""
        own, parameters = state.duals[self.labelled], self.margin.parameters
        return {"support_vectors": support_vectors(TUBE, own, self.y[self.labelled], parameters)}
