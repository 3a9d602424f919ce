"""A site of the whole corpus drawn number by number, by slice sampling of the story's own density: for those that have no
conditional in closed form and must not be drawn with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from numpyro.distributions import biject_to

from ..samplers.slice import slice_draw
from ..story.bound import BoundGraph
from ..story.tracing import Data, Values
from .block import Block, log_density_of


class SliceBlock(Block):
    """One continuous site."""

    label = "slice draw"

    def __init__(self, graph: BoundGraph, sites: Sequence[str]) -> None:
        super().__init__(graph, sites)
        self.to = biject_to(graph.latent[sites[0]].fn.support)

    def log_density(self, values: Values, data: Data) -> Callable[[dict], jax.Array]:
        """Of the site given all other values, up to a constant."""
        return log_density_of(self.graph, self.sites, values, data)

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        (site,) = self.sites
        start, log_density = self.to.inv(values[site]), self.log_density(values, data)

        def one(i: jax.Array, flat: jax.Array) -> jax.Array:
            def at(x: jax.Array) -> jax.Array:
                free = flat.at[i].set(x).reshape(start.shape)
                value = self.to(free)
                return log_density({site: value}) + self.to.log_abs_det_jacobian(free, value).sum()

            here = at(flat[i])
            return flat.at[i].set(slice_draw(jax.random.fold_in(key, i), lambda x: at(x) - here, flat[i]))

        return {site: self.to(jax.lax.fori_loop(0, start.size, one, start.ravel()).reshape(start.shape))}, {}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        return self.log_density(values, data)(dict(new))
