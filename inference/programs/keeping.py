"""What was made for one fit and serves the next: things kept by all that they depend on.

A compiled program may serve another fit if it would be compiled to the same again. So its key is all that it holds
(:func:`frozen`), down to the numbers of arrays; what cannot be looked into is not kept. The programs of stories are made
by :meth:`topiczoo.inference.story.bound.BoundGraph.program`.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

Made = TypeVar("Made")
MOST = 128  # things kept, each with what it was compiled for
DEEPEST = 12  # things within things
_kept: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


class Unkeyed(TypeError):
    """A thing that cannot be told from another by what is in it."""


def keep(key: Hashable, make: Callable[[], Made]) -> Made:
    """What was made for this key, or what ``make`` makes now; what was not asked for longest is forgotten."""
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    made = make()
    with _lock:
        made = _kept.setdefault(key, made)
        while len(_kept) > MOST:
            _kept.popitem(last=False)
    return made


def forget() -> None:
    """Forget all that is kept."""
    with _lock:
        _kept.clear()


def shapes(tree: Any) -> Hashable:
    """What a compiled program depends on of its arguments: their structure, shapes and types."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(
        (np.shape(leaf), str(jax.numpy.result_type(leaf)), bool(getattr(leaf, "weak_type", isinstance(leaf, float))))
        for leaf in leaves
    )


def digest(computation: ClosedJaxpr, results: Any) -> str | None:
    """A traced computation, with the structure of its results, in few letters."""
    try:
        told = _told(computation)
    except Unkeyed:
        return None
    return hashlib.sha256(f"{told} {jax.tree.structure(results)}".encode()).hexdigest()


def _told(thing: Any) -> str:
    """A computation in words that are the same whenever it is, however JAX shares its parts; likewise what it is made of."""
    if isinstance(thing, ClosedJaxpr) and not isinstance(thing, Jaxpr):  # one and the same from JAX 0.11 on
        return f"{_told(thing.jaxpr)} {frozen(list(thing.consts))}"
    if isinstance(thing, Jaxpr):
        names = {id(var): i for i, var in enumerate([*thing.constvars, *thing.invars])}
        lines = [" ".join(str(var.aval) for var in [*thing.constvars, *thing.invars])]

        def name(atom: Any) -> str:
            return f"{atom.val!r}:{atom.aval}" if isinstance(atom, Literal) else str(names.get(id(atom)))

        for equation in thing.eqns:
            given = " ".join(map(name, equation.invars))
            names |= {id(var): len(names) + i for i, var in enumerate(equation.outvars)}
            made = " ".join(f"{name(var)}:{var.aval}" for var in equation.outvars)
            settings = [f"{what}={_told(value)}" for what, value in sorted(equation.params.items())]
            lines.append(f"{made} = {equation.primitive.name} {given} {settings}")
        held = frozen(list(getattr(thing, "consts", ())))
        return "\n".join([*lines, " ".join(map(name, thing.outvars)), str(held)])
    if isinstance(thing, tuple | list):
        return f"({', '.join(map(_told, thing))})"
    if isinstance(thing, np.ndarray | jax.Array):
        return str(_of_array(thing))
    return getattr(thing, "__qualname__", None) or re.sub(r"0x[0-9a-f]+", "", repr(thing))


def frozen(thing: Any, depth: int = 0) -> Hashable:
    """A thing by what is in it: two that are frozen alike do the same. ``Unkeyed`` where that cannot be seen.

    An object may say for itself what it depends on, by an attribute ``form`` (None if that is not known).
    """
    if depth > DEEPEST:
        raise Unkeyed("things within things")
    inner = functools.partial(frozen, depth=depth + 1)
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | type | np.dtype | np.generic):
        return type(thing), thing
    if hasattr(type(thing), "form"):
        if thing.form is None:
            raise Unkeyed(f"{type(thing).__name__} of no known form")
        return type(thing), thing.form
    if isinstance(thing, np.ndarray | jax.Array):
        return _of_array(thing)
    if isinstance(thing, Mapping):
        return type(thing), tuple((name, inner(value)) for name, value in thing.items())
    if isinstance(thing, set | frozenset):
        return type(thing), frozenset(map(inner, thing))
    if isinstance(thing, tuple | list):
        return type(thing), tuple(map(inner, thing))
    if isinstance(thing, functools.partial):
        return functools.partial, inner(thing.func), inner(thing.args), inner(thing.keywords)
    if isinstance(thing, MethodType):
        return MethodType, thing.__func__, inner(thing.__self__)
    if isinstance(thing, CellType):
        return inner(thing.cell_contents)
    if isinstance(thing, FunctionType):
        return (thing.__code__, inner(thing.__closure__), inner(thing.__defaults__)) if thing.__closure__ else thing
    if isinstance(thing, Constraint | Transform) or type(thing).__module__.startswith("topiczoo."):
        # all of these is in their attributes, but for the inverse that they have been asked for
        held = {name: value for name, value in vars(thing).items() if not isinstance(value, weakref.ref)}
        return type(thing), inner(held)
    raise Unkeyed(f"{type(thing).__name__}")


def form_of(*things: Any) -> Hashable:
    """All of them, frozen; None where that cannot be."""
    try:
        return frozen(things)
    except Unkeyed:
        return None


class Alike:
    """A thing as a static argument of compiled functions: the same as another that is frozen alike."""

    def __init__(self, thing: Any) -> None:
        self._thing, self._key = thing, frozen(thing)

    @property
    def form(self) -> Hashable:
        return self._key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._thing, name)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self._key == other._key


def _of_array(array: Any) -> Hashable:
    if isinstance(array, jax.core.Tracer):
        raise Unkeyed("an array that is being traced")
    array = np.asarray(array)
    if array.dtype == object:
        raise Unkeyed("an array of objects")
    return np.ndarray, array.shape, str(array.dtype), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
