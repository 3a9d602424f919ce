"""A story with its topics summed out: the NumPyro model that NUTS and SVI work on.

Words. Given theta and beta the topics of words are independent, so they leave the joint density exactly:

    log p(w_d | theta_d, beta) = sum_v count_dv log sum_k theta_dk beta_kv

Response. Given theta, beta and w, each occurrence of term v has topic Cat(phi_dv), phi_dvk ~ theta_dk beta_kv,
and zbar_d is the mean of N_d such independent indicators. The predictor eta . zbar_d has therefore, exactly,

    mean      m_d = sum_v count_dv m_dv / N_d,                                  m_dv = sum_k phi_dvk eta_k
    variance  v_d = sum_v count_dv sum_k phi_dvk (eta_k - m_dv)^2 / N_d^2

and the response's terms are averaged over a few sigma points x_q with these moments:

    ``average="density"``   log sum_q weight_q p(y_d | x_q): approximates the story's marginal density (NUTS);
    ``average="log"``       sum_q weight_q log p(y_d | x_q): Jensen's bound of it (SVI).

Where words of a sentence share their topic, log p(w_d) is found by going forward through its words
(:mod:`..kernels.sentences`).

Classes. A discrete site with one value a document, the topic of a whole document or a class above its words, is summed
out by trying all its values: log sum_c p(c) p(theta_d | c) p(w_d | theta_d, beta_c) p(y_d | c), as far as each reads c.

A weight of the response is the power of p(y_d | x) before it is averaged. Documents that are held out have none; scales such
as sigma follow from them alone, at power 1 (:mod:`..mcmc.weighing`): NUTS moves all else with scales given, and scales are
drawn in turn (:class:`.scales.HeldOutScales`). In the bound of SVI these terms move scales alone, and nothing else does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import Documents
from topiczoo.models.vocabulary.words import Zbar

from ..kernels.sentences import Chain, log_words
from ..mcmc.weighing import aside, scales_of
from ..steps.quadrature import sigma_points
from ..story.bound import BoundGraph
from ..story.classes import check_labels, combinations, refuse_linked_classes
from ..story.graph import ZBAR
from ..story.response import Y
from ..story.tracing import Values, ZbarHandler, by_document, log_prob, run, total
from ..story.validation import Unserved
from .proportions import become, by_gammas, spread_out

FLOOR = 1e-30  # of a word's probability, so that float32 can hold the slope of its logarithm
AVERAGES = {
    "density": "sigma points, density averaged",
    "log": "sigma points, logarithm averaged (a lower bound)",
}


class Marginal:
    """``model(documents, y)`` with the topics of a story summed out; documents carry their pairs.

    Parameters
    ----------
    graph
        The story, read.
    nodes
        Gauss-Hermite points for a single predictor. Several predictors have unscented points.
    average
        What is averaged over the points: ``"density"`` or ``"log"``.
    """

    def __init__(self, graph: BoundGraph, *, nodes: int, average: str) -> None:
        if average not in AVERAGES:
            raise ValueError(f"average is {average!r}; give one of {', '.join(map(repr, AVERAGES))}.")
        self.graph, self.nodes, self.average = graph, nodes, average
        self.scales = scales_of(graph)
        self.discrete = [name for name, site in graph.latent.items() if site.discrete]
        self.deferred = frozenset(graph.children(self.discrete)) | frozenset(graph.response_sites)
        spread = spread_out(graph) if average == "density" else ()
        self.spread = [site for site in spread if site not in self.deferred]
        unseen = {ZBAR, *self.discrete}
        self.dropped = frozenset(name for name in graph.deterministic if graph.parents[name] & unseen)
        self._refuse()
        check_labels(graph)
        self.words_deferred = bool(self.discrete) and graph.has_words and graph.drives_words(self.discrete)
        if self.discrete:
            refuse_linked_classes(graph, self.discrete)
            self.combinations = combinations(graph, self.discrete)

    def bare(self) -> Marginal:
        """The same for programs that are kept: documents bring the story's numbers."""
        bare = copy.copy(self)
        bare.graph = self.graph.for_programs()
        return bare

    @property
    def target(self) -> str:
        """What the density is, in words."""
        return AVERAGES[self.average] if self.graph.response_sites else "exact"

    def __call__(self, documents: Documents, y: Y = None, scale: float = 1.0) -> None:
        """The model; ``scale`` multiplies all that belongs to documents: D/batch for a slice of a corpus."""
        summed = _SumOut(self, scale, spread=self.spread)
        with summed:
            self.graph.story(documents, y)
        if self.graph.has_words and not self.words_deferred:
            numpyro.factor("~words", scale * summed.words.sum())
        if self.deferred or self.words_deferred:
            numpyro.factor("~response", scale * self._deferred_terms(documents, y, summed.given_scales()).sum())
        if self.scales and self.average == "log":
            numpyro.factor("~scales", scale * self._held_out_terms(documents, y, summed.given_others()).sum())

    def scale_density(self, documents: Documents, y: Y, values: Values) -> Callable[[Values], jax.Array]:
        """log p(scales, responses held out | all other values) as a function of scales, up to a constant."""
        summed, _ = self._run(documents, y, values)

        def density(scales: Values) -> jax.Array:
            prior = run(self.graph.story, documents, y, {**values, **scales}, ZbarHandler(lambda theta: theta))
            terms = self._held_out_terms(documents, y, summed.given_others(scales))
            return terms.sum() + total(prior, self.scales)

        return density

    def _held_out_terms(self, documents: Documents, y: Y, given: _SumOut) -> jax.Array:
        """The averaged response of each document that is held out, at power 1, [D]."""
        terms = self._deferred_terms(aside(self.graph, documents), y, given)
        if not self.discrete:
            return terms
        # what the class has beside the response is counted already
        nothing = replace(documents, counted=jnp.zeros(documents.num_documents))
        return terms - jax.lax.stop_gradient(self._deferred_terms(nothing, y, given))

    def document_densities(self, documents: Documents, y: Y, values: Values) -> jax.Array:
        """The log-density of all that belongs to each document, given values of every continuous site, [D]."""
        summed, trace = self._run(documents, y, values)
        total = jnp.zeros(documents.num_documents) if self.words_deferred else summed.words
        if self.deferred or self.words_deferred:
            total = total + self._deferred_terms(documents, y, summed)
        for name, site in trace.items():
            axis = self.graph.density_axis.get(name)
            if site["type"] == "sample" and axis is not None and name not in self.deferred:
                total = total + by_document(log_prob(site), axis)
        return total

    def _run(self, documents: Documents, y: Y, values: Values, classes: dict | None = None) -> tuple[_SumOut, dict]:
        """The story at given values, hidden from the handlers around the model, and its trace."""
        summed = _SumOut(self, 1.0, classes)
        with handlers.block(), handlers.trace() as trace, handlers.substitute(data=values), summed:
            self.graph.story(documents, y)
        return summed, trace

    def _deferred_terms(self, documents: Documents, y: Y, summed: _SumOut) -> jax.Array:
        """What topics and classes are averaged or summed out of, of each document, [D]."""
        if self.discrete:
            return self._class_terms(documents, y, summed.values)
        return self._response_terms(documents, y, summed)

    def _class_terms(self, documents: Documents, y: Y, values: Values) -> jax.Array:
        """log sum over classes of all that reads them, and of the response, [D].

        Under ``vmap`` what does not depend on the class is computed once for all.
        """
        graph = self.graph
        others = sorted(self.deferred - set(graph.response_sites))

        def of_classes(combination: jax.Array) -> jax.Array:
            classes = {
                name: jnp.full(documents.num_documents, value)
                for name, value in zip(self.discrete, combination, strict=True)
            }
            answer = ZbarHandler(lambda theta: theta)
            total = graph.document_terms(others, documents, y, {**values, **classes}, answer)
            if not (self.words_deferred or graph.response_sites):
                return total
            own, _ = self._run(documents, y, {k: v for k, v in values.items() if k not in classes}, classes)
            if self.words_deferred:
                total = total + own.words
            return total + self._response_terms(documents, y, own) if graph.response_sites else total

        return jax.nn.logsumexp(jax.vmap(of_classes)(jnp.asarray(self.combinations)), axis=0)

    def _response_terms(self, documents: Documents, y: Y, summed: _SumOut) -> jax.Array:
        """The averaged response of each document, [D]."""
        points, log_weights = sigma_points(*summed.moments(), self.nodes)

        def terms(predictors: list[jax.Array]) -> jax.Array:
            answer = ZbarHandler(predictors=predictors)
            return self.graph.document_terms(self.graph.response_sites, documents, y, summed.values, answer)

        at_points = jax.vmap(terms)(summed.split(points))  # [Q, D]
        log_weights = log_weights[:, None]
        if self.average == "density":
            return jax.nn.logsumexp(log_weights + at_points, axis=0)
        return (jnp.exp(log_weights) * at_points).sum(0)

    def _refuse(self) -> None:
        graph, story = self.graph, self.graph.story.name
        for name in self.discrete:
            site = graph.latent[name]
            alone = site.document_axis == -1 and len(site.shape) == 1 and site.fn.has_enumerate_support
            if not alone:
                raise Unserved(
                    graph,
                    ["nuts", "svi"],
                    f"The site {name!r} of the story {story!r} is discrete and cannot be summed out: only the words' "
                    "topics can be, and one value a document from a finite set",
                )
        for name in self.deferred:
            if graph.density_axis[name] is None:
                raise ValueError(
                    f"The site {name!r} of the story {story!r} reads topics but has no axis of documents, so they "
                    "cannot be summed out document by document; give each document its own term."
                )
        if graph.has_sentences and (graph.response_sites or self.discrete or self.average == "log"):
            raise Unserved(
                graph,
                ["nuts", "svi"] if graph.response_sites or self.discrete else ["svi"],
                f"In the story {story!r} words of a sentence share their topic, which can be summed out by nuts, and of "
                "words alone",
            )
        if not graph.response_sites:
            return
        if not graph.linear:
            raise Unserved(
                graph,
                ["nuts", "svi"],
                f"The story {story!r} uses zbar other than through zbar @ eta, so its topics cannot be summed out",
                "write its response with zbar @ eta",
            )
        if any(len(shape) > 1 for shape in graph.predictor_shapes):
            raise ValueError(f"The story {story!r} has zbar @ eta with an eta of three axes; give [K] or [K, C].")
        graph.refuse_linked_documents()


