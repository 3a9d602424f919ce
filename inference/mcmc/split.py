"""A Gibbs iteration in three programs, so that threads can share out the topic sweep of a large corpus.

The first draws all other sites, the second, run by each thread for its shards, new topics of their words, the third what
follows from the topics. Several processes sweep their own shards each, and tell each other the topics; the first and the
third are run by all. A small corpus has one shard, and all its iterations are one program (:mod:`.chains`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import Gibbs
from numpyro.infer.gibbs import GIBBS_SITES_KWARG

from topiczoo.corpora.layouts import PaddedBatches

from ..blocks.topics import TopicBlock
from ..gpu.choosing import sweep_tokens
from ..kernels import sharding
from ..kernels.assignments import Assignments
from ..kernels.sharding import by_threads, own_shards
from ..kernels.sweep import Given, Swept, limits, own_topics, sweep_shards
from ..programs.compiling import jitted
from ..programs.processes import gathered
from ..story.sweeping import given
from ..story.tracing import traced


class SplitGibbs:
    """NumPyro's composite kernel, whose last block is a topic sweep, for so many chains side by side."""

    def __init__(self, kernel: Gibbs, num_chains: int, at_once: bool = False) -> None:
        """``at_once``: the sweep shares its work out to threads by itself."""
        self.kernel, self.workers, self.at_once = kernel, max(1, sharding.WORKERS // num_chains), at_once

    def init(self, *arguments: Any) -> Any:
        return self.kernel.init(*arguments)

    def program(self, steps: int, thinning: int, unstored: Any, fields: Any, state: Any, data: tuple) -> Callable:
        """A function from a chain's state to its state so many steps later, the draws and the fields of its states.

        Topics of all words are large: programs give back what they have changed and nothing besides.
        """
        corpus, _ = data
        topics: TopicBlock = self.kernel._kernels[-1]
        others = jitted(traced(self._before_sweep)).lower(state, data)
        _, told = others.out_info
        own, between = own_shards(corpus.batches), None if self.at_once else (np.int32(0), np.int32(0))
        sweep = jitted(traced(partial(_sweep, topics))).lower(between, told, own_topics(state.z["z"]), own)
        swept = jax.eval_shape(traced(partial(_sweep, topics)), between, told, state.z["z"], corpus.batches)
        last = jitted(traced(partial(self._after_sweep, unstored, fields))).lower(state, swept, data)
        number, most = len(corpus.batches.terms), limits(corpus.batches, told.weights)
        with ThreadPoolExecutor() as threads:  # the compiler works on one core
            draw_others, shards, finish = threads.map(lambda lowered: lowered.compile(), (others, sweep, last))

        def run(state: Any, data: tuple) -> tuple[Any, dict, dict]:
            kept, own = [], own_shards(data[0].batches)
            for step in range(steps):
                new, told = draw_others(state, data)
                state = self._whole(new, state.block_states[-1])
                z = own_topics(state.z["z"])
                if self.at_once:
                    found = shards(None, told, z, own)
                else:
                    found = by_threads(shards, own, told, z, own, workers=self.workers)
                swept = Swept(*map(jnp.asarray, gathered(found, number, most)))
                state, *drawn = finish(state, swept, data)
                last = state.block_states[-1]
                state = self._whole(state, last._replace(z={**last.z, "z": last.z["z"]._replace(topics=swept.topics)}))
                if (step + 1) % thinning == 0:
                    kept.append(jax.tree.map(np.asarray, drawn))
            draws, found = jax.tree.map(lambda *parts: np.stack(parts), *kept)
            return state, draws, found

        return run

    def _whole(self, state: Any, topics: Any) -> Any:
        """A state of all blocks, that of the topics the last."""
        states = (*state.block_states[: len(self.kernel._kernels) - 1], topics)
        return state._replace(z=self.kernel._merge_z(states), block_states=states)

    def _before_sweep(self, state: Any, data: tuple) -> tuple[Any, Given]:
        """What :meth:`_draw_others` gives, without topics and what is drawn with them."""
        state, told = self._draw_others(state, data)
        topics = self.kernel._kernels[-1]
        if topics.supervised:
            documents, y, values = told.context
            told = told._replace(context=(documents, y, {n: v for n, v in values.items() if n not in topics.sites}))
        else:
            told = told._replace(context=None)
        return state._replace(z={}, block_states=state.block_states[:-1]), told

    def _after_sweep(self, unstored: Any, fields: Any, state: Any, swept: Swept, data: tuple) -> tuple[Any, dict, dict]:
        """What :meth:`_finish` gives, each site once, and without the topics that it was given."""
        state, *drawn = self._finish(unstored, fields, state, swept, data)
        *others, last = state.block_states
        last = last._replace(z={**last.z, "z": last.z["z"]._replace(topics=None)})
        return state._replace(z={}, block_states=(*others, last)), *drawn

    def _with(self, kernels: Any) -> Gibbs:
        kernel = copy.copy(self.kernel)
        kernel._kernels = tuple(kernels)
        return kernel

    def _draw_others(self, state: Any, data: tuple) -> tuple[Any, Given]:
        """An iteration without the topics, which are told what they will be drawn given."""
        *others, topics = self.kernel._kernels
        told: list[Given] = []

        def record(own: Any, args: tuple, kwargs: dict) -> Any:
            _, key = jax.random.split(own.rng_key)  # as the block itself will split it
            sweep_key, _ = jax.random.split(key)
            values = {**kwargs[GIBBS_SITES_KWARG], **own.z}
            corpus, y = args
            told.append(given(sweep_key, topics.graph, corpus, y, values, topics.collapsed))
            return own

        waiting = copy.copy(topics)
        waiting.sample = record
        return self._with([*others, waiting])._sample_one(state, data, {}), told[0]

    def _finish(self, unstored: Any, fields: Any, state: Any, swept: Swept, data: tuple) -> tuple[Any, dict, dict]:
        """An iteration of the topics alone, the sweep behind them; the sites that are stored, and fields of the state."""
        *others, topics = self.kernel._kernels
        topics = copy.copy(topics)
        topics.swept = swept
        state = self._with([*map(_held, others), topics])._sample_one(state, data, {})
        sites = self.kernel.postprocess_fn(data, {})(state.z)
        kept = {name: value for name, value in sites.items() if name not in unstored}
        return state, kept, {name: reduce(_part, name.split("."), state) for name in fields}


def _sweep(topics: TopicBlock, between: Any, told: Given, z: Assignments, batches: PaddedBatches) -> Swept:
    if between is None:
        by_kernel = not topics.no_kernel
        return sweep_tokens(topics.supervision, topics.collapsed, told, z, batches, by_kernel=by_kernel)
    return sweep_shards(topics.supervision, topics.collapsed, told, z, batches, between)


def _held(kernel: Any) -> Any:
    kernel = copy.copy(kernel)
    kernel.sample = lambda state, args, kwargs: state
    return kernel


def _part(state: Any, name: str) -> Any:
    """A field of a state, by its name or number."""
    if name.isdigit():
        return state[int(name)]
    return state[name] if isinstance(state, dict) else getattr(state, name)
