"""Which axes of a story's arrays are one and the same: documents, topics, terms, labels.

Two axes are the same where the story computes with them index by index: in a sum of two arrays, along the inner axis of a
matrix product, within a plate; and an axis along which a class looks up numbers is that of the classes. So an axis of a
site is one of topics if it meets, anywhere between the site and the words or the response, the topics of what is handed
to ``draw_words`` or multiplied with zbar. Neither names of arguments nor sizes are asked: a story with as many terms as
topics is read as any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

Axis = int  # a node of the union
AS_BEFORE = {  # what leaves whole numbers places on the same axis, or on none
    "add", "broadcast_in_dim", "clamp", "convert_element_type", "copy", "max", "min", "reshape", "select_n", "squeeze",
    "transpose",
}  # fmt: skip


class ArrayAxes(list):
    """The axes of an array; and where its numbers are places on an axis, that one."""

    places: Axis | None = None


class Axes:
    """Axes of the variables of a traced computation, joined where the computation joins them."""

    def __init__(self) -> None:
        self._parent: list[Axis] = []
        self._size: list[int] = []

    def new(self, shape: Iterable[int]) -> ArrayAxes:
        """Axes that nothing is known of yet, one for each of a shape."""
        made = ArrayAxes()
        for size in shape:
            made.append(len(self._parent))
            self._parent.append(len(self._parent))
            self._size.append(int(size))
        return made

    def find(self, axis: Axis) -> Axis:
        """The axis that stands for all that are the same as this one."""
        while self._parent[axis] != axis:
            self._parent[axis] = self._parent[self._parent[axis]]
            axis = self._parent[axis]
        return axis

    def join(self, one: Axis, other: Axis) -> None:
        """The two are the same, unless one is stretched over the other."""
        one, other = self.find(one), self.find(other)
        if self._size[one] == self._size[other]:
            self._parent[other] = one

    def join_all(self, ones: Sequence[Axis], others: Sequence[Axis]) -> None:
        """Each axis of an array with the one in its position in another; arrays of other ranks have none."""
        if len(ones) == len(others):
            for one, other in zip(ones, others, strict=True):
                self.join(one, other)

    def walk(self, jaxpr: Jaxpr, given: Sequence[list[Axis]]) -> list[list[Axis]]:
        """Join the axes of all that a computation makes of arrays with the given axes; those of its results."""
        known: dict[Any, list[Axis]] = dict(zip(jaxpr.invars, given, strict=True))

        def axes(atom: Any) -> list[Axis]:
            # a constant may stand in two places that have nothing else in common
            known_ones = None if isinstance(atom, Literal) else known.get(atom)
            return self.new(_shape(atom)) if known_ones is None else known_ones

        for equation in jaxpr.eqns:
            made = [self.new(_shape(out)) for out in equation.outvars]
            known |= dict(zip(equation.outvars, made, strict=True))
            rule = RULES.get(equation.primitive.name, _inside_or_alike)
            told = [axes(atom) for atom in equation.invars]
            rule(self, equation.params, told, made)
            if equation.primitive.name in AS_BEFORE:
                along = {_places(part) for part in told} - {None}
                made[0].places = along.pop() if len(along) == 1 else None
        return [axes(atom) for atom in jaxpr.outvars]


def _shape(atom: Any) -> tuple[int, ...]:
    return getattr(atom.aval, "shape", ())


def _places(axes: list[Axis]) -> Axis | None:
    """The axis on which an array's numbers are places, if it is known."""
    return axes.places if isinstance(axes, ArrayAxes) else None


Rule = Callable[[Axes, dict[str, Any], list[list[Axis]], list[ArrayAxes]], None]


