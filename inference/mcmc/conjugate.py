"""Blocks of the Gibbs engine: kernels that draw some sites from their exact conditional given all others.

No block knows a model. A conditional is derived from the story's own log-density by differentiation, and a block is used
only for sites for which the derivation was found to hold (``recognise``):

* a Dirichlet site x whose log-density is linear in log x: then x * d log p/dx = concentration - 1, whatever x;
* a positive number x whose log-density is a sum of log x, x^p and x^-p: then x^p is generalised inverse Gaussian;
* normal sites whose joint log-density is quadratic: then its gradient and Hessian give mean and precision;
* a discrete site with a value for each document: every value is tried for all documents at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from numpyro.distributions import constraints
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity

from topiczoo.corpora.layouts import documents

from ..kernels.gamma import dirichlet
from ..kernels.gig import GeneralizedInverseGaussian
from ..story.assignments import AssignmentHandler
from ..story.bound import BoundGraph
from ..story.tracing import ZbarHandler, run, total

MAX_GAUSSIAN = 2000  # larger normal sites go to NUTS: their precision matrix would not be worth it


class BlockState(NamedTuple):
    """The block's values, the running sums of their conditional means (for averaged sites), a key, and statistics."""

    z: dict[str, Any]
    total: dict[str, jax.Array]
    rng_key: jax.Array
    statistics: dict[str, jax.Array]  # of the whole state after this draw; empty but for the last block


class Block(MCMCKernel):
    """A kernel of ``numpyro.infer.Gibbs`` that owns ``sites``; subclasses say how they are drawn."""

    sample_field = "z"
    label = ""
    records = False  # whether this block, drawn last, records statistics of the whole state
    recorded: tuple[str, ...] = ("lp", "usage")  # which ones
    integrated: Sequence[DirichletBlock] = ()  # blocks whose sites are integrated out of the recorded log density

    def __init__(self, model: Callable | None, graph: BoundGraph, sites: Sequence[str]) -> None:
        self._model, self.graph, self.sites = model, graph, tuple(sites)

    @property
    def model(self) -> Callable | None:
        return self._model

    def draw(self, key: jax.Array, values: dict[str, Any], corpus: Any, y: Any) -> tuple[dict, dict]:
        """New values of the block's sites given all values, and the conditional means worth averaging."""
        raise NotImplementedError

    def log_conditional(self, new: dict[str, Any], values: dict[str, Any], corpus: Any, y: Any) -> jax.Array:
        """log p(new | all other values), for checking against the story."""
        raise NotImplementedError

    def init(
        self, rng_key: Any, num_warmup: int, init_params: Any, model_args: tuple, model_kwargs: dict
    ) -> BlockState:
        values = {**model_kwargs[GIBBS_SITES_KWARG], **init_params}
        new, means, statistics = jax.eval_shape(self._step, rng_key, values, *model_args)
        # a draw may be stored in another type than the prior's start value (weak types, integers)
        start = {k: jax.tree.map(lambda v, like: jnp.asarray(v, like.dtype), init_params[k], new[k]) for k in new}
        zeros = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), (means, statistics))
        return BlockState(start, zeros[0], rng_key, zeros[1])

    def sample(self, state: BlockState, model_args: tuple, model_kwargs: dict) -> BlockState:
        rng_key, key = jax.random.split(state.rng_key)
        values = {**model_kwargs[GIBBS_SITES_KWARG], **state.z}
        new, means, statistics = self._step(key, values, *model_args)
        total = {name: state.total[name] + mean for name, mean in means.items()}
        return BlockState(new, total, rng_key, statistics)

    def _step(self, key: jax.Array, values: dict[str, Any], corpus: Any, y: Any) -> tuple[dict, dict, dict]:
        new, means = self.draw(key, values, corpus, y)
        return new, means, self.record({**values, **new}, values, corpus, y) if self.records else {}

    def record(self, values: dict[str, Any], before: dict[str, Any], corpus: Any, y: Any) -> dict[str, jax.Array]:
        """Statistics of the whole state, and of the step from the values before."""
        raise NotImplementedError

    def refresh(self, state: BlockState, model_args: tuple, model_kwargs: dict | None) -> BlockState:
        return state

    def wrap_model(self, wrapper: Callable) -> Block:
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        return kernel

    def get_constrain_fn(self, model_args: tuple, model_kwargs: dict | None) -> Callable:
        return identity

    def postprocess_fn(self, model_args: tuple, model_kwargs: dict | None) -> Callable:
        return identity


def joint(graph: BoundGraph, sites: Sequence[str], values: dict, corpus: Any, y: Any) -> Callable[[dict], jax.Array]:
    """The part of the story's log-density that some sites enter, as a function of their values."""
    counted = graph.drives_words(sites)
    parts = sorted(graph.children(sites)) + ["z"] * counted

    def log_density(new: dict) -> jax.Array:
        trace = run(graph.story, corpus, y, {**values, **new}, AssignmentHandler(counted))
        return total(trace, parts)

    return log_density


