"""The block of what Dirichlet priors are made of: the concentrations of theta and beta, or what these are computed from.

Given theta such a number hardly moves, since theta says nearly all about it. So the Dirichlet sites below it are integrated
out, as they are out of the topic sweep, and it is drawn given the counts of words in topics n alone:

    p(x | n)  is proportional to  p(x)  prod_d B(alpha(x) + n_d) / B(alpha(x))

and likewise for beta with its counts of terms. Nobody reads these sites before they are drawn again: theta after the sweep,
beta in its own block, which comes later. One number after the other is drawn by slice sampling, whatever its prior is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from ..kernels.special import log_rising_ratio
from ..samplers.slice import slice_draw
from ..story.assignments import AssignmentHandler
from ..story.bound import BoundGraph
from ..story.tracing import Data, Values, concentration, log_prob, run
from .block import Block, Few

MOST = 500  # numbers of a site that are drawn one after the other; larger sites go to NUTS


class ConcentrationBlock(Block):
    """A site that enters the priors of Dirichlet sites that are integrated out."""

    label = "slice draws given counts"

    def __init__(
        self, graph: BoundGraph, sites: Sequence[str], integrated_out: tuple[str, ...], by_column: bool = False
    ) -> None:
        """``by_column``: number k of the site is read by concentration k of all documents alone."""
        super().__init__(graph, sites)
        self.integrated_out, self.by_column = integrated_out, by_column
        self.to = biject_to(graph.latent[self.sites[0]].fn.support)

    def log_ratio(self, new: jax.Array, old: jax.Array, values: Values, data: Data, column: Any = None) -> jax.Array:
        """log p(new | counts) - log p(old | counts) of the site's value; where they differ in one column, that one."""
        (site,), graph, z = self.sites, self.graph, values["z"]
        there, here = (
            run(graph.story, *data, {**values, site: value}, AssignmentHandler(counted=False)) for value in (new, old)
        )
        total = jnp.zeros(())
        for name in sorted(graph.children([site]) - set(self.integrated_out)):
            total += (log_prob(there[name]) - log_prob(here[name])).sum()
        for name in self.integrated_out:
            counts = z.from_theta if name == graph.theta else z.topic_term
            after, before = concentration(there[name]["fn"]), concentration(here[name]["fn"])
            total -= log_rising_ratio(after.sum(-1), before.sum(-1), counts.sum(-1)).sum()
            if column is not None:
                after, before, counts = (jnp.take(part, column, axis=-1) for part in (after, before, counts))
            total += log_rising_ratio(after, before, counts).sum()
        return total

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        (site,) = self.sites
        start = self.to.inv(values[site])

        def one(i: jax.Array, flat: jax.Array) -> jax.Array:
            def at(x: jax.Array) -> tuple[jax.Array, jax.Array]:
                free = flat.at[i].set(x).reshape(start.shape)
                value = self.to(free)
                return value, self.to.log_abs_det_jacobian(free, value).sum()

            old, volume = at(flat[i])

            def log_ratio(x: jax.Array) -> jax.Array:
                new, there = at(x)
                return self.log_ratio(new, old, values, data, i if self.by_column else None) + there - volume

            return flat.at[i].set(slice_draw(jax.random.fold_in(key, i), log_ratio, flat[i]))

        return {site: self.to(jax.lax.fori_loop(0, start.size, one, start.ravel()).reshape(start.shape))}, {}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        (site,) = self.sites
        return self.log_ratio(new[site], values[site], values, data)


def concentration_blocks(
    graph: BoundGraph, sites: Sequence[str], few: Few, taken: Collection[str]
) -> list[ConcentrationBlock]:
    """Blocks for the sites above Dirichlet sites that are integrated out.

    A Dirichlet site is, if all that its prior is made of is drawn here or is a class of documents, which has it integrated
    out as well: nobody may read what is yet to be drawn again.
    """
    if not graph.has_words:
        return []
    integrable = [graph.theta] if graph.theta_is_integrable() else []
    integrable += [graph.beta] if graph.beta_is_integrable() and graph.beta not in taken else []

    def above(name: str) -> set[str]:
        return {site for site in graph.parents[name] - {name} if not graph.latent[site].discrete}

    def served(site: str) -> bool:
        latent = graph.latent[site]
        return site in sites and latent.document_axis is None and math.prod(latent.shape) <= MOST

    out = [name for name in integrable if all(map(served, above(name)))]
    blocks = []
    for site in sites:
        own = tuple(name for name in out if site in above(name))
        if own:
            blocks.append(ConcentrationBlock(graph, [site], own, _by_column(graph, site, own, few)))
    return blocks


def _by_column(graph: BoundGraph, site: str, out: tuple[str, ...], few: Few) -> bool:
    """Whether the concentration is one row for all documents, whose number k reads number k of the site alone."""
    shape = graph.latent[site].shape
    if out != (graph.theta,) or len(shape) != 1:
        return False
    slopes = graph.program(_slopes_of_row, site)
    found = [np.asarray(slopes(few, scale * few.values[site])) for scale in (0.5, 1.0)]
    return all(s.shape == shape * 2 and np.array_equal(s, np.diag(np.diag(s))) for s in found)


def _slopes_of_row(graph: BoundGraph, site: str, few: Few, x: jax.Array) -> jax.Array:
    """How the concentration of theta changes with the site."""

    def row(x: jax.Array) -> jax.Array:
        trace = run(graph.story, *few.data, {**few.values, site: x}, AssignmentHandler(counted=False))
        return concentration(trace[graph.theta]["fn"])

    return jax.jacfwd(row)(x)
