"""Blocks of the Gibbs engine: kernels that draw some sites from their exact conditional given all others.

No block knows a model. A conditional is derived from the story's own log-density by differentiation, and a block is used
only for sites for which the derivation was found to hold (``recognise``):

* a Dirichlet site x whose log-density is linear in log x: then x * d log p/dx = concentration - 1, whatever x;
* a positive number x whose log-density is a sum of log x, x^p and x^-p: then x^p is generalised inverse Gaussian;
* normal sites whose joint log-density is quadratic: then its gradient and Hessian give mean and precision;
* a discrete site with a value for each document: every value is tried for all documents at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.distributions import constraints

from ..kernels.special import gammaln
from ..samplers.gamma import dirichlet
from ..samplers.gig import GeneralizedInverseGaussian
from ..story.bound import BoundGraph
from ..story.classes import densities_of_classes, is_class
from ..story.tracing import Data, Values, run, total
from .block import Block, Few, log_density_of

AT_ONCE = 2**20  # counts of documents whose densities are found side by side
MAX_GAUSSIAN = 2000  # larger normal sites go to NUTS: their precision matrix would not be worth it


def log_beta_function(x: jax.Array) -> jax.Array:
    """log B(x) = sum_k log Gamma(x_k) - log Gamma(sum_k x_k) over the last axis."""
    return gammaln(x).sum(-1) - gammaln(x.sum(-1))


def log_densities_of_counts(prior: jax.Array, counts: jax.Array) -> jax.Array:
    """log int prod_k theta_k^n_k Dir(theta; prior) of each row of counts, or of all rows of one prior together.

    Of many rows some at a time, so that no logarithms of all Gamma functions stand in memory.
    """
    rows = max(AT_ONCE // counts.shape[-1], 1)
    if counts.ndim != 2 or len(counts) <= rows:
        density = log_beta_function(prior + counts)
    elif prior.ndim == 1 or len(prior) == 1:
        density = jax.lax.map(lambda row: log_beta_function(prior.ravel() + row), counts, batch_size=rows)
    else:
        density = jax.lax.map(lambda both: log_beta_function(both[0] + both[1]), (prior, counts), batch_size=rows)
    return density - log_beta_function(prior)


class DirichletBlock(Block):
    """A Dirichlet site given counts."""

    averages = True
    label = "Dirichlet draw"

    def conditional(self, values: Values, data: Data) -> dist.Dirichlet:
        (site,) = self.sites
        log_density = log_density_of(self.graph, self.sites, values, data)
        # at the centre of the simplex, where nothing underflows; the result does not depend on the place
        centre = jnp.full_like(values[site], 1.0 / values[site].shape[-1])
        slope = jax.grad(lambda x: log_density({site: x}))(centre)
        return dist.Dirichlet(1.0 + centre * slope)

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        (site,) = self.sites
        conditional = self.conditional(values, data)
        return {site: dirichlet(key, conditional.concentration)}, {site: conditional.mean}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        return self.conditional(values, data).log_prob(new[self.sites[0]]).sum()

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether the density is linear in log x."""
        (site,) = sites
        if not isinstance(graph.latent[site].prior, dist.Dirichlet):
            return None
        x = jnp.asarray(
            np.random.default_rng(1).dirichlet(np.full(few.values[site].shape[-1], 5.0), few.values[site].shape[:-1])
        )
        a, b = graph.program(_slopes_of_shares, site)(few, x.astype(jnp.float32))
        return cls(graph, sites) if np.allclose(a, b, rtol=1e-3, atol=1e-3) else None


