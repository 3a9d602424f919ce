"""The topic sweep as one kernel: a program for some documents side by side, all their topics in registers.

The law, the random numbers and the rule by which they choose a topic are those of :mod:`..kernels.sweep`: token n of document
d has two uniforms that follow from the key, d and n alone (threefry counters); the first picks the topic at which the
running sum of the words' factors passes it, the second accepts it by the response. So both give the same topics but where
a sum, rounded otherwise, falls on the other side of a uniform. A program reads a token of each of its documents, the row of
beta of each, and writes their topics; counts and predictors never leave it. Documents are laid out longest first, so that
those of a program end together and the longest programs start first. Chains are programs of the same launch, by ``vmap``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.assignments import Assignments
from ..kernels.sweep import Given, Supervision, Swept
from ..samplers.uniforms import shard_uniforms
from .numbers import CannotLower
from .responses import ResponseInKernel

LARGEST = 2**31  # places that a kernel can number
NUMBERS_OF_A_WARP = 512  # topics times documents: sixteen numbers a thread
MOST_DOCUMENTS = 32  # of a program


class Shape(NamedTuple):
    """How a program is cut."""

    documents: int  # of a program
    warps: int

    @classmethod
    def of(cls, num_topics: int, width: int) -> Shape:
        padded = _power_of_two(num_topics)
        documents = max(1, min(NUMBERS_OF_A_WARP // padded, MOST_DOCUMENTS, width))
        return cls(documents, 1)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def sweep_by_kernel(
    supervision: Supervision | None, collapsed: bool, given: Given, z: Assignments, batches: PaddedBatches,
    *, shape: Shape | None = None, interpret: bool = False,
) -> Swept:  # fmt: skip
    """A new topic for every token of the batches, as :func:`~..kernels.sweep.sweep_shards` draws it."""
    from jax.experimental import pallas as pl  # here: whoever has no GPU need not wait for it
    from jax.experimental.pallas import triton

    weights = given.weights
    (shards, positions, width), num_topics = batches.terms.shape, weights.term_topic.shape[1]
    if shards != 1:
        raise CannotLower("the corpus is dealt to several shards")
    if positions * width >= LARGEST or weights.term_topic.size >= LARGEST:
        raise CannotLower(f"the corpus or the topics have more than {LARGEST} places")
    shape = shape or Shape.of(num_topics, width)
    padded = _power_of_two(num_topics)
    start, depth, rows, lengths = (part[0] for part in (batches.start, batches.depth, batches.rows, batches.lengths))
    uniforms = shard_uniforms(given.keys[0], start, depth, rows, positions)
    response, numbers, arrays = None, [], []
    if supervision is None:
        uniforms = uniforms[:1]
    else:
        response = ResponseInKernel(supervision, weights, given.context)
        num_documents = z.document_topic.shape[0]
        numbers = response.numbers(num_documents)
        eta = jnp.concatenate([eta.reshape(num_topics, -1) for eta in weights.coefficients], 1)
        tokens = jnp.zeros(num_documents).at[rows].max(lengths.astype(jnp.float32))
        shares = z.document_topic / jnp.maximum(tokens, 1.0)[:, None]
        predictors = jnp.matmul(shares, eta, precision=lax.Precision.HIGHEST)
        arrays = [eta, predictors, *numbers]
    first = weights.labels.first if weights.labels is not None else None
    kernel = partial(
        _program, response=response, collapsed=collapsed, num_topics=num_topics, padded=padded, width=width,
        shape=shape, labelled=first is not None, one_prior=weights.proportions.shape[0] == 1,
    )  # fmt: skip
    lanes = rows.size
    out = (
        jax.ShapeDtypeStruct((positions * width,), jnp.int32),
        jax.ShapeDtypeStruct((lanes, num_topics), jnp.float32),
        jax.ShapeDtypeStruct((lanes,), jnp.float32),
    )
    topics, counts, proposed = pl.pallas_call(
        kernel, out_shape=out, grid=(lanes // shape.documents,), interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=shape.warps, num_stages=1), name="topic_sweep",
    )(
        start, rows.reshape(-1), lengths.reshape(-1), batches.terms.reshape(-1), z.topics.reshape(-1),
        jnp.pad(weights.term_topic, ((0, 0), (0, padded - num_topics))), weights.proportions, z.document_topic,
        *((first,) if first is not None else ()), *(uniform.reshape(-1) for uniform in uniforms), *arrays,
    )  # fmt: skip
    return Swept(
        topics.reshape(1, positions, width), counts.reshape(*lengths.shape, num_topics)[None],
        proposed.reshape(lengths.shape)[None],
    )  # fmt: skip


def _program(
    start_ref: Any, rows_ref: Any, lengths_ref: Any, terms_ref: Any, topics_ref: Any, beta_ref: Any, prior_ref: Any,
    counts_ref: Any, *refs: Any, response: ResponseInKernel | None, collapsed: bool, num_topics: int, padded: int,
    width: int, shape: Shape, labelled: bool, one_prior: bool,
) -> None:  # fmt: skip
    """The documents of some neighbouring lanes."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    *given, new_ref, new_counts_ref, proposed_ref = refs
    first_ref = given.pop(0) if labelled else None
    uniform_ref = given.pop(0)
    n = shape.documents
    lane = pl.program_id(0) * n + lax.broadcasted_iota(jnp.int32, (n,), 0)
    batch = (pl.program_id(0) * n) // width
    begin = start_ref[batch] * width + lane - batch * width
    row, length = rows_ref[lane], lengths_ref[lane]
    of_label = first_ref[row] if first_ref is not None else 0
    tokens = jnp.maximum(length, 1).astype(jnp.float32)
    topic = lax.broadcasted_iota(jnp.int32, (n, padded), 1)
    own = jnp.broadcast_to(row[:, None], (n, padded))
    real = topic < num_topics
    prior = triton.load(prior_ref.at[jnp.zeros_like(own) if one_prior else own, topic], mask=real, other=0.0)
    counts = triton.load(counts_ref.at[own, topic], mask=real & (length > 0)[:, None], other=0.0)
    predictors: tuple[jax.Array, ...] = ()
    numbers: list[list[jax.Array]] = []
    log_response = jnp.zeros((n,), jnp.float32)
    if response is not None:
        accepting_ref, eta_ref, predictors_ref, *numbers_refs = given
        predictors = tuple(predictors_ref[row, jnp.full((n,), c)] for c in range(predictors_ref.shape[1]))
        numbers = [[ref[row, jnp.full((n,), c)] for c in range(ref.shape[1])] for ref in numbers_refs]
        log_response = response(numbers, predictors)

    def one_token(i: jax.Array, carry: tuple) -> tuple:
        counts, proposed, predictors, here = carry
        place, present = begin + i * width, i < length
        term, old, uniform = terms_ref[place] + of_label, topics_ref[place], uniform_ref[place]
        term = jnp.where(present, term, 0)
        beta = beta_ref[jnp.broadcast_to(term[:, None], (n, padded)), topic]
        without = counts - jnp.where((topic == old[:, None]) & present[:, None], 1.0, 0.0)
        running = jnp.cumsum(beta * (without + prior if collapsed else prior), 1)
        target = uniform * jnp.max(running, 1)
        new = jnp.sum((running <= target[:, None]).astype(jnp.int32), 1)
        new = jnp.where(present, jnp.minimum(new, num_topics - 1), old)
        proposed = proposed + (new != old).astype(jnp.float32)
        if response is not None:
            moved = tuple(
                predictor + (eta_ref[new, jnp.full((n,), c)] - eta_ref[old, jnp.full((n,), c)]) / tokens
                for c, predictor in enumerate(predictors)
            )
            there = response(numbers, moved)
            accepted = (there > here + jnp.log(accepting_ref[place])) | (here == -jnp.inf)
            new, here = jnp.where(accepted, new, old), jnp.where(accepted, there, here)
            predictors = tuple(jnp.where(accepted, *both) for both in zip(moved, predictors, strict=True))
        new_ref[place] = new
        counts = without + jnp.where((topic == new[:, None]) & present[:, None], 1.0, 0.0)
        return counts, proposed, predictors, here

    begin_with = counts, jnp.zeros((n,), jnp.float32), predictors, log_response
    counts, proposed, _, _ = lax.fori_loop(0, jnp.max(length), one_token, begin_with)
    place = jnp.broadcast_to(lane[:, None], (n, padded))
    triton.store(new_counts_ref.at[place, topic], counts, mask=real)
    proposed_ref[lane] = proposed
