"""The block that draws coefficients with the help of auxiliary variables of priors and responses.

Auxiliary variables (:mod:`.augmentation`) are drawn anew right before the coefficients and forgotten right after: all other
blocks see the story's own density. (A sampler that kept them while topics move, and only then drew coefficients, would not
be valid: it would draw from a law that belongs to other topics; see van Dyk & Park 2008.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree

from ..kernels.assignments import mean_topics
from ..story.assignments import AssignmentHandler
from ..story.bound import BoundGraph
from ..story.tracing import Data, Values, ZbarHandler, base_distribution, run, total
from .augmentation import AUGMENTED
from .block import Block, Few
from .conjugate import MAX_GAUSSIAN


class Auxiliary(NamedTuple):
    """The auxiliary variables of one column, site by site."""

    column: Any
    draws: dict[str, jax.Array]


class AugmentedBlock(Block):
    """Sites that are normal given auxiliary variables of priors or responses: one joint draw, or one a class."""

    label = "normal draw given auxiliary variables"
    grouped = True

    def __init__(self, graph: BoundGraph, sites: Sequence[str]) -> None:
        super().__init__(graph, sites)
        children = graph.children(sites)
        self.augmented = {
            name: AUGMENTED[graph.family(name)] for name in sorted(children) if graph.family(name) in AUGMENTED
        }
        self.others = sorted(children - set(self.augmented))
        classes = any(augmentation.columns for augmentation in self.augmented.values())
        self.columns = (1, *graph.latent[self.sites[0]].shape)[-1] if classes else 1
        self.classes = classes
        self.direct = self._reads_one_predictor()

    def _reads_one_predictor(self) -> bool:
        """Whether the block is one eta that responses read through one ``zbar @ eta`` alone: the design is then zbar's."""
        graph = self.graph
        shape = (self.columns,) if self.classes else ()
        if not graph.has_words or not graph.linear or len(self.sites) > 1 or graph.predictor_shapes != (shape,):
            return False
        (site,), values = self.sites, graph.few_values
        if graph.latent[site].shape != (graph.num_topics, *shape):
            return False
        below = [name for name in self.augmented if name in graph.response_sites]

        def locations(eta: jax.Array) -> tuple[bool, list[jax.Array]]:
            answer = ZbarHandler(lambda theta: theta, [jnp.ones((3, *shape))])
            trace = run(graph.story, graph.few_documents, graph.few_y, {**values, site: eta}, answer)
            same = answer.coefficients[0] is trace[site]["value"]
            found = [self.augmented[name].location(*_fn_and_value(trace[name])) for name in below]
            return same, found

        (same, here), (_, there) = locations(values[site]), locations(values[site] + 0.7)
        return same and all(
            a.shape == (3, *shape) and np.allclose(a, b, rtol=1e-4) for a, b in zip(here, there, strict=True)
        )

    def auxiliary(self, key: jax.Array, column: Any, values: Values, data: Data) -> Auxiliary:
        trace = self._trace(values, data)
        keys = jax.random.split(key, len(self.augmented))
        draws = {}
        for i, (name, augmentation) in enumerate(self.augmented.items()):
            one = partial(
                augmentation.draw, fn=base_distribution(trace[name]["fn"]), value=trace[name]["value"], column=column
            )
            copies = self._copies(name)
            draws[name] = one(keys[i]) if copies is None else jax.vmap(one)(jax.random.split(keys[i], copies))
        return Auxiliary(column, draws)

    def _copies(self, name: str) -> int | None:
        """As many auxiliary variables as the power of a response's likelihood, which is then a product of so many."""
        return int(self.graph.story.weight) if name in self.graph.story.weighed else None

    def _each(self, name: str, function: Callable, draws: jax.Array) -> Any:
        """A function of auxiliary variables, summed over those of one response."""
        if self._copies(name) is None:
            return function(draws)
        return jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(function)(draws))

    def _counts(self, name: str, fn: Any, terms: jax.Array, data: Data) -> jax.Array:
        """Which elements count: those that are not masked, of documents whose response does."""
        counts, counted = _unmasked(fn, terms), data.documents.counted
        if counted is None or name not in self.graph.story.weighed:
            return counts
        behind = -1 - self.graph.story.weighed[name] + terms.ndim - len(fn.batch_shape)
        return counts & (counted > 0).reshape(-1, *[1] * behind)

    def log_auxiliary(self, auxiliary: Auxiliary, values: Values, data: Data) -> jax.Array:
        """log p(auxiliary | all values) up to terms of the auxiliary variables alone."""
        trace, log_density = self._trace(values, data), jnp.zeros(())
        for name, augmentation in self.augmented.items():
            site, draw = trace[name], auxiliary.draws[name]
            fn, value, column = base_distribution(site["fn"]), site["value"], auxiliary.column
            terms = self._each(name, lambda a: augmentation.log_auxiliary(a, fn, value, column), draw)
            log_density += jnp.where(self._counts(name, site["fn"], terms, data), terms, 0.0).sum()
        return log_density

    def _trace(self, values: Values, data: Data) -> dict:
        return run(self.graph.story, *data, values, AssignmentHandler(counted=False))

    def _part(self, values: Values, column: Any) -> dict[str, jax.Array]:
        return {site: values[site][..., column] if self.classes else values[site] for site in self.sites}

    def _whole(self, part: dict[str, jax.Array], values: Values, column: Any) -> dict[str, jax.Array]:
        if not self.classes:
            return part
        return {site: values[site].at[..., column].set(part[site]) for site in self.sites}

    def conditional(self, auxiliary: Auxiliary, values: Values, data: Data) -> tuple[dist.MultivariateNormal, Callable]:
        """The law of one column of the sites given the auxiliary variables."""
        column = auxiliary.column
        flat, unravel = ravel_pytree(self._part(values, column))

        def moved(x: jax.Array) -> dict:
            return {**values, **self._whole(unravel(x), values, column)}

        def prior(x: jax.Array) -> jax.Array:
            return total(self._trace(moved(x), data), self.others)

        def locations(x: jax.Array, names: Sequence[str]) -> dict[str, jax.Array]:
            return self._locations(self._trace(moved(x), data), names, column)

        origin, slope = jnp.zeros_like(flat), jax.grad(prior)
        gradient, precision = slope(origin), -jax.jacfwd(slope)(origin)
        direct = [name for name in self.augmented if self.direct and name in self.graph.response_sites]
        general = [name for name in self.augmented if name not in direct]
        at_origin, design = locations(origin, general), jax.jacfwd(locations)(origin, general)
        for name, found in zip(direct, self._of_zbar(moved(origin), data, direct, column), strict=True):
            at_origin[name], design[name] = found
        trace = self._trace(values, data)
        for name, augmentation in self.augmented.items():
            fn, value = trace[name]["fn"], trace[name]["value"]
            base = base_distribution(fn)
            linear, weight = self._each(
                name,
                lambda a: augmentation.quadratic(a, base, value, column),
                auxiliary.draws[name],
            )
            counts = self._counts(name, fn, weight, data)
            slope_there = jnp.where(counts, linear - weight * at_origin[name], 0.0).ravel()
            weight = jnp.where(counts, weight, 0.0).ravel()
            rows = design[name].reshape(-1, flat.size)
            gradient += rows.T @ slope_there
            precision += rows.T @ (weight[:, None] * rows)
        mean = jnp.linalg.solve(precision, gradient)
        return dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False), unravel

    def _locations(self, trace: dict, names: Sequence[str], column: Any) -> dict[str, jax.Array]:
        found = {name: self.augmented[name].location(*_fn_and_value(trace[name])) for name in names}
        return {name: x[..., column] if self.augmented[name].columns else x for name, x in found.items()}

    def _of_zbar(self, values: Values, data: Data, names: Sequence[str], column: Any) -> list[tuple]:
        """The locations of responses at the given values and their slopes in the column of eta, [documents, topics]."""
        if not names:
            return []
        zbar = mean_topics(values["z"], data.documents)
        predictor = zbar @ values[self.sites[0]]

        def locations(step: jax.Array) -> list[jax.Array]:
            at = predictor.at[..., column].add(step) if self.classes else predictor + step
            trace = run(self.graph.story, *data, values, ZbarHandler(zbar, [at]))
            return [self._locations(trace, [name], column)[name] for name in names]

        step = jnp.zeros(len(zbar))
        found, slopes = jax.jvp(locations, (step,), (jnp.ones_like(step),))
        return [(x, slope[:, None] * zbar) for x, slope in zip(found, slopes, strict=True)]

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        def one(column: Any, own: dict) -> dict:
            aside_key, draw_key = jax.random.split(jax.random.fold_in(key, column))
            now = {**values, **own}
            auxiliary = self.auxiliary(aside_key, column, now, data)
            conditional, unravel = self.conditional(auxiliary, now, data)
            return self._whole(unravel(conditional.sample(draw_key)), now, column)

        own = {site: values[site] for site in self.sites}
        return (jax.lax.fori_loop(0, self.columns, one, own) if self.classes else one(0, own)), {}

    def log_given(self, new: Values, auxiliary: Auxiliary, values: Values, data: Data) -> jax.Array:
        """log p(the column of new | auxiliary, all other values)."""
        conditional, _ = self.conditional(auxiliary, values, data)
        return conditional.log_prob(ravel_pytree(self._part(new, auxiliary.column))[0])

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether the block's law is the story's: by families, then by the ratio test on the few documents."""
        latent = [graph.latent[site] for site in sites]
        if any(site.document_axis is not None or site.discrete for site in latent) or graph.drives_words(sites):
            return None
        block = cls(graph, sites)
        normal = dist.Normal | dist.MultivariateNormal
        if not block.augmented or not all(issubclass(graph.family(name), normal) for name in block.others):
            return None
        priors = {name: graph.latent[name].prior if name in graph.latent else None for name in block.augmented}
        if not all(augmentation.serves(priors[name]) for name, augmentation in block.augmented.items()):
            return None
        weighed = any(name in graph.story.weighed for name in block.augmented)
        if weighed and graph.story.weight != int(graph.story.weight):
            return None  # a power that is no whole number of factors
        if block.classes and not all(site.shape[-1:] == (block.columns,) for site in latent):
            return None
        flat, _ = ravel_pytree(block._part(few.values, 0))
        if flat.size > MAX_GAUSSIAN or not block._has_a_location_each(few):
            return None
        found, expected = graph.program(_ratios_of, block.bare())(few)
        close = np.allclose(found, expected, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(expected).max())))
        return block if close else None

    def _has_a_location_each(self, few: Few) -> bool:
        """Whether each value has an x of its own; one that a plate repeats has not."""

        def shapes() -> tuple[dict, dict]:
            trace = self._trace(few.values, few.data)
            return self._locations(trace, list(self.augmented), 0), {n: trace[n]["value"] for n in self.augmented}

        found, values = jax.eval_shape(shapes)
        return all(found[name].shape == values[name].shape for name in found)

    def _ratios(self, few: Few) -> tuple[jax.Array, jax.Array]:
        """Log ratios of the law at two places, by the block and by the story, for each column."""
        data, parts = few.data, sorted(self.graph.children(self.sites))
        rng, here = np.random.default_rng(1), few.values
        # far away: nearby a wrong precision can go unseen on three documents
        other = {site: jnp.asarray(rng.normal(0, 3.0, here[site].shape), jnp.float32) for site in self.sites}

        def of_column(column: jax.Array) -> tuple[jax.Array, jax.Array]:
            there = self.moved(here, other, column)
            expected = total(self._trace(there, data), parts) - total(self._trace(here, data), parts)
            return self.log_ratio(column, here, there, data), expected

        return jax.lax.map(of_column, jnp.arange(self.columns))

    def moved(self, values: Values, other: Values, column: Any) -> dict:
        """All values with one column of the sites as it is in others."""
        return {**values, **self._whole(self._part(other, column), values, column)}

    def log_ratio(self, column: Any, here: Values, there: Values, data: Data) -> jax.Array:
        """log of p(there | aside) p(aside | here) / p(here | aside) p(aside | there), which must be p(there) / p(here)."""
        aside = self.auxiliary(jax.random.key(3), column, here, data)
        given = self.log_given(there, aside, here, data) - self.log_given(here, aside, here, data)
        return given - self.log_auxiliary(aside, there, data) + self.log_auxiliary(aside, here, data)


def _ratios_of(graph: BoundGraph, block: AugmentedBlock, few: Few) -> tuple[jax.Array, jax.Array]:
    return block._ratios(few)


def _fn_and_value(site: dict) -> tuple[Any, Any]:
    return base_distribution(site["fn"]), site["value"]


def _unmasked(fn: Any, terms: jax.Array) -> jax.Array:
    """Which elements' density is not masked."""
    counts = jnp.asarray(True)
    while (base := getattr(fn, "base_dist", None)) is not None:
        if isinstance(fn, dist.MaskedDistribution):
            mask = jnp.asarray(fn._mask)
            counts = counts & mask.reshape(mask.shape + (1,) * max(terms.ndim - mask.ndim, 0))
        fn = base
    return jnp.broadcast_to(counts, terms.shape)
