"""The block of probabilities: a Beta site above things that happen or do not."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ..story.bound import BoundGraph
from ..story.tracing import Data, Values
from .block import Block, Few, log_density_of

HAPPENS = dist.BernoulliProbs, dist.BinomialProbs, dist.GeometricProbs  # what is told by how often something happens
PLACES = np.array([0.25, 0.75], np.float32)
# d log p / dx = A / x - B / (1 - x) at the two places, solved for A and B
SOLVED = np.linalg.inv(np.stack([1 / PLACES, -1 / (1 - PLACES)], 1)).astype(np.float32)


class ChanceBlock(Block):
    """A site of numbers between 0 and 1 with log p(x) = A log x + B log(1 - x): Beta(A + 1, B + 1)."""

    label = "Beta draw"

    def conditional(self, values: Values, data: Data) -> dist.Beta:
        return _conditional(self.graph, self.sites[0], values, data)

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        return {self.sites[0]: self.conditional(values, data).sample(key)}, {}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        return self.conditional(values, data).log_prob(new[self.sites[0]]).sum()

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether the slopes at other places, another one for each number, are those of the form."""
        (site,) = sites
        readers = graph.children([site]) - {site}
        # of other distributions the values at hand may hide that the form is another: of a mixture whose parts are far apart
        if not isinstance(graph.latent[site].prior, dist.Beta) or not all(
            issubclass(graph.family(name), HAPPENS) for name in readers
        ):
            return None
        x = np.random.default_rng(1).uniform(0.1, 0.9, np.shape(few.values[site])).astype(np.float32)
        slope, expected = graph.program(_slopes, site)(few, jnp.asarray(x))
        return cls(graph, sites) if np.allclose(slope, expected, rtol=1e-3, atol=1e-3) else None


def _slope(graph: BoundGraph, site: str, values: Values, data: Data, x: jax.Array) -> jax.Array:
    log_density = log_density_of(graph, [site], values, data)
    return jax.grad(lambda x: log_density({site: x}))(x)


def _conditional(graph: BoundGraph, site: str, values: Values, data: Data) -> dist.Beta:
    slopes = [_slope(graph, site, values, data, jnp.full_like(values[site], place)) for place in PLACES]
    A, B = jnp.tensordot(jnp.asarray(SOLVED), jnp.stack(slopes), 1)
    return dist.Beta(A + 1, B + 1)


def _slopes(graph: BoundGraph, site: str, few: Few, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The slope of the log-density at x, and what the form makes of it."""
    found = _conditional(graph, site, few.values, few.data)
    A, B = found.concentration1 - 1, found.concentration0 - 1
    return _slope(graph, site, few.values, few.data, x), A / x - B / (1 - x)
