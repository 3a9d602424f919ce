"""Variational guides: q, a product over the latent sites of a story.

* a site with a Dirichlet prior: a Dirichlet, whose draws are differentiated pathwise at no more than the price of the draw;
* every other site: a normal in unconstrained space;
* a site of documents: one row of parameters a document ("mean_field"). Under "amortised" the rows of theta come from a
  network that reads the document's words, so that their number does not grow with the corpus.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to, constraints

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents

from ..samplers.gamma import log_gamma
from ..story.bound import BoundGraph
from ..story.graph import Site
from ..story.response import Y
from ..story.tracing import ZbarHandler, run

KINDS = ("mean_field", "amortised")
WIDTH = 32  # of the network's hidden layer
BOOST = 3


def pathwise_log_gamma(key: jax.Array, shape: jax.Array) -> jax.Array:
    """log of Gamma(shape, 1) draws, differentiable in the shape a.

    Gamma(a) = Gamma(a + 3) U_0^(1/a) U_1^(1/(a+1)) U_2^(1/(a+2)), and the uniforms differentiate by themselves.

    A draw of b = a + 3 is d (1 + x / (3 sqrt d))^3 with d = b - 1/3 and x nearly normal (Marsaglia & Tsang, 2000):
    expanding the gamma's density, x has log-density -x^2/2 - x^4/(108 d) + x^5/(405 d^(3/2)) - ... Its quantiles move by

        dx/dd = (x^3 + 3 x) / (108 d^2) - (x^4 + 4 x^2 + 8) / (270 d^(5/2)) + ...

    which gives d log g / db to 2.5% of its standard deviation at b = 3 and to 0.7% at b = 5 (tests/test_nuts_svi.py).
    """
    key, boost_key = jax.random.split(key)
    fixed = jax.lax.stop_gradient(shape)
    fixed = jnp.where(jnp.isfinite(fixed), fixed, jnp.nan)  # rejection would never end at infinity; NaN is reported
    d = fixed + BOOST - 1.0 / 3.0
    log_v = log_gamma(key, fixed + BOOST) - jnp.log(d)
    x = 3.0 * jnp.sqrt(d) * jnp.expm1(log_v / 3.0)
    moved = (x**3 + 3 * x) / (108 * d**2) - (x**4 + 4 * x**2 + 8) / (270 * d**2.5)
    slope = 1.0 / d + (moved - x / (2 * d)) / (jnp.sqrt(d) * jnp.exp(log_v / 3.0))
    log_g = jnp.log(d) + log_v + slope * (shape - fixed)
    exponential = jax.random.exponential(boost_key, (BOOST, *jnp.shape(shape)), log_g.dtype)  # -log U
    return log_g - sum(exponential[i] / (shape + i) for i in range(BOOST))


class PathwiseDirichlet(dist.Dirichlet):
    """NumPyro's Dirichlet with faster draws: a step of SVI differentiates topics x terms of them."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        concentration = jnp.broadcast_to(self.concentration, sample_shape + self.batch_shape + self.event_shape)
        draw = jax.nn.softmax(pathwise_log_gamma(key, concentration), axis=-1)
        return jnp.maximum(draw, jnp.finfo(draw.dtype).tiny)


