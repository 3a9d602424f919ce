"""Variational EM for words with a margin: the loss of an expectation (Zhu, Ahmed & Xing 2012).

    minimise  -L(q) + KL(q(eta) || p(eta)) + sum_d loss(y_d, E[eta]' E[zbar_d])

where L is the bound of the words. q(eta) is N(lambda, V), lambda a support vector machine on E[zbar] with duals a_d
(:mod:`.margin_solvers`), and V the prior's variances. The duals tilt the topics of every word of a document by
-lambda a_d / N_d, equations 21 and 23. This is one step: the duals belong to the topics as they were, so that the objective
may rise a little from one iteration to the next, as the authors say.

A Laplace prior is a normal one whose variances follow the coefficients, V = nu sqrt(E[eta^2]).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora.layouts import distinct_pairs, documents
from topiczoo.models.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll

from .expectations import Marginals, Settings, dirichlet_bound, expected_log, fit_alpha, refuse, unwrap
from .expectations_words import pair_blocks, read_words, settle
from .margin_solvers import CRAMMER_SINGER, HINGES, TUBE, Loss, n_slack, one_slack
from .reading import ZBAR, Answer, Reading, run
from .starting import topics_by_response
from .sweep import mesh_of_devices

LOSSES: dict[Any, Loss] = {
    EpsilonInsensitive: TUBE,
    Hinge: HINGES,
    MultiClassHinge: CRAMMER_SINGER,
    OneAgainstAll: HINGES,
}
SMALLEST_VARIANCE = 1e-6  # of a coefficient under a Laplace prior, in units of the prior's


def is_margin(reading: Reading) -> bool:
    """Whether some site below zbar is a margin."""
    return any(reading.family(name) in LOSSES for name in reading.below)


class MarginResponse:
    """The one margin below zbar, as the story gives it: its loss, its targets, and the prior of its coefficients."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.name = next(name for name in reading.below if reading.family(name) in LOSSES)
        self.others = [name for name in reading.below if name != self.name]
        self.loss = LOSSES[reading.family(self.name)]
        shapes = reading.predictor_shapes
        if not reading.linear or len(shapes) != 1 or len(shapes[0]) > 1:
            refuse(reading, self.name, "it uses zbar otherwise than through one zbar @ eta, eta [K] or [K, C]")
        self.outputs = shapes[0][0] if shapes[0] else 1
        self.eta = self._coefficients()
        if others := sorted(reading.parents[self.name] - {ZBAR, self.name, self.eta}):
            refuse(reading, others[0], f"the margin {self.name!r} reads it")
        if above := sorted(reading.parents[self.eta] - {self.eta}):
            refuse(reading, above[0], f"it is a latent parameter of the prior of {self.eta!r}")
        self.shape = reading.latent[self.eta].shape
        prior = unwrap(reading.latent[self.eta].fn)
        if not isinstance(prior, dist.Normal | dist.Laplace) or np.any(np.asarray(prior.loc)):
            refuse(
                reading, self.eta, f"its prior is {type(prior).__name__} where a Normal or Laplace around 0 is needed"
            )
        self.laplace = isinstance(prior, dist.Laplace)
        columns = (self.shape[0], self.outputs)
        self.scale = np.broadcast_to(np.asarray(prior.scale, float), self.shape).reshape(columns)
        self._read_targets()

    def _coefficients(self) -> str:
        reading, answer = self.reading, Answer(lambda theta: theta)
        trace = run(reading.story, reading.few_documents, reading.few_y, reading.few_values, answer)
        for name in reading.latent:
            if trace[name]["value"] is answer.coefficients[0]:
                return name
        refuse(reading, self.name, "the eta of its zbar @ eta is computed, not a site itself")

    def _read_targets(self) -> None:
        """Targets, labelled documents and the loss's parameters; scores must be the predictor itself."""
        reading = self.reading

        @jax.jit
        def look(corpus: Any, y: Any, x: jax.Array) -> tuple:
            trace = run(reading.story, corpus, y, {}, Answer(lambda theta: theta, [x]))
            fn = unwrap(trace[self.name]["fn"])
            parts = {name: getattr(fn, name) for name in ("weight", "cost", "epsilon") if hasattr(fn, name)}
            places = [getattr(fn, name) for name in ("loc", "score", "scores") if hasattr(fn, name)]
            return trace[self.name]["value"], parts, places[0]

        num_documents = len(reading.corpus)
        x = jax.random.normal(jax.random.key(0), (num_documents, *reading.predictor_shapes[0]))
        y = jax.tree.map(jnp.asarray, reading.y)
        target, parts, scores = look(documents(reading.corpus), y, x)
        if not np.allclose(scores, x, rtol=1e-5):
            refuse(reading, self.name, "its scores are not zbar @ eta alone")
        for name, part in parts.items():
            if np.size(part) > 1 and np.ptp(np.asarray(part)):
                refuse(reading, self.name, f"its {name} differs between documents")
        self.parameters = {name: jnp.float32(np.ravel(part)[0]) for name, part in parts.items()}
        told = np.concatenate(
            [np.asarray(leaf, float).reshape(num_documents, -1) for leaf in jax.tree.leaves(reading.y)], 1
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


class MarginWords:
    """Stories of a Dirichlet theta for each document, Dirichlet topics, and one margin of zbar @ eta."""

    monotone = False

    def __init__(self, reading: Reading, settings: Settings) -> None:
        self.reading, self.settings = reading, settings
        self.theta, self.topics, self.alpha = read_words(reading, settings)
        self.response = MarginResponse(reading)
        if self.response.others:
            refuse(
                reading, self.response.others[0], f"it is a second response beside the margin {self.response.name!r}"
            )
        known = {self.theta, self.topics.name, self.response.name, self.response.eta}
        if extra := sorted((set(reading.latent) | set(reading.observed)) - known):
            refuse(reading, extra[0], "it is neither part of the words nor of their margin")
        self.num_topics = len(self.topics.prior)
        self.pairs = pair_blocks(distinct_pairs(reading.corpus), *reading.corpus.counts.shape)
        self.lengths = reading.corpus.lengths.astype(np.float64)

    def start(self, rng: np.random.Generator) -> MarginState:
        """Coefficients 0, as in the paper; topics by the response, or uniform plus noise."""
        response = self.response
        counts: Any = 0.0
        if self.settings.start == "response":
            counts = self._first_counts() * rng.gamma(
                1.0, 1.0, self.topics.prior.shape
            )  # topics of one class must differ
        nothing, shape = np.zeros(0), response.scale.shape
        variance = response.scale**2 * (2 if response.laplace else 1)
        duals = np.zeros((len(self.lengths), response.outputs), np.float32)
        return MarginState(
            self.topics.start(rng, counts), self.alpha, None, nothing, nothing, np.zeros(shape), variance, duals
        )

    def _first_counts(self) -> np.ndarray:
        """Counts of the documents of a class for each topic, classes in turn; topics in the order of y where that fails."""
        counts, response = self.reading.corpus.counts, self.response
        classes = max(response.outputs, 2)
        if not response.of_classes or classes > self.num_topics:
            return topics_by_response(counts, self.reading.y, self.num_topics)[0]
        own = counts[response.labelled]
        sums = np.stack([np.asarray(own[response.target == c].sum(0)).ravel() for c in range(classes)])
        return sums[np.arange(self.num_topics) % classes] * classes / self.num_topics

    def tilt(self, state: MarginState) -> np.ndarray:
        """What each word of a document gains in each topic, [D, K]."""
        return -(state.duals @ state.coefficients.T) / np.maximum(self.lengths, 1.0)[:, None]

    def expect(self, state: MarginState, fresh: bool) -> MarginState:
        log_beta = jnp.asarray(self.topics.log_mean(state.topics).T, jnp.float32)
        shape = len(self.lengths), self.num_topics
        alpha = jnp.broadcast_to(jnp.asarray(state.alpha, jnp.float32), shape)
        start = state.gamma
        if fresh or start is None:
            start = alpha + jnp.asarray(self.lengths, jnp.float32)[:, None] / self.num_topics
        limits = self.settings.e_tolerance, self.settings.e_iterations
        where: dict[str, Any] = {"deepest": self.pairs.deepest, "mesh": mesh_of_devices()}
        tilt = self.tilt(state)
        gamma, words, counts = settle(
            self.pairs, log_beta, alpha, start, *limits, jnp.asarray(tilt, jnp.float32), **where
        )
        posterior = np.asarray(gamma, np.float64)
        gained = ((posterior - state.alpha) * tilt).sum(1)  # by the tilt, which is no part of the bound of the words
        bound = np.asarray(words, np.float64) - gained + dirichlet_bound(state.alpha, posterior)
        return state._replace(gamma=gamma, counts=np.asarray(counts, np.float64).T, words=bound)

    def mean_topics(self, state: MarginState) -> np.ndarray:
        """E[zbar], [D, K]."""
        return (np.asarray(state.gamma, np.float64) - state.alpha) / np.maximum(self.lengths, 1.0)[:, None]

    def maximise(self, state: MarginState, fresh: bool) -> MarginState:
        alpha, response = state.alpha, self.response
        if self.settings.estimate_alpha and not fresh:
            alpha = fit_alpha(alpha, expected_log(np.asarray(state.gamma, np.float64)))
        x, variance = self.mean_topics(state)[response.labelled], state.variance
        if response.laplace:
            second = state.coefficients**2 + variance
            variance = np.maximum(response.scale * np.sqrt(second), SMALLEST_VARIANCE * response.scale**2)
        problem = response.loss, x, response.target, variance, response.parameters
        if self.settings.slack == "one":
            found = one_slack(*problem)
        else:
            found = n_slack(*problem, state.duals[response.labelled])
        duals = np.zeros_like(state.duals)
        duals[response.labelled] = found.duals
        topics = self.topics.update(state.counts)
        return state._replace(
            topics=topics, alpha=alpha, coefficients=found.coefficients.astype(float), variance=variance, duals=duals
        )

    def bound(self, state: MarginState) -> float:
        """Minus the objective; the divergence of q(eta) is that from the normal prior with the variances of now."""
        response = self.response
        scores = jnp.asarray(self.mean_topics(state)[response.labelled] @ state.coefficients, jnp.float32)
        loss = float(response.loss.value(scores, jnp.asarray(response.target), response.parameters).sum())
        penalty = (state.coefficients**2 / state.variance).sum() / 2
        return float(state.words.sum()) + self.topics.bound(state.topics) - float(penalty) - loss

    def marginals(self, state: MarginState) -> Marginals:
        marginals = Marginals(dirichlet={self.theta: np.asarray(state.gamma)})
        self.topics.put(state.topics, marginals)
        shape = self.response.shape
        marginals.normal[self.response.eta] = state.coefficients.reshape(shape), state.variance.reshape(shape)
        return marginals

    def report(self, state: MarginState) -> dict[str, Any]:
        """For the fit's info: documents (with a class, where there are several) whose dual is not 0."""
        held = np.abs(state.duals) > 1e-6 * float(self.response.parameters["weight"])
        if self.response.loss is CRAMMER_SINGER:  # a support vector is a document with a class that is not its own
            held[self.response.labelled, self.response.target] = False
        return {"support_vectors": int(held.sum()), "tilt": float(np.abs(self.tilt(state)).max())}
