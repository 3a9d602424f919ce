"""Blocks of the Gibbs engine: kernels that draw some sites from their exact conditional given all others.

No block knows a model. A conditional is derived from the story's own log-density by differentiation, and a block is used
only for sites for which the derivation was found to hold (``recognise``):

* a Dirichlet site x whose log-density is linear in log x: then x * d log p/dx = concentration - 1, whatever x;
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
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity

from topiczoo.corpora.layouts import documents

from .assignments import Assigned
from .gamma import dirichlet
from .reading import Answer, Reading, log_prob, run
from .sweep import concentration, sweep

MAX_GAUSSIAN = 2000  # larger normal sites go to NUTS: their precision matrix would not be worth it


class BlockState(NamedTuple):
    """The block's values, the running sums of their conditional means (for averaged sites), and a key."""

    z: dict[str, Any]
    total: dict[str, jax.Array]
    rng_key: jax.Array


class Block(MCMCKernel):
    """A kernel of ``numpyro.infer.Gibbs`` that owns ``sites``; subclasses say how they are drawn."""

    sample_field = "z"
    label = ""

    def __init__(self, model: Callable, reading: Reading, sites: Sequence[str]) -> None:
        self._model, self.reading, self.sites = model, reading, tuple(sites)

    @property
    def model(self) -> Callable:
        return self._model

    def draw(self, key: jax.Array, values: dict[str, Any], corpus: Any, y: Any) -> tuple[dict, dict]:
        """New values of the block's sites given all values, and the conditional means worth averaging."""
        raise NotImplementedError

    def log_conditional(self, new: dict[str, Any], values: dict[str, Any], corpus: Any, y: Any) -> jax.Array:
        """log p(new | all other values), for checking against the story."""
        raise NotImplementedError

    def init(self, rng_key: Any, num_warmup: int, init_params: Any, model_args: tuple, model_kwargs: dict) -> BlockState:
        values = {**model_kwargs[GIBBS_SITES_KWARG], **init_params}
        new, means = jax.eval_shape(self.draw, rng_key, values, *model_args)
        # a draw may be stored in another type than the prior's start value (weak types, integers)
        start = {k: jax.tree.map(lambda v, like: jnp.asarray(v, like.dtype), init_params[k], new[k]) for k in new}
        return BlockState(start, {k: jnp.zeros(v.shape, v.dtype) for k, v in means.items()}, rng_key)

    def sample(self, state: BlockState, model_args: tuple, model_kwargs: dict) -> BlockState:
        rng_key, key = jax.random.split(state.rng_key)
        values = {**model_kwargs[GIBBS_SITES_KWARG], **state.z}
        new, means = self.draw(key, values, *model_args)
        return BlockState(new, {name: state.total[name] + mean for name, mean in means.items()}, rng_key)

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


def joint(reading: Reading, sites: Sequence[str], values: dict, corpus: Any, y: Any) -> Callable[[dict], jax.Array]:
    """The part of the story's log-density that some sites enter, as a function of their values."""
    counted = reading.drives_words(sites)
    parts = sorted(reading.children(sites)) + ["z"] * counted

    def log_density(new: dict) -> jax.Array:
        trace = run(reading.story, corpus, y, {**values, **new}, Assigned(counted))
        return sum(log_prob(trace[name]).sum() for name in parts)

    return log_density


class DirichletBlock(Block):
    """A Dirichlet site given counts."""

    label = "Dirichlet draw"

    def conditional(self, values: dict, corpus: Any, y: Any) -> dist.Dirichlet:
        (site,) = self.sites
        log_density = joint(self.reading, self.sites, values, corpus, y)
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
    def recognise(reading: Reading, site: str, few: Few) -> bool:
        """Whether the density is linear in log x."""
        if not isinstance(reading.latent[site].prior, dist.Dirichlet):
            return False

        def slope(x: jax.Array) -> jax.Array:
            return x * jax.grad(lambda x: joint(reading, [site], few.values, few.corpus, few.y)({site: x}))(x)

        x = jnp.asarray(np.random.default_rng(1).dirichlet(np.full(few.values[site].shape[-1], 5.0), few.values[site].shape[:-1]))
        a, b = jax.jit(lambda x: (slope(x), slope(jnp.full_like(x, 1.0 / x.shape[-1]))))(x.astype(jnp.float32))
        return np.allclose(a, b, rtol=1e-3, atol=1e-3)


