"""The document-parallel topic sweep: a new topic for every token, for a batch of documents at a time.

Given the topics beta, documents are independent. With theta integrated out (Magnusson et al. 2018, partially collapsed)

    p(z_dn = k | z_-dn, w, y, beta)  is proportional to  beta_k,w  (n_dk^-dn + alpha_dk)  p(y_d | zbar_d with z_dn = k)

so tokens of a document are visited in turn while the documents of a batch move side by side. Where theta cannot be
integrated out, theta_dk stands in the place of (n_dk + alpha_dk). Without the last factor a topic is drawn from this law.
With it, a topic is proposed by the factors of the words and accepted with probability min(1, p(y | new) / p(y | old)),
which leaves the law as it is (Hastings 1970): the story's response is then read once a token and not once a topic. One token
of many moves a response little, so that nearly all proposals are accepted. Arrays have documents in their last axis, for
which XLA makes vector code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import LongDocuments, PaddedBatches

from ..native import sweep as compiled
from ..native.build import registered
from ..programs.processes import own
from ..samplers.gamma import dirichlet
from ..samplers.uniforms import shard_uniforms, token_uniforms
from .assignments import Assignments, Labels, batch_counts, count, long_counts
from .sharding import over_shards

CHUNK = 32  # positions whose terms are looked up together
FLOOR = 1e-30  # a topic's probability of a term is never taken smaller: all topics at zero could not be drawn from


class Weights(NamedTuple):
    """What the sweep needs of the story at the current values of all other sites."""

    # beta transposed, [terms + 1, topics]; the last row is for positions without a token. Where topics are those of a label
    # [labels * terms + 1, topics], label after label
    term_topic: jax.Array
    proportions: jax.Array  # alpha (theta integrated out) or theta, [documents or 1, topics]
    coefficients: tuple[jax.Array, ...]  # the eta of each `zbar @ eta`, each [topics, ...]
    labels: Labels | None = None  # where the terms of each document's label begin
    arranged: Any = None  # term_topic as the C++ sweep reads it, where that is made once for many shards

    @property
    def num_terms(self) -> int:
        return (self.term_topic.shape[0] - 1) // (1 if self.labels is None else self.labels.number)

    def first(self, rows: jax.Array) -> jax.Array | None:
        """What is added to the terms of some documents; None where all share their topics."""
        return None if self.labels is None else self.labels.first[rows]


class Supervision(Protocol):
    """What follows from the topics of documents beside their words, as the sweep asks for it.

    ``context`` is whatever it needs of the documents, responses and other values; the sweep hands it through.
    """

    linear: bool  # whether predictors zbar @ eta are enough, and zbar itself is not asked for

    def take(self, context: Any, rows: jax.Array) -> Any:
        """The context of some documents."""

    def __call__(self, context: Any, predictors: Sequence[jax.Array], zbar: jax.Array | None) -> jax.Array:
        """log p(everything that follows from zbar | z) of each document of a context."""

    def quadratic(self, context: Any) -> tuple[jax.Array, jax.Array] | None:
        """Slope and curvature of that in the one predictor at 0, [documents] each; None unless it is a parabola."""


class BatchState(NamedTuple):
    """A batch of documents during the sweep."""

    counts: jax.Array  # [topics, width]
    proposed: jax.Array  # tokens so far for which the words alone proposed another topic, [width]
    predictors: tuple[jax.Array, ...] = ()  # zbar @ eta, each [width, ...]
    log_response: Any = None  # of the topics as they are before a token is taken out, [width]


class BatchSweep:
    """One sweep over the tokens of a batch of documents; conditioned on everything else."""

    def __init__(
        self, supervision: Supervision | None, collapsed: bool, weights: Weights, context: Any, rows: jax.Array,
        lengths: jax.Array,
    ) -> None:  # fmt: skip
        self.supervision, self.collapsed, self.weights = supervision, collapsed, weights
        self.lengths = lengths
        self.tokens = jnp.maximum(lengths, 1).astype(jnp.float32)
        proportions = weights.proportions
        self.proportions = (proportions if proportions.shape[0] == 1 else proportions[rows]).T
        self.context = None if supervision is None else supervision.take(context, rows)

    def start(self, counts: jax.Array) -> BatchState:
        nothing = jnp.zeros(counts.shape[1])
        if self.supervision is None:
            return BatchState(counts, nothing)
        predictors = [jnp.tensordot(counts.T / self.tokens[:, None], eta, 1) for eta in self.weights.coefficients]
        state = BatchState(counts, nothing, tuple(predictors))
        return state._replace(log_response=self.response(state))

    def move(self, state: BatchState, topic: jax.Array, step: jax.Array) -> BatchState:
        """Put a token of each document into a topic (step 1) or take it out (step -1; 0 where there is no token)."""
        counts = state.counts.at[topic, jnp.arange(topic.size)].add(step, mode="promise_in_bounds", unique_indices=True)
        moved = [
            _add(predictor, step / self.tokens, eta.at[topic].get(mode="promise_in_bounds"))
            for predictor, eta in zip(state.predictors, self.weights.coefficients, strict=False)
        ]
        return state._replace(counts=counts, predictors=tuple(moved))

    def words(self, state: BatchState, beta: jax.Array) -> jax.Array:
        """The words' factors of p(z = k | rest) for one token of each document, [topics, width]; the token taken out.

        ``beta`` is [topics, width], the probabilities of the token's term.
        """
        return beta * (state.counts + self.proportions if self.collapsed else self.proportions)

    def response(self, state: BatchState) -> jax.Array:
        """log p(everything that follows from zbar | z) of each document, [width]."""
        assert self.supervision is not None
        zbar = None if self.supervision.linear else state.counts.T / self.tokens[:, None]
        return self.supervision(self.context, state.predictors, zbar)

    def responses(self, state: BatchState) -> jax.Array:
        """The same with a further token put into each topic in turn, [topics, width]."""
        num_topics, width = state.counts.shape
        one = jnp.ones(width)
        return jax.vmap(lambda k: self.response(self.move(state, jnp.full(width, k), one)))(jnp.arange(num_topics))

    def draw(self, state: BatchState, old: jax.Array, beta: jax.Array, present: jax.Array, uniform: jax.Array) -> tuple:
        """A new topic for one token of each document: the state with it, and the topic."""
        without = self.move(state, old, -present)
        topic = categorical(self.words(without, beta), uniform[0])
        without = without._replace(proposed=without.proposed + present * (topic != old))
        if self.supervision is None:
            return self.move(without, topic, present), topic
        there, here = self.response(self.move(without, topic, present)), state.log_response
        accepted = (there > here + jnp.log(uniform[1])) | jnp.isneginf(here)
        topic, here = jnp.where(accepted, topic, old), jnp.where(accepted, there, here)
        return self.move(without, topic, present)._replace(log_response=here), topic


def _add(predictor: jax.Array, share: jax.Array, eta: jax.Array) -> jax.Array:
    """predictor [width, ...] plus share [width] times eta, which is [width, ...] or the same [...] for all."""
    return predictor + share.reshape(share.shape + (1,) * (predictor.ndim - 1)) * eta


def categorical(weight: jax.Array, uniform: jax.Array) -> jax.Array:
    """A draw from each column of ``weight`` [topics, width]: first a group of topics, then a topic of the group.

    Two short running sums in place of one long one: XLA makes slow code of a cumulative sum.
    """
    num_topics, width = weight.shape
    groups = int(np.ceil(np.sqrt(num_topics)))
    members = -(-num_topics // groups)
    padded = jnp.pad(weight, ((0, groups * members - num_topics), (0, 0))).reshape(groups, members, width)
    padded = jax.lax.optimization_barrier(padded)  # computed once, not again for each use below
    sums = padded.sum(1)
    running = [sums[0]]
    for group in range(1, groups):
        running.append(running[-1] + sums[group])
    target = uniform * running[-1]
    chosen, before = jnp.zeros(width, jnp.int32), jnp.zeros(width)
    for below in running[:-1]:
        passed = below <= target
        chosen, before = chosen + passed, jnp.where(passed, below, before)
    member = padded.at[chosen, :, jnp.arange(width)].get(mode="promise_in_bounds")
    topic, total = jnp.zeros(width, jnp.int32), before
    for k in range(1, members):  # sums are rounded: one of no weight might seem to be reached
        total = total + member[:, k - 1]
        topic = jnp.where((total <= target) & (member[:, k] > 0), k, topic)
    return chosen * members + topic


class Given(NamedTuple):
    """All that a sweep is given beside the topics themselves."""

    keys: tuple[jax.Array, jax.Array]  # of tokens, and of theta where it is drawn
    weights: Weights
    context: Any  # of what follows from the topics, see :class:`Supervision`


class Swept(NamedTuple):
    """New topics as the shards leave them."""

    topics: jax.Array  # [shards, positions, width]
    counts: jax.Array  # of each lane, [shards, batches, width, topics]
    proposed: (
        jax.Array
    )  # tokens of each lane for which the words alone proposed another topic, [shards, batches, width]


def own_topics(z: Assignments) -> Assignments:
    """What a process needs of topics to sweep those of its own shards."""
    return z._replace(topics=own(z.topics))


def limits(batches: PaddedBatches, weights: Weights) -> Swept:
    """Than which no number that shards leave is larger."""
    longest = int(np.max(batches.lengths, initial=0))
    return Swept(weights.term_topic.shape[1], longest, longest)  # type: ignore[arg-type]


def sweep_shards(
    supervision: Supervision | None,
    collapsed: bool,
    given: Given,
    z: Assignments,
    batches: PaddedBatches,
    between: Any = None,
) -> Swept:
    """A new topic for every token of all shards, or of those between two."""
    num_terms, num_topics = given.weights.num_terms, given.weights.term_topic.shape[1]
    shards = (z.topics, batches.terms, batches.start, batches.depth, batches.rows, batches.lengths)
    if between is None and (found := _in_machine_code(supervision, collapsed, given, z, shards)) is not None:
        return found

    def one_shard(shard: tuple, document_topic: jax.Array | None, given: Given) -> Swept:
        topics, terms, start, depth, rows, lengths = shard
        positions = len(terms)
        terms, topics = with_padding(terms, num_terms), with_padding(topics, 0)
        (key, _), weights, context = given
        uniform = jnp.stack(
            shard_uniforms(key, start, depth, rows, positions + CHUNK)[: 1 + (supervision is not None)], 1
        )

        def one_batch(batch: jax.Array, carry: Swept) -> Swept:
            topics, counts, proposed = carry
            own = rows[batch]
            walk = BatchSweep(supervision, collapsed, weights, context, own, lengths[batch])
            of_label = weights.first(own)

            def one_chunk(chunk: jax.Array, carry: tuple) -> tuple:
                topics, state = carry
                first = start[batch] + chunk * CHUNK
                beta = topics_of_terms(weights.term_topic, terms, first, of_label)
                chance = jax.lax.dynamic_slice_in_dim(uniform, first, CHUNK)

                def one_position(i: jax.Array, carry: tuple) -> tuple:
                    here, state = carry
                    present = (chunk * CHUNK + i < lengths[batch]).astype(jnp.float32)
                    state, topic = walk.draw(state, here[i], beta[i], present, chance[i])
                    return jax.lax.dynamic_update_index_in_dim(here, topic, i, 0), state

                # a chunk is taken out and put back: XLA would copy all topics at every position
                here = jax.lax.dynamic_slice_in_dim(topics, first, CHUNK)
                positions = jnp.minimum(depth[batch] - chunk * CHUNK, CHUNK)
                here, state = jax.lax.fori_loop(0, positions, one_position, (here, state))
                return jax.lax.dynamic_update_slice_in_dim(topics, here, first, 0), state

            if document_topic is None:
                begin = batch_counts(topics, start[batch], depth[batch], lengths[batch], num_topics)
            else:
                begin = jnp.where(lengths[batch] > 0, document_topic[own].T, 0.0)
            chunks = -(-depth[batch] // CHUNK)
            topics, state = jax.lax.fori_loop(0, chunks, one_chunk, (topics, walk.start(begin)))
            return Swept(topics, counts.at[batch].set(state.counts.T), proposed.at[batch].set(state.proposed))

        start_from = Swept(topics, jnp.zeros((*lengths.shape, num_topics)), jnp.zeros(lengths.shape))
        swept = jax.lax.fori_loop(0, lengths.shape[0], one_batch, start_from)
        return swept._replace(topics=swept.topics[:positions])

    return over_shards(one_shard, shards, (z.document_topic, given), between)


def _in_machine_code(
    supervision: Supervision | None, collapsed: bool, given: Given, z: Assignments, shards: tuple
) -> Swept | None:
    """The sweep in C++, where that is built and serves: no response, or one whose log density is a parabola."""
    if not registered():
        return None
    (key, _), weights, context = given
    response = None
    if supervision is not None:
        parabola = supervision.quadratic(context)
        if parabola is None:
            return None
        response = (weights.coefficients[0], *parabola)
    first = None if weights.labels is None else weights.labels.first
    beta = compiled.arranged(weights.term_topic) if weights.arranged is None else weights.arranged
    found = compiled.sweep_shards(
        key, shards, z.document_topic, beta, weights.proportions, first, response, collapsed=collapsed
    )
    return Swept(*found)


def assembled(
    swept: Swept, batches: PaddedBatches, tables: bool, num_terms: int, long: Any = None, labels: Labels | None = None
) -> Assignments:
    """What shards have left as assignments; the table of topics and terms takes time that not everybody needs.

    ``long``: topics, counts and number of proposals of the documents that are laid out alone.
    """
    num_topics = swept.counts.shape[-1]
    document_topic, tokens = swept.counts.reshape(-1, num_topics)[batches.lane], batches.lengths.sum()
    proposed, topics = swept.proposed.sum(), None
    if batches.long is not None:
        topics, counts, more = long
        document_topic = document_topic.at[batches.long.rows].set(counts)
        proposed, tokens = proposed + more, tokens + batches.long.lengths.sum()
    if not tables:
        return Assignments(swept.topics, document_topic, long=topics)
    counted = count(swept.topics, batches, num_topics, num_terms, topics, labels)
    return counted._replace(document_topic=document_topic, proposed=proposed / jnp.maximum(tokens, 1))


def sweep_long(
    supervision: Supervision | None, collapsed: bool, given: Given, z: Assignments, long: LongDocuments
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """New topics of the documents that are laid out alone, their counts, and for how many tokens another was proposed.

    theta of such a document is drawn and not integrated out: given it, the words propose topics independently of each other,
    and WIDTH of them are accepted together, with probability min(1, p(y | new) / p(y | old)). The law is that of the sweep,
    and so is what is left of theta in z, for theta is drawn anew each time.
    """
    (key, theta_key), weights, context = given
    num_topics, width = weights.term_topic.shape[1], long.terms.shape[1]
    lane, terms = jnp.arange(width), with_padding(long.terms, weights.num_terms)

    def one_document(i: jax.Array, carry: tuple) -> tuple:
        topics, proposed = carry
        row, length, start = (part[i] for part in (long.rows, long.lengths, long.start))
        rows = jnp.full(width, row)
        own, prior = z.document_topic[row], weights.proportions[row if len(weights.proportions) > 1 else 0]
        theta = dirichlet(jax.random.fold_in(theta_key, row), own + prior) if collapsed else prior
        walk = BatchSweep(supervision, collapsed, weights, context, rows, jnp.full(width, length))

        def one_chunk(chunk: jax.Array, carry: tuple) -> tuple:
            topics, state, proposed = carry
            first = start + chunk * CHUNK
            beta = topics_of_terms(weights.term_topic, terms, first, weights.first(rows))
            tokens = (chunk * CHUNK + jnp.arange(CHUNK))[:, None] * width + lane
            uniform, accepting = token_uniforms(key, rows, tokens)

            def one_position(n: jax.Array, carry: tuple) -> tuple:
                here, state, proposed = carry
                old, present = here[n], (tokens[n] < length).astype(jnp.float32)
                topic = categorical(beta[n] * theta[:, None], uniform[n])
                proposed = proposed + (present * (topic != old)).sum()
                moved = _together(walk, state, old, topic, present)
                if supervision is not None:
                    there, before = moved.log_response[0], state.log_response[0]  # the same in all lanes
                    accepted = (there > before + jnp.log(accepting[n, 0])) | jnp.isneginf(before)
                    moved = jax.tree.map(lambda new, kept: jnp.where(accepted, new, kept), moved, state)
                    topic = jnp.where(accepted, topic, old)
                return jax.lax.dynamic_update_index_in_dim(here, topic, n, 0), moved, proposed

            here = jax.lax.dynamic_slice_in_dim(topics, first, CHUNK)
            positions = jnp.minimum(long.depth[i] - chunk * CHUNK, CHUNK)
            here, state, proposed = jax.lax.fori_loop(0, positions, one_position, (here, state, proposed))
            return jax.lax.dynamic_update_slice_in_dim(topics, here, first, 0), state, proposed

        carry = topics, walk.start(jnp.broadcast_to(own[:, None], (num_topics, width))), proposed
        chunks = -(-long.depth[i] // CHUNK)
        topics, _, proposed = jax.lax.fori_loop(0, chunks, one_chunk, carry)
        return topics, proposed

    begin = with_padding(z.long, 0), jnp.zeros(())
    topics, proposed = jax.lax.fori_loop(0, len(long.rows), one_document, begin)
    topics = topics[: len(z.long)]
    return topics, long_counts(topics, long, num_topics), proposed


def _together(walk: BatchSweep, state: BatchState, old: jax.Array, topic: jax.Array, present: jax.Array) -> BatchState:
    """A state whose lanes are all of one document, with the tokens of all lanes moved."""
    steps = present / walk.tokens

    def moved(predictor: jax.Array, eta: jax.Array) -> jax.Array:
        return predictor + jnp.tensordot(steps, eta[topic] - eta[old], 1)

    predictors = tuple(map(moved, state.predictors, walk.weights.coefficients))
    counts = state.counts
    if walk.supervision is not None and not walk.supervision.linear:
        numbers = jnp.arange(len(counts))[:, None]
        counts = counts + (((topic == numbers) * 1.0 - (old == numbers)) @ present)[:, None]
    state = state._replace(counts=counts, predictors=predictors)
    return state._replace(log_response=walk.response(state)) if walk.supervision is not None else state


def topics_of_terms(term_topic: jax.Array, terms: jax.Array, first: jax.Array, of_label: Any = None) -> jax.Array:
    """beta of the terms at the next CHUNK positions, [CHUNK, topics, width]: XLA gathers many at once in half the time.

    ``of_label``: where the terms of each document's label begin, [width].
    """
    here = jax.lax.dynamic_slice_in_dim(terms, first, CHUNK)
    if of_label is not None:
        here = here + of_label  # the term of no token becomes another's, or the last: nobody reads its topics
    gathered = term_topic.at[here].get(mode="promise_in_bounds")
    return jax.lax.optimization_barrier(jnp.swapaxes(gathered, 1, 2))


def look_up(
    buffer: jax.Array, term_topic: jax.Array, terms: jax.Array, first: jax.Array, depth: jax.Array, of_label: Any = None
) -> jax.Array:
    """beta of all terms of a batch of documents, written into the buffer [positions, topics, width], for many readings."""

    def one_chunk(chunk: jax.Array, buffer: jax.Array) -> jax.Array:
        found = topics_of_terms(term_topic, terms, first + chunk * CHUNK, of_label)
        return jax.lax.dynamic_update_slice_in_dim(buffer, found, chunk * CHUNK, 0)

    return jax.lax.fori_loop(0, -(-depth // CHUNK), one_chunk, buffer)


def room(deepest: int, num_topics: int, width: int) -> jax.Array:
    """A buffer for :func:`look_up`."""
    return jnp.zeros((max(-(-deepest // CHUNK), 1) * CHUNK, num_topics, width))


def with_padding(values: jax.Array, empty: int) -> jax.Array:
    """Values [positions, width] with empty positions behind the last, so that chunks may reach beyond it."""
    return jnp.pad(values, ((0, CHUNK), (0, 0)), constant_values=empty)
