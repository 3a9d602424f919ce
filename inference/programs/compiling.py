"""How programs are compiled: what XLA is told, so that a user waits less for the same numbers a second.

On a CPU XLA writes each fused loop by either of two emitters. The newer one takes twice as long to compile a Gibbs
iteration and its loops run no faster here, so the older one is asked for, but for programs that split many keys side
by side (``keys``), of whose rounds it makes long code. What runs once, or on three documents, is not
optimised at all: that takes longer than running it. Another backend, and a version of XLA that does not know a setting,
are told nothing. What is known by its form is taken from the disk as another process has lowered it (:mod:`.lowered`).
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import jax

from . import lowered, written

QUICK = {"xla_cpu_use_fusion_emitters": False}
ONCE = {"xla_backend_optimization_level": 0}
LONG = {"xla_backend_optimization_level": 3}  # XLA's own, whatever the flags of the process say
PATIENCE = 60.0  # seconds


@functools.cache
def options(once: bool = False, keys: bool = False, long: bool = False) -> dict[str, Any]:
    """What the compiler is told of a program; of one that runs ``once``, or ``long``, or splits many keys side by side."""
    told = ({} if keys else QUICK) | (ONCE if once else {}) | (LONG if long else {})
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

    def __init__(
        self, function: Callable, once: bool, keys: bool, form: Any, long: bool = False, **settings: Any
    ) -> None:
        self._function, self._kind, self._form, self._settings = function, (once, keys, long), form, settings
        self._called = getattr(function, "__name__", "function")  # as profiles show it
        self._programs: dict[Any, lowered.Program] = {}
        self._making = threading.Lock()
        functools.update_wrapper(self, function, updated=())

    @functools.cached_property
    def _whole(self) -> Any:
        return jax.jit(self._function, compiler_options=options(*self._kind), **self._settings)

    @functools.cached_property
    def _part(self) -> Any:
        return jax.jit(self._function, **self._settings)

    @functools.cached_property
    def _static(self) -> tuple[inspect.Signature, tuple[str, ...]] | None:
        """Its signature and the names of its static arguments, if there are any."""
        names = self._settings.get("static_argnames", ())
        return (
            (inspect.signature(self._function), (names,) if isinstance(names, str) else tuple(names)) if names else None
        )

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        leaves = jax.tree.leaves((arguments, named))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._part(*arguments, **named)
        if self._is_kept():
            program, leaves = self._program(arguments, named)
            return program(leaves)
        return self._whole(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        """As of ``jax.jit``: traced, to be compiled."""
        return self._whole.lower(*arguments, **named)

    def ready(self, *arguments: Any) -> Callable:
        """The program for arguments like these, compiled: a function of them."""
        if not self._is_kept():
            return self.lower(*arguments).compile()
        program, _ = self._program(arguments, {})
        program.ready()
        return lambda *others: program(jax.tree.leaves((others, {})))

    def like(self, *arguments: Any) -> Any:
        """Zeros like what it gives of arguments like these, before it is compiled; None where that is not known."""
        return self._program(arguments, {})[0].like() if self._is_kept() else None

    def _is_kept(self) -> bool:
        told: Any = jax.config
        alone = jax.default_backend() == "cpu" and jax.device_count() == 1  # else it matters where arguments lie
        return self._form is not None and lowered.FOLDER is not None and alone and not told.jax_disable_jit

    def _program(self, arguments: tuple, named: dict[str, Any]) -> tuple[lowered.Program, list]:
        """The program for such arguments, which another process may have lowered; and their leaves."""
        static: dict[str, Any] = {}
        if self._static is not None:
            signature, names = self._static
            bound = signature.bind(*arguments, **named).arguments
            static = {name: bound.pop(name) for name in names if name in bound}
            arguments, named = (), bound
        leaves, structure = jax.tree.flatten((arguments, dict(named)))
        told: Any = jax.config
        settings = told.jax_enable_x64, told.jax_default_matmul_precision, told.jax_debug_nans
        shapes = structure, tuple(map(jax.typeof, leaves)), tuple(static.items()), settings
        if shapes not in self._programs:
            # a second thread waits for the first; not for ever, should it hold what the first needs
            waited = self._making.acquire(timeout=PATIENCE)
            try:
                if shapes not in self._programs:
                    name = written.key(self._form, str(structure), list(map(str, shapes[1])), static, self._kind)
                    self._programs[shapes] = self._made(structure, leaves, static, name)
            finally:
                if waited:
                    self._making.release()
        return self._programs[shapes], leaves

    def _made(self, structure: Any, leaves: list, static: dict[str, Any], name: str | None) -> lowered.Program:
        settings: dict[str, Any] = {"compiler_options": options(*self._kind)}
        if name is not None and (program := lowered.found(name, self._called, leaves, settings)) is not None:
            return program
        results: list[Any] = []

        def flat(*leaves: Any) -> list:
            arguments, named = jax.tree.unflatten(structure, leaves)
            found, tree = jax.tree.flatten(self._function(*arguments, **named, **static))
            results.append(tree)
            return found

        flat.__name__ = self._called
        made = jax.jit(flat, **settings).lower(*leaves)
        if name is not None:
            lowered.kept(name, made, results[-1])
        return lowered.Program(made, None, results[-1])


def jitted(
    function: Callable | None = None, *, once: bool = False, keys: bool = False, long: bool = False, form: Any = None,
    **settings: Any,
) -> Any:  # fmt: skip
    """``jax.jit`` with what the compiler is told here: ``once`` for what runs once, or on few documents; ``keys`` for what
    splits many keys side by side; ``long`` for what mostly runs, wherever it does. With a ``form``, all that the function
    depends on beside its arguments, other processes need not trace it again (:mod:`.lowered`)."""
    if function is None:
        return functools.partial(jitted, once=once, keys=keys, long=long, form=form, **settings)
    own = (getattr(function, "__module__", None) or "").startswith("topiczoo.")
    if form is None and own and getattr(function, "__qualname__", "<").isidentifier():
        form = function.__module__, function.__qualname__  # of a module: it depends on nothing besides
    if settings.keys() - {"static_argnames"}:
        form = None
    return Jitted(function, once, keys, form, long, **settings)
