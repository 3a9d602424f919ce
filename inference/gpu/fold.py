"""Topics of documents outside the fit by kernels of a GPU: their expected counts, and draws that start from these.

The steps are those of :mod:`..kernels.soft_sweep`, with the same random numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.assignments import Assignments
from ..kernels.soft_sweep import LEAST, LONGER, TINY
from ..kernels.sweep import Given, Weights
from .sweep import Launch, power_of_two, soft_sweep_by_kernel, sweep_by_kernel


def soft_sweeps_by_kernel(
    key: jax.Array, counts: jax.Array, batches: PaddedBatches, weights: Weights, exact: int, *, interpret: bool = False
) -> tuple[jax.Array, jax.Array]:
    """A draw of all topics from the expected counts: one soft sweep and so many exact ones; and their counts."""
    first, *others = jax.random.split(key, 1 + exact)
    swept = soft_sweep_by_kernel(first, counts, batches, weights, interpret=interpret)
    for one in others:
        z = Assignments(swept.topics, swept.counts.reshape(-1, swept.counts.shape[-1])[batches.lane])
        swept = sweep_by_kernel(None, True, Given((one, one), weights, None), z, batches, interpret=interpret)
    return swept.topics, swept.counts.reshape(-1, swept.counts.shape[-1])[batches.lane]


def expected_counts_by_kernel(
    counts: jax.Array, batches: PaddedBatches, weights: Weights, iterations: int, *, interpret: bool = False
) -> jax.Array:
    """E[n_dk | w, beta] to a good approximation, from counts to start with, in the lanes of the documents."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    launch = Launch(weights, batches, None, interpret)
    num_topics, padded = launch.num_topics, power_of_two(launch.num_topics)
    start, rows, lengths = batches.start[0], batches.rows[0], batches.lengths[0]
    first = [] if weights.labels is None else [weights.labels.first]
    program = partial(
        _program, iterations=iterations, num_topics=num_topics, padded=padded, width=rows.shape[1],
        documents=launch.shape.documents, labelled=bool(first), one_prior=weights.proportions.shape[0] == 1,
    )  # fmt: skip
    found = pl.pallas_call(
        program, out_shape=jax.ShapeDtypeStruct((rows.size, num_topics), jnp.float32),
        grid=(rows.size // launch.shape.documents,), interpret=interpret, name="expected_counts",
        compiler_params=triton.CompilerParams(num_warps=launch.shape.warps, num_stages=1),
    )(
        start, rows.reshape(-1), lengths.reshape(-1), batches.terms.reshape(-1),
        jnp.pad(weights.term_topic, ((0, 0), (0, padded - num_topics))), weights.proportions, counts, *first,
    )  # fmt: skip
    return found.reshape(1, *rows.shape, num_topics)


def _program(
    start_ref: Any, rows_ref: Any, lengths_ref: Any, terms_ref: Any, beta_ref: Any, prior_ref: Any, counts_ref: Any,
    *refs: Any, iterations: int, num_topics: int, padded: int, width: int, documents: int, labelled: bool,
    one_prior: bool,
) -> None:  # fmt: skip
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    *given, found_ref = refs
    n = documents
    lane = pl.program_id(0) * n + lax.broadcasted_iota(jnp.int32, (n,), 0)
    batch = (pl.program_id(0) * n) // width
    begin = start_ref[batch] * width + lane - batch * width
    row, length = rows_ref[lane], lengths_ref[lane]
    of_label = given[0][row] if labelled else 0
    topic = lax.broadcasted_iota(jnp.int32, (n, padded), 1)
    own, real = jnp.broadcast_to(row[:, None], (n, padded)), topic < num_topics
    prior = triton.load(prior_ref.at[jnp.zeros_like(own) if one_prior else own, topic], mask=real, other=0.0)
    counts = triton.load(counts_ref.at[own, topic], mask=real, other=0.0)
    deepest = jnp.max(length)

    def once(_: jax.Array, counts: jax.Array) -> jax.Array:
        every = counts + prior

        def one_token(i: jax.Array, total: jax.Array) -> jax.Array:
            present = i < length
            term = jnp.where(present, terms_ref[begin + i * width] + of_label, 0)
            weight = beta_ref[jnp.broadcast_to(term[:, None], (n, padded)), topic] * every
            part = jnp.where(present, 1.0, 0.0) / jnp.maximum(jnp.sum(weight, 1), TINY)
            return total + weight * part[:, None]

        step = lax.fori_loop(0, deepest, one_token, jnp.zeros((n, padded), jnp.float32))
        ratio = jnp.clip((step + LEAST) / (counts + LEAST), 0.01, 100.0)
        longer = counts * jnp.exp(LONGER * jnp.log(ratio))
        return longer * (length.astype(jnp.float32) / jnp.maximum(jnp.sum(longer, 1), TINY))[:, None]

    counts = lax.fori_loop(0, iterations, once, counts)
    triton.store(found_ref.at[jnp.broadcast_to(lane[:, None], (n, padded)), topic], counts, mask=real)
