"""A story's responses at given topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import Documents

from ..story.bound import BoundGraph
from ..story.tracing import Values, ZbarHandler, base_distribution, run


def respond(
    graph: BoundGraph, names: Sequence[str], repeats: int, key: jax.Array, corpus: Documents, zbar: jax.Array, values: Values
) -> dict[str, dict]:  # fmt: skip
    """The responses at given topics: draws [repeats, documents, ...], mean, and the probabilities of classes."""

    def once(key: jax.Array) -> dict:
        trace = run(graph.story, corpus, None, values, ZbarHandler(zbar), key=key, prior=True)
        return {name: _response(trace[name]["fn"], trace[name]["value"]) for name in names}

    # what lies between topics and response (random effects) is drawn anew each time, and their means are averaged
    parts = jax.vmap(once)(jax.random.split(key, repeats))
    return {
        name: {what: value if what == "draw" else value.mean(0) for what, value in part.items()}
        for name, part in parts.items()
    }


def _classes(fn: Any) -> jax.Array | None:
    """The values that a response can have, if they are known and the same for all documents."""
    if not fn.has_enumerate_support or fn.event_shape:
        return None
    try:
        return fn.enumerate_support(expand=False)
    except (NotImplementedError, jax.errors.ConcretizationTypeError):  # of so many trials each
        return None


def _response(fn: Any, draw: jax.Array) -> dict[str, jax.Array]:
    """A response's draw, and its mean and the probabilities of its classes where they have a closed form."""
    out = {"draw": draw}
    if (classes := _classes(fn)) is not None:
        density = jax.vmap(fn.log_prob)(jnp.broadcast_to(classes, (classes.shape[0], *draw.shape)))
        density = jnp.moveaxis(density, 0, -1)
        # a margin's densities do not sum to 1, those of other classes do: they are losses
        out["probabilities"] = jax.nn.softmax(density, -1)
        if hasattr(base_distribution(fn), "log_normaliser"):
            out["losses"] = -density
    try:
        # NumPyro's mean of classes, and of a Cauchy, is NaN: the draw stands for it
        out["mean"] = jnp.where(jnp.isnan(fn.mean), draw, jnp.broadcast_to(fn.mean, draw.shape))
    except NotImplementedError:
        out["mean"] = jnp.asarray(draw, jnp.float32)  # no closed mean: the mean of the draws will do
    return out
