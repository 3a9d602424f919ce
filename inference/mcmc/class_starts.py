"""Where chains start whose documents have one topic each: as in :mod:`.starts`, with documents in the place of words.

From random classes two clusters of the corpus often share one and another is split in two, for good. With twice as many
classes, merged a few at a time, this is rare; what has the same words is merged even below the number asked for, so that
stick-breaking priors find the rest empty, and the largest come first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from topiczoo.corpora.layouts import Documents

from ..kernels.assignments import Assignments
from ..kernels.sweep import Given
from ..story.bound import BoundGraph
from ..story.classes import is_class, num_classes
from ..story.response import Y
from ..story.tracing import Values, ZbarHandler, run
from .starts import FACTOR, FEWEST_TOKENS, USUAL_GAMMA, each, fewer_and_fewer, mean_of_prior, merged

ALPHA = 1.0  # of the classes' shares


def start_classes(graph: BoundGraph, num_warmup: int) -> Callable | None:
    """A function of keys and states, one for each chain, that gives the states their classes; None for random ones."""
    if graph.has_words or graph.corpus.num_tokens < FEWEST_TOKENS or (site := class_site(graph)) is None:
        return None
    dtype = graph.few_values[site].dtype

    def found(key: jax.Array, values: Values) -> jax.Array:
        return jnp.asarray(merged_classes(graph, site, num_warmup, key), dtype)

    return partial(each, found, 1, site=site)


def class_site(graph: BoundGraph) -> str | None:
    """The site that says which topic a document has, where all topics are alike beforehand; None elsewhere."""
    discrete = [name for name, site in graph.latent.items() if site.discrete]
    if graph.has_words or graph.known is not None or len(discrete) != 1 or not is_class(graph, discrete[0]):
        return None
    if num_classes(graph, discrete[0]) < 2:
        return None
    chances = np.asarray(graph.program(_chances, discrete[0])(graph.few_documents, graph.few_y))
    return discrete[0] if np.allclose(chances, chances[:, :1], rtol=1e-4) else None


def _chances(graph: BoundGraph, site: str, few: Documents, y: Y) -> jax.Array:
    """The log-densities of some documents given each class, [documents, classes], with all else at its mean."""
    trace = run(graph.story, few, y, {}, prior=mean_of_prior)
    values = {name: trace[name]["value"] for name in graph.latent}
    children = sorted(graph.children([site]) - {site})

    def terms(value: jax.Array) -> jax.Array:
        return graph.document_terms(
            children, few, y, {**values, site: jnp.full_like(values[site], value)}, ZbarHandler()
        )

    return jax.lax.map(terms, jnp.arange(num_classes(graph, site))).T


def merged_classes(graph: BoundGraph, site: str, num_warmup: int, key: jax.Array) -> np.ndarray:
    """A class for each document."""
    counts, number = graph.corpus.counts.astype(float).tocsr(), num_classes(graph, site)
    priors = np.full(number, ALPHA), np.full((number, 1), USUAL_GAMMA)

    def sweep(told: Given, z: Assignments) -> Assignments:
        log_terms = np.log(np.asarray(told.weights.term_topic, float)[:-1])
        with np.errstate(divide="ignore"):  # classes that are gone
            log_shares = np.log(z.document_topic + np.asarray(told.weights.proportions))
        noise = jax.random.gumbel(told.keys[0], (counts.shape[0], len(z.topic_term)))
        return _counted((counts @ log_terms + log_shares + np.asarray(noise)).argmax(1), counts, len(z.topic_term))

    first = np.asarray(jax.random.randint(key, counts.shape[:1], 0, FACTOR * number))
    z, new = fewer_and_fewer(key, _counted(first, counts, FACTOR * number), number, *priors, num_warmup, sweep)
    z = _counted(new[z.topics], counts, number)
    classes = merged(z.document_topic, z.topic_term, 1, ALPHA, USUAL_GAMMA, weight=1.0, gaining=True)[z.topics]
    rank = np.empty(number, int)
    rank[np.argsort(-np.bincount(classes, minlength=number), kind="stable")] = np.arange(number)
    return rank[classes]


def _counted(classes: np.ndarray, counts: Any, number: int) -> Assignments:
    rows = np.arange(len(classes))
    of_class = sparse.csr_matrix((np.ones(len(rows)), (classes, rows)), (number, len(rows)))
    terms = (of_class @ counts).toarray().astype(np.float32)
    return Assignments(classes, np.bincount(classes, minlength=number)[None].astype(np.float32), terms)
