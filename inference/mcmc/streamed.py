"""A Gibbs iteration over a corpus whose terms lie in files (:mod:`..streams.shards`).

As in :mod:`.split` all other sites are drawn first and the topics last. Between them one pass over the shards: read ahead,
swept, counted, forgotten. In memory are the topics, a byte or two each, and the counts that follow from them. theta,
which is integrated out and which nobody reads, is never there: programs are given a constant in its place. Several processes
read their own shards each. Draws are those of the corpus in memory.

Where a document is nothing but its words and the prior of theta is the same number for all, as in LDA, nobody needs to
know the counts of documents: a shard leaves the log-density of its own, and what processes tell each other is how often
terms have topics. Topics stay with the process that sweeps them until a checkpoint is written.

A device gets a shard while it sweeps the one before, and keeps the counts; topics go back to the memory of the host.
"""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import Gibbs
from scipy.special import gammaln

from topiczoo.corpora.layouts import PaddedBatches, long_ones, on_device

from ..blocks.block import Block
from ..blocks.topics import TopicBlock
from ..gpu.choosing import KERNEL, sweep_tokens, with_kernels
from ..kernels import sharding
from ..kernels.assignments import Assignments, count
from ..kernels.sweep import Given, sweep_shards
from ..native.build import COMPILED
from ..native.sweep import arranged
from ..programs.compiling import jitted
from ..programs.processes import gathered, is_first, largest, own, total
from ..story.bound import BoundGraph
from ..story.sweeping import why_no_kernel
from ..story.tracing import traced
from ..streams.shards import TOKENS, Shards
from . import merging, starts
from .split import SplitGibbs

ONE = np.int32(0), np.int32(1)  # shards between which a sweep goes
AT_ONCE = 2**20  # positions that are counted in one go
ON_THEIR_WAY = 3  # shards that a device has been given, or gives back


class Found(NamedTuple):
    """What a shard leaves."""

    topics: jax.Array  # [positions, width]
    lanes: Any  # counts of the topics of each lane, [batches, width, topics]
    of_counts: Any = None  # or what they add to the log-density of documents, [batches, width]
    proposed: jax.Array = np.zeros(())  # type: ignore[assignment]
    moved: jax.Array = np.zeros(())  # type: ignore[assignment]


def passes_over(folder: Any, graph: BoundGraph, last: Block) -> Passes:
    """Passes over the corpus in a folder; a story or corpus that they do not serve is refused before anything is written."""
    why = ""
    if (
        not isinstance(last, TopicBlock)
        or not last.collapsed
        or last.theta_is_read
        or graph.has_labels
        or graph.has_sentences
    ):
        why = (
            "needs a Dirichlet theta that only words read, topics that all documents share, and collapse='proportions'"
        )
    elif any(site.document_axis is not None and name != graph.theta for name, site in graph.latent.items()):
        why = "needs documents with no latent site but theta"
    elif long_ones(graph.corpus.lengths).any():
        name = graph.corpus.names[int(graph.corpus.lengths.argmax())]
        why = f"has no place for documents that are much longer than others, as {str(name)!r} is; cut them into parts"
    if why:
        raise ValueError(f"shards= {why}; leave it out.")
    assert isinstance(last, TopicBlock)
    shards = Shards(folder, graph.corpus, jax.process_count())
    if last.no_kernel:  # of the whole corpus
        last.no_kernel = why_no_kernel(graph, last.collapsed, math.prod(shards.shape))
    if is_first():
        shards.write()
    largest(0)  # all wait until it is written
    return Passes(shards, last.swept_by, None if is_by_device() else prior_of_all(graph))


def rising(prior: np.ndarray, number: np.ndarray) -> np.ndarray:
    """log Gamma(prior + number) / Gamma(prior)."""
    return gammaln(prior + number) - gammaln(prior)


def is_by_device() -> bool:
    """Whether one device sweeps all shards, and counts stay with it."""
    return jax.default_backend() != "cpu" and jax.process_count() == 1


