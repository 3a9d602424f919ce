"""Smooth responses of one linear predictor: any observed sites that read zbar through one ``zbar @ eta``.

They enter the bound as R_d(m_d, v_d) = E[log p(y_d | x)], x the predictor with mean m_d and covariance v_d under q, averaged
over sigma points: nothing else of the story is known. For a normal response that is exact. The paper's delta method,
log p(y | m) + tr(v d^2 log p / dx^2) / 2, is there for comparison. The E-step is that of :mod:`..steps.responses`.

In the M-step eta moves by Newton's step on sum_d R_d(m_d(eta), v_d(eta)) + log p(eta), with

    gradient  sum_d phibar_d R_m' + 2 S_d eta R_v,    Hessian  sum_d phibar_d phibar_d' R_mm + 2 S_d R_v

where v_d = eta' S_d eta and S_d = (diag sum_n phi_n - sum_n phi_n phi_n') / N^2; of S_d R_v in the Hessian only what one
predictor has with itself is kept, so that it is negative definite where R_mm is. For a normal response that is equation 10
of Blei & McAuliffe (2007), solved at once. Other parameters move by L-BFGS. Steps are halved until the bound rises.

With a weight of the response R is so many times itself, and documents that are held out have none. Scales such as sigma move
by these alone, at weight 1 (:mod:`..mcmc.weighing`); what they climb is then not the bound, and what they do to it is told
apart (:meth:`SmoothResponse.shift`).

Under a latent class of documents there is an R, and a q of the words, for each of its values, and the M-step sums over them
with the documents' shares q(c_d).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from topiczoo.corpora.layouts import Documents

from ..mcmc.weighing import as_seen, aside, counting, scales_of
from ..programs.compiling import jitted
from ..programs.keeping import Alike, Unkeyed
from ..steps.quadrature import sigma_points
from ..steps.responses import own_curves
from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.response import Y
from ..story.tracing import ZbarHandler, program
from .components import Posterior, Settings, State, coefficients_site, refuse
from .sites import Points, PointSites, Seen, few_of, log_prior
from .starts import coefficients_by_response, topics_by_response
from .words import of_terms, of_topics

NODES = 9
SMALLEST_PIVOT = 1e-5  # of a root's largest; below it a matrix is as good as singular


class Part(NamedTuple):
    """What the M-step reads of an E-step: of all documents, or of all as members of one class."""

    given: Points  # the class, if there is one
    shares: jax.Array | None  # [D], how far documents count, where that is not wholly
    log_mean: np.ndarray
    local: Any
    sums: Any


class SmoothResponse:
    """Observed sites below zbar, the coefficients eta, and the other parameters they read. The state holds their values.

    ``latent`` is the name of a latent class of documents, where there is one.
    """

    reads: frozenset[str] = frozenset({"point", "start", "order", "expectation"})
    monotone: ClassVar[bool] = True

    def __init__(
        self, graph: BoundGraph, settings: Settings, sites: tuple[str, ...] | None = None, latent: str = ""
    ) -> None:
        self.graph, self.settings, self.latent = graph, settings, latent
        self.responses = graph.response_sites if sites is None else sites
        self.map, self.delta = settings.point == "map", settings.expectation == "delta"
        for name in self.responses:
            if name in graph.latent:
                refuse(graph, name, "it is latent and depends on zbar")
            if graph.density_axis[name] is None:
                refuse(graph, name, "it has no axis of documents")
        self.eta = coefficients_site(graph, self.responses[0])
        graph.refuse_linked_documents()
        self.shape = graph.latent[self.eta].shape  # [K] or [K, C]
        self.num_topics, self.size = self.shape[0], int(np.prod(self.shape[1:], dtype=int))
        read = set().union(*(graph.parents[name] for name in self.responses)) - {ZBAR}
        self.others = sorted((read & set(graph.latent)) - {self.eta, latent})
        for name in self.others:
            if graph.latent[name].document_axis is not None or graph.latent[name].discrete:
                refuse(graph, name, "the response reads it and it belongs to documents or is discrete")
            if latent and not graph.children([name]) - {name} <= set(self.responses):
                refuse(graph, name, f"beside the response something else reads it, and {latent!r} is a latent class")
        self.names = {*self.responses, self.eta, *self.others}
        data = counting(graph, graph.documents()), graph.response.on_device()
        self.scales = [name for name in self.others if name in scales_of(graph)]
        self.log_linear = not self.delta and len(self.shape) == 1 and self._is_log_linear()
        self.for_kernels = self._bare()
        self.data, self.few = data, few_of(graph)
        if settings.order == "sequential":
            self.require_normal()
            if graph.story.weighed:
                refuse(graph, self.responses[0], "order='sequential' knows no weight of the response; leave order out")
        rest = [name for name in self.others if name not in self.scales]
        self.points = PointSites(graph, rest, self._of_others(), steps=20)
        self.of_scales = PointSites(graph, self.scales, self._of_others(), steps=20)

    def _bare(self) -> Any:
        """The same without documents: what is compiled for it serves another fit of a story of the same form."""
        bare = copy.copy(self)
        bare.graph = self.graph.for_programs()
        try:
            return Alike(bare)
        except Unkeyed:
            return self

    def of_others(self, data: Seen) -> SmoothResponse:
        """The same for other documents; what was compiled for these serves them."""
        others = copy.copy(self)
        others.data = data
        return others

    # what is compiled: documents are arguments, and XLA does not spend seconds on what follows from constants

    def objective(self, values: Points, parts: list[tuple]) -> jax.Array:
        """sum_d R_d + log p(values); of each part what is given, the shares, mean and covariance."""
        return program(_objective, self.for_kernels)(self.data, self.few, values, parts)

    def log_prior(self, values: Points) -> jax.Array:
        """log p of eta and the other parameters; nothing under maximum likelihood."""
        return program(_log_prior, self.for_kernels)(self.few, values)

    def slopes_of_prior(self, values: Points) -> tuple[jax.Array, jax.Array]:
        """Slope and curvature of eta's log-prior."""
        return program(_slopes_of_prior, self.for_kernels)(self.few, values)

    def _slopes(self, values: Points, mean: jax.Array, covariance: jax.Array) -> tuple:
        """R_m, R_mm and R_v, documents first."""
        return program(_slopes_first, self.for_kernels)(self.data, values, mean, covariance)

    def _of_others(self, prior: bool = True) -> Callable:
        """What the other parameters climb."""
        return partial(_of_others, self.for_kernels, prior)

    def _is_log_linear(self) -> bool:
        """Whether log p(y | x) = A x - B exp(x) + C: its third derivative is its second."""
        places = jnp.asarray([[-1.5, 0.2, 0.9], [0.7, -0.4, 1.4]])
        bends = program(_bends, self._bare(), once=True)
        second, third = map(np.asarray, bends(self.graph.few_values, few_of(self.graph), places))
        return bool((second <= 0).all() and second.min() < 0 and np.allclose(second, third, rtol=1e-4, atol=1e-6))

    # R and its derivatives

    def _at(self, values: Points, corpus: Documents, y: Y, point: jax.Array) -> jax.Array:
        """log p(y | x) of each document, [D], at one predictor x of each, [D, C]."""
        answer = ZbarHandler(lambda theta: theta, [point[:, 0] if len(self.shape) == 1 else point])
        if self.latent:  # one class of all documents
            values = {**values, self.latent: jnp.broadcast_to(values[self.latent], (corpus.num_documents,))}
        return self.graph.document_terms(self.responses, corpus, y, values, answer)

    def terms(self, values: Points, corpus: Documents, y: Y, mean: jax.Array, covariance: jax.Array) -> jax.Array:
        """R of each document, [D], at means [D, C] and covariances [D, C, C] of the predictor."""
        at = partial(self._at, values, corpus, y)
        if self.delta:
            slope = jax.grad(lambda point: at(point).sum())

            def along(direction: jax.Array) -> jax.Array:
                return jax.jvp(slope, (mean,), (jnp.broadcast_to(direction, mean.shape),))[1]

            bend = jax.vmap(along, out_axes=1)(jnp.eye(mean.shape[1]))  # [D, C, C]
            return at(mean) + 0.5 * (bend * covariance).sum((1, 2))
        points, log_weights = sigma_points(mean, covariance, NODES)
        return (jnp.exp(log_weights)[:, None] * jax.vmap(at)(points)).sum(0)

    def slopes(self, values: Points, corpus: Documents, y: Y, mean: jax.Array, covariance: jax.Array) -> tuple:
        """R_m [C, D], R_v [C, C, D] and R_mm [C, C, D] at means [C, D] and covariances [C, C, D], documents last.

        R_mm is for Newton's steps alone, which are guarded. With several predictors it is that of log p at the mean: over
        all sigma points it would take most of the E-step's time.
        """

        def expected(mean: jax.Array, covariance: jax.Array) -> jax.Array:
            return self.terms(values, corpus, y, mean.T, jnp.moveaxis(covariance, -1, 0)).sum()

        def bent(mean: jax.Array) -> jax.Array:
            return expected(mean, covariance) if len(mean) == 1 else self._at(values, corpus, y, mean.T).sum()

        def along(direction: jax.Array) -> jax.Array:
            return jax.jvp(jax.grad(bent), (mean,), (jnp.broadcast_to(direction[:, None], mean.shape),))[1]

        slope, curve = jax.grad(expected, (0, 1))(mean, covariance)
        bend = jax.vmap(along)(jnp.eye(len(mean)))  # one direction a predictor gives R_mm of all documents
        return slope, (curve + jnp.swapaxes(curve, 0, 1)) / 2, bend

    # a normal response: R = -precision ((target - m)^2 + v) / 2 + what does not depend on topics

    def require_normal(self) -> None:
        """Refuse what is not N(zbar @ eta + something free of topics, scale^2), by its slopes on a few documents."""
        graph, name = self.graph, self.responses[0]
        if self.size != 1 or len(self.shape) > 1:
            refuse(graph, name, f"its eta has shape {list(self.shape)} where [K] is needed")
        if not self.is_normal:
            family = graph.family(name).__name__
            why = f"its distribution is {family} where a Normal around zbar @ eta is needed"
            refuse(graph, name, f"{why} (order='parallel' serves it)" if self.settings.order == "sequential" else why)

    @cached_property
    def is_normal(self) -> bool:
        """Whether R is a quadratic of one predictor, seen on a few documents."""
        if self.size != 1 or len(self.shape) > 1:
            return False
        graph, (mean, zero) = self.graph, (jnp.asarray([[0.7, -1.3, 2.1]]), jnp.zeros((1, 3)))
        look = partial(program(SmoothResponse.slopes, self.for_kernels, once=True), graph.few_values, *few_of(graph))
        at_zero, moved = look(zero, 1.0 + zero[None]), look(mean, 0.3 + zero[None])
        line = at_zero[0] + 2 * at_zero[1][0] * mean
        return bool(np.allclose(at_zero[1], moved[1], rtol=1e-3) and np.allclose(line, moved[0], rtol=1e-3, atol=1e-3))

    def as_normal(self, values: Points) -> tuple[np.ndarray, np.ndarray]:
        """Target and precision of each document, [D]; a precision of 0 means unlabelled."""
        zero = jnp.zeros((len(self.graph.corpus), 1))
        slope, _, curve = self._slopes(values, zero, 1.0 + zero[..., None])
        precision = -2 * np.asarray(curve, np.float64)[:, 0, 0]
        target = np.asarray(slope, np.float64)[:, 0] / np.where(precision > 0, precision, 1.0)
        return target, precision

    def at_deviation_of_y(self, values: Points) -> Points:
        """The other parameters at their best for one mean of all documents, without priors: sigma at the deviation of y."""
        target, precision = self.as_normal(values)
        mean = jnp.full((len(target), 1), target[precision > 0].mean(), jnp.float32)
        rated = PointSites(self.graph, self.others, self._of_others(prior=False), 100)
        return {**values, **rated.m_step(values, self.data, self.few, values, [({}, None, mean, 0 * mean[..., None])])}

    # what EM asks

    def first_values(self) -> Points:
        """Feasible values of the parameters."""
        return {name: self.graph.few_values[name] for name in (self.eta, *self.others)}

    def start(self, rng: np.random.Generator) -> tuple[Points, np.ndarray | float]:
        """Topics by the response, or section 3 of the paper: eta on a grid, topics uniform (plus noise)."""
        grid = np.linspace(-1, 1, self.num_topics)
        counts: np.ndarray | float = 0.0
        if len(self.shape) > 1:
            grid = np.stack([np.roll(grid, 7 * c) for c in range(self.size)], 1)
        if self.settings.start == "response":
            seen = as_seen(self.graph).y
            counts, shares = topics_by_response(self.graph.corpus.counts, seen, self.num_topics)
            if len(self.shape) > 1:
                grid = coefficients_by_response(seen, shares, self.size)
        values = {**self.first_values(), self.eta: jnp.asarray(grid, jnp.float32)}
        return self.at_deviation_of_y(values) if self.settings.order == "sequential" else values, counts

    def e_step(self, words: Any, log_mean: np.ndarray, state: State, fresh: bool) -> State:
        start = None if fresh else state.local
        local, sums = words.with_response(self, state.response, log_mean, state.alpha, start)
        return state._replace(local=local, counts=of_topics(sums.counts, log_mean.shape), statistics=sums)

    def of_class(self, values: Points, value: float) -> Points:
        """Parameters with the latent class that all documents are taken to have."""
        return {**values, self.latent: jnp.asarray(value)}

    def parts(self, log_mean: np.ndarray, state: State) -> list[Part]:
        """What the M-step sums over."""
        if not self.latent:
            return [Part({}, None, log_mean, state.local, state.statistics)]
        return [
            Part({self.latent: jnp.asarray(of.value)}, jnp.asarray(shares, jnp.float32), of.log_mean, of.local, of.sums)
            for of, shares in zip(state.statistics, state.local.shares, strict=True)
        ]

    def m_step(self, words: Any, log_mean: np.ndarray, state: State) -> Points:
        values, parts = self.move_eta(words, log_mean, state)
        values = {**values, **self.points.m_step(values, self.data, self.few, values, parts)}
        if not self.scales:
            return values
        held_out = aside(self.graph, self.data[0]), self.data[1]
        return {**values, **self.of_scales.m_step(values, held_out, self.few, values, parts)}

    def shift(self, words: Any, log_mean: np.ndarray, state: State, new: Points) -> float:
        """What the M-step from a state to new values has done to the bound by moving scales, which climb something else."""
        if not self.scales:
            return 0.0
        old, columns = (
            {**new, **{name: state.response[name] for name in self.scales}},
            new[self.eta].reshape(self.num_topics, -1),
        )
        at = [
            (part.given, part.shares, *words.moments(columns, part.local, of_terms(part.log_mean), self.log_linear))
            for part in self.parts(log_mean, state)
        ]
        return float(self.objective(new, at)) - float(self.objective(old, at))

    def move_eta(self, words: Any, log_mean: np.ndarray, state: State) -> tuple[Points, list[tuple]]:
        """The response's parameters with eta moved, and the parts of the objective there."""
        values, parts = state.response, self.parts(log_mean, state)
        at = [(part.given, part.shares, part.local.mean, part.local.covariance) for part in parts]
        prior_slope, prior_bend = self.slopes_of_prior(values)
        n = self.num_topics * self.size
        derivatives = [map(np.asarray, self.derivatives_of_part(words, values, part)) for part in parts]
        gradients, hessians = zip(*derivatives, strict=True)
        ascent = np.asarray(sum(part.ravel() for part in gradients) + np.asarray(prior_slope), np.float64)
        bend = np.asarray(sum(part.reshape(n, n) for part in hessians) + np.asarray(prior_bend), np.float64)
        move = solve_newton(-(bend + bend.T) / 2, ascent)
        if ascent @ move <= 0:
            move = ascent
        old = float(self.objective(values, at))
        for halvings in range(12):
            eta = jnp.asarray((np.ravel(values[self.eta]) + move / 2**halvings).reshape(self.shape), jnp.float32)
            new, columns = {**values, self.eta: eta}, eta.reshape(self.num_topics, -1)
            moments = [words.moments(columns, part.local, of_terms(part.log_mean), self.log_linear) for part in parts]
            moved = [(*part[:2], *found) for part, found in zip(at, moments, strict=True)]
            if float(self.objective(new, moved)) >= old:
                return new, moved
        return values, at

    def derivatives_of_part(self, words: Any, values: Points, part: Part) -> tuple[jax.Array, jax.Array]:
        """Gradient [K, C] and Hessian [K, C, K, C] of its documents' R in eta."""
        tokens, sums = part.local.tokens, part.sums
        derivatives = self._slopes({**values, **part.given}, part.local.mean, part.local.covariance)
        lengths, eta = jnp.asarray(words.lengths, jnp.float32), values[self.eta].reshape(self.num_topics, -1)
        return _in_eta(derivatives, part.shares, lengths, tokens, sums.pull, sums.products, eta)

    def bound(self, state: State) -> float:
        return float(self.log_prior(state.response))

    def q(self, state: State) -> Posterior:
        return {name: dist.Delta(np.asarray(value)) for name, value in state.response.items()}

    def report(self, state: State) -> Mapping[str, float]:
        return {}


