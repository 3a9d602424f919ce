"""The topic sweep as one kernel: a program for some documents side by side, all their topics in registers.

The law, the random numbers and the rule by which they choose a topic are those of :mod:`..kernels.sweep`: token n of
document d has two uniforms that follow from the key, d and n alone (threefry counters); the first picks the topic at which
the running sum of the words' factors passes it, the second accepts it by the response. So both give the same topics but
where a sum, rounded otherwise, falls on the other side of a uniform.

A program reads a token of each of its documents, the row of beta of each, and writes their topics; counts and predictors
never leave it. Documents are laid out longest first, so that those of a program end together and the longest programs start
first. Chains are programs of the same launch, by ``vmap``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from topiczoo.corpora.layouts import PaddedBatches

from ..kernels.assignments import Assignments
from ..kernels.sweep import Given, Supervision, Swept, Weights
from ..samplers.uniforms import shard_uniforms, tokens_of_positions
from .numbers import CannotLower
from .responses import ResponseInKernel

LARGEST = 2**31  # places that a kernel can number
NUMBERS = 512  # topics times documents that a warp holds, sixteen a thread
MANY_TOPICS = 128  # from so many on half of that is faster
MOST_TOPICS = 1024  # of one warp
PROGRAMS = (
    4096  # that a GPU shall have before documents share one: few are better apart, the longest is then done sooner
)


class Shape(NamedTuple):
    """How a program is cut. Measured on an H200 with 5,000 to 200,000 documents and 50 to 1,000 topics."""

    documents: int  # of a program
    warps: int
    ahead: bool = True  # whether the next token is read while this one's topic is drawn

    @classmethod
    def of(cls, num_topics: int, width: int, lanes: int) -> Shape:
        padded = power_of_two(num_topics)
        if padded >= MANY_TOPICS:
            return cls(max(1, min(NUMBERS // 2 // padded, width)), max(1, padded // MOST_TOPICS))
        documents = min(2 * NUMBERS // padded, width, max(2, power_of_two(lanes // PROGRAMS + 1) // 2))
        return cls(documents, 2 if documents * padded > NUMBERS else 1)


def power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def sweep_by_kernel(
    supervision: Supervision | None, collapsed: bool, given: Given, z: Assignments, batches: PaddedBatches,
    *, shape: Shape | None = None, interpret: bool = False,
) -> Swept:  # fmt: skip
    """A new topic for every token of the batches, as :func:`~..kernels.sweep.sweep_shards` draws it."""
    response, arrays, of_lanes = None, [], z.document_topic is None
    num_topics = given.weights.term_topic.shape[1]
    counts = lane_counts(z.topics, batches, num_topics) if of_lanes else z.document_topic
    if supervision is not None:
        weights = given.weights
        response = ResponseInKernel(supervision, weights, given.context)
        eta = jnp.concatenate([eta.reshape(num_topics, -1) for eta in weights.coefficients], 1)
        tokens = jnp.maximum(counts.sum(1, keepdims=True), 1.0)
        predictors = jnp.matmul(counts / tokens, eta, precision=lax.Precision.HIGHEST)
        num_documents = given.context[0].num_documents if of_lanes else len(counts)
        arrays = [eta, predictors, *response.numbers(num_documents)]
    launch = Launch(given.weights, batches, shape, interpret)
    key, _ = given.keys
    return launch(key, z.topics, counts, arrays, response=response, collapsed=collapsed, soft=False, of_lanes=of_lanes)


def lane_counts(topics: jax.Array, batches: PaddedBatches, num_topics: int) -> jax.Array:
    """Counts of the topics of each lane, [lanes, topics], where nobody has counted those of documents."""
    start, depth, lengths = (part[0] for part in (batches.start, batches.depth, batches.lengths))
    lanes = jnp.arange(lengths.size, dtype=jnp.int32).reshape(lengths.shape)
    lane, token = tokens_of_positions(start, depth, lanes, topics.shape[1])
    inside = (token < lengths.reshape(-1)[lane]).astype(jnp.float32)
    return jnp.zeros((lengths.size, num_topics)).at[lane, topics[0]].add(inside)


def soft_sweep_by_kernel(
    key: jax.Array, counts: jax.Array, batches: PaddedBatches, weights: Weights, *, interpret: bool = False
) -> Swept:
    """Topics drawn anew, tokens still to come present by their share of expected counts: see :mod:`..kernels.soft_sweep`."""
    launch = Launch(weights, batches, None, interpret)
    nothing = jnp.zeros_like(batches.terms)
    return launch(key, nothing, counts, [], response=None, collapsed=True, soft=True)


class Launch:
    """A kernel with a program for every few documents of some batches."""

    def __init__(self, weights: Weights, batches: PaddedBatches, shape: Shape | None, interpret: bool) -> None:
        shards, positions, width = batches.terms.shape
        if shards != 1:
            raise CannotLower("the corpus is dealt to several shards")
        if positions * width >= LARGEST or weights.term_topic.size >= LARGEST:
            raise CannotLower(f"the corpus or the topics have more than {LARGEST} places")
        self.weights, self.batches, self.interpret = weights, batches, interpret
        self.num_topics = weights.term_topic.shape[1]
        self.shape = shape or Shape.of(self.num_topics, width, batches.rows.size)

    def __call__(
        self, key: jax.Array, topics: jax.Array, counts: jax.Array, arrays: list[jax.Array],
        *, response: ResponseInKernel | None, collapsed: bool, soft: bool, of_lanes: bool = False,
    ) -> Swept:  # fmt: skip
        """``of_lanes``: ``counts``, and predictors, are those of lanes and not of documents."""
        from jax.experimental import pallas as pl  # here: whoever has no GPU need not wait for it
        from jax.experimental.pallas import triton

        weights, batches, num_topics = self.weights, self.batches, self.num_topics
        (_, positions, width), padded = batches.terms.shape, power_of_two(num_topics)
        start, depth, rows, lengths = (
            part[0] for part in (batches.start, batches.depth, batches.rows, batches.lengths)
        )
        choosing, accepting = shard_uniforms(key, start, depth, rows, positions)
        uniforms = [choosing] if response is None else [choosing, jnp.log(accepting)]
        first = [] if weights.labels is None else [weights.labels.first]
        program = partial(
            _program, response=response, collapsed=collapsed, soft=soft, num_topics=num_topics, padded=padded,
            width=width, shape=self.shape, labelled=bool(first), of_lanes=of_lanes,
            one_prior=weights.proportions.shape[0] == 1,
        )  # fmt: skip
        out = (
            jax.ShapeDtypeStruct((positions * width,), jnp.int32),
            jax.ShapeDtypeStruct((rows.size, num_topics), jnp.float32),
            jax.ShapeDtypeStruct((rows.size,), jnp.float32),
        )
        found, new_counts, proposed = pl.pallas_call(
            program, out_shape=out, grid=(rows.size // self.shape.documents,), interpret=self.interpret,
            compiler_params=triton.CompilerParams(num_warps=self.shape.warps, num_stages=1), name="topic_sweep",
            input_output_aliases={4: 0},  # topics: where there is no token they stay
        )(
            start, rows.reshape(-1), lengths.reshape(-1), batches.terms.reshape(-1), topics.reshape(-1),
            jnp.pad(weights.term_topic, ((0, 0), (0, padded - num_topics))), weights.proportions, counts,
            *first, *(uniform.reshape(-1) for uniform in uniforms), *arrays,
        )  # fmt: skip
        return Swept(
            found.reshape(batches.terms.shape),
            new_counts.reshape(*batches.lengths.shape, num_topics),
            proposed.reshape(batches.lengths.shape),
        )


def _program(
    start_ref: Any, rows_ref: Any, lengths_ref: Any, terms_ref: Any, topics_ref: Any, beta_ref: Any, prior_ref: Any,
    counts_ref: Any, *refs: Any, response: ResponseInKernel | None, collapsed: bool, soft: bool, num_topics: int,
    padded: int, width: int, shape: Shape, labelled: bool, of_lanes: bool, one_prior: bool,
) -> None:  # fmt: skip
    """The documents of some neighbouring lanes."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    *given, new_ref, new_counts_ref, proposed_ref = refs
    first_ref = given.pop(0) if labelled else None
    uniform_ref, n = given.pop(0), shape.documents
    lane = pl.program_id(0) * n + lax.broadcasted_iota(jnp.int32, (n,), 0)
    batch = (pl.program_id(0) * n) // width
    row, length = rows_ref[lane], lengths_ref[lane]
    counted = lane if of_lanes else row
    deepest = jnp.max(length)  # behind the last batch there may be none: documents without words read the first
    begin = jnp.where(deepest > 0, start_ref[batch], 0) * width + lane - batch * width
    of_label = first_ref[row] if first_ref is not None else 0
    share = 1.0 / jnp.maximum(length, 1).astype(jnp.float32)  # of one token in its document
    topic = lax.broadcasted_iota(jnp.int32, (n, padded), 1)
    own, real = jnp.broadcast_to(row[:, None], (n, padded)), topic < num_topics
    prior = triton.load(prior_ref.at[jnp.zeros_like(own) if one_prior else own, topic], mask=real, other=0.0)
    sparse = jnp.max(jnp.where(real & (prior <= 0), 1, 0)) > 0  # whether there may be topics of no weight
    counted_here = jnp.broadcast_to(counted[:, None], (n, padded))
    counts = triton.load(counts_ref.at[counted_here, topic], mask=real & (length > 0)[:, None], other=0.0)
    expected = counts * share[:, None]  # of a token to come, where counts are expected ones
    predictors: tuple[jax.Array, ...] = ()
    numbers: list[list[jax.Array]] = []
    log_response = jnp.zeros((n,), jnp.float32)
    if response is not None:
        accepting_ref, eta_ref, predictors_ref, *numbers_refs = given
        predictors = tuple(_column(predictors_ref, counted, c) for c in range(predictors_ref.shape[1]))
        numbers = [[_column(ref, row, c) for c in range(ref.shape[1])] for ref in numbers_refs]
        log_response = response(numbers, predictors)

    def at(ref: Any, i: jax.Array) -> jax.Array:
        return ref[begin + jnp.clip(i, 0, jnp.maximum(deepest - 1, 0)) * width]

    def rest_at(i: jax.Array, term: jax.Array) -> tuple:
        """What is read of a token whose term is known."""
        refs = (topics_ref, uniform_ref) if response is None else (topics_ref, uniform_ref, accepting_ref)
        beta = beta_ref[jnp.broadcast_to((term + of_label)[:, None], (n, padded)), topic]
        return beta, *(at(ref, i) for ref in refs)

    def of_all(weight: jax.Array, uniform: jax.Array) -> jax.Array:
        running = jnp.cumsum(weight, 1)
        target = uniform * jnp.max(running, 1)
        return jnp.minimum(jnp.sum((running <= target[:, None]).astype(jnp.int32), 1), num_topics - 1)

    def of_those_with_weight(weight: jax.Array, uniform: jax.Array) -> jax.Array:
        """Sums are rounded, each in its own way: one of no weight might seem to be reached."""
        running = jnp.where(weight > 0, jnp.cumsum(weight, 1), 0.0)
        target = uniform * jnp.max(running, 1)
        return jnp.min(jnp.where(running > target[:, None], topic, num_topics - 1), 1)

    def one_token(i: jax.Array, carry: tuple) -> tuple:
        (counts, proposed, predictors, here), term, read = carry
        place, present = begin + i * width, i < length
        if shape.ahead:
            (beta, old, uniform, *accepting), later = read, (at(terms_ref, i + 2), rest_at(i + 1, term))
        else:
            (beta, old, uniform, *accepting), later = rest_at(i, at(terms_ref, i)), (term, read)
        if soft:
            without = jnp.maximum(counts - jnp.where(present[:, None], expected, 0.0), 0.0)
        else:
            without = counts - jnp.where((topic == old[:, None]) & present[:, None], 1.0, 0.0)
        weight = beta * (without + prior if collapsed else prior)
        new = jnp.where(present, lax.cond(sparse, of_those_with_weight, of_all, weight, uniform), old)
        proposed = proposed + (new != old).astype(jnp.float32)
        if response is not None:
            moved = tuple(
                predictor + share * (_column(eta_ref, new, c) - _column(eta_ref, old, c))
                for c, predictor in enumerate(predictors)
            )
            there = response(numbers, moved)
            accepted = (there > here + accepting[0]) | (here == -jnp.inf)
            new, here = jnp.where(accepted, new, old), jnp.where(accepted, there, here)
            predictors = tuple(jnp.where(accepted, *both) for both in zip(moved, predictors, strict=True))
        new_ref[place] = new
        counts = without + jnp.where((topic == new[:, None]) & present[:, None], 1.0, 0.0)
        return (counts, proposed, predictors, here), *later

    state = counts, jnp.zeros((n,), jnp.float32), predictors, log_response
    zero = jnp.zeros((), jnp.int32)
    read = (at(terms_ref, zero + 1), rest_at(zero, at(terms_ref, zero))) if shape.ahead else (zero, zero)
    (counts, proposed, _, _), *_ = lax.fori_loop(0, deepest, one_token, (state, *read))
    if soft:
        counts = jnp.floor(counts + 0.5)  # what rounding has left of the expected counts must not stay
    triton.store(new_counts_ref.at[jnp.broadcast_to(lane[:, None], (n, padded)), topic], counts, mask=real)
    proposed_ref[lane] = proposed


def _column(ref: Any, rows: jax.Array, column: int) -> jax.Array:
    """The numbers of a table that stand in some rows of a column."""
    return ref[rows, jnp.full(rows.shape, column)]
