"""Dirichlet sites that variational EM knows at once: what reads them is observed and depends on nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import documents

from ..story.bound import BoundGraph
from ..story.tracing import ZbarHandler, run, total
from .expectations import DirichletSite, concentrations, refuse, require_dirichlet


def counted_sites(
    graph: BoundGraph, names: Sequence[str], mle: bool, observed: Sequence[str] | None = None
) -> list[tuple[DirichletSite, np.ndarray]]:
    """The sites, such as the shares of observed classes, each with its posterior; whatever is not of this kind is refused.

    ``observed`` are the sites that may read them, by default all that are observed. Their log-density is
    linear in log x, so that the counts are x d(log p)/dx at any x.
    """
    observed = graph.observed if observed is None else observed
    for name in names:
        site, readers = graph.latent[name], graph.children([name]) - {name}
        if site.document_axis is not None or not readers or not readers <= set(observed):
            refuse(graph, name, "no words depend on it and it is no response that vem knows")
        require_dirichlet(graph, name)
    for name in observed:
        if not graph.parents[name] - {name} <= set(names) or not graph.parents[name] - {name}:
            refuse(graph, name, "no words depend on it and it is no response that vem knows")
    if not names:
        return []

    @jax.jit
    def log_density(logs: dict, corpus: object, y: object) -> jax.Array:
        values = {name: jnp.exp(part) for name, part in logs.items()}
        return total(run(graph.story, corpus, y, values, ZbarHandler(lambda theta: theta)), observed)

    data, priors = (
        (documents(graph.corpus), jax.tree.map(jnp.asarray, graph.y)),
        concentrations(graph, list(names)),
    )
    even = {name: jnp.full(prior.shape, -np.log(prior.shape[-1]), jnp.float32) for name, prior in priors.items()}
    value, counts = jax.value_and_grad(log_density)(even, *data)
    moved = {name: part + 0.5 * jnp.cos(jnp.arange(part.size)).reshape(part.shape) for name, part in even.items()}
    expected = value + sum(((moved[name] - even[name]) * counts[name]).sum() for name in names)
    if not np.allclose(log_density(moved, *data), expected, rtol=1e-3):
        refuse(graph, names[0], "the density of what is observed is not linear in its logarithm")
    sites = [DirichletSite(name, priors[name], mle) for name in names]
    return [(site, site.update(np.asarray(counts[site.name], np.float64))) for site in sites]