class _SumOut(Messenger):
    """Runs the story once: sums out the words' topics, notes coefficients, sets aside what is averaged later."""

    def __init__(
        self, marginal: Marginal, scale: float, classes: dict[str, jax.Array] | None = None, spread: Sequence[str] = ()
    ) -> None:
        super().__init__(None)
        self.marginal, self.scale, self.classes, self.spread = marginal, scale, classes or {}, spread
        self.values: dict[str, Any] = {}
        self.words: Any = 0.0  # of each document
        self.coefficients: list[jax.Array] = []

    def process_message(self, msg: dict) -> None:
        name, graph = msg["name"], self.marginal.graph
        if msg["type"] == "draw_words":
            self._sum_words(*msg["args"])
            msg["value"] = Zbar(self._predictor, lambda: self._document_mean(self.phi))
        elif msg["type"] == "deterministic":
            msg["stop"] = name in self.marginal.dropped  # hidden from the handlers around the model
        elif msg["type"] == "sample":
            if name in self.spread:
                self.values[name] = by_gammas(name, msg["fn"])
                become(msg, self.values[name])
            elif name in self.marginal.discrete:
                place = self.marginal.discrete.index(name)
                some = jnp.full(msg["fn"].shape(), self.marginal.combinations[0, place])
                msg["value"] = self.classes.get(name, some)
                msg["stop"] = True
            elif name in self.marginal.deferred and msg["is_observed"]:
                msg["stop"] = True
            elif name in self.marginal.deferred:
                msg["fn"] = msg["fn"].mask(False)
            elif graph.density_axis.get(name) is not None:
                msg["scale"] = self.scale if msg["scale"] is None else self.scale * msg["scale"]

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.marginal.graph.latent:
            self.values[msg["name"]] = msg["value"]

    def given_scales(self) -> _SumOut:
        """The same with scales given: nothing moves them."""
        return self._with({name: jax.lax.stop_gradient(self.values[name]) for name in self.marginal.scales})

    def given_others(self, scales: Values | None = None) -> _SumOut:
        """The same with all else given, and scales as they are or as told."""
        names = self.marginal.scales
        fixed = jax.lax.stop_gradient({name: value for name, value in self.values.items() if name not in names})
        other = self._with({**fixed, **(scales or {})})
        other.phi, other.coefficients = jax.lax.stop_gradient((self.phi, self.coefficients))
        return other

    def _with(self, values: Values) -> _SumOut:
        other = copy.copy(self)
        other.values = {**self.values, **values}
        return other

    def _sum_words(self, documents: Any, theta: jax.Array, beta: jax.Array, label: Any, switch: Any) -> None:
        """log p(w | theta, beta), and phi, the topics of each pair given the rest."""
        self.documents = documents
        if switch is not None:
            term_topic = jnp.maximum(jnp.pad(beta.T, ((0, 1), (0, 0)), constant_values=1.0), FLOOR)
            self.words = log_words(Chain(term_topic, theta, switch), documents.laid_out)
            return
        document, term, count = documents.pairs
        topics = beta.T[term] if label is None else beta[label[document], :, term]
        joint = theta[document] * topics  # [P, K]
        mix = jnp.maximum(joint.sum(-1), FLOOR)
        self.words = jax.ops.segment_sum(count * jnp.log(mix), document, documents.num_documents)
        # phi = joint / mix; the slope of that is of size 1 / mix^2 and overflows, so joint is brought near 1 first
        unit = joint * jax.lax.stop_gradient(1.0 / mix)[:, None]
        self.phi = unit / jnp.maximum(unit.sum(-1, keepdims=True), 1e-9)

    def _document_mean(self, of_pairs: jax.Array, power: int = 1) -> jax.Array:
        """sum_v count_dv x_dv / N_d^power for x [P, ...]."""
        document, _, count = self.documents.pairs
        weighted = count.reshape((-1,) + (1,) * (of_pairs.ndim - 1)) * of_pairs
        total = jax.ops.segment_sum(weighted, document, self.documents.num_documents)
        length = jnp.maximum(self.documents.lengths, 1.0) ** power
        return total / length.reshape((-1,) + (1,) * (of_pairs.ndim - 1))

    def _predictor(self, eta: jax.Array) -> jax.Array:
        self.coefficients.append(eta)
        return self._document_mean(self.phi @ eta)

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean [D, C] and covariance [D, C, C] of all predictors side by side."""
        eta = jnp.concatenate([eta.reshape(eta.shape[0], -1) for eta in self.coefficients], axis=1)  # [K, C]
        mean = self.phi @ eta  # m_dv, [P, C]
        if eta.shape[1] == 1:  # centred before squaring: sum phi eta^2 - m^2 would cancel
            spread = (self.phi * (eta[:, 0] - mean) ** 2).sum(1)[:, None, None]
        else:
            centred = eta - mean[:, None, :]  # [P, K, C]
            spread = jnp.einsum("pkc,pke->pce", self.phi[:, :, None] * centred, centred)
        return self._document_mean(mean), self._document_mean(spread, 2)

    def split(self, points: jax.Array) -> list[jax.Array]:
        """Points [Q, D, C] as the predictors the story asks for."""
        parts, first = [], 0
        for eta in self.coefficients:
            size = eta.size // eta.shape[0]
            parts.append(points[..., first : first + size].reshape(points.shape[:2] + eta.shape[1:]))
            first += size
        return parts
