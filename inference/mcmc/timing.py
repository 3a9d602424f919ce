"""How long a sweep takes, compiling left out."""

from __future__ import annotations

import time

import jax

from ..programs.compiling import jitted
from ..story.bound import BoundGraph
from ..story.tracing import Data, traced
from .plan import choose_blocks


def seconds_of_a_sweep(graph: BoundGraph, warmup: int, timed: int) -> float:
    """CPU seconds of one sweep of one chain, the mean of so many after a warm-up."""
    kernel = choose_blocks(graph).kernel()
    documents = graph.documents(pairs=not graph.has_words, batches=graph.has_words)
    data: tuple = tuple(Data(documents, graph.response.on_device()))
    state = jitted(traced(lambda data: kernel.init(jax.random.key(0), warmup, None, data, {})))(data)
    step = jitted(traced(lambda state, data: kernel.sample(state, data, {})))
    for _ in range(warmup):
        state = step(state, data)
    jax.block_until_ready(state)
    began = time.process_time()
    for _ in range(timed):
        state = step(state, data)
    jax.block_until_ready(state)
    return (time.process_time() - began) / timed
