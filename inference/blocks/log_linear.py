"""The block of topics whose logarithms are sums: deviations from a background, of topics, of labels, of both.

Where beta_e = softmax(b_e + sum_s c_s x_s), number by number of the terms, the words with topic e have the likelihood

    prod_v exp(n_ev eta_ev) / S_e^n_e,    S_e = sum_v exp(eta_ev),    1 / S^n = int u^(n - 1) exp(-u S) du / Gamma(n).

Given u_e ~ Gamma(n_e, 1) / S_e the terms are independent of each other, and log p of a single number that moves by d is

    N c d - M (exp(c d) - 1) + log p(x + d) - log p(x),    N = sum n_ev,    M = sum u_e exp(eta_ev)

over the e that read it, so that all numbers of a site are drawn side by side, by slices. Of the priors nothing is asked but
that the numbers of a site are independent. What the words do not tell moves by itself: all terms of a topic together, which
softmax does not see, and a number of one site against those of another that say the same more finely (Yu & Meng 2011).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from topiczoo.models.vocabulary.words import BagOfWords

from ..kernels.sweep import FLOOR
from ..samplers.slice import slice_draws
from ..story.bound import BoundGraph
from ..story.graph import BETA, LABEL, SWITCH, TERM, THETA
from ..story.tracing import Data, Values, ZbarHandler, base_distribution, log_prob, run
from .block import Block, Few, log_density_of
from .whitened import whitened

NEAR = 1e-3  # numbers that are computed in two ways, and are the same
SMALLEST = 1e-6  # coefficient of a number that topics read
WIDTH = 3.0  # of the first intervals, in standard deviations

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A site as a part of the sum; its shape is that of beta, with 1 where topics share its numbers."""

    x: jax.Array
    slope: jax.Array  # c, with one place for all terms
    prior: Any  # of each number, in the site's own shape
    own: Shape  # the site's shape

    def gain(self, d: jax.Array) -> jax.Array:
        """log p of each number that moves, less what it was."""
        new, old = (self.prior.log_prob(x.reshape(self.own)) for x in (self.x + d, self.x))
        return (new - old).reshape(self.x.shape)

    @property
    def precision(self) -> jax.Array:
        """One over the prior's variance, where it has one."""
        try:
            variance = jnp.broadcast_to(self.prior.variance, self.own).reshape(self.x.shape)
        except NotImplementedError:
            return jnp.ones(self.x.shape)
        return jnp.where(jnp.isfinite(variance) & (variance > 0), 1 / variance, 1.0)

    def sum(self, of_topics: jax.Array) -> jax.Array:
        """What is of topics, or of a part that is as fine or finer, summed for each of the numbers."""
        return _summed(of_topics, self.x.shape)

    def moved(self, d: jax.Array) -> Part:
        return replace(self, x=self.x + d)


def _summed(values: jax.Array, shape: Shape) -> jax.Array:
    """Summed over the axes that have one place in a shape."""
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and values.shape[i] > 1)
    return values.sum(axes, keepdims=True)


