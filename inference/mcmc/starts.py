"""Where chains start: at random, from twice as many topics, merged until as many are left, or from seeds.

From random topics many chains end in a trap, where two of the corpus' topics share one and another is split in two: 2,000
nats below the mass of the posterior on a thousand short reviews, and no number of sweeps leads out. With twice as many
topics every topic of the corpus has one of its own soon, and some have several, which are merged (:mod:`.merging`). All this
reads words alone, with topics at their posterior mean in each sweep: it is a place to start from, and no part of the
sampler. Every chain makes its own, from its own random topics.

Where a story gives its topics words beforehand, seeds say, merged topics would have any number, and what their words were
is forgotten; where it gives documents topics, labels say, merged topics would be of any documents. Every word is then drawn
given the topics, or the proportions, that the story expects before it has seen any: of labelled topics that begin at random
many chains end in a trap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora.layouts import Documents, PaddedBatches

from ..gpu.choosing import sweep_tokens, with_kernels
from ..kernels.assignments import Assignments, Labels, count
from ..kernels.sentences import Chain, draw_sentences, of_sentences
from ..kernels.sharding import WORKERS, by_threads, own_shards
from ..kernels.sweep import (
    Given,
    Swept,
    assembled,
    limits,
    own_topics,
    sweep_long,
    sweep_shards,
)
from ..native.build import registered
from ..programs.compiling import jitted
from ..programs.processes import gathered
from ..story.assignments import AssignmentHandler, TopicAssignments
from ..story.bound import BoundGraph
from ..story.classes import class_site
from ..story.response import Y
from ..story.tracing import Data, Values, ZbarHandler, concentration, mean_of_prior, run
from .merging import FACTOR, alone, fewer_and_fewer, given_words, one_by_one, words_given

STARTS = ("merged", "seeded", "random")
FEWEST_TOKENS = 1000  # below, the sampler leaves traps by itself, and compiling takes longer than sampling
SUPERVISED = 5  # times as many with a response: topics of few words, found without it, are not those that it asks for
USUAL_ALPHA, USUAL_GAMMA = 0.1, 0.05  # where the story has no fixed Dirichlet priors
MANY_WORDS = 1e9  # more than any document has


def check_start(start: str | None) -> None:
    """Say so if there is no such start, before anything long runs."""
    if start is not None and start not in STARTS:
        raise ValueError(f"start is {start!r}; give {' or '.join(map(repr, STARTS))}.")


class Expected(NamedTuple):
    """What a story expects before it has seen a word."""

    topics: np.ndarray  # [topics, terms]
    proportions: np.ndarray | None = None  # [documents, topics], where those of documents differ


def choose_start(start: str | None, graph: BoundGraph, is_weighed: bool = False) -> tuple[str, Expected | None]:
    """One of ``STARTS``, where none is asked for the one that suits; of a seeded start, what is expected."""
    fewest = FEWEST_TOKENS * (SUPERVISED if graph.response_sites else 1)
    if start == "random" or (graph.corpus.num_tokens < fewest and start != "seeded"):
        return "random", None
    if not graph.has_words and start != "seeded":
        at_random = (is_weighed and start is None) or class_site(graph) is None
        return "random" if at_random else "merged", None
    if graph.has_words and graph.num_topics < 2:
        return "random", None
    if graph.has_words and _topics_are_of_some_documents(graph):
        if graph.parents[graph.theta] != {graph.theta}:  # a class, nobody knows which
            return "random", None
        return "seeded", Expected(
            *map(np.asarray, graph.program(_expected)(graph.documents(), graph.response.on_device()))
        )
    expected = _told_apart(graph) if graph.has_words and start != "merged" else None
    if expected is not None:
        return "seeded", expected
    if start == "seeded":
        raise ValueError(
            f"start is 'seeded', but no topic of the story {graph.story.name!r} has words, or documents, of its own "
            "beforehand; give 'merged' or 'random'."
        )
    return "random" if is_weighed and start is None else "merged", None


def start_topics(
    start: str, expected: Expected | None, graph: BoundGraph, data: Data, num_warmup: int
) -> Callable | None:
    """A function of keys and states, one for each chain, that gives the states their topics; None for random ones."""
    if start == "random":
        return None
    beside = WORKERS if len(data.documents.laid_out.terms) == 1 else 1  # threads share out either chains or shards
    if expected is not None:
        return partial(each, partial(_seeded, graph, data, expected), beside)
    return partial(each, partial(_merged, graph, data, *priors(graph), num_warmup), beside)


def _told_apart(graph: BoundGraph) -> Expected | None:
    """The expectation of topics before a word is seen, where it is not the same for all of them."""
    if _has_fixed_prior(graph, graph.beta):
        _, gamma = priors(graph)
        expected = gamma / gamma.sum(1, keepdims=True)
    else:
        expected = np.asarray(graph.program(_expected_topics)(graph.few_documents, graph.few_y))
    differ = expected.ndim == 2 and not np.allclose(expected, expected[0], rtol=1e-3, atol=0)
    return Expected(expected) if differ else None


def _expected_topics(graph: BoundGraph, few: Documents, y: Y) -> jax.Array:
    """The topics of the story with all that they are made of at its mean."""
    handler = ZbarHandler(zbar=lambda theta: theta)
    run(graph.story, few, y, {}, handler, prior=mean_of_prior)
    return handler.beta


def _expected(graph: BoundGraph, documents: Documents, y: Y) -> tuple[jax.Array, jax.Array]:
    """The same, and the expectation of all documents' proportions, which have Dirichlet priors of their own."""
    handler = ZbarHandler(zbar=lambda theta: theta)
    trace = run(graph.story, documents, y, {}, handler, prior=mean_of_prior)
    prior = concentration(trace[graph.theta]["fn"])
    return handler.beta, prior / prior.sum(-1, keepdims=True)


