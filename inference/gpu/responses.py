"""A response as the kernel computes it: what does not follow from the predictors is computed before, once a document.

A :class:`~..kernels.sweep.Supervision` is traced for one document. Steps that the predictors enter are the kernel's, number
by number (:mod:`.numbers`); all others, such as log Gamma(y + 1) of a count, are computed outside for all documents, and
what the kernel's steps read of them is handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..kernels.sweep import Supervision, Weights
from .numbers import CannotLower, Equation, Name, by_numbers, evaluated, flattened

MOST_READ = 512  # numbers of a document that its response may read


class ResponseInKernel:
    """log p(what follows from the topics of a document) as a function of its predictors, for a kernel."""

    def __init__(self, supervision: Supervision, weights: Weights, context: Any) -> None:
        if not supervision.linear:
            raise CannotLower("the response reads more of the topics' shares than products with coefficients")
        self.shapes = [eta.shape[1:] for eta in weights.coefficients]
        leaves, tree = jax.tree.flatten(context)

        def of_one(row: jax.Array, leaves: Sequence[jax.Array], predictors: Sequence[jax.Array]) -> jax.Array:
            own = supervision.take(jax.tree.unflatten(tree, leaves), row[None])
            return supervision(own, [predictor[None] for predictor in predictors], None)[0]

        self.leaves = leaves
        predictors = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.shapes]
        names, steps, (self.result,) = flattened(
            jax.make_jaxpr(of_one)(jnp.int32(0), [jnp.asarray(leaf) for leaf in leaves], predictors)
        )
        self.outside, self.predictors = names[: 1 + len(leaves)], names[1 + len(leaves) :]
        self.before, self.inside = _parted(steps, self.predictors)
        made = {id(one) for step in self.inside for one in step.outputs} | {id(one) for one in self.predictors}
        read = [one for step in self.inside for one in step.inputs] + [self.result]
        self.read: list[Name] = []
        for one in read:
            if isinstance(one, Name) and id(one) not in made and one not in self.read:
                self.read.append(one)
        sizes = [int(np.prod(one.shape)) for one in self.read]
        if sum(sizes) > MOST_READ:
            raise CannotLower(f"the response reads {sum(sizes)} numbers of each document, more than {MOST_READ}")

    def numbers(self, num_documents: int) -> list[jax.Array]:
        """What the kernel's steps read, each [documents, numbers]."""

        def of_one(row: jax.Array) -> list[jax.Array]:
            values: dict[Name, Any] = dict(zip(self.outside, [row, *self.leaves], strict=True))
            evaluated(self.before, values)
            return [jnp.asarray(values[one]).reshape(-1) for one in self.read]

        found = jax.vmap(of_one)(jnp.arange(num_documents))
        return [part.astype(jnp.int32) if part.dtype == bool else part for part in found]

    def __call__(self, numbers: Sequence[Sequence[jax.Array]], predictors: Sequence[jax.Array]) -> jax.Array:
        """The log-density, where ``numbers`` and ``predictors`` are vectors with one number a document."""
        width = predictors[0].shape

        def constant(value: Any, dtype: Any) -> jax.Array:
            return jnp.full(width, value, dtype)

        values: dict[Name, np.ndarray] = {}
        for one, own in zip(self.read, numbers, strict=True):
            values[one] = _array([part != 0 if one.dtype == bool else part for part in own], one.shape)
        place = 0
        for one in self.predictors:
            size = int(np.prod(one.shape))
            values[one] = _array(predictors[place : place + size], one.shape)
            place += size
        by_numbers(self.inside, values, constant)
        found: Any = values[self.result][()] if isinstance(self.result, Name) else constant(self.result, jnp.float32)
        return found


def _parted(steps: Sequence[Equation], predictors: Sequence[Name]) -> tuple[list[Equation], list[Equation]]:
    """The steps that the predictors do not enter, and those that they enter."""
    after = {id(one) for one in predictors}
    before, inside = [], []
    for step in steps:
        if any(id(one) in after for one in step.inputs):
            after |= {id(one) for one in step.outputs}
            inside.append(step)
        else:
            before.append(step)
    return before, inside


def _array(numbers: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    found = np.empty(len(numbers), object)
    for place, number in enumerate(numbers):
        found[place] = number
    return found.reshape(shape)