def prior_of_all(graph: BoundGraph) -> np.ndarray | None:
    """alpha, [topics], where all documents have the same, nothing is drawn for it, and from theta only words follow."""
    if graph.response_sites or graph.covariates or graph.parents[graph.theta] != {graph.theta}:
        return None
    program = graph.program(starts.prior_concentrations, (graph.theta,))
    prior = np.asarray(program(graph.few_documents, graph.few_y, graph.few_values)[graph.theta], float)
    return prior.ravel() if prior.size == graph.num_topics else None


class Passes:
    """Passes over all shards of a corpus, by threads and processes."""

    def __init__(self, shards: Shards, swept_by: str, prior: np.ndarray | None = None) -> None:
        """``swept_by``: what makes the sweeps, in words; ``prior``: theta's, where nobody asks for counts of documents."""
        self.on_device, self.compiled = is_by_device(), swept_by == COMPILED
        at_once = swept_by in (COMPILED, KERNEL)  # a sweep shares its work out to threads by itself
        self.shards, self.workers = shards, 1 if self.on_device else 2 if at_once else sharding.WORKERS
        self.between = None if at_once else ONE
        self.longest = int(shards.batches.lengths.max(initial=1))
        if prior is None:
            self.of_counts = None
        else:
            self.of_counts = jnp.asarray(rising(prior[None], np.arange(self.longest + 1)[:, None]), jnp.float32)
            self.of_lengths = -rising(prior.sum(), shards.corpus.lengths).sum()
        self.tokens = int(shards.batches.lengths.sum())
        self.batches = jax.tree.map(on_device, shards.batches)
        if self.on_device:
            there = np.flatnonzero(shards.batches.lengths)
            places = np.empty(len(shards.corpus), int)
            places[shards.batches.rows.reshape(-1)[there]] = there
            self.places = on_device(places)

    def __call__(self, program: Callable, topics: np.ndarray | None, num_topics: int, *given: Any) -> Assignments:
        """``program(batches, topics, between, *given)`` of each shard, put together."""
        self._give_back()
        shards = self.shards
        lanes: Any = [None] * shards.number
        if not self.on_device:
            shape = len(own(range(shards.number))), *shards.batches.lengths.shape[1:], num_topics
            lanes = np.empty(shape, np.min_scalar_type(self.longest))
        found, table, share = self._swept(lanes, program, topics, num_topics, *given)
        if self.on_device:
            counts = _of_documents(lanes, self.places)
        else:
            found, lanes = gathered((found, lanes), shards.number)
            counts = self._of_documents(lanes)
        self._give_back()
        return Assignments(found, counts, table, None, *share)

    def apart(self, program: Callable, topics: np.ndarray, num_topics: int, *given: Any) -> Assignments:
        """The same where counts of documents are asked of nobody, and topics stay with the process that sweeps them."""
        self._give_back()
        logs = np.empty(len(own(range(self.shards.number))))
        found, table, share = self._swept(logs, program, topics, num_topics, *given, self.of_counts)
        self._give_back()
        of_documents = self.of_lengths + gathered(logs, self.shards.number).sum()
        return Assignments(found, None, table, None, share[0], share[1], jnp.asarray(of_documents, jnp.float32))

    def _swept(
        self, left: Any, program: Callable, topics: np.ndarray | None, num_topics: int, *given: Any
    ) -> tuple[np.ndarray, jax.Array, jax.Array]:
        """The topics of this process' shards, how often terms have topics, and shares of words that were proposed another
        topic and moved; to ``left`` goes what each shard leaves of documents."""
        shards = self.shards
        mine = own(range(shards.number))
        topics = topics if topics is None or len(topics) == len(mine) else own(topics)
        found = np.empty((len(mine), *shards.shape), np.min_scalar_type(num_topics))
        whole = np.int32 if self.on_device or self.tokens < 2**31 else np.int64
        # the last column is of positions without a token
        table: Any = np.zeros((num_topics, shards.corpus.num_terms + (not self.on_device)), whole)
        numbers = []

        def swept(read: tuple[int, np.ndarray]) -> tuple[PaddedBatches, Found]:
            shard, terms = read
            batches = shards.of(shard, on_device(terms) if self.on_device else terms)
            before = None if topics is None else topics[shard - mine[0]][None]
            return batches, program(batches, before, self.between, *given)

        for place, (batches, one) in enumerate(self._in_turn(swept, shards.ahead(list(mine), 1 + self.workers))):
            found[place] = one.topics
            numbers.append((one.proposed, one.moved))
            if self.on_device:
                table, left[place] = _added(np.min_scalar_type(self.longest), table, batches, one)
            else:
                _add(table, batches.terms[0], found[place])
                left[place] = one.lanes if one.of_counts is None else np.asarray(one.of_counts, float).sum()
        if not self.on_device:
            table = total(table)[:, :-1]
        share = jnp.asarray(total(np.array(numbers, np.int64).sum(0)) / max(self.tokens, 1), jnp.float32)
        return found, jnp.asarray(table, jnp.float32), share

    def whole(self, z: Assignments) -> Assignments:
        """The topics of all shards, where each process has its own."""
        return z if len(z.topics) == self.shards.number else z._replace(topics=gathered(z.topics, self.shards.number))

    def _give_back(self) -> None:
        """Memory that was freed goes back to the system: glibc keeps it for every thread, in pieces. It takes its time."""
        if self.tokens > TOKENS and hasattr(ctypes.pythonapi, "malloc_trim"):
            ctypes.pythonapi.malloc_trim(0)

    def _of_documents(self, lanes: np.ndarray) -> np.ndarray:
        """Counts of lanes as those of documents, [documents, topics], in as few bytes."""
        rows, there = self.shards.batches.rows, self.shards.batches.lengths > 0
        counts = np.zeros((len(self.shards.corpus), lanes.shape[-1]), lanes.dtype)
        for shard, inside in enumerate(there):
            counts[rows[shard][inside]] = lanes[shard][inside]
        return counts

    def _in_turn(self, swept: Callable, waiting: Iterator) -> Iterator[tuple[PaddedBatches, Found]]:
        """Shards and what they leave, one after the other; some are under way meanwhile."""
        under_way: deque = deque()
        if self.on_device:  # it works on by itself
            for read in waiting:
                under_way.append(swept(read))
                under_way[-1][1].topics.copy_to_host_async()
                if len(under_way) == ON_THEIR_WAY:
                    yield under_way.popleft()
            yield from under_way
            return
        with ThreadPoolExecutor(self.workers) as threads:
            for read in waiting:
                under_way.append(threads.submit(lambda read: jax.block_until_ready(swept(read)), read))
                if len(under_way) > self.workers:  # no thread waits while its last shard is counted
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()


