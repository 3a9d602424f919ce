"""Priors of coefficients: functions that draw eta, [topics] or [topics, outputs], outside all plates."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

__all__ = ["COEFFICIENTS"]


def laplace(shape, nu=None):
    """eta_k ~ Laplace(0, nu), density exp(-|eta_k| / nu) / (2 nu)."""
    nu = numpyro.sample("nu", dist.InverseGamma(2, 1)) if nu is None else nu
    return numpyro.sample("eta", dist.Laplace(0, nu).expand(shape).to_event(len(shape)))


def horseshoe(shape, nu=None):
    """eta_k ~ N(0, (nu local_k)^2), local_k ~ HalfCauchy(1): large coefficients are left alone."""
    nu = numpyro.sample("nu", dist.HalfCauchy(1)) if nu is None else nu
    local = numpyro.sample("local", dist.HalfCauchy(1).expand(shape).to_event(len(shape)))
    return numpyro.sample("eta", dist.Normal(0, nu * local).to_event(len(shape)))


def spike_and_slab(shape, nu=None, spike=0.05):
    """eta_k ~ N(0, nu^2) with probability inclusion, else N(0, (spike nu)^2); the choice is summed out."""
    inclusion = numpyro.sample("inclusion", dist.Beta(1, 4))
    parts = dist.Normal(0, (2.0 if nu is None else nu) * jnp.array([spike, 1.0]))
    choice = dist.Categorical(jnp.stack([1 - inclusion, inclusion]))
    return numpyro.sample("eta", dist.MixtureSameFamily(choice, parts).expand(shape).to_event(len(shape)))


def dense(shape, nu=None):
    """eta_k ~ N(0, nu^2): no coefficient is drawn to 0 more than others."""
    return numpyro.sample("eta", dist.Normal(0, 2.0 if nu is None else nu).expand(shape).to_event(len(shape)))


COEFFICIENTS = {function.__name__: function for function in (laplace, horseshoe, spike_and_slab, dense)}