class LogLinearBlock(Block):
    """Sites that topics are the softmax of a sum of, term by term."""

    label = "slice draws of log-linear topics"
    grouped = True

    def __init__(self, graph: BoundGraph, sites: Sequence[str], shapes: dict[str, Shape]) -> None:
        """``shapes``: of each site, axis by axis that of beta or 1."""
        super().__init__(graph, sites)
        self.shapes = shapes

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        keys: Iterator[jax.Array] = (jax.random.fold_in(key, i) for i in itertools.count())
        beta, counts, priors = look(self.graph, self.sites, values, data)
        parts = {
            name: Part(values[name].reshape(shape), self.slope(name, values, data), priors[name], values[name].shape)
            for name, shape in self.shapes.items()
        }
        of_topic = counts.sum(-1, keepdims=True)
        rates = beta * jnp.where(of_topic > 0, jax.random.gamma(next(keys), jnp.maximum(of_topic, 1.0)), 0.0)
        for name, part in parts.items():
            number, rate = part.sum(counts), part.sum(rates)
            width = WIDTH * jax.lax.rsqrt(number * part.slope**2 + part.precision)
            d = slice_draws(next(keys), partial(_given_rates, part, number, rate), width)
            parts[name], rates = part.moved(d), rates * jnp.exp(part.slope * d)
        for name, part in parts.items():
            width = WIDTH * jax.lax.rsqrt(part.precision.sum(-1, keepdims=True))
            parts[name] = part.moved(slice_draws(next(keys), partial(_of_all_terms, part), width))
        for coarse, fine in self.pairs:
            parts[coarse], parts[fine] = _against(next(keys), parts[coarse], parts[fine])
        return {name: part.x.reshape(part.own) for name, part in parts.items()}, {}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Sites of which the second has a number, or several, for each number of the first."""
        each = list(self.shapes)
        finer = [
            (a, b) for a, b in itertools.permutations(each, 2)
            if np.broadcast_shapes(self.shapes[a], self.shapes[b]) == self.shapes[b]
        ]  # fmt: skip
        return [(a, b) for a, b in finer if self.shapes[a] != self.shapes[b] or each.index(a) < each.index(b)]

    def slope(self, name: str, values: Values, data: Data) -> jax.Array:
        """How far log beta moves where a number of the site does."""
        of_topics = slopes(self.graph, self.sites, name, values, data)[..., None]
        shape = (*self.shapes[name][:-1], 1)
        return _summed(of_topics, shape) * (np.prod(shape) / of_topics.size)

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        return log_density_of(self.graph, self.sites, values, data)(dict(new))

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether log beta is linear in the sites, each term's in its own numbers, and these are independent beforehand."""
        above = graph.parents.get(BETA if graph.has_words else bags(graph), frozenset())
        parts = [name for name in graph.latent if name in above and TERM in graph.latent[name].axes]
        # one that is no part of the sum would move against the others by small steps: NUTS takes them all together
        if graph.beta or not set(sites) <= set(parts) or not all(_could_be(graph, name) for name in parts):
            return None
        rng = np.random.default_rng(0)
        at, moves = (
            {name: rng.normal(0, 0.5, graph.latent[name].shape).astype(np.float32) for name in parts} for _ in range(2)
        )
        before, tried = jax.tree.map(np.asarray, graph.program(_tried, tuple(parts))(few, at, moves))
        with np.errstate(divide="ignore"):  # a term that no topic has
            shapes = {name: _placed(moves[name], np.log(before), tried[name]) for name in parts}
        found = {name: shape for name, shape in shapes.items() if shape is not None}
        return cls(graph, sites, {name: found[name] for name in sites}) if len(found) == len(parts) else None


def _could_be(graph: BoundGraph, name: str) -> bool:
    """Whether a site is of real numbers, the last axis its terms, that topics read and nothing else does."""
    latent, parents = graph.latent[name], graph.parents
    if latent.discrete or latent.document_axis is not None or latent.axes[-1:] != (TERM,):
        return False
    support = latent.fn.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return (
        support is constraints.real
        and graph.children([name]) <= {name, bags(graph)}
        and not any(name in parents.get(part, ()) for part in (THETA, LABEL, SWITCH))
    )


class Tried(NamedTuple):
    """What a site was seen to do."""

    slope: Any  # of log beta of each topic in the numbers of the site
    after: Any  # beta when the site has moved
    prior: Any  # its log-density: as the story has it, and number by number


def _tried(
    graph: BoundGraph, sites: Sequence[str], few: Few, at: Values, moves: Values
) -> tuple[Any, dict[str, Tried]]:
    values = {**few.values, **at}
    before, _, priors = look(graph, sites, values, few.data)
    trace = run(whitened(graph.story), *few.data, values, ZbarHandler(lambda theta: theta))
    tried = {}
    for name in sites:
        alone = not priors[name].event_shape
        number_by_number = priors[name].log_prob(at[name]).sum() if alone else jnp.nan
        after, *_ = look(graph, sites, {**values, name: at[name] + moves[name]}, few.data)
        prior = jnp.stack([log_prob(trace[name]).sum(), number_by_number])
        tried[name] = Tried(slopes(graph, sites, name, values, few.data), after, prior)
    return before, tried


def _placed(move: np.ndarray, before: np.ndarray, tried: Tried) -> Shape | None:
    """The shape of a site as that of beta, with 1 where topics share its numbers; None if it is no part of a sum."""
    if not np.allclose(tried.prior[0], tried.prior[1], rtol=NEAR):
        return None
    lead, axes = [size for size in move.shape[:-1] if size > 1], range(before.ndim - 1)
    for chosen in itertools.combinations(axes, len(lead)):
        sizes = dict(zip(chosen, lead, strict=True))
        shape = (*(sizes.get(axis, 1) for axis in axes), before.shape[-1])
        if any(before.shape[axis] != size for axis, size in sizes.items()) or np.prod(shape) != move.size:
            continue
        c = tried.slope.mean(tuple(axis for axis in axes if axis not in sizes), keepdims=True)
        after = before + c[..., None] * move.reshape(shape)
        after -= np.log(np.exp(after).sum(-1, keepdims=True))
        if np.allclose(tried.slope, c, rtol=NEAR, atol=NEAR) and np.allclose(np.log(tried.after), after, atol=NEAR):
            return shape
    return None


