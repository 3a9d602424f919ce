"""Auxiliary variables that make a density normal in its location, and the block that draws coefficients with their help.

A family is augmented if its density, as a function of some x that is linear in the coefficients, is the mean over an
auxiliary variable a of exp(linear x - precision x^2 / 2) times what does not depend on x. Then, with a drawn given x, the
coefficients are normal. a is drawn anew right before the coefficients and forgotten right after: every other block sees the
story's own density. (A sampler that kept a while topics move, and only then drew coefficients, would not be valid: it would
draw them from a law that belongs to other topics; see van Dyk & Park 2008.)

It serves responses (logit, probit, classes, heavy tails) and priors (Laplace, Student's t, spike and slab) alike.

Families are looked up in ``AUGMENTED``; add yours there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jax.scipy.special import log_ndtr

from topiczoo.models.distributions import BernoulliProbit, InverseGaussian
from topiczoo.models.truncated import positive_normal

from .assignments import Assigned
from .blocks import MAX_GAUSSIAN, Block, Few
from .polya_gamma import polya_gamma
from .reading import Reading, run, total, unwrapped

MOST_PRECISE = 1e25  # of a coefficient at zero: beyond, squares leave float32


class Quadratic(NamedTuple):
    """The density in x, given the auxiliary variable: exp(linear x - precision x^2 / 2)."""

    linear: jax.Array
    precision: jax.Array


class Augmentation:
    """How one family is augmented; arrays have the shape of the distribution's batch."""

    columns = False  # whether x has a last axis of classes, of which one is moved at a time

    def serves(self, prior: Any) -> bool:
        """Whether it serves this prior; None stands for a response."""
        return True

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        """x."""
        raise NotImplementedError

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        """The auxiliary variable given x and the value."""
        raise NotImplementedError

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        """The density in x given the auxiliary variable."""
        raise NotImplementedError

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        """log p(auxiliary | x, value), without terms of the auxiliary variable alone: for checking."""
        raise NotImplementedError


def _log_cosh(x: jax.Array) -> jax.Array:
    return jnp.logaddexp(x, -x)


class Logistic(Augmentation):
    """Polya-Gamma: y successes of n, log odds x."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.logits

    def _count(self, fn: Any) -> Any:
        return getattr(fn, "total_count", 1)

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return polya_gamma(key, jnp.broadcast_to(self._count(fn), fn.logits.shape), fn.logits)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(value - self._count(fn) / 2, auxiliary)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return self._count(fn) * _log_cosh(fn.logits / 2) - auxiliary * fn.logits**2 / 2


class Classes(Augmentation):
    """Polya-Gamma for one class against the others (Holmes & Held 2006): log odds x_c - log sum_{j != c} exp x_j."""

    columns = True

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.logits

    def _others(self, fn: Any, column: Any) -> jax.Array:
        is_column = jnp.arange(fn.logits.shape[-1]) == column
        return jax.nn.logsumexp(jnp.where(is_column, -jnp.inf, fn.logits), -1)

    def _odds(self, fn: Any, column: Any) -> jax.Array:
        return fn.logits[..., column] - self._others(fn, column)

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        odds = self._odds(fn, column)
        return polya_gamma(key, jnp.ones(odds.shape, int), odds)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic((value == column) - 0.5 + auxiliary * self._others(fn, column), auxiliary)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        odds = self._odds(fn, column)
        return _log_cosh(odds / 2) - auxiliary * odds**2 / 2


class Probit(Augmentation):
    """Albert & Chib (1993): u ~ N(x, 1), and y says whether u is positive. The variable drawn is u itself."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.loc

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        sign = 2.0 * value - 1
        return sign * positive_normal(key, sign * fn.loc)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(auxiliary, jnp.ones_like(auxiliary))

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return auxiliary * fn.loc - fn.loc**2 / 2 - log_ndtr((2.0 * value - 1) * fn.loc)