def log_beta_function(x: jax.Array) -> jax.Array:
    """log B(x) = sum_k log Gamma(x_k) - log Gamma(sum_k x_k) over the last axis."""
    return gammaln(x).sum(-1) - gammaln(x.sum(-1))


class DirichletBlock(Block):
    """A Dirichlet site given counts."""

    label = "Dirichlet draw"

    def conditional(self, values: dict, corpus: Any, y: Any) -> dist.Dirichlet:
        (site,) = self.sites
        log_density = joint(self.graph, self.sites, values, corpus, y)
        # at the centre of the simplex, where nothing underflows; the result does not depend on the place
        centre = jnp.full_like(values[site], 1.0 / values[site].shape[-1])
        slope = jax.grad(lambda x: log_density({site: x}))(centre)
        return dist.Dirichlet(1.0 + centre * slope)

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        (site,) = self.sites
        conditional = self.conditional(values, corpus, y)
        return {site: dirichlet(key, conditional.concentration)}, {site: conditional.mean}

    def log_conditional(self, new: dict, values: dict, corpus: Any, y: Any) -> jax.Array:
        return self.conditional(values, corpus, y).log_prob(new[self.sites[0]]).sum()

    @staticmethod
    def recognise(graph: BoundGraph, site: str, few: Few) -> bool:
        """Whether the density is linear in log x."""
        if not isinstance(graph.latent[site].prior, dist.Dirichlet):
            return False

        def slope(x: jax.Array) -> jax.Array:
            return x * jax.grad(lambda x: joint(graph, [site], few.values, few.corpus, few.y)({site: x}))(x)

        x = jnp.asarray(
            np.random.default_rng(1).dirichlet(np.full(few.values[site].shape[-1], 5.0), few.values[site].shape[:-1])
        )
        a, b = jax.jit(lambda x: (slope(x), slope(jnp.full_like(x, 1.0 / x.shape[-1]))))(x.astype(jnp.float32))
        return np.allclose(a, b, rtol=1e-3, atol=1e-3)


class GaussianBlock(Block):
    """Normal sites that enter normal means linearly: one joint draw."""

    label = "normal draw"

    def conditional(self, values: dict, corpus: Any, y: Any) -> tuple[dist.MultivariateNormal, Callable]:
        flat, unravel = ravel_pytree({site: values[site] for site in self.sites})
        log_density = joint(self.graph, self.sites, values, corpus, y)
        origin = jnp.zeros_like(flat)
        slope = jax.grad(lambda x: log_density(unravel(x)))
        gradient, precision = slope(origin), -jax.jacfwd(slope)(origin)
        mean = jnp.linalg.solve(precision, gradient)
        return dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False), unravel

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        conditional, unravel = self.conditional(values, corpus, y)
        return unravel(conditional.sample(key)), {}

    def log_conditional(self, new: dict, values: dict, corpus: Any, y: Any) -> jax.Array:
        conditional, _ = self.conditional(values, corpus, y)
        return conditional.log_prob(ravel_pytree({site: new[site] for site in self.sites})[0])

    @staticmethod
    def recognise(graph: BoundGraph, sites: Sequence[str], few: Few) -> bool:
        """Whether the density is jointly quadratic: normal families all along, and equal curvature everywhere."""
        latent = [graph.latent[site] for site in sites]
        families = [graph.family(name) for name in graph.children(sites)]
        if any(site.document_axis is not None for site in latent) or graph.drives_words(sites):
            return False
        if not all(issubclass(family, dist.Normal | dist.MultivariateNormal) for family in families):
            return False
        flat, unravel = ravel_pytree({site: few.values[site] for site in sites})
        if flat.size > MAX_GAUSSIAN:
            return False
        log_density = joint(graph, sites, few.values, few.corpus, few.y)
        curvature = jax.jit(jax.hessian(lambda x: log_density(unravel(x))))
        points = np.random.default_rng(1).normal(0, 3, (2, flat.size)).astype(np.float32)
        a, b = np.asarray(curvature(points[0])), np.asarray(curvature(points[1]))
        return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max()) and np.linalg.eigvalsh(-a).min() > 0)


