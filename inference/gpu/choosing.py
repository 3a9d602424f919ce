"""Whether a sweep is one kernel of the GPU: found out once, before a run, by compiling it for a few documents."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.assignments import Assignments
from ..kernels.soft_sweep import expected_counts, soft_sweeps
from ..kernels.sweep import Given, Supervision, Swept, Weights, sweep_shards
from .fold import expected_counts_by_kernel, soft_sweeps_by_kernel
from .sweep import LARGEST, Shape, sweep_by_kernel

INTERPRETED = False  # whether a host without a GPU runs the kernel, step by step: for tests
KERNEL = "one kernel of the GPU"


def why_not(program: Callable, *arguments: Any) -> str:
    """Why a program that holds a kernel cannot be compiled for such arguments; empty where it can."""
    try:
        jax.jit(program).lower(*arguments).compile()
    except Exception as error:  # whatever it is: the plain sweep serves every story
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


def why_none() -> str:
    """Why this process cannot use kernels at all; empty where it can."""
    if INTERPRETED:
        return ""
    return _of_words_alone() if jax.default_backend() == "gpu" else "there is no GPU"


def with_kernels(batches: PaddedBatches) -> bool:
    """Whether words of such documents, without a response, are swept by kernels."""
    return not why_none() and len(batches.terms) == 1 and batches.terms.size < LARGEST


@functools.cache
def _of_words_alone() -> str:
    """Why the sweep of words alone cannot be compiled; empty where it can."""
    with jax.ensure_compile_time_eval():  # who asks may be tracing
        lanes, one = jnp.arange(4).reshape(1, 1, 4), jnp.ones((1, 1), jnp.int32)
        batches = PaddedBatches(0 * lanes, 0 * one, one, lanes, 0 * lanes + 1, jnp.arange(4))
        weights = Weights(jnp.ones((2, 2)), jnp.ones((1, 2)), ())
        key, counts = jax.random.key(0), jnp.ones((4, 2))
    return why_not(functools.partial(soft_sweeps_by_kernel, exact=1), key, counts, batches, weights)


def sweep_tokens(
    supervision: Supervision | None, collapsed: bool, given: Given, z: Assignments, batches: PaddedBatches,
    *, by_kernel: bool, shape: Shape | None = None,
) -> Swept:  # fmt: skip
    """A new topic for every token of all batches, by a kernel, of which the shape may be given, or in plain JAX."""
    if by_kernel:
        interpret = jax.default_backend() == "cpu"
        return sweep_by_kernel(supervision, collapsed, given, z, batches, shape=shape, interpret=interpret)
    return sweep_shards(supervision, collapsed, given, z, batches)


def soft_sweeps_of(
    key: jax.Array, counts: jax.Array, batches: PaddedBatches, weights: Weights, exact: int, deepest: int
) -> tuple[jax.Array, jax.Array]:
    """A draw of the topics of documents outside the fit, by a kernel where there is a device for it."""
    if with_kernels(batches):
        return soft_sweeps_by_kernel(key, counts, batches, weights, exact, interpret=jax.default_backend() == "cpu")
    return soft_sweeps(key, counts, batches, weights, exact, deepest)


def expected_counts_of(
    between: Any, counts: jax.Array, batches: PaddedBatches, weights: Weights, iterations: int, deepest: int
) -> jax.Array:
    """Expected counts of the topics of documents outside the fit, likewise."""
    if with_kernels(batches):
        return expected_counts_by_kernel(counts, batches, weights, iterations, interpret=jax.default_backend() == "cpu")
    return expected_counts(between, counts, batches, weights, iterations, deepest)