class HeavyTail(Augmentation):
    """Student's t as a normal whose precision is a gamma; x is the deviation from the centre."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.loc - value

    def _rate(self, fn: Any, value: jax.Array) -> jax.Array:
        return (fn.df + ((value - fn.loc) / fn.scale) ** 2) / 2

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return dist.Gamma((fn.df + 1) / 2, self._rate(fn, value), validate_args=False).sample(key)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(jnp.zeros_like(auxiliary), auxiliary / fn.scale**2)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        rate = self._rate(fn, value)
        return (fn.df + 1) / 2 * jnp.log(rate) - auxiliary * rate


class DoubleExponential(Augmentation):
    """Laplace as a normal whose variance is exponential (Park & Casella 2008); the variable drawn is 1 / variance."""

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return fn.loc - value

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        deviation = jnp.abs(value - fn.loc)
        # the mean is infinite where the deviation is 0, which the law allows
        law = InverseGaussian(1 / (fn.scale * deviation), fn.scale**-2.0, validate_args=False)
        return jnp.minimum(law.sample(key), MOST_PRECISE)

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        return Quadratic(jnp.zeros_like(auxiliary), auxiliary)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        deviation = jnp.abs(value - fn.loc)
        return deviation / fn.scale - auxiliary * deviation**2 / 2


class NormalParts(Augmentation):
    """A prior that is a mixture of normals, such as spike and slab: the variable drawn is the part."""

    def serves(self, prior: Any) -> bool:
        return prior is not None and isinstance(prior.component_distribution, dist.Normal)

    def location(self, fn: Any, value: jax.Array) -> jax.Array:
        return value

    def _logits(self, fn: Any, value: jax.Array) -> jax.Array:
        parts = fn.component_distribution.log_prob(value[..., None])
        return jax.nn.log_softmax(fn.mixing_distribution.logits + parts, -1)

    def draw(self, key: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return jax.random.categorical(key, self._logits(fn, value))

    def quadratic(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> Quadratic:
        parts = fn.component_distribution
        shape = (*auxiliary.shape, parts.batch_shape[-1])
        loc, scale = (
            jnp.take_along_axis(jnp.broadcast_to(of_parts, shape), auxiliary[..., None], -1)[..., 0]
            for of_parts in (parts.loc, parts.scale)
        )
        return Quadratic(loc / scale**2, scale**-2.0)

    def log_auxiliary(self, auxiliary: jax.Array, fn: Any, value: jax.Array, column: Any) -> jax.Array:
        return jnp.take_along_axis(self._logits(fn, value), auxiliary[..., None], -1)[..., 0]


AUGMENTED: dict[type, Augmentation] = {
    dist.BernoulliLogits: Logistic(),
    dist.BinomialLogits: Logistic(),
    dist.CategoricalLogits: Classes(),
    BernoulliProbit: Probit(),
    dist.StudentT: HeavyTail(),
    dist.Laplace: DoubleExponential(),
    dist.MixtureSameFamily: NormalParts(),
}


class Auxiliary(NamedTuple):
    """The auxiliary variables of one column, site by site."""

    column: Any
    draws: dict[str, jax.Array]


class AugmentedBlock(Block):
    """Sites that are normal given auxiliary variables of priors or responses: one joint draw, or one a class."""

    label = "normal draw given auxiliary variables"

    def __init__(self, model: Callable | None, reading: Reading, sites: Sequence[str]) -> None:
        super().__init__(model, reading, sites)
        children = reading.children(sites)
        self.augmented = {
            name: AUGMENTED[reading.family(name)] for name in sorted(children) if reading.family(name) in AUGMENTED
        }
        self.others = sorted(children - set(self.augmented))
        classes = any(augmentation.columns for augmentation in self.augmented.values())
        self.columns = reading.latent[self.sites[0]].shape[-1] if classes else 1
        self.classes = classes

    def auxiliary(self, key: jax.Array, column: Any, values: dict, corpus: Any, y: Any) -> Auxiliary:
        trace = self._trace(values, corpus, y)
        keys = jax.random.split(key, len(self.augmented))
        draws = {
            name: augmentation.draw(keys[i], unwrapped(trace[name]["fn"]), trace[name]["value"], column)
            for i, (name, augmentation) in enumerate(self.augmented.items())
        }
        return Auxiliary(column, draws)

    def log_auxiliary(self, auxiliary: Auxiliary, values: dict, corpus: Any, y: Any) -> jax.Array:
        """log p(auxiliary | all values) up to terms of the auxiliary variables alone."""
        trace, log_density = self._trace(values, corpus, y), jnp.zeros(())
        for name, augmentation in self.augmented.items():
            site, draw = trace[name], auxiliary.draws[name]
            terms = augmentation.log_auxiliary(draw, unwrapped(site["fn"]), site["value"], auxiliary.column)
            log_density += jnp.where(_counts(site["fn"], terms), terms, 0.0).sum()
        return log_density

    def _trace(self, values: dict, corpus: Any, y: Any) -> dict:
        return run(self.reading.story, corpus, y, values, Assigned(counted=False))

    def _part(self, values: dict, column: Any) -> dict[str, jax.Array]:
        return {site: values[site][..., column] if self.classes else values[site] for site in self.sites}

    def _whole(self, part: dict[str, jax.Array], values: dict, column: Any) -> dict[str, jax.Array]:
        if not self.classes:
            return part
        return {site: values[site].at[..., column].set(part[site]) for site in self.sites}

    def conditional(
        self, auxiliary: Auxiliary, values: dict, corpus: Any, y: Any
    ) -> tuple[dist.MultivariateNormal, Callable]:
        """The law of one column of the sites given the auxiliary variables."""
        column = auxiliary.column
        flat, unravel = ravel_pytree(self._part(values, column))

        def moved(x: jax.Array) -> dict:
            return {**values, **self._whole(unravel(x), values, column)}

        def prior(x: jax.Array) -> jax.Array:
            return total(self._trace(moved(x), corpus, y), self.others)

        def locations(x: jax.Array) -> dict[str, jax.Array]:
            trace = self._trace(moved(x), corpus, y)
            found = {n: a.location(unwrapped(trace[n]["fn"]), trace[n]["value"]) for n, a in self.augmented.items()}
            return {n: x[..., column] if self.augmented[n].columns else x for n, x in found.items()}

        origin, slope = jnp.zeros_like(flat), jax.grad(prior)
        gradient, precision = slope(origin), -jax.jacfwd(slope)(origin)
        at_origin, design = locations(origin), jax.jacfwd(locations)(origin)
        trace = self._trace(values, corpus, y)
        for name, augmentation in self.augmented.items():
            fn, value = trace[name]["fn"], trace[name]["value"]
            linear, weight = augmentation.quadratic(auxiliary.draws[name], unwrapped(fn), value, column)
            counts = _counts(fn, weight)
            slope_there = jnp.where(counts, linear - weight * at_origin[name], 0.0).ravel()
            weight = jnp.where(counts, weight, 0.0).ravel()
            rows = design[name].reshape(-1, flat.size)
            gradient += rows.T @ slope_there
            precision += rows.T @ (weight[:, None] * rows)
        mean = jnp.linalg.solve(precision, gradient)
        return dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False), unravel

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        def one(column: Any, own: dict) -> dict:
            aside_key, draw_key = jax.random.split(jax.random.fold_in(key, column))
            now = {**values, **own}
            auxiliary = self.auxiliary(aside_key, column, now, corpus, y)
            conditional, unravel = self.conditional(auxiliary, now, corpus, y)
            return self._whole(unravel(conditional.sample(draw_key)), now, column)

        own = {site: values[site] for site in self.sites}
        return (jax.lax.fori_loop(0, self.columns, one, own) if self.classes else one(0, own)), {}

    def log_given(self, new: dict, auxiliary: Auxiliary, values: dict, corpus: Any, y: Any) -> jax.Array:
        """log p(the column of new | auxiliary, all other values)."""
        conditional, _ = self.conditional(auxiliary, values, corpus, y)
        return conditional.log_prob(ravel_pytree(self._part(new, auxiliary.column))[0])

    @classmethod
    def recognise(cls, reading: Reading, sites: Sequence[str], few: Few) -> bool:
        """Whether the block's law is the story's: by families, then by the ratio test on the few documents."""
        latent = [reading.latent[site] for site in sites]
        if any(site.document_axis is not None or site.discrete for site in latent) or reading.drives_words(sites):
            return False
        block = cls(None, reading, sites)
        normal = dist.Normal | dist.MultivariateNormal
        if not block.augmented or not all(issubclass(reading.family(name), normal) for name in block.others):
            return False
        priors = {name: reading.latent[name].prior if name in reading.latent else None for name in block.augmented}
        if not all(augmentation.serves(priors[name]) for name, augmentation in block.augmented.items()):
            return False
        if block.classes and not all(site.shape[-1:] == (block.columns,) for site in latent):
            return False
        flat, _ = ravel_pytree(block._part(few.values, 0))
        if flat.size > MAX_GAUSSIAN:
            return False
        found, expected = jax.jit(block._ratios)(few)
        return np.allclose(found, expected, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(expected).max())))

    def _ratios(self, few: Few) -> tuple[jax.Array, jax.Array]:
        """Log ratios of the law at two places, by the block and by the story, for each column."""
        data, parts = (few.corpus, few.y), sorted(self.reading.children(self.sites))
        rng, here = np.random.default_rng(1), few.values
        other = {site: jnp.asarray(rng.normal(0, 1.5, here[site].shape), jnp.float32) for site in self.sites}

        def of_column(column: jax.Array) -> tuple[jax.Array, jax.Array]:
            there = self.moved(here, other, column)
            expected = total(self._trace(there, *data), parts) - total(self._trace(here, *data), parts)
            return self.log_ratio(column, here, there, *data), expected

        return jax.lax.map(of_column, jnp.arange(self.columns))

    def moved(self, values: dict, other: dict, column: Any) -> dict:
        """All values with one column of the sites as it is in others."""
        return {**values, **self._whole(self._part(other, column), values, column)}

    def log_ratio(self, column: Any, here: dict, there: dict, corpus: Any, y: Any) -> jax.Array:
        """log of p(there | aside) p(aside | here) / p(here | aside) p(aside | there), which must be p(there) / p(here)."""
        data = corpus, y
        aside = self.auxiliary(jax.random.key(3), column, here, *data)
        given = self.log_given(there, aside, here, *data) - self.log_given(here, aside, here, *data)
        return given - self.log_auxiliary(aside, there, *data) + self.log_auxiliary(aside, here, *data)


def _counts(fn: Any, terms: jax.Array) -> jax.Array:
    """Which elements' density is not masked."""
    counts = jnp.asarray(True)
    while (base := getattr(fn, "base_dist", None)) is not None:
        if isinstance(fn, dist.MaskedDistribution):
            mask = jnp.asarray(fn._mask)
            counts = counts & mask.reshape(mask.shape + (1,) * max(terms.ndim - mask.ndim, 0))
        fn = base
    return jnp.broadcast_to(counts, terms.shape)