def _add(table: np.ndarray, terms: np.ndarray, topics: np.ndarray) -> None:
    """Add the tokens of a shard to the counts, [topics, terms and one more]: a table of its own may be larger than it."""
    each = max(1, AT_ONCE // terms.shape[1])
    for first in range(0, len(terms), each):
        places = topics[first : first + each].astype(np.intp) * table.shape[1]
        places += terms[first : first + each]
        np.add.at(table.reshape(-1), places.reshape(-1), table.dtype.type(1))


@jitted
def _of_documents(lanes: list[jax.Array], places: jax.Array) -> jax.Array:
    """Counts of lanes as those of documents, [documents, topics]."""
    return jnp.stack(lanes).reshape(-1, lanes[0].shape[-1])[places]


@jitted(static_argnums=0)
def _added(narrow: Any, table: jax.Array, batches: PaddedBatches, one: Found) -> tuple[jax.Array, jax.Array]:
    """The same where counts stay with a device; and the counts of lanes, in as few bytes."""
    batches, topics = batches._replace(terms=batches.terms.astype(jnp.int32)), one.topics[None].astype(jnp.int32)
    num_topics, num_terms = table.shape
    more = count(topics, batches, num_topics, num_terms).topic_term
    return table + more.astype(table.dtype), one.lanes.astype(narrow)


class StreamedGibbs(SplitGibbs):
    """NumPyro's composite kernel, whose last block is a topic sweep over shards in files."""

    alone = True  # chains go one after the other: each has all threads

    def __init__(self, kernel: Gibbs, graph: BoundGraph, passes: Passes) -> None:
        super().__init__(kernel, 1)
        self.graph, self.passes, self.hidden = graph, passes, ("z", graph.theta)

    def init(self, *arguments: Any) -> tuple[Any, jax.Array]:
        state = self.kernel.init(*arguments)
        return self._bare(state), state.z["z"].topics

    def started(self, start: Callable) -> Callable:
        """A chain's first state, its topics drawn at random: of a program for :meth:`init`."""

        def with_topics(key: jax.Array, data: tuple) -> Any:
            state, words = start(key, data)
            z = random_topics(self.passes, jax.random.wrap_key_data(words), self.graph.num_topics)
            return starts.placed(state, self._without_counts(z))

        return with_topics

    def entire(self, state: Any) -> Any:
        """A state with the topics of all processes, as a checkpoint has it."""
        return starts.placed(state, self.passes.whole(state.z["z"]))

    def _without_counts(self, z: Assignments) -> Assignments:
        """Topics without counts of documents, where these are asked of nobody."""
        if self.passes.of_counts is None or z.document_topic is None:
            return z
        return z._replace(document_topic=None, given_prior=jnp.zeros(()))

    def program(self, steps: int, thinning: int, unstored: Any, fields: Any, state: Any, data: tuple) -> Callable:
        topics: TopicBlock = self.kernel._kernels[-1]
        sweep = jitted(traced(partial(_sweep, topics.supervision, topics.graph, not topics.no_kernel)))
        others = jitted(traced(self._others))
        last = jitted(traced(partial(self._last, unstored, fields)))

        swept = self.passes if self.passes.of_counts is None else self.passes.apart

        def run(state: Any, data: tuple) -> tuple[Any, dict, dict]:
            kept = []
            for step in range(steps):
                z, bare = self._without_counts(state.z["z"]), self._bare(state)
                state, told = others(bare, z._replace(topics=None), data)
                z = swept(sweep, z.topics, self.graph.num_topics, told)
                state, *drawn = last(state, z._replace(topics=None), data)
                state = starts.placed(state, z)
                if (step + 1) % thinning == 0:
                    kept.append(jax.tree.map(np.asarray, drawn))
            draws, found = jax.tree.map(lambda *parts: np.stack(parts), *kept)
            return state, draws, found

        return run

    def _others(self, state: Any, z: Assignments, data: tuple) -> tuple[Any, Given]:
        state, told = self._draw_others(self._dressed(state, z), data)
        documents, y, values = told.context
        values = {name: value for name, value in values.items() if name not in self.hidden}
        weights = told.weights
        if self.passes.compiled:
            weights = weights._replace(arranged=arranged(weights.term_topic))
        return self._bare(state), told._replace(weights=weights, context=(documents, y, values))

    def _last(self, unstored: Any, fields: Any, state: Any, z: Assignments, data: tuple) -> tuple[Any, dict, dict]:
        state = self._dressed(state, z)
        state, *drawn = self._finish(unstored, fields, state, state.z["z"], data)
        return self._bare(state), *drawn

    def _bare(self, state: Any) -> Any:
        """A state without topics, their counts and theta."""

        def without(values: dict) -> dict:
            return {name: value for name, value in values.items() if name not in self.hidden}

        *others, last = state.block_states
        last = last._replace(z=without(last.z), total=without(last.total))
        return state._replace(z=without(state.z), block_states=(*others, last))

    def _dressed(self, state: Any, z: Assignments) -> Any:
        """A bare state with topics, and a constant for theta: nobody reads it, and XLA leaves it out; so with counts of
        documents that are nowhere together."""
        shape = len(self.graph.corpus), self.graph.num_topics
        counts = jnp.zeros(shape) if z.document_topic is None else z.document_topic.astype(jnp.float32)
        z, theta = z._replace(document_topic=counts), _even(shape)
        *others, last = state.block_states
        values = {"z": z, self.graph.theta: theta}
        last = last._replace(z={**last.z, **values}, total={**last.total, self.graph.theta: theta})
        return state._replace(z={**state.z, **values}, block_states=(*others, last))


def _even(shape: tuple[int, ...]) -> jax.Array:
    return jnp.full(shape, 1 / shape[1])


def _sweep(
    supervision: Any, graph: BoundGraph | None, by_kernel: bool | None,
    batches: PaddedBatches, topics: jax.Array, between: Any, told: Given, of_counts: jax.Array | None = None,
) -> Found:  # fmt: skip
    """A shard's new topics. ``of_counts``: log Gamma(alpha_k + n) / Gamma(alpha_k), [n, topics], for what they add to the
    log-density of documents in the place of their counts."""
    num_topics = told.weights.term_topic.shape[1]
    batches, topics = batches._replace(terms=batches.terms.astype(jnp.int32)), topics.astype(jnp.int32)
    if graph is not None:
        documents, y, values = told.context
        theta = _even((documents.num_documents, num_topics))
        told = told._replace(context=(documents, y, {**values, graph.theta: theta}))
    if with_kernels(batches) if by_kernel is None else by_kernel:
        swept = sweep_tokens(supervision, True, told, Assignments(topics, None), batches, by_kernel=True)
    else:
        swept = sweep_shards(supervision, True, told, Assignments(topics, None), batches, between)
    inside = batches.terms < told.weights.num_terms
    moved = jnp.sum(inside & (swept.topics != topics))
    narrow, lanes = swept.topics[0].astype(np.min_scalar_type(num_topics)), swept.counts[0]
    proposed = swept.proposed.astype(jnp.int32).sum()
    if of_counts is None:
        return Found(narrow, lanes, None, proposed, moved)
    places = lanes.astype(jnp.int32), jnp.arange(num_topics)
    return Found(narrow, None, of_counts.at[places].get(mode="promise_in_bounds").sum(-1), proposed, moved)


def random_topics(passes: Passes, key: jax.Array, num_topics: int) -> Assignments:
    """Every token in a topic at random, as :class:`..story.assignments.TopicAssignments` draws it."""
    return passes(partial(_random, num_topics, passes.shards.corpus.num_terms), None, num_topics, key)


@jitted(static_argnums=(0, 1))
def _random(num_topics: int, num_terms: int, batches: PaddedBatches, _: None, __: Any, key: jax.Array) -> Found:
    shapes = jnp.zeros((1, num_topics)), jnp.zeros((num_topics, num_terms))
    batches = batches._replace(terms=batches.terms.astype(jnp.int32))
    z = starts.TopicAssignments(*shapes, batches).sample(key)
    return Found(z.topics[0], z.document_topic.reshape(*batches.lengths.shape[1:], -1))


def streamed_start(graph: BoundGraph, expected: starts.Expected | None, passes: Passes, num_warmup: int) -> Callable:
    """A function of keys and states, one for each chain, that gives them seeded or merged topics (:mod:`.starts`)."""
    if expected is None:
        found = partial(_merged, graph.num_topics, starts.priors(graph), passes, num_warmup)
    else:
        found = partial(_seeded, expected, passes)
    return lambda keys, states: [starts.placed(state, found(key)) for key, state in zip(keys, states, strict=True)]


def _seeded(expected: starts.Expected, passes: Passes, key: jax.Array) -> Assignments:
    number = len(expected.topics)
    z = random_topics(passes, key, number)
    return passes(_sweep_words, z.topics, number, starts.expected_given(key, expected))


def _merged(
    num_topics: int, priors: tuple[np.ndarray, np.ndarray], passes: Passes, num_warmup: int, key: jax.Array
) -> Assignments:
    number = merging.FACTOR * num_topics

    def sweep(told: Any, z: Assignments) -> Assignments:
        return passes(_sweep_words, z.topics, number, told)

    sweeps, chains = partial(merging.one_by_one, sweep), [random_topics(passes, key, number)]
    [(z, new)] = merging.fewer_and_fewer([key], chains, num_topics, *priors, num_warmup, sweeps)
    z = merging.renumbered(new, z, num_topics)
    topics = z.topics.astype(np.min_scalar_type(num_topics))
    return Assignments(topics, z.document_topic, jnp.asarray(z.topic_term), None, jnp.zeros(()), jnp.zeros(()))


_sweep_words = jitted(partial(_sweep, None, None, None))