class Guide:
    """``guide(documents, y, rows, scale)``: draws every latent site for the documents at some rows of the corpus."""

    def __init__(self, graph: BoundGraph, kind: str, seed: int, scale: float = 1.0) -> None:
        """``scale``: how many documents one of the corpus stands for."""
        if kind not in KINDS:
            raise ValueError(f"guide is {kind!r}; give one of {', '.join(map(repr, KINDS))}.")
        self.graph, self.scale = graph, scale
        self.sites = {name: site for name, site in graph.latent.items() if not site.discrete}
        self.amortised = graph.theta if kind == "amortised" else None
        if kind == "amortised" and not (self.amortised and self._is_dirichlet(self.amortised)):
            raise ValueError(
                f"guide is 'amortised', but the story {graph.story.name!r} gives draw_words no theta that is a Dirichlet "
                "site; use guide='mean_field'."
            )
        few = graph.few_documents, graph.few_y
        priors = run(graph.story, *few, graph.few_values, ZbarHandler(lambda theta: theta))
        self.supports = {name: priors[name]["fn"].support for name in self.sites}
        rng = np.random.default_rng(seed)
        self.initial: dict[str, Any] = {}
        for name, site in self.sites.items():
            if self._is_dirichlet(name):
                prior = _dirichlet(priors[name]["fn"]).concentration
                self.initial[name] = self._start_dirichlet(site, np.asarray(prior), rng)
            else:
                shape = biject_to(self.supports[name]).inverse_shape(self._shape(site))
                self.initial[name] = rng.normal(scale=0.1, size=shape).astype(np.float32)
        if self.amortised and graph.beta and self._is_dirichlet(graph.beta):
            # the network's first word on a term is what the topics' first guess says of it
            topics = self.initial[graph.beta]
            self.initial[self.amortised][1]["table"] = np.log(topics / topics.sum(1, keepdims=True)).T

    def bare(self) -> Guide:
        """The same for programs that are kept, without where it starts, which :meth:`starting_at` says."""
        bare = self.starting_at({})
        bare.graph = self.graph.for_programs()
        return bare

    def starting_at(self, initial: dict[str, Any]) -> Guide:
        """The same from elsewhere."""
        other = copy.copy(self)
        other.initial = initial
        return other

    @property
    def known(self) -> dict[str, Any]:
        """What a step reads of where it starts: a prior beside parameters, and of these their names alone."""
        known = jax.tree.map(lambda _: np.float32(0), self.initial)
        if self.amortised:
            known[self.amortised] = self.initial[self.amortised][0], known[self.amortised][1]
        return known

    def __call__(self, documents: Documents, y: Y, rows: jax.Array, scale: float) -> None:
        for name, site in self.sites.items():
            q = self.site(name, documents, rows)
            if site.document_axis is None:
                numpyro.sample(name, q)
            else:
                with handlers.scale(scale=scale):
                    numpyro.sample(name, q)

    def site(self, name: str, documents: Any, rows: jax.Array | None) -> Any:
        """q of one site for the documents at ``rows`` (None: all); parameters are NumPyro's."""
        site, start = self.sites[name], self.initial[name]

        def of_rows(parameter: jax.Array) -> jax.Array:
            axis = _document_axis(site)
            return parameter if axis is None or rows is None else jnp.take(parameter, rows, axis=axis)

        if name == self.amortised:
            return PathwiseDirichlet(self._network(name, documents))
        if self._is_dirichlet(name):
            concentration = numpyro.param(f"{name}: concentration", start, constraint=constraints.positive)
            return PathwiseDirichlet(of_rows(concentration)).to_event(site.fn.event_dim - 1)
        mean = of_rows(numpyro.param(f"{name}: mean", start))
        spread = of_rows(
            numpyro.param(
                f"{name}: standard deviation", jnp.full(jnp.shape(start), 0.1), constraint=constraints.positive
            )
        )
        transform = biject_to(self.supports[name])
        event_dim = site.fn.event_dim + transform.domain.event_dim - transform.codomain.event_dim
        normal = dist.Normal(mean, spread).to_event(event_dim)
        if self.supports[name] in (constraints.real, constraints.real_vector):
            return normal
        return dist.TransformedDistribution(normal, transform)

    def _network(self, name: str, documents: Any) -> jax.Array:
        """theta's concentration from a document's words, [D, K]: the variational E-step with a network for its context.

        gamma_d = alpha + sum_v count_dv phi_dv,  phi_dv = softmax(table_v + c_d),  c_d = W tanh(V h_d + b) + c,
        where h_d, what the document's words say without context, is the mean of softmax(table_v).
        """
        prior, start = self.initial[name]
        weights = {part: jnp.asarray(numpyro.param(f"{name}: {part}", value)) for part, value in start.items()}
        document, term, count = documents.pairs

        def total(of_pairs: jax.Array) -> jax.Array:
            return jax.ops.segment_sum(count[:, None] * of_pairs, document, documents.num_documents)

        table = weights["table"][term]
        without = total(jax.nn.softmax(table)) / jnp.maximum(documents.lengths, 1.0)[:, None]
        hidden = jnp.tanh(without @ weights["hidden"] + weights["hidden bias"])
        context = hidden @ weights["context"] + weights["context bias"]
        return prior + total(jax.nn.softmax(table + context[document]))

    def _start_dirichlet(self, site: Site, prior: np.ndarray, rng: np.random.Generator) -> Any:
        corpus, shape = self.graph.corpus, self._shape(site)
        if site.name == self.amortised:
            return prior.reshape(-1, shape[-1])[0], _start_network(corpus.num_terms, shape[-1], rng)
        axis = _document_axis(site)
        if axis is not None:
            # one row a document: the prior, and its words shared out almost evenly
            prior = np.broadcast_to(np.take(prior, [0], axis=axis) if np.ndim(prior) > axis else prior, shape)
            lengths = corpus.lengths.reshape([-1 if i == axis else 1 for i in range(len(shape))])
            start = prior + lengths / shape[-1] * rng.uniform(0.8, 1.2, shape)
        elif len(shape) > 1 and shape[-1] == corpus.num_terms:
            # topics: the prior, and the corpus' words shared out, half as in the corpus and half as in a few documents
            start = prior + self.scale * _seeded_topics(corpus, int(np.prod(shape[:-1])), rng).reshape(shape)
        else:
            start = prior + rng.uniform(0.5, 1.5, shape)
        return start.astype(np.float32)

    def _is_dirichlet(self, name: str) -> bool:
        return isinstance(self.sites[name].prior, dist.Dirichlet)

    def _shape(self, site: Site) -> tuple[int, ...]:
        """A site's shape for the whole corpus."""
        axis = _document_axis(site)
        return tuple(len(self.graph.corpus) if i == axis else size for i, size in enumerate(site.shape))


def _document_axis(site: Site) -> int | None:
    """Counted from the front, where unconstrained values have it too."""
    return None if site.document_axis is None else len(site.shape) + site.document_axis


def _dirichlet(fn: Any) -> Any:
    while not isinstance(fn, dist.Dirichlet):
        fn = fn.base_dist
    return fn


def _seeded_topics(corpus: Corpus, num_topics: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of terms for each topic, together those of the corpus: half its own mix, half that of some documents."""
    total = np.asarray(corpus.counts.sum(axis=0), float)
    few = max(1, min(20, len(corpus) // num_topics))
    seeds = [
        np.asarray(corpus.counts[np.sort(rng.choice(len(corpus), few, replace=False))].sum(axis=0), float)
        for _ in range(num_topics)
    ]
    mixes = [0.5 * total / total.sum() + 0.5 * seed / max(seed.sum(), 1.0) for seed in seeds]
    return total.sum() / num_topics * np.array(mixes)


def _start_network(num_terms: int, num_topics: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    def normal(*shape: int, scale: float) -> np.ndarray:
        return rng.normal(scale=scale, size=shape).astype(np.float32)

    return {
        "table": normal(num_terms, num_topics, scale=0.1),
        "hidden": normal(num_topics, WIDTH, scale=1.0),
        "hidden bias": np.zeros(WIDTH, np.float32),
        "context": normal(WIDTH, num_topics, scale=WIDTH**-0.5),
        "context bias": np.zeros(num_topics, np.float32),
    }