def _inside_or_alike(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    """A function called within is walked through; anything else is taken for one that works index by index."""
    for value in params.values():
        inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
        if isinstance(inner, Jaxpr) and len(inner.invars) == len(given) and len(inner.outvars) == len(made):
            for found, own in zip(axes.walk(inner, given), made, strict=True):
                axes.join_all(found, own)
                own.places = _places(found)
            return
    for own in made:
        for part in given:
            axes.join_all(part, own)


def _reduce(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    gone = params["axes"]
    for part, own in zip(given, made, strict=False):
        axes.join_all([axis for i, axis in enumerate(part) if i not in gone], own)


def _broadcast(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    for axis, position in zip(given[0], params["broadcast_dimensions"], strict=True):
        axes.join(axis, made[0][position])


def _reshape(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    """Axes that come through whole: those before, between and behind the ones that are merged or split."""
    old, new = ([a for a in part if axes._size[a] != 1] for part in (given[0], made[0]))
    while old and new:
        ones, others = [old.pop(0)], [new.pop(0)]
        left, right = axes._size[ones[0]], axes._size[others[0]]
        while left != right:
            shorter, rest = (ones, old) if left < right else (others, new)
            shorter.append(rest.pop(0))
            left, right = (
                left * (axes._size[ones[-1]] if shorter is ones else 1),
                right * (axes._size[others[-1]] if shorter is others else 1),
            )
        if len(ones) == len(others) == 1:
            axes.join(ones[0], others[0])


def _squeeze(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    gone = {dimension % len(given[0]) for dimension in params["dimensions"]}
    axes.join_all([axis for i, axis in enumerate(given[0]) if i not in gone], made[0])


def _transpose(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    axes.join_all([given[0][i] for i in params["permutation"]], made[0])


def _concatenate(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    for part in given:
        for i, (axis, own) in enumerate(zip(part, made[0], strict=True)):
            if i != params["dimension"] or len(given) == 1:
                axes.join(axis, own)


def _dot(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    (left_inner, right_inner), (left_batch, right_batch) = params["dimension_numbers"]
    left, right = given
    for i, j in [*zip(left_inner, right_inner, strict=True), *zip(left_batch, right_batch, strict=True)]:
        axes.join(left[i], right[j])
    free = [left[i] for i in left_batch]
    free += [axis for i, axis in enumerate(left) if i not in (*left_inner, *left_batch)]
    free += [axis for j, axis in enumerate(right) if j not in (*right_inner, *right_batch)]
    axes.join_all(free, made[0])


def _triangular(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    matrix, side = given
    inner = side[-2 if params["left_side"] else -1]
    axes.join_all(matrix[:-2], side[:-2])
    axes.join(matrix[-2], inner)
    axes.join(matrix[-1], inner)
    axes.join_all(side, made[0])


def _gather(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    """Of what is looked up the axes taken whole, and those of the indices."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    operand, indices = given[:2]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [i for i in range(len(operand)) if i not in gone]
    for i, position in zip(kept, numbers.offset_dims, strict=True):
        if sizes[i] == axes._size[operand[i]]:
            axes.join(operand[i], made[0][position])
    if (places := _places(indices)) is not None and len(numbers.start_index_map) == 1:
        axes.join(operand[numbers.start_index_map[0]], places)
    others = [axis for position, axis in enumerate(made[0]) if position not in numbers.offset_dims]
    axes.join_all(indices[:-1], others)


def _scatter(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    axes.join_all(given[0], made[0])


def _scan(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    inner = params["jaxpr"].jaxpr
    # what goes in and out row by row has an axis less within
    carried = sum(len(own) == len(_shape(out)) for own, out in zip(made, inner.outvars, strict=True))
    first = sum(len(part) == len(_shape(atom)) for part, atom in zip(given, inner.invars, strict=True))
    carry, rows = given[first - carried : first], given[first:]
    found = axes.walk(inner, [*given[:first], *(row[1:] for row in rows)])
    for start, end, own in zip(carry, found[:carried], made[:carried], strict=True):
        axes.join_all(start, end)
        axes.join_all(start, own)
    turns = [row[0] for row in rows] + [row[0] for row in made[carried:]]
    for one, other in itertools.pairwise(turns):
        axes.join(one, other)
    for end, own in zip(found[carried:], made[carried:], strict=True):
        axes.join_all(end, own[1:])


def _while(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    first, consts = params["cond_nconsts"], params["body_nconsts"]
    carry = given[first + consts :]
    found = axes.walk(params["body_jaxpr"].jaxpr, given[first:])
    for start, end, own in zip(carry, found, made, strict=True):
        axes.join_all(start, end)
        axes.join_all(start, own)


def _cond(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    for branch in params["branches"]:
        for found, own in zip(axes.walk(branch.jaxpr, given[1:]), made, strict=True):
            axes.join_all(found, own)


def _nothing(axes: Axes, params: dict, given: list[list[Axis]], made: list[ArrayAxes]) -> None:
    pass


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"), _reduce
    ),
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "dot_general": _dot,
    "triangular_solve": _triangular,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"), _scatter),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    **dict.fromkeys(("iota", "random_bits", "random_wrap", "random_unwrap", "conv_general_dilated"), _nothing),
}  # fmt: skip


def joined_axes(
    function: Callable, arguments: dict[str, Any], counted: dict[str, int]
) -> tuple[Axes, dict[str, Any], Any, dict[str, Axis]]:
    """The axes of a function's arguments and results, in their places, joined where the function joins them.

    Arguments that are ``counted`` are whole numbers below those given; the axes that they count along are the last result.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(arguments)
    axes = Axes()
    along = {name: axes.new([number])[0] for name, number in counted.items()}
    given = []
    for path, leaf in jax.tree.leaves_with_path(arguments):
        given.append(axes.new(jax.numpy.shape(leaf)))
        given[-1].places = along.get(path[0].key)
    found = axes.walk(traced.jaxpr, given)
    return axes, _in_place(arguments, given), _in_place(shapes, found), along


def _in_place(tree: Any, axes: Sequence[list[Axis]]) -> Any:
    return jax.tree.unflatten(jax.tree.structure(tree), [tuple(part) for part in axes])