def _log_prior(of: SmoothResponse, few: Seen, values: Points) -> jax.Array:
    return log_prior(of.graph, [of.eta, *of.others] if of.map else [], values, few)


def _slopes_of_prior(of: SmoothResponse, few: Seen, values: Points) -> tuple[jax.Array, jax.Array]:
    def prior(eta: jax.Array) -> jax.Array:
        return _log_prior(of, few, {**values, of.eta: eta.reshape(of.shape)})

    eta = values[of.eta].ravel()
    return jax.grad(prior)(eta), jax.hessian(prior)(eta)


def _of_documents(of: SmoothResponse, data: Seen, values: Points, parts: list[tuple]) -> jax.Array:
    """sum_d R_d."""
    found = jnp.zeros(())
    for given, shares, mean, covariance in parts:
        terms = of.terms({**values, **given}, *data, mean, covariance)
        found += (terms if shares is None else shares * terms).sum()
    return found


def _objective(of: SmoothResponse, data: Seen, few: Seen, values: Points, parts: list[tuple]) -> jax.Array:
    return _log_prior(of, few, values) + _of_documents(of, data, values, parts)


def _of_others(
    of: SmoothResponse, prior: bool, points: Points, data: Seen, few: Seen, given: Points, parts: list[tuple]
) -> jax.Array:
    values = {**given, **points}
    found = _of_documents(of, data, values, parts)
    return found + _log_prior(of, few, values) if prior else found


