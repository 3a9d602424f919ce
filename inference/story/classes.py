"""A document's class: a discrete site with one value a document, and the label that chooses a document's topics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora.layouts import Documents

from ..kernels.assignments import Labels
from .bound import BoundGraph
from .graph import BETA, LABEL
from .response import Y
from .tracing import Data, Values, ZbarHandler, mean_of_prior, run

COUNTED = dist.CategoricalProbs | dist.CategoricalLogits | dist.BernoulliProbs | dist.BernoulliLogits


def is_class(graph: BoundGraph, site: str) -> bool:
    """One value a document, counted from 0: another support would be mistaken for its places."""
    latent = graph.latent[site]
    return isinstance(latent.prior, COUNTED) and latent.document_axis == -1 and len(latent.shape) == 1


def num_classes(graph: BoundGraph, site: str) -> int:
    """How many values a class can have."""
    return graph.latent[site].fn.enumerate_support(expand=False).shape[0]


def densities_of_classes(graph: BoundGraph, site: str, names: Sequence[str], data: Data, values: Values) -> jax.Array:
    """The log-densities of some sites for each document in each class, [documents, classes], the rest as in ``values``."""

    def terms(value: jax.Array) -> jax.Array:
        tried = {**values, site: jnp.full_like(values[site], value)}
        return graph.document_terms(names, *data, tried, ZbarHandler())

    return jax.lax.map(terms, jnp.arange(num_classes(graph, site))).T  # [documents, values]


def class_site(graph: BoundGraph) -> str | None:
    """The site that says which topic a document has, where all topics are alike beforehand; None elsewhere."""
    discrete = [name for name, site in graph.latent.items() if site.discrete]
    if graph.has_words or graph.known is not None or len(discrete) != 1 or not is_class(graph, discrete[0]):
        return None
    if num_classes(graph, discrete[0]) < 2:
        return None
    found = np.asarray(graph.program(_given_each_class, discrete[0])(graph.few_documents, graph.few_y))
    return discrete[0] if np.allclose(found, found[:, :1], rtol=1e-4) else None


def _given_each_class(graph: BoundGraph, site: str, few: Documents, y: Y) -> jax.Array:
    """The log-densities of what follows from a document's class, with all else at its mean, [documents, classes]."""
    trace = run(graph.story, few, y, {}, prior=mean_of_prior)
    values = {name: trace[name]["value"] for name in graph.latent}
    children = sorted(graph.children([site]) - {site})
    return densities_of_classes(graph, site, children, Data(few, y), values)


def combinations(graph: BoundGraph, sites: Sequence[str]) -> np.ndarray:
    """All values that some discrete sites can have together, [combinations, sites]."""
    supports = [np.ravel(graph.latent[site].fn.enumerate_support(expand=False)) for site in sites]
    return np.array(list(itertools.product(*supports)))


def labels_of(graph: BoundGraph, corpus: Documents, y: Y, values: Values) -> Labels | None:
    """The documents' labels as the story gives them to draw_words; None where all documents share their topics."""
    if not (graph.has_words and graph.has_labels):
        return None
    answer = ZbarHandler(zbar=lambda theta: jnp.zeros_like(theta))
    run(graph.story, corpus, y, values, answer)
    return Labels.of(answer.label, answer.beta.shape)


def check_labels(graph: BoundGraph) -> None:
    """Labels that follow from covariates or the response must be those that beta has topics for."""
    if not graph.has_words or not graph.has_labels or graph.parents[LABEL]:
        return
    label, known = map(np.asarray, graph.program(_labels)(graph.documents(), graph.response.on_device()))
    if len(label) and not (0 <= label.min() and label.max() < known):
        wrong = label.max() if label.max() >= known else label.min()
        raise ValueError(
            f"In the story {graph.story.name!r} draw_words got the label {wrong} for a document, and beta has topics for "
            f"the labels 0 to {known - 1}; recode the labels, or give beta as many."
        )


def _labels(graph: BoundGraph, corpus: Documents, y: Y) -> tuple[jax.Array, int]:
    """The documents' labels, and how many of them beta has topics for."""
    answer = ZbarHandler(zbar=lambda theta: jnp.zeros_like(theta))
    run(graph.story, corpus, y, {}, answer)
    return answer.label, answer.beta.shape[0]


def refuse_linked_classes(graph: BoundGraph, sites: Sequence[str]) -> None:
    """Classes are tried for all documents at once: a document's class must not enter another's terms."""
    name = sites[0]
    if shared := graph.parents.get(BETA, frozenset()) & set(sites):
        raise ValueError(
            f"In the story {graph.story.name!r} the topics of all documents depend on {sorted(shared)[0]!r}, a document's "
            "class; give draw_words beta as [labels, topics, terms] and the class as label."
        )
    children = sorted(graph.children(sites))
    for child in children:
        if graph.density_axis[child] is None:
            raise ValueError(
                f"The site {child!r} of the story {graph.story.name!r} reads {name!r}, a document's class, but has no axis "
                "of documents; give each document its own term."
            )
    values = combinations(graph, sites)
    first, last = values[0], values[-1]
    labels = {site: jnp.full(3, value) for site, value in zip(sites, first, strict=True)}

    def terms(labels: dict) -> jax.Array:
        values = {**graph.few_values, **labels}
        return graph.program(_first_two, tuple(children))(graph.few_documents, graph.few_y, values)

    moved = {site: labels[site].at[2].set(value) for site, value in zip(sites, last, strict=True)}
    if not np.allclose(terms(labels), terms(moved), rtol=1e-4, atol=1e-6):
        raise ValueError(
            f"The story {graph.story.name!r} links documents: another document's {name!r} changes a document's "
            "terms, so it cannot be summed out or drawn document by document."
        )


def _first_two(graph: BoundGraph, sites: Sequence[str], few: Documents, y: Y, values: Values) -> jax.Array:
    """Terms, proportions and labels of the first two documents."""
    answer = ZbarHandler(lambda theta: theta)
    parts = [graph.document_terms(sites, few, y, values, answer)[:2]]
    parts += [part[:2].ravel() for part in (answer.theta, answer.label) if part is not None]
    return jnp.concatenate(parts)
