"""Programs as they stand before they are compiled, on the disk: the next process need neither trace nor lower them again.

A process that finds compiled programs on the disk (:mod:`.disk`) still runs each story again in Python to see which of
them it needs, and that takes longer than all else. So what a program was lowered to, StableHLO, is kept beside them, in a
file whose name follows from all that it depends on (:mod:`.written`) and from the shapes of its arguments. JAX is then
given the very module that it would have made, and finds the very program: draws are the same to the last bit.

Nothing in a file is run but what the module computes: structures are JSON, and types in them are looked up, not imported.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from .keeping import Unkeyed

FOLDER: Any = None  # where they are, a path, if anywhere
NOT_KEPT = b"callback"  # calls into this process
OF_LAPACK = b"lapack_"  # JAX tells XLA of these when it lowers the first
_known: set[bytes] = set()


class Program:
    """A program of the leaves of its arguments; it is compiled when it is first needed."""

    def __init__(self, lowered: Any, taken: Sequence[int] | None, results: Any) -> None:
        """``taken``: the leaves that it is given, if not all; ``results``: the structure of what it gives."""
        self._lowered, self.taken, self.results = lowered, taken, results
        self._given = [_described(aval) for aval in lowered._lowering.compile_args["global_out_avals"]]
        self._compiled: Callable | None = None
        self._compiling = threading.Lock()

    def ready(self) -> Callable:
        """The compiled program."""
        with self._compiling:
            if self._compiled is None:
                self._compiled, self._lowered = self._lowered.compile(), None
        return self._compiled

    def __call__(self, leaves: Sequence[Any]) -> Any:
        own = leaves if self.taken is None else [leaves[i] for i in self.taken]
        return jax.tree.unflatten(self.results, (self._compiled or self.ready())(*own))

    def like(self) -> Any:
        """Zeros of the shapes and types that it gives, for which nothing is compiled where that can be avoided."""

        @functools.cache
        def zeros(shape: tuple[int, ...], dtype: str, weak: bool) -> jax.Array:
            return _like(shape, dtype, weak) if weak or "<" in dtype else jnp.asarray(np.zeros(shape, dtype))

        given = [zeros(tuple(shape), dtype, weak) for shape, dtype, weak in self._given]
        return jax.tree.unflatten(self.results, given)


def found(name: str, called: str, leaves: Sequence[Any], settings: dict[str, Any]) -> Program | None:
    """What is kept under a name, for leaves like these; None where there is nothing, or nothing whole.

    ``called``: the function, as profiles show it.
    """
    with contextlib.suppress(Exception):  # whatever is wrong with a file: it is made again
        head, module = _parts((FOLDER / f"{name}-cache").read_bytes())
        told = json.loads(head)
        results = jax.tree.structure(_structured(told["results"]))
        taken = tuple(told["taken"])

        def alike(*_: Any) -> list:
            return [_like(*each) for each in told["made"]]

        alike.__name__ = called
        lowered: Any = jax.jit(alike, keep_unused=True, **settings).lower(*(leaves[i] for i in taken))
        made = [_described(aval) for aval in lowered._lowering.compile_args["global_out_avals"]]
        if made != told["made"]:
            return None
        if OF_LAPACK in module and OF_LAPACK not in _known:
            jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))
            _known.add(OF_LAPACK)
        with mlir.make_ir_context():
            lowered._lowering._hlo = mlir.ir.Module.parse(module)
        program = Program(lowered, taken, results)
        program.ready()
        return program
    return None


def kept(name: str, lowered: Any, results: Any) -> None:
    """Keep what has been lowered, a function of leaves that gives leaves; ``results`` is their structure."""
    with contextlib.suppress(Exception):  # what cannot be kept is traced again
        lowering = lowered._lowering
        module = mlir.module_to_bytecode(lowering.stablehlo())
        if NOT_KEPT in module or lowering.const_args:
            return
        told = {
            "taken": sorted(lowering.compile_args["kept_var_idx"]),
            "made": [_described(aval) for aval in lowering.compile_args["global_out_avals"]],
            "results": _structure(jax.tree.unflatten(results, range(results.num_leaves))),
        }
        _write(FOLDER / f"{name}-cache", json.dumps(told).encode(), module)


def _write(path: Path, head: bytes, module: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = len(head).to_bytes(8, "little") + head + module
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix="-cache", delete=False) as file:
        file.write(hashlib.sha256(whole).digest() + whole)
    os.replace(file.name, path)


def _parts(whole: bytes) -> tuple[bytes, bytes]:
    told, whole = whole[:32], whole[32:]
    if hashlib.sha256(whole).digest() != told:
        raise ValueError("cut short")
    end = 8 + int.from_bytes(whole[:8], "little")
    return whole[8:end], whole[end:]


def _described(aval: Any) -> list[Any]:
    return [list(aval.shape), str(aval.dtype), bool(getattr(aval, "weak_type", False))]


def _like(shape: Sequence[int], dtype: str, weak: bool) -> jax.Array:
    """An array of which no more than its shape and type matters."""
    if dtype == "key<fry>":
        return jax.random.wrap_key_data(jnp.asarray(np.zeros((*shape, 2), np.uint32)), impl="threefry2x32")
    return jnp.broadcast_to(np.dtype(dtype).type(0).item(), shape) if weak else jnp.zeros(shape, dtype)


def _structure(tree: Any) -> Any:
    """A tree, whose leaves are numbers, for JSON."""
    if tree is None or isinstance(tree, int):
        return tree
    if isinstance(tree, dict) and all(isinstance(name, str | int) for name in tree):
        return {"dict": [[name, _structure(part)] for name, part in tree.items()]}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_structure(part) for part in tree]}
    kind = type(tree)
    if _named_tuple(kind.__module__, kind.__qualname__) is not kind:
        raise Unkeyed(kind.__name__)
    return {"named": [kind.__module__, kind.__qualname__, [_structure(part) for part in tree]]}


def _structured(told: Any) -> Any:
    """The tree again."""
    if not isinstance(told, dict):
        return told
    ((kind, parts),) = told.items()
    if kind == "dict":
        return {name: _structured(part) for name, part in parts}
    if kind == "named":
        module, name, parts = parts
        return _named_tuple(module, name)._make(map(_structured, parts))
    return {"list": list, "tuple": tuple}[kind](map(_structured, parts))


def _named_tuple(module: str, name: str) -> Any:
    """A named tuple of this package or NumPyro's; None if there is none of the name in what has been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    own = module.partition(".")[0] in ("topiczoo", "numpyro")
    return kind if own and isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_make") else None