def _topics_are_of_some_documents(graph: BoundGraph) -> bool:
    """Whether documents have Dirichlet priors of their own, by their class say: merged topics, found without these, could
    put words where a prior next to 0 has none, and a sweep would not bring them back."""
    if not graph.theta_is_integrable():
        return False
    above = graph.parents[graph.theta] - {graph.theta}
    if above:
        return any(graph.latent[name].discrete for name in above & set(graph.latent))
    values = graph.few_values

    def of_theta() -> jax.Array:
        trace = run(graph.story, graph.few_documents, graph.few_y, values, ZbarHandler(lambda theta: theta))
        return concentration(trace[graph.theta]["fn"])

    return bool(np.prod(jax.eval_shape(of_theta).shape[:-1]) > 1)


def each(found_by: Callable, beside: int, keys: Sequence[jax.Array], states: list[Any], site: str = "z") -> list[Any]:
    """The states with topics that ``found_by`` finds, a list for lists of keys and values of chains.

    Chains in one state, side by side, find theirs together; others each for itself, so many at a time.
    """
    together = states[0].rng_key.ndim > 0
    chains = [jax.tree.map(lambda leaf, i=i: leaf[i], states[0]) for i in range(len(keys))] if together else states
    values = [{name: value for name, value in state.z.items() if name != "z"} for state in chains]
    keys, values = jax.block_until_ready(list(keys)), jax.block_until_ready(values)
    size = len(keys) if together else 1
    groups = [slice(i, i + size) for i in range(0, len(keys), size)]
    with ThreadPoolExecutor(beside) as threads:
        assigned = list(chain.from_iterable(threads.map(lambda group: found_by(keys[group], values[group]), groups)))
    if together:
        assigned = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *assigned)]
    return [placed(state, z, site) for state, z in zip(states, assigned, strict=True)]


