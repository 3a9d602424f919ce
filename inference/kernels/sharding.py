"""Work shared out to threads, with the same result to the last bit however many threads or devices there are.

XLA runs the small steps of a sampler on one core, so threads run programs side by side: a chain, a posterior draw, or some
shards of a corpus each. A program is compiled once, for one device, and what it computes does not depend on who else runs it
or how the work is shared out. (Programs for several devices would not do: XLA simplifies, and so rounds, them otherwise than
programs for one.) The number of shards follows from the corpus alone (:mod:`topiczoo.corpora.layouts`), and what they leave
is put together in their order before anything is summed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import PaddedBatches

from ..programs.processes import own

WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_compiled: WeakKeyDictionary[Any, set] = WeakKeyDictionary()  # programs, and the shapes of arguments they have run with


def over_shards(one_shard: Callable, shards: tuple, shared: tuple, between: Any = None) -> Any:
    """``one_shard(shard, *shared)`` for every shard, one after the other, stacked.

    ``between`` two numbers of shards: only for those from the first to before the second, and 0 for all others.
    """
    if between is None:
        return jax.lax.map(lambda shard: one_shard(shard, *shared), shards)
    out = jax.eval_shape(one_shard, jax.tree.map(lambda leaf: leaf[0], shards), *shared)
    room = jax.tree.map(lambda leaf: jnp.zeros((len(shards[0]), *leaf.shape), leaf.dtype), out)

    def turn(i: jax.Array, room: Any) -> Any:
        found = one_shard(jax.tree.map(lambda leaf: leaf[i], shards), *shared)
        return jax.tree.map(lambda whole, part: whole.at[i].set(part), room, found)

    first, last = between
    return jax.lax.fori_loop(first, last, turn, room)


def own_shards(batches: PaddedBatches) -> PaddedBatches:
    """Of the batches those that this process sweeps."""
    parts = ("terms", "start", "depth", "rows", "lengths")
    return batches._replace(**{name: own(getattr(batches, name)) for name in parts})


def by_threads(
    program: Callable, batches: PaddedBatches, *arguments: Any, workers: int | None = None, **static: Any
) -> Any:
    """What a compiled ``program(between, *arguments)`` gives of all shards of some documents, shared out to threads."""
    number = len(batches.terms)
    parts = list(pairwise(np.linspace(0, number, min(number, workers or WORKERS) + 1).astype(np.int32)))
    kept = arguments, tuple(map(hash, static.values()))
    found = side_by_side(lambda part: program(part, *arguments, **static), parts, program, kept)
    # NumPy's arrays in any case: it sums otherwise than XLA
    return jax.tree.map(
        lambda *leaves: np.concatenate([np.asarray(leaf)[a:b] for leaf, (a, b) in zip(leaves, parts, strict=True)]),
        *found,
    )


def side_by_side(function: Callable, parts: Iterable[Any], program: Any, arguments: Any) -> list[Any]:
    """``function`` of each part, by threads. What a program has to be compiled for is run by one thread first."""
    parts = list(parts)
    shapes = [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(arguments)]
    known = jax.tree.structure(arguments), *shapes
    if len(parts) == 1 or known not in _compiled.get(program, ()):
        first = jax.block_until_ready(function(parts[0]))
        _compiled.setdefault(program, set()).add(known)
        return [first, *(side_by_side(function, parts[1:], program, arguments) if len(parts) > 1 else ())]
    with ThreadPoolExecutor(min(len(parts), WORKERS)) as threads:
        return list(threads.map(lambda part: jax.block_until_ready(function(part)), parts))
