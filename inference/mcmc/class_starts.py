"""Where chains start whose documents have one topic each: as in :mod:`.starts`, with documents in the place of words.

From random classes two clusters of the corpus often share one and another is split in two, for good. With twice as many
classes, merged a few at a time, this is rare; what has the same words is merged even below the number asked for, so that
stick-breaking priors find the rest empty, and the largest come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from ..kernels.assignments import Assignments
from ..kernels.sweep import Given
from ..story.bound import BoundGraph
from ..story.classes import class_site, num_classes
from ..story.tracing import Values
from .merging import FACTOR, fewer_and_fewer, merged, one_by_one
from .starts import USUAL_GAMMA, each

ALPHA = 1.0  # of the classes' shares


def start_classes(start: str, graph: BoundGraph, num_warmup: int) -> Callable | None:
    """A function of keys and states, one for each chain, that gives the states their classes; None for random ones."""
    if start == "random":
        return None
    site = cast(str, class_site(graph))
    dtype = graph.few_values[site].dtype

    def found(keys: Sequence[jax.Array], values: Sequence[Values]) -> list[jax.Array]:
        return [jnp.asarray(merged_classes(graph, site, num_warmup, key), dtype) for key in keys]

    return partial(each, found, 1, site=site)


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
    chains, sweeps = [_counted(first, counts, FACTOR * number)], partial(one_by_one, sweep)
    [(z, new)] = fewer_and_fewer([key], chains, number, *priors, num_warmup, sweeps)
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