def _merged(
    graph: BoundGraph, data: Data, alpha: np.ndarray, gamma: np.ndarray, num_warmup: int,
    keys: Sequence[jax.Array], values: Sequence[Values],
) -> list[Assignments]:  # fmt: skip
    batches, num_terms = data.documents.laid_out, data.documents.num_terms
    chains = [alone(_first, key, batches, FACTOR * graph.num_topics, num_terms) for key in keys]
    if with_kernels(batches):
        sweeps = partial(_swept_by_kernel, batches, num_terms)
    else:
        sweeps = partial(one_by_one, partial(swept, batches=batches, num_terms=num_terms))
    found = fewer_and_fewer(keys, chains, graph.num_topics, alpha, gamma, num_warmup, sweeps)
    recounted = graph.program(_recounted)
    return [
        alone(recounted, key, new.astype(np.int32), z, own, data)
        for key, (z, new), own in zip(keys, found, values, strict=True)
    ]


def _seeded(
    graph: BoundGraph, data: Data, expected: Expected, keys: Sequence[jax.Array], values: Sequence[Values]
) -> list[Assignments]:
    batches, num_terms, found = data.documents.laid_out, data.documents.num_terms, []
    for key, own in zip(keys, values, strict=True):
        first = alone(_first, key, batches, graph.num_topics, num_terms)
        z = alone(swept, alone(expected_given, key, expected), first, batches, num_terms)
        found.append(alone(graph.program(_recounted), key, np.arange(graph.num_topics), z, own, data))
    return found


def placed(state: Any, z: Any, site: str = "z") -> Any:
    """A state of the composite kernel, whose last block owns the topics, with these topics."""
    *others, last = state.block_states
    return state._replace(z={**state.z, site: z}, block_states=(*others, last._replace(z={**last.z, site: z})))


def _of_sentences(
    key: jax.Array, topics: jax.Array, data: Data, num_topics: int, site: TopicAssignments
) -> Assignments:
    """Topics of sentences, drawn with proportions and topics as those of single words suggest."""
    batches, num_terms = data.documents.laid_out, data.documents.num_terms
    z = count(topics, batches, num_topics, num_terms)
    theta, beta = z.document_topic + USUAL_ALPHA, z.topic_term.T + USUAL_GAMMA
    term_topic = jnp.pad(beta / beta.sum(0), ((0, 1), (0, 0)), constant_values=1.0)
    chain = Chain(term_topic, theta / theta.sum(-1, keepdims=True), jnp.asarray(site.switch, jnp.float32))
    return of_sentences(*draw_sentences(key, chain, batches), batches, num_topics, num_terms)


def _recounted(
    graph: BoundGraph, key: jax.Array, new: jax.Array, z: Assignments, values: Values, data: Data
) -> Assignments:
    """Topics with new numbers, counted as the story asks: by the labels of documents, where topics are theirs."""
    site = run(graph.story, *data, values, AssignmentHandler(counted=False))["z"]["fn"]
    labels = Labels.of(site.label, site.beta.shape)
    long = None if z.long is None else new[z.long]
    if graph.has_sentences:
        return _of_sentences(key, new[z.topics], data, graph.num_topics, site)
    return count(new[z.topics], data.documents.laid_out, graph.num_topics, data.documents.num_terms, long, labels)


def priors(graph: BoundGraph) -> tuple[np.ndarray, np.ndarray]:
    """alpha of each topic [K] and gamma [K, V] or [K, 1], where they are numbers that nothing is drawn for."""
    topics = graph.num_topics
    alpha, gamma = np.full(topics, USUAL_ALPHA), np.full((topics, 1), USUAL_GAMMA)
    sites = [site for site in (graph.theta, graph.beta) if _has_fixed_prior(graph, site)]
    fixed = graph.program(prior_concentrations, tuple(sites))(graph.few_documents, graph.few_y, graph.few_values)
    if graph.theta in fixed:
        found = np.asarray(fixed[graph.theta])
        alpha = np.broadcast_to(found.reshape(-1, found.shape[-1]).mean(0), (topics,)).astype(float)
    if graph.beta in fixed:
        found = np.asarray(fixed[graph.beta], float)
        found = np.broadcast_to(found, np.broadcast_shapes(found.shape, (topics, 1)))
        gamma = found.reshape(-1, *found.shape[-2:]).mean(0)
    return alpha, gamma