def _slopes_first(of: SmoothResponse, data: Seen, values: Points, mean: jax.Array, covariance: jax.Array) -> tuple:
    slope, curve, bend = of.slopes(values, *data, mean.T, jnp.moveaxis(covariance, 0, -1))
    return slope.T, jnp.moveaxis(bend, -1, 0), jnp.moveaxis(curve, -1, 0)


def _bends(of: SmoothResponse, values: Points, few: Seen, places: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Second and third derivatives of log p(y | x) at some x of each of a few documents."""

    def total_at(x: jax.Array) -> jax.Array:
        return of._at(values, *few, x[:, None]).sum()

    def derivative(function: Callable) -> Callable:
        return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]

    bend = derivative(jax.grad(total_at))
    return jax.vmap(bend)(places), jax.vmap(derivative(bend))(places)


@jitted
def _in_eta(
    derivatives: tuple, shares: jax.Array | None, lengths: jax.Array, tokens: jax.Array, pull: jax.Array,
    products: jax.Array, eta: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Gradient [K, C] and Hessian [K, C, K, C] in eta, of slopes in the moments of each document's predictor."""
    if shares is not None:
        derivatives = tuple((leaf.T * shares).T for leaf in derivatives)
    slope, bend, curve = derivatives
    length = jnp.maximum(lengths, 1.0)[:, None]
    weight, phibar = curve / length[..., None] ** 2, tokens / length
    gradient = phibar.T @ slope + 2 * (jnp.einsum("dk,dce,ke->kc", tokens, weight, eta) - pull)
    own = own_curves(*(jnp.moveaxis(part, 0, -1) / length[:, 0] ** 2 for part in (curve, bend)))  # [C, D]
    each, alone = jnp.arange(eta.shape[1]), own @ tokens
    hessian = jnp.einsum("dk,dce,dl->kcle", phibar, bend, phibar)
    within = 2 * (alone[:, None] * jnp.eye(len(eta)) - products)
    return gradient, hessian.at[:, each, :, each].add(within)


def solve_newton(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """By Cholesky's root where there is a good one, else the shortest of the nearest solutions, which takes far longer."""
    try:
        root, lower = cho_factor(matrix)
        pivots = np.diag(root)
        if pivots.min() > SMALLEST_PIVOT * pivots.max():
            return cho_solve((root, lower), vector)
    except LinAlgError:
        pass
    return np.linalg.lstsq(matrix, vector, rcond=None)[0]
