"""Proportions whose concentrations are drawn and may come next to 0, for Hamiltonian methods.

On the real line such proportions lie hundreds of units away, and float32 has none so small. They are therefore made of
numbers that stay near:

    theta_k = g_k / sum_l g_l,   log g_k = log x_k - v_k / a_k,   x_k ~ Gamma(a_k + 1, 1),   v_k ~ Exponential(1)

which is Dir(a) exactly, since a Gamma(a) is a Gamma(a + 1) times the power 1 / a of a uniform number (Stuart 1962). Where
a_k is next to 0 a topic that a document has needs a small v_k, and one that it does not have leaves v_k to its prior.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from topiczoo.corpora.layouts import Documents

from ..story.bound import BoundGraph
from ..story.response import Y
from ..story.tracing import ZbarHandler, base_distribution, run

NEAR, OFTEN, DRAWS = 1e-3, 0.2, 200  # concentrations below NEAR in more than so many draws of the prior
PARTS = "~gammas", "~powers"  # what stands behind a site's name
LEAST = 1e-37  # of a share that float32 can tell from 0


def spread_out(graph: BoundGraph) -> tuple[str, ...]:
    """Dirichlet sites of documents whose least concentration is next to 0 in many draws of its prior."""
    sites = [
        name for name, site in graph.latent.items()
        if isinstance(site.prior, dist.Dirichlet) and site.document_axis is not None
        and any(name in graph.children([other]) for other in graph.latent if other != name)
    ]  # fmt: skip
    if not sites:
        return ()
    documents = graph.few_documents.take(jnp.arange(len(graph.few_corpus)))
    near = graph.program(_near_0, tuple(sites))(documents, graph.few_y, jax.random.split(jax.random.key(0), DRAWS))
    return tuple(site for site, often in zip(sites, near, strict=True) if often.mean() > OFTEN)


def _near_0(graph: BoundGraph, sites: tuple[str, ...], documents: Documents, y: Y, keys: jax.Array) -> list[jax.Array]:
    """Whether the least concentration of each site is next to 0, draw by draw of the prior."""

    def mean(site: dict) -> Any:  # of proportions nothing above them follows, and gammas are dear to compile
        return jnp.broadcast_to(site["fn"].mean, site["fn"].shape()) if _is_dirichlet(site) else None

    def near(key: jax.Array) -> list[jax.Array]:
        trace = run(graph.story, documents, y, {}, ZbarHandler(lambda theta: theta), key=key, prior=mean)
        return [base_distribution(trace[site]["fn"]).concentration.min() < NEAR for site in sites]

    return jax.vmap(near)(keys)


def _is_dirichlet(site: dict) -> bool:
    return isinstance(base_distribution(site["fn"]), dist.Dirichlet)


def by_gammas(name: str, fn: Any) -> jax.Array:
    """A draw of a Dirichlet site by way of two numbers for each share."""
    a = jnp.broadcast_to(base_distribution(fn).concentration, fn.shape())
    gammas = numpyro.sample(name + PARTS[0], dist.Gamma(a + 1.0, 1.0).to_event(1))
    powers = numpyro.sample(name + PARTS[1], dist.Exponential(jnp.ones_like(a)).to_event(1))
    return jax.nn.softmax(jnp.log(gammas) - powers / a)


def parts_given(key: jax.Array, name: str, theta: jax.Array, concentrations: jax.Array) -> dict[str, jax.Array]:
    """A draw of the two numbers of each share given the shares.

    Given g_k a number x_k is g_k and an Exponential(1) more. Of a share that float32 has as 0 no more than that is known:
    v_k is as large as that takes, and an Exponential(1) more.
    """
    total_key, more_key, beyond_key = jax.random.split(key, 3)
    a = jnp.broadcast_to(concentrations, theta.shape)
    log_total = jax.random.loggamma(total_key, a.sum(-1, keepdims=True))
    log_g = log_total + jnp.log(jnp.maximum(theta, LEAST))
    gammas = jnp.exp(log_g) + jax.random.exponential(more_key, theta.shape)
    powers = a * (jnp.log(gammas) - log_g) + jnp.where(
        theta < LEAST, jax.random.exponential(beyond_key, theta.shape), 0.0
    )
    return {name + PARTS[0]: gammas, name + PARTS[1]: powers}


def become(message: dict, value: jax.Array) -> None:
    """The message of a site, whose value follows from others."""
    for key in set(message) - {"name", "cond_indep_stack"}:
        del message[key]
    message |= {"type": "deterministic", "value": value}


def is_part(name: str) -> bool:
    """Whether a site is one of the numbers that proportions are made of."""
    return name.endswith(PARTS)