class ScaleBlock(Block):
    """A scale, variance or precision: with p = 1 or 2, log p(x) = A log x + B x^-p + C x^p, so that x^p is GIG."""

    label = "generalised inverse Gaussian draw"

    def __init__(self, model: Callable | None, graph: BoundGraph, sites: Sequence[str], power: int) -> None:
        super().__init__(model, graph, sites)
        self.power = power

    def conditional(self, values: dict, corpus: Any, y: Any) -> GeneralizedInverseGaussian:
        """The law of x^p."""
        (site,) = self.sites
        log_density = joint(self.graph, self.sites, values, corpus, y)
        A, B, C, here = _scale_terms(lambda x: log_density({site: x}), values[site], self.power)
        # t = x^p has density t^((A + 1)/p - 1) exp(B/t + C t); B and C are per (x/here)^p
        unit = here**self.power
        return GeneralizedInverseGaussian(
            (A + 1) / self.power, jnp.maximum(-2 * C, 0) / unit, jnp.maximum(-2 * B, 0) * unit
        )

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        return {self.sites[0]: self.conditional(values, corpus, y).sample(key) ** (1 / self.power)}, {}

    def log_conditional(self, new: dict, values: dict, corpus: Any, y: Any) -> jax.Array:
        x, p = new[self.sites[0]], self.power
        return self.conditional(values, corpus, y).log_prob(x**p) + jnp.log(p) + (p - 1) * jnp.log(x)

    @staticmethod
    def recognise(graph: BoundGraph, site: str, few: Few) -> int:
        """The power for which the density has the form, or 0."""
        latent = graph.latent[site]
        if latent.shape != () or latent.fn.support is not constraints.positive or graph.drives_words([site]):
            return 0
        log_density = joint(graph, [site], few.values, few.corpus, few.y)
        slope = jax.jit(jax.grad(lambda x: log_density({site: x})))
        for power in (2, 1):
            terms = jax.jit(lambda x: _scale_terms(lambda x: log_density({site: x}), x, power))
            A, B, C, here = terms(jnp.float32(0.7))
            others = np.asarray([0.2, 0.5, 1.3, 3.0], np.float32)
            found = others * np.asarray([slope(x) for x in others])
            u = (others / float(here)) ** power
            expected = float(A) - power * float(B) / u + power * float(C) * u
            proper = float(B) < 0 or (float(A) > -1 and float(C) < 0)
            if proper and np.allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(found).max()):
                return power
        return 0


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

    def logits(self, values: dict, corpus: Any, y: Any) -> jax.Array:
        (site,) = self.sites
        children = sorted(self.graph.children(self.sites))

        def terms(value: jax.Array) -> jax.Array:
            tried = {**values, site: jnp.full_like(values[site], value)}
            return self.graph.document_terms(children, corpus, y, tried, ZbarHandler())

        support = self.graph.latent[site].fn.enumerate_support(expand=False)
        return jax.lax.map(terms, jnp.arange(support.shape[0])).T  # [documents, values]

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        (site,) = self.sites
        new = jax.random.categorical(key, self.logits(values, corpus, y))
        return {site: new.astype(values[site].dtype)}, {}

    def log_conditional(self, new: dict, values: dict, corpus: Any, y: Any) -> jax.Array:
        return dist.Categorical(logits=self.logits(values, corpus, y)).log_prob(new[self.sites[0]]).sum()

    def record(self, values: dict, before: dict, corpus: Any, y: Any) -> dict[str, jax.Array]:
        """``lp``, the story's log joint density, and ``usage``, the share of documents in each topic.

        Dirichlet sites of terms are integrated out: p(x, rest) = c Dir(x; a) for all x, so c follows from x at the centre.
        """
        support = self.graph.latent[self.sites[0]].fn.enumerate_support(expand=False)
        usage = jax.nn.one_hot(values[self.sites[0]], support.shape[0]).mean(0)
        of_terms = [block for block in self.integrated if "term" in self.graph.dims[block.sites[0]]]
        centred = {b.sites[0]: jnp.full_like(v := values[b.sites[0]], 1.0 / v.shape[-1]) for b in of_terms}
        values = {**values, **centred}
        lp = total(run(self.graph.story, corpus, y, values))
        for block in of_terms:
            lp -= block.conditional(values, corpus, y).log_prob(centred[block.sites[0]]).sum()
        return {"lp": lp, "usage": usage}

    @staticmethod
    def recognise(graph: BoundGraph, site: str) -> bool:
        """One value a document, counted from 0: another support would be mistaken for its places."""
        latent = graph.latent[site]
        counted = isinstance(
            latent.prior, dist.CategoricalProbs | dist.CategoricalLogits | dist.BernoulliProbs | dist.BernoulliLogits
        )
        return counted and latent.document_axis == -1 and len(latent.shape) == 1


class Few(NamedTuple):
    """A few documents with values for every site, z included: where conjugacy is tried out."""

    corpus: Any
    y: Any
    values: dict[str, Any]


def few(graph: BoundGraph) -> Few:
    """The graph's few documents with their words laid out and random topics."""
    corpus = documents(graph.few_corpus, pairs=True, batches=True)
    values = dict(graph.few_values)
    if graph.has_words:

        @jax.jit
        def start(corpus: Any, y: Any, values: dict) -> Any:
            return run(graph.story, corpus, y, values, AssignmentHandler(), key=jax.random.key(2))["z"]["value"]

        values["z"] = start(corpus, graph.few_y, values)
    return Few(corpus, graph.few_y, values)