def _slopes_of_shares(graph: BoundGraph, site: str, few: Few, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """x d log p/dx at x and at the centre."""

    def slope(x: jax.Array) -> jax.Array:
        return x * jax.grad(lambda x: log_density_of(graph, [site], few.values, few.data)({site: x}))(x)

    return slope(x), slope(jnp.full_like(x, 1.0 / x.shape[-1]))


class GaussianBlock(Block):
    """Normal sites that enter normal means linearly: one joint draw."""

    label = "normal draw"
    grouped = True

    def conditional(self, values: Values, data: Data) -> tuple[dist.MultivariateNormal, Callable]:
        flat, unravel = ravel_pytree({site: values[site] for site in self.sites})
        log_density = log_density_of(self.graph, self.sites, values, data)
        origin = jnp.zeros_like(flat)
        slope = jax.grad(lambda x: log_density(unravel(x)))
        gradient, precision = slope(origin), -jax.jacfwd(slope)(origin)
        mean = jnp.linalg.solve(precision, gradient)
        return dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False), unravel

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        conditional, unravel = self.conditional(values, data)
        return unravel(conditional.sample(key)), {}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        conditional, _ = self.conditional(values, data)
        return conditional.log_prob(ravel_pytree({site: new[site] for site in self.sites})[0])

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether the density is jointly quadratic: normal families all along, and equal curvature everywhere."""
        latent = [graph.latent[site] for site in sites]
        families = [graph.family(name) for name in graph.children(sites)]
        if any(site.document_axis is not None for site in latent) or graph.drives_words(sites):
            return None
        if not all(issubclass(family, dist.Normal | dist.MultivariateNormal) for family in families):
            return None
        size = sum(few.values[site].size for site in sites)
        if size > MAX_GAUSSIAN:
            return None
        points = np.random.default_rng(1).normal(0, 3, (2, size)).astype(np.float32)
        curvature = graph.program(_curvature, tuple(sites))
        a, b = (np.asarray(curvature(few, point)) for point in points)
        same = np.allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max())
        return cls(graph, sites) if same and np.linalg.eigvalsh(-a).min() > 0 else None


def _curvature(graph: BoundGraph, sites: Sequence[str], few: Few, x: jax.Array) -> jax.Array:
    """The Hessian of the log-density of some sites, end to end."""
    _, unravel = ravel_pytree({site: few.values[site] for site in sites})
    log_density = log_density_of(graph, sites, few.values, few.data)
    return jax.hessian(lambda x: log_density(unravel(x)))(x)


class ScaleBlock(Block):
    """A scale, variance or precision: with p = 1 or 2, log p(x) = A log x + B x^-p + C x^p, so that x^p is GIG."""

    label = "generalised inverse Gaussian draw"

    def __init__(self, graph: BoundGraph, sites: Sequence[str], power: int) -> None:
        super().__init__(graph, sites)
        self.power = power

    def conditional(self, values: Values, data: Data) -> GeneralizedInverseGaussian:
        """The law of x^p."""
        (site,) = self.sites
        log_density = log_density_of(self.graph, self.sites, values, data)
        A, B, C, here = _scale_terms(lambda x: log_density({site: x}), values[site], self.power)
        # t = x^p has density t^((A + 1)/p - 1) exp(B/t + C t); B and C are per (x/here)^p
        unit = here**self.power
        return GeneralizedInverseGaussian(
            (A + 1) / self.power, jnp.maximum(-2 * C, 0) / unit, jnp.maximum(-2 * B, 0) * unit
        )

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        return {self.sites[0]: self.conditional(values, data).sample(key) ** (1 / self.power)}, {}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        x, p = new[self.sites[0]], self.power
        return self.conditional(values, data).log_prob(x**p) + jnp.log(p) + (p - 1) * jnp.log(x)

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether there is a power for which the density has the form."""
        (site,) = sites
        latent = graph.latent[site]
        if latent.shape != () or latent.fn.support is not constraints.positive or graph.drives_words([site]):
            return None
        others = np.asarray([0.2, 0.5, 1.3, 3.0], np.float32)
        slopes, terms = graph.program(_slopes_of_scale, site)(few, jnp.float32(0.7), others)
        found = others * np.asarray(slopes)
        for power in (2, 1):
            A, B, C, here = terms[power]
            u = (others / float(here)) ** power
            expected = float(A) - power * float(B) / u + power * float(C) * u
            proper = float(B) < 0 or (float(A) > -1 and float(C) < 0)
            if proper and np.allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(found).max()):
                return cls(graph, sites, power)
        return None


def _slopes_of_scale(graph: BoundGraph, site: str, few: Few, x: jax.Array, others: jax.Array) -> tuple[Any, dict]:
    """Slopes of the log-density at some places, and its terms for each power from those near x."""
    log_density = log_density_of(graph, [site], few.values, few.data)

    def of_site(x: jax.Array) -> jax.Array:
        return log_density({site: x})

    return jax.lax.map(jax.grad(of_site), others), {power: _scale_terms(of_site, x, power) for power in (2, 1)}


def _scale_terms(log_density: Callable, x: jax.Array, power: int) -> tuple[jax.Array, ...]:
    """A, B, C from x d log p/dx = A - p B u^-1 + p C u at three places u = (x / here)^p."""
    places = np.asarray([0.5, 1.0, 2.0], np.float32)
    u = places**power
    slopes = jax.vmap(jax.grad(log_density))(x * places) * x * places
    solve = np.linalg.inv(np.stack([np.ones(3), -power / u, power * u], 1))
    A, B, C = jnp.asarray(solve, jnp.float32) @ slopes
    return A, B, C, x


class LabelBlock(Block):
    """A discrete site with one value a document."""

    label = "one topic a document"

    def logits(self, values: Values, data: Data) -> jax.Array:
        (site,) = self.sites
        return densities_of_classes(self.graph, site, sorted(self.graph.children(self.sites)), data, values)

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        (site,) = self.sites
        new = jax.random.categorical(key, self.logits(values, data))
        return {site: new.astype(values[site].dtype)}, {}

    def log_conditional(self, new: Values, values: Values, data: Data) -> jax.Array:
        return dist.Categorical(logits=self.logits(values, data)).log_prob(new[self.sites[0]]).sum()

    def record(self, values: Values, before: Values, data: Data) -> dict[str, jax.Array]:
        """``lp``, the story's log joint density, and ``usage``, the share of documents in each topic.

        Dirichlet sites of terms are integrated out: p(x, rest) = c Dir(x; a) for all x, so c follows from x at the centre.
        """
        support = self.graph.latent[self.sites[0]].fn.enumerate_support(expand=False)
        usage = jax.nn.one_hot(values[self.sites[0]], support.shape[0]).mean(0)
        of_terms = [block for block in self.integrated if "term" in self.graph.dims[block.sites[0]]]
        centred = {b.sites[0]: jnp.full_like(v := values[b.sites[0]], 1.0 / v.shape[-1]) for b in of_terms}
        values = {**values, **centred}
        lp = total(run(self.graph.story, *data, values))
        for block in of_terms:
            lp -= block.conditional(values, data).log_prob(centred[block.sites[0]]).sum()
        return {"lp": lp, "usage": usage}

    @classmethod
    def recognise(cls, graph: BoundGraph, sites: Sequence[str], few: Few) -> Block | None:
        """Whether there is one value a document, counted from 0."""
        return cls(graph, sites) if is_class(graph, sites[0]) else None
