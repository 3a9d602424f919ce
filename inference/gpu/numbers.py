"""A traced function of small arrays, computed number by number: what a kernel of a GPU can hold in registers.

Triton wants arrays whose sizes are powers of two, and knows neither gathers nor slices of what is in registers. A response
of 20 classes is no such array. So each of its numbers is a variable here, a vector with one number for every document of a
program; sums over classes are written out, and a class is picked by comparing its number.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from .special import erf, erfc, lgamma

CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
CALLS |= {"checkpoint", "remat", "remat2"}
MOST_NUMBERS = 4096  # of one array: each is a line of the kernel


class CannotLower(Exception):
    """What is asked cannot be part of a kernel; the message says why."""


class Equation(NamedTuple):
    """One step of a traced function; what it reads are names of values, or the values themselves."""

    primitive: Any
    params: dict[str, Any]
    inputs: list[Any]
    outputs: list[Any]


class Name:
    """A value of a traced function, known by its identity."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype


def flattened(closed: Any) -> tuple[list[Name], list[Equation], list[Any]]:
    """The arguments, needed steps and results of a traced function, functions that it calls in the place of their calls."""
    steps: list[Equation] = []

    def named(variable: Any) -> Name:
        return Name(variable.aval.shape, variable.aval.dtype)

    def follow(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        known |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Any:
            aval: Any = atom.aval
            return np.asarray(atom.val, aval.dtype) if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            inner = next(
                (equation.params[n] for n in ("jaxpr", "call_jaxpr", "fun_jaxpr") if n in equation.params), None
            )
            if equation.primitive.name in CALLS and inner is not None:
                outputs = follow(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
            else:
                outputs = [named(variable) for variable in equation.outvars]
                steps.append(Equation(equation.primitive, equation.params, inputs, outputs))
            known |= dict(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    arguments = [named(variable) for variable in closed.jaxpr.invars]
    results = follow(closed.jaxpr, closed.consts, arguments)
    wanted, needed = {id(one) for one in results}, []
    for step in reversed(steps):
        if any(id(one) in wanted for one in step.outputs):
            wanted |= {id(one) for one in step.inputs}
            needed.append(step)
    return arguments, needed[::-1], results


def evaluated(steps: Sequence[Equation], values: dict[Name, Any]) -> None:
    """Compute steps as JAX does; ``values`` gets the value of every name."""
    for step in steps:
        inputs = (values[one] if isinstance(one, Name) else one for one in step.inputs)
        found = step.primitive.bind(*inputs, **step.params)
        outputs = found if step.primitive.multiple_results else [found]
        values.update(zip(step.outputs, outputs, strict=True))


def by_numbers(steps: Sequence[Equation], values: dict[Name, np.ndarray], like: Callable[[Any, Any], Any]) -> None:
    """Compute steps number by number. Values are arrays of objects, of which each is a number or a vector of them.

    ``like(number, dtype)`` makes a constant such a number.
    """
    for step in steps:
        inputs = [
            values[one] if isinstance(one, Name) else _objects(np.asarray(one), lambda v, t=one.dtype: like(v, t))
            for one in step.inputs
        ]
        name, out = step.primitive.name, step.outputs[0]
        if int(np.prod(out.shape)) > MOST_NUMBERS:
            raise CannotLower(f"the operation {name!r} gives more numbers than a kernel holds")
        if name in ELEMENTWISE:
            function = REPLACED.get(name) or functools.partial(step.primitive.bind, **step.params)
            found = _map(function, out.shape, inputs)
        elif name in RULES:
            found = RULES[name](step, out, *inputs)
        else:
            raise CannotLower(f"the operation {name!r} has no form in a kernel")
        several = found if step.primitive.multiple_results else [found]
        values.update(zip(step.outputs, several, strict=True))


def _objects(array: np.ndarray, make: Callable) -> np.ndarray:
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        found[place] = make(array[place])
    return found


def _map(function: Callable, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> np.ndarray:
    parts = [np.broadcast_to(one, shape) for one in inputs]
    found = np.empty(shape, object)
    for place in np.ndindex(shape):
        found[place] = function(*(part[place] for part in parts))
    return found


def _folded(combine: Callable) -> Callable:
    def reduce(step: Equation, out: Name, x: np.ndarray) -> np.ndarray:
        axes = step.params["axes"]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        rows = x.transpose(*kept, *axes).reshape(*out.shape, -1)
        found = np.empty(out.shape, object)
        for place in np.ndindex(out.shape):
            found[place] = functools.reduce(combine, rows[place])
        return found

    return reduce


def _running(combine: Callable) -> Callable:
    def scan(step: Equation, out: Name, x: np.ndarray) -> np.ndarray:
        x = np.moveaxis(x.copy(), step.params["axis"], 0)
        x = x[::-1] if step.params["reverse"] else x
        for i in range(1, len(x)):
            x[i] = _map(combine, x.shape[1:], [x[i - 1], x[i]])
        return np.moveaxis(x[::-1] if step.params["reverse"] else x, 0, step.params["axis"])

    return scan


def _best(better: Callable) -> Callable:
    """The first place of the largest, or least, number along an axis."""

    def argbest(step: Equation, out: Name, x: np.ndarray) -> np.ndarray:
        (axis,) = step.params["axes"]
        rows, found = np.moveaxis(x, axis, -1), np.empty(out.shape, object)
        for place in np.ndindex(out.shape):
            best = rows[place][0]
            where = jnp.zeros_like(best, out.dtype)
            for i, one in enumerate(rows[place][1:], 1):
                ahead = better(one, best)
                best, where = jnp.where(ahead, one, best), jnp.where(ahead, jnp.asarray(i, out.dtype), where)
            found[place] = where
        return found

    return argbest


def _largest(step: Equation, out: Name, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The k largest numbers along the last axis, the largest first, and their places."""
    if step.params.get("axis", x.ndim - 1) not in (-1, x.ndim - 1):
        raise CannotLower("the operation 'top_k' is not along the last axis")
    found, places = np.empty(out.shape, object), np.empty(out.shape, object)
    for at in np.ndindex(out.shape[:-1]):
        left = list(x[at])
        for i in range(out.shape[-1]):
            best, place = left[0], jnp.zeros_like(left[0], jnp.int32)
            for k, one in enumerate(left[1:], 1):
                ahead = one > best
                best, place = jnp.where(ahead, one, best), jnp.where(ahead, k, place)
            found[(*at, i)], places[(*at, i)] = best, place
            left = [jnp.where(place == k, -jnp.inf, one) for k, one in enumerate(left)]
    return found, places


def _broadcast(step: Equation, out: Name, x: np.ndarray, *_: Any) -> np.ndarray:
    shape = [1] * len(out.shape)
    for axis, size in zip(step.params["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), out.shape)


def _slice(step: Equation, out: Name, x: np.ndarray) -> np.ndarray:
    given = step.params
    strides = given["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, given["start_indices"], given["limit_indices"], strides))]


def _dot(step: Equation, out: Name, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    (of_x, of_y), (batch_x, batch_y) = step.params["dimension_numbers"]
    free_x = [a for a in range(x.ndim) if a not in (*of_x, *batch_x)]
    free_y = [a for a in range(y.ndim) if a not in (*of_y, *batch_y)]
    inner = int(np.prod([x.shape[a] for a in of_x]))
    batch = [x.shape[a] for a in batch_x]
    left = x.transpose(*batch_x, *free_x, *of_x).reshape(*batch, -1, inner)
    right = y.transpose(*batch_y, *free_y, *of_y).reshape(*batch, -1, inner)
    found = np.empty((*batch, left.shape[-2], right.shape[-2]), object)
    for *at, i, j in np.ndindex(found.shape):
        products = (a * b for a, b in zip(left[(*at, i)], right[(*at, j)], strict=True))
        found[(*at, i, j)] = functools.reduce(jnp.add, products)
    return found.reshape(out.shape)


def _gather(step: Equation, out: Name, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Numbers picked by indices that are known only in the kernel: each is compared with all that it may be."""
    given, sizes = step.params["dimension_numbers"], step.params["slice_sizes"]
    inside = [d for d in range(x.ndim) if d not in (*given.collapsed_slice_dims, *given.operand_batching_dims)]
    filled = "FILL" in str(step.params["mode"]) and np.issubdtype(out.dtype, np.floating)
    found = np.empty(out.shape, object)
    for place in np.ndindex(out.shape):
        batch = tuple(p for axis, p in enumerate(place) if axis not in given.offset_dims)
        first = [0] * x.ndim
        for d, axis in zip(inside, given.offset_dims, strict=True):
            first[d] = place[axis]
        for d, axis in zip(given.operand_batching_dims, given.start_indices_batching_dims, strict=True):
            first[d] = batch[axis]
        moving = list(given.start_index_map)
        starts = [indices[(*batch, i)] for i in range(len(moving))]
        found[place] = _picked(x, first, moving, starts, sizes, filled)
    return found


def _dynamic_slice(step: Equation, out: Name, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    sizes, found = step.params["slice_sizes"], np.empty(out.shape, object)
    for place in np.ndindex(out.shape):
        found[place] = _picked(x, place, range(x.ndim), [start[()] for start in starts], sizes, False)
    return found


def _picked(
    x: np.ndarray,
    first: Sequence[int],
    moving: Sequence[int],
    starts: Sequence[Any],
    sizes: Sequence[int],
    filled: bool,
) -> Any:
    """x at ``first`` moved along some axes by ``starts``; beyond the end NaN, or as near to it as a slice may lie."""
    ranges = [range(x.shape[axis] - sizes[axis] + 1) for axis in moving]
    if not filled:
        starts = [jnp.clip(one, 0, len(along) - 1) for one, along in zip(starts, ranges, strict=True)]
    value: Any = None
    for combination in itertools.product(*ranges):
        at = list(first)
        for axis, start in zip(moving, combination, strict=True):
            at[axis] += start
        here, hits = (
            x[tuple(at)],
            [one == jnp.asarray(c, one.dtype) for one, c in zip(starts, combination, strict=True)],
        )
        if value is None:
            value = jnp.full_like(here, np.nan) if filled else here
        value = jnp.where(functools.reduce(jnp.logical_and, hits), here, value)
    return value


def _pad(step: Equation, out: Name, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    found, places = _map(lambda one: one, out.shape, [value]), []
    for (low, high, between), size in zip(step.params["padding_config"], x.shape, strict=True):
        if low < 0 or high < 0:
            raise CannotLower("the operation 'pad' cuts off")
        places.append(slice(low, low + size + between * (size - 1), 1 + between))
    found[tuple(places)] = x
    return found


REPLACED: dict[str, Callable] = {
    "erf": erf,
    "erfc": erfc,
    "lgamma": lgamma,
    "add_any": jnp.add,
    "copy": lambda x: x,
    "stop_gradient": lambda x: x,
}
ELEMENTWISE = {
    "add", "sub", "mul", "div", "rem", "neg", "sign", "floor", "ceil", "is_finite", "exp", "exp2", "expm1", "log", "log1p",
    "sin", "cos", "tan", "tanh", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "logistic", "sqrt",
    "rsqrt", "cbrt", "square", "abs", "pow", "integer_pow", "max", "min", "atan2", "nextafter", "and", "or", "xor", "not",
    "eq", "ne", "lt", "le", "gt", "ge", "select_n", "clamp", "convert_element_type", "shift_left", "shift_right_logical",
    "shift_right_arithmetic", *REPLACED,
}  # fmt: skip
RULES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda step, out, x: x.reshape(out.shape),
    "squeeze": lambda step, out, x: x.reshape(out.shape),
    "expand_dims": lambda step, out, x: x.reshape(out.shape),
    "transpose": lambda step, out, x: x.transpose(step.params["permutation"]),
    "slice": _slice,
    "concatenate": lambda step, out, *parts: np.concatenate(parts, step.params["dimension"]),
    "stack": lambda step, out, *parts: np.stack(parts, step.params["axis"]),
    "unstack": lambda step, out, x: tuple(np.moveaxis(x, step.params["axis"], 0)),
    "split": lambda step, out, x: tuple(np.split(x, np.cumsum(step.params["sizes"])[:-1], step.params["axis"])),
    "dynamic_slice": _dynamic_slice,
    "top_k": _largest,
    "rev": lambda step, out, x: np.flip(x, step.params["dimensions"]),
    "pad": _pad,
    "gather": _gather,
    "dot_general": _dot,
    "reduce_sum": _folded(jnp.add),
    "reduce_prod": _folded(jnp.multiply),
    "reduce_max": _folded(jnp.maximum),
    "reduce_min": _folded(jnp.minimum),
    "reduce_and": _folded(jnp.logical_and),
    "reduce_or": _folded(jnp.logical_or),
    "argmax": _best(lax.gt),
    "argmin": _best(lax.lt),
    "cumsum": _running(jnp.add),
    "cumprod": _running(jnp.multiply),
    "cummax": _running(jnp.maximum),
    "cumlogsumexp": _running(jnp.logaddexp),
}
