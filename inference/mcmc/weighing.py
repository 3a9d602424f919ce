"""The response's likelihood to a power, for topics that serve predictions.

A document has hundreds of words and one response: in the posterior topics follow the words. With p(y | z, eta, sigma)^w in
the place of the likelihood (a generalised posterior; Bissiri, Holmes & Walker 2016) they follow it as far as w says.
All blocks draw from that law, given scales such as sigma.

Scales are another matter. Topics that follow the responses fit them, whatever the words say; sigma, drawn given them, falls,
and the smaller it is, the more closely topics follow: it would end at 0. So a few documents are held out: their topics and
the coefficients do not know their responses, and scales are drawn given them alone, at power 1. Predictions are calibrated
by the same documents, since a power above 1 makes the model too sure of its coefficients, and the mean of many chains errs
less than any of them.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from ..blocks.conjugate import ScaleBlock
from ..story.bound import BoundGraph
from ..story.tracing import Data
from .plan import Plan

FEWEST, MOST = 20, 200  # documents held out, a tenth between; none where there are not twice as many as the fewest


def with_weight(graph: BoundGraph, weight: float) -> BoundGraph:
    """The graph with the likelihood of its responses to a power; itself where that is 1."""
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
    return replace(graph, story=replace(graph.story, weight=float(weight), weighed=of_documents))


def hold_out(plan: Plan, data: Data, weight: float) -> tuple[Data, np.ndarray]:
    """Data in which the responses of some documents do not count but for scales, and the rows of these documents."""
    graph = plan.graph
    missing = [
        np.isnan(np.asarray(part, float)).reshape(len(part), -1).any(1) for part in graph.response.parts.values()
    ]
    labelled = np.flatnonzero(~np.any(missing, axis=0) & (graph.corpus.lengths > 0))
    if len(labelled) < 2 * FEWEST:
        return data, np.zeros(0, int)
    rows = np.random.default_rng(0).choice(labelled, int(np.clip(len(labelled) // 10, FEWEST, MOST)), replace=False)
    held_out = np.isin(np.arange(len(graph.corpus)), rows)
    for block in plan.blocks:
        if isinstance(block, ScaleBlock) and _is_of_responses(graph, block.sites):
            block.counted = jnp.asarray(held_out / weight, jnp.float32)
    counted = jnp.asarray(~held_out, jnp.float32)
    return data._replace(documents=replace(data.documents, counted=counted)), np.sort(rows)


def _is_of_responses(graph: BoundGraph, sites: tuple[str, ...]) -> bool:
    return graph.children(sites) - set(sites) <= set(graph.response_sites)
