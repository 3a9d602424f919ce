"""What a program depends on, in words that the next process finds again: the key of what is kept on the disk.

Of the package itself its whole source counts, and of other packages their versions. Of what a user has written the code
counts, with closures and defaults, and with the code of each function and the numbers of each variable that it names; what
cannot be looked into so far, such as a class of the user's, has no key (``Unkeyed``), and is kept in the process alone.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import operator
import sys
import time
import types
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

from .keeping import Unkeyed, frozen

PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy")  # told by their versions
PARTS = ("corpora", "diagnostics", "inference", "models")
SOURCES = {".py", ".cc", ".h"}
DEEPEST = 64  # things within things
VERSIONED = {"topiczoo", *PACKAGES, "builtins", "collections", "functools", "itertools", "math", "operator", "types"}
BEGAN = time.time()
BESIDE: list[Callable[[], Any]] = []  # what else programs depend on, asked whenever a key is made


def key(*things: Any) -> str | None:
    """A name for what depends on these things; None where they cannot be told."""
    try:
        told = _told((_package(), _settings(), [ask() for ask in BESIDE], things), ())
    except Unkeyed:
        return None
    return hashlib.sha256(told.encode()).hexdigest()


@functools.cache
def _package() -> str:
    """Versions, and the source of the package."""
    whole = hashlib.sha256(sys.version.encode())
    for name in PACKAGES:
        whole.update(f"{name} {version(name)}\n".encode())
    for path in sorted(path for folder in _folders() for path in folder.rglob("*") if path.suffix in SOURCES):
        told = path.stat()
        if max(told.st_mtime, told.st_ctime) > BEGAN:
            raise Unkeyed(f"{path}, which has changed since it was read")
        whole.update(f"{path.name}\n".encode() + path.read_bytes())
    return whole.hexdigest()


@functools.cache
def _folders() -> tuple[Path, ...]:
    """Those of the package; in a checkout its subpackages lie beside it."""
    specs = [find_spec(name) for name in ("topiczoo", *(f"topiczoo.{part}" for part in PARTS))]
    found = {Path(path).resolve() for spec in specs if spec for path in spec.submodule_search_locations or ()}
    return tuple(sorted(path for path in found if found.isdisjoint(path.parents)))


def _settings() -> str:
    """What JAX has been told, but for where it keeps things."""
    names = sorted(name for name in jax.config.values if "cache" not in name)
    return repr([(name, getattr(jax.config, name, jax.config.values[name])) for name in names])


def _told(thing: Any, above: tuple) -> str:
    """A thing in words; ``above``: what it is a part of."""
    if isinstance(thing, FunctionType) and (places := [i for i, other in enumerate(above) if other is thing]):
        return f"again {places}"
    if len(above) > DEEPEST:
        raise Unkeyed("things within things")
    inner = functools.partial(_told, above=(*above, thing))
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | np.generic | np.dtype):
        return f"{type(thing).__name__} {thing!r}"
    if isinstance(thing, set | frozenset):
        return f"set({', '.join(sorted(map(inner, thing)))})"
    if isinstance(thing, Mapping):
        thing = tuple(thing.items())
    if isinstance(thing, tuple | list):
        return f"{type(thing).__name__}({', '.join(map(inner, thing))})"
    if isinstance(thing, jax.tree_util.PyTreeDef):
        if " at 0x" in str(thing):
            raise Unkeyed("a structure with an object in it")
        return str(thing)
    if isinstance(thing, ModuleType) and _is_versioned(thing.__name__):
        return thing.__name__
    if (name := _name(thing)) is not None:
        return name
    if isinstance(thing, FunctionType):
        return _of_function(thing, inner)
    if isinstance(thing, CodeType) and any(folder in Path(thing.co_filename).parents for folder in _folders()):
        return _of_code(thing, inner)
    if isinstance(thing, type | CodeType | ModuleType) or not _is_versioned(type(thing).__module__):
        raise Unkeyed(f"{thing!r}")
    return inner(frozen(thing))  # arrays, and objects of the package


def _is_versioned(module: str) -> bool:
    return module.partition(".")[0] in VERSIONED


def _name(thing: Any) -> str | None:
    """The name under which it is found in a package that is told by version or source."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str) and _is_versioned(module)):
        return None
    if getattr(types, name, None) is thing:  # of no module, such as that of None
        return f"types {name}"
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except (AttributeError, KeyError):
        return None
    return f"{module} {name}" if found is thing else None


def _of_code(code: CodeType, inner: Callable) -> str:
    """What code does; where it stands does not count."""
    constants = [_of_code(part, inner) if isinstance(part, CodeType) else part for part in code.co_consts]
    return inner([code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_flags])


def _of_function(function: FunctionType, inner: Callable) -> str:
    """A function of the user's: its code, and all that this names."""
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    known = {**vars(builtins), **function.__globals__}
    named = {name: known[name] for name in sorted(_names(function.__code__)) if name in known}
    code = _of_code(function.__code__, inner)
    return inner([code, closure, function.__defaults__, function.__kwdefaults__, named])


def _names(code: CodeType) -> set[str]:
    """The names that code may read, of functions within it as well."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and not _is_versioned(str(step.argval)):
            raise Unkeyed(f"{step.argval}, which is imported within")
    within = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, within))