def _has_fixed_prior(graph: BoundGraph, site: str) -> bool:
    """Whether theta or beta has a Dirichlet prior of which nothing is drawn."""
    integrable = graph.theta_is_integrable if site == graph.theta else graph.beta_is_integrable
    return bool(site) and integrable() and graph.parents[site] == {site}


def prior_concentrations(
    graph: BoundGraph, sites: Sequence[str], few: Documents, y: Y, values: Values
) -> dict[str, jax.Array]:
    trace = run(graph.story, few, y, values, ZbarHandler(lambda theta: theta))
    return {site: concentration(trace[site]["fn"]) for site in sites}


def swept(told: Given, z: Assignments, batches: PaddedBatches, num_terms: int) -> Assignments:
    """Topics of all words after a sweep given topics."""
    own = own_shards(batches)
    if with_kernels(own) or registered():  # these share their work out by themselves
        parts = _sweep_at_once(told, own_topics(z), own)
    else:
        parts = by_threads(_sweep, own, told, own_topics(z), own)
    parts = gathered(parts, len(batches.terms), limits(batches, told.weights))
    return _assembled(Swept(*map(jnp.asarray, parts)), told, z, batches, num_terms)


@jitted(once=True, static_argnames=("num_topics", "num_terms"))
def _first(key: jax.Array, batches: PaddedBatches, num_topics: int, num_terms: int) -> Assignments:
    shapes = jnp.zeros((1, num_topics)), jnp.zeros((num_topics, num_terms))
    return TopicAssignments(*shapes, batches).sample(key)


def expected_given(key: jax.Array, expected: Expected) -> Given:
    """What a sweep is given where topics stand at their expectation; words of no topic are drawn by proportions alone.

    Expected proportions outweigh the random topics that documents have before.
    """
    topics, proportions = expected
    alpha = np.full((1, len(topics)), USUAL_ALPHA) if proportions is None else MANY_WORDS * proportions
    return given_words(key, jnp.asarray(topics, jnp.float32), jnp.asarray(alpha, jnp.float32))


@jitted
def _sweep(between: Any, told: Given, z: Assignments, batches: PaddedBatches) -> Swept:
    return sweep_shards(None, True, told, z, batches, between)


@jitted
def _sweep_at_once(told: Given, z: Assignments, batches: PaddedBatches) -> Swept:
    return sweep_tokens(None, True, told, z, batches, by_kernel=with_kernels(batches))


def _swept_by_kernel(
    batches: PaddedBatches, num_terms: int, chains: Sequence[Assignments], keys: Sequence[jax.Array], steps: range,
    alpha: np.ndarray, gamma: np.ndarray,
) -> list[Assignments]:  # fmt: skip
    """As :func:`.merging.one_by_one` with :func:`swept`, all chains and steps in one program: a document is swept token by
    token, and the longest keep one chain's few waiting."""
    chains = [z._replace(proposed=None) for z in chains]
    return _by_kernel(chains, list(keys), steps.start, steps.stop, alpha, gamma, batches, num_terms)


@jitted(static_argnames=("num_terms",))
def _by_kernel(
    chains: list[Assignments], keys: list[jax.Array], first: int, last: int, alpha: jax.Array, gamma: jax.Array,
    batches: PaddedBatches, num_terms: int,
) -> list[Assignments]:  # fmt: skip
    def once(step: jax.Array, key: jax.Array, z: Assignments) -> Assignments:
        told = words_given(jax.random.fold_in(key, step), z.topic_term, alpha, gamma)
        new = sweep_tokens(None, True, told, z, batches, by_kernel=True)
        return _assembled(new, told, z, batches, num_terms)._replace(proposed=None)

    def often(key: jax.Array, z: Assignments) -> Assignments:
        return jax.lax.fori_loop(first, last, lambda step, z: once(step, key, z), z)

    found = jax.vmap(often)(jnp.stack(keys), jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(chains))]


@jitted(static_argnames=("num_terms",))
def _assembled(swept: Swept, told: Given, z: Assignments, batches: PaddedBatches, num_terms: int) -> Assignments:
    long = None if batches.long is None else sweep_long(None, True, told, z, batches.long)
    return assembled(swept, batches, True, num_terms, long)
