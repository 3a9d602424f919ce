"""Whether a sweep is one kernel of the GPU: found out once, before a run, by compiling it for a few documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.assignments import Assignments
from ..kernels.sweep import Given, Supervision, Swept, sweep_shards
from .sweep import sweep_by_kernel

INTERPRETED = False  # whether a host without a GPU runs the kernel, step by step: for tests
KERNEL = "one kernel of the GPU"


def why_not(program: Callable, *arguments: Any) -> str:
    """Why a program that holds a kernel cannot be compiled for such arguments; empty where it can."""
    if not with_kernels():
        return "there is no GPU"
    try:
        jax.jit(program).lower(*arguments).compile()
    except Exception as error:  # whatever it is: the plain sweep serves every story
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


def with_kernels() -> bool:
    """Whether this process has a device for kernels."""
    return INTERPRETED or jax.default_backend() == "gpu"


def sweep_tokens(
    supervision: Supervision | None, collapsed: bool, given: Given, z: Assignments, batches: PaddedBatches,
    *, by_kernel: bool,
) -> Swept:  # fmt: skip
    """A new topic for every token of all batches, by a kernel or in plain JAX."""
    if by_kernel:
        return sweep_by_kernel(supervision, collapsed, given, z, batches, interpret=jax.default_backend() == "cpu")
    return sweep_shards(supervision, collapsed, given, z, batches)
