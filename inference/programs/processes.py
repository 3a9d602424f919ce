"""Several processes that make one run: which parts of the work are whose, and what they tell each other.

Every process makes the same call on the same documents. What is shared out is found by one process each and told to all
others, by JAX's own collectives; all else is computed by every process, and is the same in all. So draws do not depend on
how many processes there are. A process alone shares nothing out and tells nobody.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


class ProcessGone(RuntimeError):
    """Another process of the run has ended, or cannot be reached."""


def is_first() -> bool:
    """Whether this process is the one that writes files and moves the bar."""
    return jax.process_index() == 0


def own(parts: Any) -> Any:
    """Of an array of parts, a multiple of the number of processes, those of this process; all where there are too few."""
    each, left = divmod(len(parts), jax.process_count())
    return parts if left or each == len(parts) else parts[each * jax.process_index() : each * (jax.process_index() + 1)]


def gathered(parts: Any, number: int, most: Any = None) -> Any:
    """What all processes have found of ``number`` parts, in their order along the first axis, from what each has of its own.

    ``most``: whole numbers in ``parts`` are not below 0 and not above this, for each array; they travel in few bytes.
    """
    if jax.process_count() == 1 or number % jax.process_count():
        return parts
    leaves, tree = jax.tree.flatten(parts)
    own = list(map(np.asarray, leaves))
    limits = [None] * len(own) if most is None else jax.tree.leaves(most, is_leaf=lambda part: part is None)
    types = [
        part.dtype if limit is None else np.min_scalar_type(limit) for part, limit in zip(own, limits, strict=True)
    ]
    small = [part.astype(kind, copy=False) for part, kind in zip(own, types, strict=True)]
    # in one piece: each message takes its time
    told = _all_gather(np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in small])[None])
    ends = np.cumsum([part.nbytes for part in small])[:-1]
    found = [
        np.ascontiguousarray(piece).view(narrow.dtype).reshape(-1, *part.shape[1:]).astype(part.dtype, copy=False)
        for piece, narrow, part in zip(np.split(told, ends, axis=1), small, own, strict=True)
    ]
    return jax.tree.unflatten(tree, found)


def total(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers of all processes added up: exact, in whatever order."""
    if jax.process_count() == 1:
        return numbers
    return _all_gather(np.asarray(numbers)[None]).sum(0, dtype=numbers.dtype)


def largest(number: int) -> int:
    """The largest of the numbers that processes have."""
    return number if jax.process_count() == 1 else int(_all_gather(np.array([number])).max())


def agree(told: Any, sentence: str) -> None:
    """Refuse with the sentence where processes have not been told the same."""
    if jax.process_count() > 1:
        here = zlib.crc32(repr(told).encode())
        if np.ptp(_all_gather(np.array([here], np.uint32)).astype(np.int64)):
            raise ValueError(sentence)


def _all_gather(array: np.ndarray) -> np.ndarray:
    try:
        return multihost_utils.process_allgather(array, tiled=True)
    except (ValueError, RuntimeError) as error:
        raise ProcessGone(
            f"Another of the {jax.process_count()} processes has ended or cannot be reached "
            f"({str(error).splitlines()[0][:200]}); start all of them again: with checkpoint= they go on from the last one."
        ) from error
