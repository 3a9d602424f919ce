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

Topics of whole documents (a discrete site with one value a document) are summed out exactly by NumPyro's own
enumeration.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.primitives import Messenger

from topiczoo.models.vocabulary import Zbar

from ..kernels.small_matrices import cholesky
from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.tracing import ZbarHandler, log_prob, run
from ..story.unserved import Unserved

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
        self.discrete = [name for name, site in graph.latent.items() if site.discrete]
        self.deferred = frozenset(graph.children(self.discrete)) | frozenset(graph.response_sites)
        unseen = {ZBAR, *self.discrete}
        self.dropped = frozenset(name for name in graph.deterministic if graph.parents[name] & unseen)
        self._refuse()
        if self.discrete:
            priors = [graph.latent[name].fn for name in self.discrete]
            supports = [np.ravel(prior.enumerate_support(expand=False)) for prior in priors]
            self.combinations = np.array(list(itertools.product(*supports)))  # [combinations, sites]
            self._refuse_linked_labels()
            self.plates = self._plates()

    @property
    def target(self) -> str:
        """What the density is, in words."""
        return AVERAGES[self.average] if self.graph.response_sites else "exact"

    def __call__(self, documents: Any, y: Any = None, scale: float = 1.0) -> None:
        """The model; ``scale`` multiplies all that belongs to documents: D/batch for a slice of a corpus."""
        summed = _SumOut(self, scale)
        with summed:
            self.graph.story(documents, y)
        if self.graph.has_words:
            numpyro.factor("~words", scale * summed.words.sum())
        if not self.deferred:
            return
        if self.discrete:
            density = self._label_density(documents, y, summed.values)
        else:
            density = self._response_terms(documents, y, summed).sum()
        numpyro.factor("~response", scale * density)

    def document_densities(self, documents: Any, y: Any, values: dict) -> jax.Array:
        """The log-density of all that belongs to each document, given values of every continuous site, [D]."""
        summed = _SumOut(self, 1.0)
        with handlers.block(), handlers.trace() as trace, handlers.substitute(data=values), summed:
            self.graph.story(documents, y)
        total = summed.words + (self._response_terms(documents, y, summed) if self.graph.response_sites else 0.0)
        for name, site in trace.items():
            axis = self.graph.density_axis.get(name)
            if site["type"] == "sample" and axis is not None and name not in self.deferred:
                terms = jnp.moveaxis(log_prob(site), axis, -1)
                total = total + terms.sum(tuple(range(terms.ndim - 1)))
        return total

    def _response_terms(self, documents: Any, y: Any, summed: _SumOut) -> jax.Array:
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

    def _label_density(self, documents: Any, y: Any, values: dict) -> jax.Array:
        """log sum_z p(z, what reads z): NumPyro enumerates z in dimensions left of the plates."""
        from numpyro.contrib.funsor import config_enumerate, enum, log_density

        def terms() -> None:
            with handlers.block(hide_fn=lambda site: site["type"] == "sample" and site["name"] not in self.deferred):
                with handlers.substitute(data=values):
                    self.graph.story(documents, y)

        with handlers.block():
            return log_density(enum(config_enumerate(terms), -1 - self.plates), (), {}, {})[0]

    def _refuse(self) -> None:
        graph, story = self.graph, self.graph.story.name
        for name in self.discrete:
            site = graph.latent[name]
            alone = site.document_axis == -1 and len(site.shape) == 1 and site.fn.has_enumerate_support
            if graph.has_words or not alone:
                raise Unserved(
                    graph,
                    ["nuts", "svi"],
                    f"The site {name!r} of the story {story!r} is discrete and cannot be summed out: only the words' "
                    "topics can be, or, in a story without draw_words, one value a document from a finite set",
                )
        for name in self.deferred:
            if graph.density_axis[name] is None:
                raise ValueError(
                    f"The site {name!r} of the story {story!r} reads topics but has no axis of documents, so they "
                    "cannot be summed out document by document; give each document its own term."
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

    def _refuse_linked_labels(self) -> None:
        """Enumeration sums documents one by one: a document's label must not enter another's terms."""
        graph, name = self.graph, self.discrete[0]
        first, last = self.combinations[0], self.combinations[-1]
        labels = {site: jnp.full(3, value) for site, value in zip(self.discrete, first, strict=True)}

        @jax.jit
        def terms(labels: dict) -> jax.Array:
            few, sites = (graph.few_documents, graph.few_y), sorted(self.deferred)
            return graph.document_terms(sites, *few, {**graph.few_values, **labels}, ZbarHandler())

        moved = {site: labels[site].at[2].set(value) for site, value in zip(self.discrete, last, strict=True)}
        if not np.allclose(terms(labels)[:2], terms(moved)[:2], rtol=1e-4, atol=1e-6):
            raise ValueError(
                f"The story {graph.story.name!r} links documents: another document's {name!r} changes a document's "
                "terms, so it cannot be summed out document by document."
            )

    def _plates(self) -> int:
        """How many dimensions from the right the story's plates take; labels outside of any are refused."""
        trace: dict = {}

        def look() -> None:
            trace.update(run(self.graph.story, self.graph.few_documents, self.graph.few_y, {}))

        jax.eval_shape(look)
        for name in sorted(self.deferred):
            if not trace[name]["cond_indep_stack"]:
                raise ValueError(
                    f"The site {name!r} of the story {self.graph.story.name!r} is outside a plate, so NumPyro cannot "
                    "enumerate the topics it reads; put it into numpyro.plate('documents', corpus.num_documents)."
                )
        return max(-frame.dim for name in self.deferred for frame in trace[name]["cond_indep_stack"])


class _SumOut(Messenger):
    """Runs the story once: sums out the words' topics, notes coefficients, sets aside what is averaged later."""

    def __init__(self, marginal: Marginal, scale: float) -> None:
        super().__init__(None)
        self.marginal, self.scale = marginal, scale
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
            if name in self.marginal.discrete:
                place = self.marginal.discrete.index(name)
                msg["value"] = jnp.full(msg["fn"].shape(), self.marginal.combinations[0, place])
                msg["stop"] = True
            elif name in self.marginal.deferred and msg["is_observed"]:
                msg["stop"] = True
            elif name in self.marginal.deferred:
                msg["fn"] = msg["fn"].mask(False)
            elif graph.density_axis.get(name) is not None:
                msg["scale"] = self.scale if msg["scale"] is None else self.scale * msg["scale"]

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and not msg["is_observed"]:
            self.values[msg["name"]] = msg["value"]

    def _sum_words(self, documents: Any, theta: jax.Array, beta: jax.Array, label: Any) -> None:
        """log p(w | theta, beta), and phi, the topics of each pair given the rest."""
        self.documents = documents
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


def sigma_points(mean: jax.Array, covariance: jax.Array, nodes: int) -> tuple[jax.Array, jax.Array]:
    """Points [Q, D, C] and the logarithms of their weights [Q].

    One predictor: Gauss-Hermite, x_q = m + t_q s. Several: the unscented points m and m +- sqrt(C + kappa) times
    a column of the covariance's root, with kappa = max(0, 3 - C), so that no weight is negative.

    The covariance vanishes at eta = 0, where a bare root has infinite slope: hence the 1e-10. It has rank < K: hence
    1e-5 of the mean variance, which float32 needs for the Cholesky root of a matrix not of full rank.
    """
    size = mean.shape[-1]
    if size == 1:
        at, hermite = np.polynomial.hermite_e.hermegauss(nodes)
        step = jnp.sqrt(covariance[..., 0] + 1e-10)
        return mean + jnp.asarray(at, mean.dtype)[:, None, None] * step, jnp.log(hermite / hermite.sum())
    kappa = max(0, 3 - size)
    jitter = 1e-10 + 1e-5 * jnp.trace(covariance, axis1=-2, axis2=-1) / size
    root = cholesky(covariance + jitter[:, None, None] * jnp.eye(size))
    steps = jnp.sqrt(size + kappa) * jnp.moveaxis(root, -1, 0)  # columns first, [C, D, C]
    centre = [mean[None]] if kappa else []
    weights = [kappa / (size + kappa)] * bool(kappa) + [0.5 / (size + kappa)] * 2 * size
    return jnp.concatenate([*centre, mean + steps, mean - steps]), jnp.log(jnp.asarray(weights))
