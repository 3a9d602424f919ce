"""The response's likelihood to a power, for topics that serve predictions.

A document has hundreds of words and one response: in the posterior topics follow the words. With p(y | z, eta, sigma)^w in
the place of the likelihood (a generalised posterior; Bissiri, Holmes & Walker 2016) they follow it as far as w says.
All engines work on that law, given scales such as sigma.

Scales are another matter. Topics that follow the responses fit them, whatever the words say; sigma, drawn given them, falls,
and the smaller it is, the more closely topics follow: it would end at 0. So a few documents are held out: their topics and
the coefficients do not know their responses, and scales follow from them alone, at power 1: gibbs and nuts draw scales given
them, vem climbs with them, and svi has a guide of scales that their responses alone move. Predictions are calibrated
by the same documents, since a power above 1 makes the model too sure of its coefficients, and the mean of many chains errs
less than any of them.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import Documents

from ..blocks.slices import SliceBlock
from ..story.bound import BoundGraph
from ..story.response import Response
from ..story.tracing import Data
from .plan import Plan

FEWEST, MOST = 20, 200  # documents held out, a tenth between; none where there are not twice as many as the fewest


def with_weight(graph: BoundGraph, weight: float) -> BoundGraph:
    """The graph with the likelihood of its responses to a power, and documents held out; itself where that is 1."""
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 < weight < np.inf:
        raise ValueError(f"response_weight is {weight!r}; give a number above 0, 1 for the posterior.")
    if weight == 1:
        return graph
    axes = {name: graph.density_axis[name] for name in graph.response_sites if name not in graph.latent}
    of_documents = {name: axis for name, axis in axes.items() if axis is not None}
    if not of_documents:
        raise ValueError(
            f"response_weight is {weight!r}, and the story {graph.story.name!r} has no response of topics; leave it out."
        )
    weighed = replace(graph.story, weight=float(weight), weighed=of_documents)
    return replace(graph, story=weighed, held_out=_held_out(graph))


def _held_out(graph: BoundGraph) -> tuple[int, ...]:
    """Rows of some documents that have words and all their responses."""
    missing = [
        np.isnan(np.asarray(part, float)).reshape(len(part), -1).any(1) for part in graph.response.parts.values()
    ]
    labelled = np.flatnonzero(~np.any(missing, axis=0) & (graph.corpus.lengths > 0))
    if len(labelled) < 2 * FEWEST:
        return ()
    rows = np.random.default_rng(0).choice(labelled, int(np.clip(len(labelled) // 10, FEWEST, MOST)), replace=False)
    return tuple(np.sort(rows).tolist())


def scales_of(graph: BoundGraph) -> list[str]:
    """Positive numbers of the whole corpus that responses alone read: what follows from the documents held out."""
    if not graph.held_out:
        return []
    return [
        name for name, site in graph.latent.items()
        if site.document_axis is None
        and not site.discrete
        and getattr(site.prior.support, "lower_bound", None) == 0
        and graph.children([name]) - {name} <= set(graph.response_sites)
        and not graph.drives_words([name])
    ]  # fmt: skip


def counting(graph: BoundGraph, documents: Documents) -> Documents:
    """Documents of the corpus, of which those that are held out do not count with their responses."""
    if not graph.held_out:
        return documents
    counted = np.ones(len(graph.corpus), np.float32)
    counted[list(graph.held_out)] = 0.0
    return replace(documents, counted=jnp.asarray(counted))


def aside(graph: BoundGraph, documents: Documents) -> Documents:
    """The same with the responses of those held out at power 1, and no others."""
    assert documents.counted is not None
    return replace(documents, counted=(1.0 - documents.counted) / graph.story.weight)


def as_seen(graph: BoundGraph) -> BoundGraph:
    """The graph with the responses of documents held out missing, as all but scales know it."""
    if not graph.held_out:
        return graph
    parts = {name: np.array(part, copy=True) for name, part in graph.response.parts.items()}
    for part in parts.values():
        part[list(graph.held_out)] = np.nan
    response = Response(parts, graph.response.several, graph.response.classes)
    return replace(graph, story=replace(graph.story, masked=True), response=response)


def hold_out(plan: Plan, data: Data) -> tuple[Plan, Data]:
    """A plan of Gibbs blocks whose scales are drawn given the documents held out, and data in which these count for nothing
    else. A scale that NUTS would draw is drawn by slices."""
    graph = plan.graph
    if not graph.held_out:
        return plan, data
    data = data._replace(documents=counting(graph, data.documents))
    counted, scales = aside(graph, data.documents).counted, scales_of(graph)
    sliced = [SliceBlock(graph, [name]) for name in scales if name in plan.by_nuts]
    for block in [*plan.blocks, *sliced]:
        if set(block.sites) <= set(scales):
            block.counted = counted
    if not sliced:
        return plan, data
    return Plan(graph, [*sliced, *plan.blocks], [name for name in plan.by_nuts if name not in scales]), data