class GaussianBlock(Block):
    """Normal sites that enter normal means linearly: one joint draw."""

    label = "normal draw"

    def conditional(self, values: dict, corpus: Any, y: Any) -> tuple[dist.MultivariateNormal, Callable]:
        flat, unravel = ravel_pytree({site: values[site] for site in self.sites})
        log_density = joint(self.reading, self.sites, values, corpus, y)
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
    def recognise(reading: Reading, sites: Sequence[str], few: Few) -> bool:
        """Whether the density is jointly quadratic: normal families all along, and equal curvature everywhere."""
        latent = [reading.latent[site] for site in sites]
        families = [reading.family(name) for name in reading.children(sites)]
        if any(site.document_axis is not None for site in latent) or reading.drives_words(sites):
            return False
        if not all(issubclass(family, dist.Normal | dist.MultivariateNormal) for family in families):
            return False
        flat, unravel = ravel_pytree({site: few.values[site] for site in sites})
        if flat.size > MAX_GAUSSIAN:
            return False
        log_density = joint(reading, sites, few.values, few.corpus, few.y)
        curvature = jax.jit(jax.hessian(lambda x: log_density(unravel(x))))
        points = np.random.default_rng(1).normal(0, 3, (2, flat.size)).astype(np.float32)
        a, b = np.asarray(curvature(points[0])), np.asarray(curvature(points[1]))
        return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max()) and np.linalg.eigvalsh(-a).min() > 0)


class LabelBlock(Block):
    """A discrete site with one value a document."""

    label = "one topic a document"

    def logits(self, values: dict, corpus: Any, y: Any) -> jax.Array:
        (site,) = self.sites
        children = sorted(self.reading.children(self.sites))
        zbar = None
        if self.reading.has_words:
            raise ValueError(f"The discrete site {site!r} beside draw_words is not served; sum it out of the story by hand.")

        def terms(value: jax.Array) -> jax.Array:
            return self.reading.document_terms(
                children, corpus, y, {**values, site: jnp.full_like(values[site], value)}, Answer(zbar)
            )

        support = self.reading.latent[site].fn.enumerate_support(expand=False).reshape(-1)
        return jax.lax.map(terms, jnp.arange(support.shape[0])).T  # [documents, values]

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        (site,) = self.sites
        new = jax.random.categorical(key, self.logits(values, corpus, y))
        return {site: new.astype(values[site].dtype)}, {}

    def log_conditional(self, new: dict, values: dict, corpus: Any, y: Any) -> jax.Array:
        return dist.Categorical(logits=self.logits(values, corpus, y)).log_prob(new[self.sites[0]]).sum()

    @staticmethod
    def recognise(reading: Reading, site: str) -> bool:
        latent = reading.latent[site]
        return latent.discrete and latent.document_axis == -1 and len(latent.shape) == 1 and latent.fn.has_enumerate_support


class TopicBlock(Block):
    """z by the topic sweep, and with it theta where theta is integrated out of the sweep."""

    def __init__(
        self, model: Callable, reading: Reading, collapsed: bool, mesh: Any = None, draw_theta: bool = True
    ) -> None:
        super().__init__(model, reading, ["z", reading.theta] if collapsed else ["z"])
        self.collapsed, self.mesh, self.draw_theta = collapsed, mesh, draw_theta
        self.label = "topic sweep, theta integrated out" if collapsed else "topic sweep given theta"

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        sweep_key, theta_key = jax.random.split(key)
        z = sweep(
            sweep_key, values["z"], self.reading, corpus, y, values,
            collapsed=self.collapsed, supervised=bool(self.reading.below), mesh=self.mesh,
        )  # fmt: skip
        if not self.collapsed:
            return {"z": z}, {}
        trace = run(self.reading.story, corpus, y, {**values, "z": z}, Assigned(counted=False))
        posterior = z.document_topic + concentration(trace[self.reading.theta]["fn"])
        mean = posterior / posterior.sum(-1, keepdims=True)
        theta = dirichlet(theta_key, posterior) if self.draw_theta else mean
        return {"z": z, self.reading.theta: theta}, {self.reading.theta: mean}


class Few(NamedTuple):
    """A few documents with values for every site, z included: where conjugacy is tried out."""

    corpus: Any
    y: Any
    values: dict[str, Any]


def few(reading: Reading) -> Few:
    """The reading's few documents with their words laid out and random topics."""
    corpus = documents(reading.few_corpus, pairs=True, shards=1)
    values = dict(reading.few_values)
    if reading.has_words:

        @jax.jit
        def start(corpus: Any, y: Any, values: dict) -> Any:
            return run(reading.story, corpus, y, values, Assigned(), key=jax.random.key(2))["z"]["value"]

        values["z"] = start(corpus, reading.few_y, values)
    return Few(corpus, reading.few_y, values)
