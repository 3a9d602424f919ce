"""How programs are compiled: what XLA is told, so that a user waits less for the same numbers a second.

On a CPU XLA writes each fused loop by either of two emitters. The newer one takes twice as long to compile a Gibbs
iteration and its loops run no faster here, so the older one is asked for, but for programs that split many keys side
by side (``keys``), of whose rounds it makes long code. What runs once, or on three documents, is not
optimised at all: that takes longer than running it. Another backend, and a version of XLA that does not know a setting,
are told nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

QUICK = {"xla_cpu_use_fusion_emitters": False}
ONCE = {"xla_backend_optimization_level": 0}


@functools.cache
def options(once: bool = False, keys: bool = False) -> dict[str, Any]:
    """What the compiler is told of a program; of one that runs ``once``, or that splits many keys side by side."""
    told = ({} if keys else QUICK) | (ONCE if once else {})
    return {name: value for name, value in told.items() if _known(name, value)}


@functools.cache
def _known(name: str, value: Any) -> bool:
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda: 0, compiler_options={name: value})()
    except jax.errors.JaxRuntimeError:
        return False
    return True


class Jitted:
    """A function compiled as a whole, by :func:`options`; within another computation it is a part of that."""

    def __init__(self, function: Callable, once: bool, keys: bool, **settings: Any) -> None:
        self._function, self._kind, self._settings = function, (once, keys), settings
        functools.update_wrapper(self, function, updated=())

    @functools.cached_property
    def _whole(self) -> Any:
        return jax.jit(self._function, compiler_options=options(*self._kind), **self._settings)

    @functools.cached_property
    def _part(self) -> Any:
        return jax.jit(self._function, **self._settings)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arguments, named)))
        return (self._part if traced else self._whole)(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        """As of ``jax.jit``: traced, to be compiled."""
        return self._whole.lower(*arguments, **named)


def jitted(function: Callable | None = None, *, once: bool = False, keys: bool = False, **settings: Any) -> Any:
    """``jax.jit`` with what the compiler is told here: ``once`` for what runs once, or on few documents; ``keys`` for what
    splits many keys side by side."""
    if function is None:
        return functools.partial(jitted, once=once, keys=keys, **settings)
    return Jitted(function, once, keys, **settings)
