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

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

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
            return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            inner = next((equation.params[n] for n in ("jaxpr", "call_jaxpr", "fun_jaxpr") if n in equation.params), None)
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
    return found


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
        ranges = [range(x.shape[d] - sizes[d] + 1) for d in moving]
        own = [indices[(*batch, i)] for i in range(len(moving))]
        if not filled:
            own = [jnp.clip(one, 0, len(one_range) - 1) for one, one_range in zip(own, ranges, strict=True)]
        value: Any = None
        for combination in itertools.product(*ranges):
            at = list(first)
            for d, start in zip(moving, combination, strict=True):
                at[d] += start
            here = x[tuple(at)]
            hit = functools.reduce(jnp.logical_and, [o == jnp.asarray(c, o.dtype) for o, c in zip(own, combination, strict=True)])
            value = jnp.where(hit, here, jnp.full_like(here, np.nan) if filled else here) if value is None else jnp.where(hit, here, value)
        found[place] = value
    return found


def _pad(step: Equation, out: Name, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    found = np.empty(out.shape, object)
    found[...] = value[()]
    places = []
    for (low, high, between), size in zip(step.params["padding_config"], x.shape, strict=True):
        if low < 0 or high < 0:
            raise CannotLower("the operation 'pad' cuts off")
        places.append(slice(low, low + size + between * (size - 1), 1 + between))
    found[tuple(places)] = x
    return found


def erf(x: jax.Array) -> jax.Array:
    """The error function, which Triton does not know: Maclaurin's series near 0, else 1 - erfc."""
    near = x * _polynomial(x * x, ERF_NEAR)
    return jnp.where(jnp.abs(x) < 1, near, jnp.sign(x) * (1 - _erfc_beyond_one(jnp.abs(x))))


def erfc(x: jax.Array) -> jax.Array:
    """1 - erf(x), to full precision where it is small (Cephes, as XLA)."""
    beyond = _erfc_beyond_one(jnp.abs(x))
    return jnp.where(jnp.abs(x) < 1, 1 - x * _polynomial(x * x, ERF_NEAR), jnp.where(x < 0, 2 - beyond, beyond))


def _erfc_beyond_one(x: jax.Array) -> jax.Array:
    """erfc(x) for x >= 1: exp(-x^2) / x times a polynomial of 1 / x^2."""
    square = jnp.maximum(x * x, 1.0)
    shape = jnp.where(x < 2, _polynomial(1 / square, ERFC_BELOW_TWO), _polynomial(1 / square, ERFC_ABOVE_TWO))
    return jnp.exp(-square) / jnp.maximum(x, 1.0) * shape


def lgamma(x: jax.Array) -> jax.Array:
    """log |Gamma(x)| by Lanczos' sum, as XLA; below 1/2 by the reflection formula."""
    below = x < 0.5
    z = jnp.where(below, -x, x - 1)
    series = jnp.full_like(x, 0.99999999999980993227684700473478)
    for i, coefficient in enumerate(LANCZOS):
        series = series + coefficient / (z + (i + 1))
    t = z + 7.5
    # (z + 1/2) log t - t with the large parts together: log t = log 7.5 + log1p(z / 7.5)
    log_t = np.float32(np.log(7.5)) + jnp.log1p(z / 7.5)
    direct = np.float32(0.5 * np.log(2 * np.pi)) + (z + 0.5 - t / log_t) * log_t + jnp.log(series)
    fraction = jnp.abs(x) - jnp.floor(jnp.abs(x))
    sine = jnp.log(jnp.sin(np.float32(np.pi) * jnp.minimum(fraction, 1 - fraction)))
    reflected = jnp.where(jnp.isinf(sine), jnp.inf, np.float32(np.log(np.pi)) - sine - direct)
    return jnp.where(below, reflected, direct)


def _polynomial(x: jax.Array, coefficients: Sequence[float]) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


ERF_NEAR = (7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2, 1.128358514861418e-1,
    -3.761262582423300e-1, 1.128379165726710)  # fmt: skip
ERFC_BELOW_TWO = (2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
    6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1)  # fmt: skip
ERFC_ABOVE_TWO = (-1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786, -1.015265279202700,
    4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1)  # fmt: skip
LANCZOS = (676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
    -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7)  # fmt: skip
REPLACED: dict[str, Callable] = {"erf": erf, "erfc": erfc, "lgamma": lgamma, "add_any": jnp.add, "copy": lambda x: x, "stop_gradient": lambda x: x}
ELEMENTWISE = {
    "add", "sub", "mul", "div", "rem", "neg", "sign", "floor", "ceil", "is_finite", "exp", "exp2", "expm1", "log", "log1p",
    "sin", "cos", "tan", "tanh", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "logistic", "sqrt",
    "rsqrt", "cbrt", "square", "abs", "pow", "integer_pow", "max", "min", "atan2", "nextafter", "and", "or", "xor", "not", "eq",
    "ne", "lt", "le", "gt", "ge", "select_n", "clamp", "convert_element_type", "shift_left", "shift_right_logical",
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