def bags(graph: BoundGraph) -> str:
    """The words of documents of one topic each, where these are all the words there are."""
    found = list(graph.with_role("words"))
    return found[0] if len(found) == 1 and not graph.has_words else ""


class Seen(NamedTuple):
    """What a story says of topics at some values."""

    beta: jax.Array  # [..., terms]
    counts: jax.Array  # of the words of each, likewise
    priors: dict[str, Any]  # of each number of the sites


def look(graph: BoundGraph, sites: Sequence[str], values: Values, data: Data) -> Seen:
    """Topics, their words, and what sites are drawn from beforehand."""
    handler = ZbarHandler(lambda theta: theta)
    own = {name: value for name, value in values.items() if name != "z" or not graph.has_words}
    trace = run(whitened(graph.story), *data, own, handler)
    priors = {name: base_distribution(trace[name]["fn"]) for name in sites}
    if graph.has_words:
        return Seen(handler.beta, values["z"].topic_term, priors)
    words = base_distribution(trace[bags(graph)]["fn"])

    def log_p(beta: jax.Array) -> jax.Array:
        return BagOfWords(beta, words.z, words.lengths).log_prob(data.documents.pairs).sum()

    return Seen(words.beta, jax.grad(log_p)(jnp.ones_like(words.beta)), priors)  # it is linear in log beta


def slopes(graph: BoundGraph, sites: Sequence[str], name: str, values: Values, data: Data) -> jax.Array:
    """How far log beta of each topic moves where the numbers of a site do, but for what softmax takes away again.

    Along some direction p of the terms it moves by c p less its mean: c is its regression on p. At 0 nothing underflows but
    terms that no topic has.
    """
    zeros = {site: jnp.zeros_like(values[site]) for site in sites}
    p = jax.random.normal(jax.random.key(0), values[name].shape[-1:])

    def beta_at(x: jax.Array) -> jax.Array:
        return look(graph, sites, {**values, **zeros, name: x}, data).beta

    beta, along = jax.jvp(beta_at, (zeros[name],), (jnp.broadcast_to(p, values[name].shape),))
    there = beta > FLOOR
    p = jnp.where(there, p, 0.0)
    number = jnp.maximum(there.sum(-1, keepdims=True), 1)
    p = jnp.where(there, p - p.sum(-1, keepdims=True) / number, 0.0)
    return (along / jnp.maximum(beta, FLOOR) * p).sum(-1) / jnp.maximum((p * p).sum(-1), FLOOR)


def _given_rates(part: Part, number: jax.Array, rate: jax.Array, d: jax.Array) -> jax.Array:
    """log p of each number of a site that moves, less what it was; ``rate`` is M, and moves with it."""
    return number * part.slope * d - rate * jnp.expm1(part.slope * d) + part.gain(d)


def _of_all_terms(part: Part, d: jax.Array) -> jax.Array:
    """The same where all terms move alike: topics stay."""
    return part.gain(d).sum(-1, keepdims=True)


def _of_both(coarse: Part, fine: Part, ratio: jax.Array, d: jax.Array) -> jax.Array:
    """The same where numbers of the one site move and those of the other answer: topics stay."""
    return coarse.gain(d) + coarse.sum(fine.gain(-ratio * d))


def _against(key: jax.Array, coarse: Part, fine: Part) -> tuple[Part, Part]:
    """Numbers of the first site moved against those of the second, so that topics stay: their priors alone say how far."""
    ratio = coarse.slope / jnp.where(jnp.abs(fine.slope) > SMALLEST, fine.slope, jnp.inf)
    ratio = jnp.broadcast_to(ratio, (*fine.x.shape[:-1], 1))
    width = WIDTH * jax.lax.rsqrt(coarse.precision + coarse.sum(ratio**2 * fine.precision))
    d = slice_draws(key, partial(_of_both, coarse, fine, ratio), width)
    d = jnp.where(coarse.sum((ratio == 0).astype(d.dtype)) > 0, 0.0, d)  # what nothing answers would move topics
    return coarse.moved(d), fine.moved(-ratio * d)
