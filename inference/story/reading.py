"""Reading a story for an engine: what the user gave is checked, each with one sentence, before anything long runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.ops.provenance import eval_provenance

from topiczoo.corpora import Corpus
from topiczoo.models.catalogue import as_story

from .bound import BoundGraph
from .graph import LABEL
from .parameters import check_parameters
from .reader import bind
from .response import CLASSES, Response, warn_of_order
from .support import check_support, check_variety, observed, warn_of_scale
from .tracing import Story, ZbarHandler, log_prob, run
from .validation import check_corpus

MOST_MEMORY = 0.5  # share of the machine's that one site may take


class MissingAbove(ValueError):
    """Responses are missing of which something is drawn."""


def read(
    function: str | Callable, corpus: Corpus, y: Any, arguments: Mapping[str, Any], *, latent_classes: bool = False
) -> BoundGraph:
    """Check what the user gave and read the story.

    ``latent_classes``: a class above the words may be missing for some documents. It is then a latent site, and
    ``graph.known`` holds what is known of it.
    """
    story = Story(as_story(function), dict(arguments))
    check_corpus(corpus)
    response = check_response(story, corpus, y)
    try:
        graph = checked(bind(story, corpus, response))
    except MissingAbove:
        if not latent_classes or response.several or response.parts["y"].ndim > 1:
            raise
        codes = response.parts["y"]
        rows = np.flatnonzero(~np.isnan(codes))
        read(function, corpus[rows], codes[rows], arguments)  # what is known is checked like any other response
        graph = checked(bind(story, corpus, Response({}, classes=response.classes)))
        if graph.has_words and not graph.parents.get(LABEL):
            raise
        return replace(graph, known=codes)
    if response.classes is not None:
        families = [graph.family(name) for name in graph.observed]
        if any(issubclass(family, dist.OrderedLogistic) for family in families):
            warn_of_order(y, response.classes)
        elif not any(issubclass(family, CLASSES) for family in families):
            graph = checked(bind(story, corpus, response.without_labels(corpus, y)))
    seen = observed(graph)
    check_support(graph, seen)
    check_variety(graph, seen)
    warn_of_scale(graph, seen)
    return graph


def check_response(story: Story, corpus: Corpus, y: Any) -> Response:
    """The response of a corpus, where the story takes one; some documents must be labelled."""
    if y is not None and not story.takes_y:
        raise TypeError(f"The story {story.name!r} takes no response; leave y out or use a story that has one.")
    response = Response.of(corpus, y)
    for name, part in response.parts.items():
        if np.isnan(part).all():
            raise ValueError(
                f"{response.called(name)} is NaN for every document; label some, or use a story without a response."
            )
    return response


def checked(graph: BoundGraph) -> BoundGraph:
    """The graph, if nothing that it needs is missing and nothing in it is impossible."""
    refuse_too_large(graph)
    check_covariates(graph)
    _refuse_absent_response(graph)
    check_parameters(graph)  # makes few_values now, not for the first time while something is compiled
    if graph.response.missing:
        refuse_missing_above(graph)
    return graph


def check_covariates(graph: BoundGraph) -> None:
    """Covariates that the story reads have a value for every document."""
    for name in sorted(graph.covariates):
        missing = graph.corpus.covariates[name].isna()
        if missing.any():
            raise ValueError(
                f"corpus.covariates has {name!r}, which the story {graph.story.name!r} reads and which is missing for "
                f"document {str(graph.corpus.names[int(np.argmax(missing))])!r}; fill it, or leave such documents out."
            )


def refuse_too_large(graph: BoundGraph) -> None:
    """No site may take more than half of the memory, before any is asked for."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else np.inf
    for name, site in graph.latent.items():
        shape = list(site.shape)
        if site.document_axis is not None:
            shape[site.document_axis] = len(graph.corpus)
        size = 4 * math.prod(shape)
        if size <= MOST_MEMORY * memory:
            continue
        whole = [what for what, value in graph.story.arguments.items() if isinstance(value, int) and value in shape]
        raise ValueError(
            f"The site {name!r} of the story {graph.story.name!r} has the shape {tuple(shape)}, {size / 2**30:,.1f} GiB, "
            f"and this machine has {memory / 2**30:,.1f} GiB of memory; give a smaller {(whole or ['model'])[0]}."
        )


def _refuse_absent_response(graph: BoundGraph) -> None:
    for name in graph.response_sites:
        if name in graph.latent and graph.children([name]) == {name}:
            raise ValueError(
                f"y is missing: nothing is observed at or below the site {name!r} of the story {graph.story.name!r}; "
                "pass y, with NaN for unlabelled documents."
            )


def refuse_missing_above(graph: BoundGraph) -> None:
    """A missing response is masked where it is observed; what is drawn given it would read a value made up for it."""
    leaves, form = jax.tree.flatten(graph.few_y)

    def look(**parts: jax.Array) -> dict[str, Any]:
        y, handler = jax.tree.unflatten(form, parts.values()), ZbarHandler(lambda theta: theta)
        trace = run(graph.story, graph.few_documents, y, graph.few_values, handler)
        sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
        values = {f"value of {name}": site["value"] for name, site in sites.items()}
        return values | {name: log_prob(site) for name, site in sites.items()}

    read = eval_provenance(look, **{f"part {i}": leaf for i, leaf in enumerate(leaves)})
    for name in graph.sites:
        own = jax.tree.leaves(read[f"value of {name}"], is_leaf=lambda part: isinstance(part, frozenset))
        if read[name] and not any(own):
            raise MissingAbove(
                f"y is missing for some documents, and in the story {graph.story.name!r} the site {name!r} depends on "
                "it; leave those documents out, and predict them."
            )
