"""The state of a run, a PyTree, as arrays for a file; the same state again, to the last bit, in the shape of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .sealed import Damaged

Kinds = list[str]
PLAIN: dict[str, type] = {"bool": bool, "int": int, "float": float}
KEY, JAX, SCALAR, ARRAY = "key", "jax", "scalar", "numpy"


def flat(tree: Any) -> tuple[dict[str, np.ndarray], Kinds]:
    """The leaves in their order, and what kind of thing each was."""
    leaves = jax.tree.leaves(tree)
    arrays = jax.device_get([_bare(leaf) for leaf in leaves])
    return {str(place): np.asarray(array) for place, array in enumerate(arrays)}, [kind_of(leaf) for leaf in leaves]


def kind_of(leaf: Any) -> str:
    if isinstance(leaf, jax.Array):
        return f"{KEY} {jax.random.key_impl(leaf)}" if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else JAX
    if isinstance(leaf, np.ndarray):
        return ARRAY
    if isinstance(leaf, np.generic):
        return SCALAR
    if type(leaf) in PLAIN.values():
        return type(leaf).__name__
    raise TypeError(f"the state of the run holds a {type(leaf).__name__}, which no checkpoint can hold")


def _bare(leaf: Any) -> Any:
    """A key as its numbers."""
    return jax.random.key_data(leaf) if kind_of(leaf).startswith(KEY) else leaf


def in_shape_of(like: Any, arrays: Mapping[str, np.ndarray], kinds: Kinds) -> Any:
    """The tree that was flattened, given one with the same structure, whose leaves have the same shapes."""
    leaves, structure = jax.tree.flatten(like)
    if len(leaves) != len(kinds):
        raise Damaged(f"it holds {len(kinds)} arrays of a state that has {len(leaves)}")
    found = [_leaf(arrays[str(place)], kind) for place, kind in enumerate(kinds)]
    for new, old in zip(found, leaves, strict=True):
        if np.shape(new) != np.shape(old):
            raise Damaged(f"it holds an array of the shape {np.shape(new)} where the state has one of {np.shape(old)}")
    return jax.tree.unflatten(structure, found)


def _leaf(array: np.ndarray, kind: str) -> Any:
    if kind.startswith(KEY):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=kind.partition(" ")[2])
    if kind == JAX:
        return jnp.asarray(array)
    if kind == SCALAR:
        return array[()]
    return PLAIN[kind](array) if kind in PLAIN else array
