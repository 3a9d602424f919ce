"""Where chains start: topics at random, or twice as many topics as are asked for, merged until as many are left.

From random topics many chains end in a trap, where two of the corpus' topics share one and another is split in two: 2,000
nats below the mass of the posterior on a thousand short reviews, and no number of sweeps leads out. With twice as many
topics every topic of the corpus has one of its own soon, and some have several. Two topics are merged, with counts n_k of
terms and n_dk of documents added up, where that costs the log joint density least,

    log B(gamma + n_i + n_j) - log B(gamma + n_i) - log B(gamma + n_j)
        + sum_d log Gamma(alpha + n_di + n_dj) - log Gamma(alpha + n_di) - log Gamma(alpha + n_dj),

until the number asked for is left. All this reads words alone, with topics at their posterior mean in each sweep: it is a
place to start from, and no part of the sampler. Every chain makes its own, from its own random topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from topiczoo.corpora.layouts import Documents, PaddedBatches

from ..gpu.choosing import sweep_tokens, with_kernels
from ..kernels.assignments import Assignments, Labels, count
from ..kernels.sentences import Chain, draw_sentences, of_sentences
from ..kernels.sharding import WORKERS, by_threads, own_shards
from ..kernels.sweep import (
    FLOOR,
    Given,
    Swept,
    Weights,
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
from ..story.response import Y
from ..story.tracing import Data, Values, ZbarHandler, concentration, run

STARTS = ("merged", "random")
FACTOR = 2  # topics to begin with, for each that is asked for
SWEEPS = 30
FEWEST_TOKENS = 1000  # below, the sampler leaves traps by itself, and compiling takes longer than sampling
SUPERVISED = 5  # times as many with a response: topics of few words, found without it, are not those that it asks for
NEAREST = 12  # a topic is merged with one of so many whose terms are most like its own
MOST_DOCUMENTS = 2000  # that speak for all when topics are compared
USUAL_ALPHA, USUAL_GAMMA = 0.1, 0.05  # where the story has no fixed Dirichlet priors


def check_start(start: str | None) -> None:
    """Say so if there is no such start, before anything long runs."""
    if start is not None and start not in STARTS:
        raise ValueError(f"start is {start!r}; give {' or '.join(map(repr, STARTS))}.")


def start_topics(start: str, graph: BoundGraph, data: Data) -> Callable | None:
    """A function of keys and states, one for each chain, that gives the states their topics; None for random ones."""
    fewest = FEWEST_TOKENS * (SUPERVISED if graph.response_sites else 1)
    if start == "random" or not graph.has_words or graph.num_topics < 2 or graph.corpus.num_tokens < fewest:
        return None
    return None if _topics_are_of_some_documents(graph) else partial(_with_merged_topics, graph, data)


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


def _with_merged_topics(graph: BoundGraph, data: Data, keys: Sequence[jax.Array], states: list[Any]) -> list[Any]:
    alpha, gamma = priors(graph)
    batches, num_terms = data.documents.laid_out, data.documents.num_terms
    whole = partial(over_complete, batches=batches, num_terms=num_terms, alpha=alpha.mean(), gamma=gamma.mean())
    recount = graph.program(_recounted)
    together = states[0].rng_key.ndim > 0  # all chains in one state, side by side

    def found(i: int) -> Assignments:
        z = whole(keys[i], num_topics=FACTOR * graph.num_topics)
        tables = np.asarray(z.document_topic), np.asarray(z.topic_term)
        becomes = merged(*tables, graph.num_topics, float(alpha.mean()), float(gamma.mean()))
        new = jnp.asarray(in_order(becomes, *tables, alpha, gamma), jnp.int32)
        chain = jax.tree.map(lambda leaf: leaf[i], states[0]) if together else states[i]
        return recount(keys[i], new, z, {name: value for name, value in chain.z.items() if name != "z"}, data)

    beside = WORKERS if len(batches.terms) == 1 else 1  # threads share out either chains or shards
    with ThreadPoolExecutor(beside) as threads:
        assigned = list(threads.map(found, range(len(keys))))
    if together:
        assigned = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *assigned)]
    return [placed(state, z) for state, z in zip(states, assigned, strict=True)]


def placed(state: Any, z: Assignments) -> Any:
    """A state of the composite kernel, whose last block owns the topics, with these topics."""
    *others, last = state.block_states
    return state._replace(z={**state.z, "z": z}, block_states=(*others, last._replace(z={**last.z, "z": z})))


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
    sites = [graph.theta] if graph.theta_is_integrable() and graph.parents[graph.theta] == {graph.theta} else []
    if graph.beta and graph.beta_is_integrable() and graph.parents[graph.beta] == {graph.beta}:
        sites.append(graph.beta)
    fixed = graph.program(_concentrations, tuple(sites))(graph.few_documents, graph.few_y, graph.few_values)
    if graph.theta in fixed:
        found = np.asarray(fixed[graph.theta])
        alpha = np.broadcast_to(found.reshape(-1, found.shape[-1]).mean(0), (topics,)).astype(float)
    if graph.beta in fixed:
        found = np.asarray(fixed[graph.beta], float)
        found = np.broadcast_to(found, np.broadcast_shapes(found.shape, (topics, 1)))
        gamma = found.reshape(-1, *found.shape[-2:]).mean(0)
    return alpha, gamma


def _concentrations(
    graph: BoundGraph, sites: Sequence[str], few: Documents, y: Y, values: Values
) -> dict[str, jax.Array]:
    trace = run(graph.story, few, y, values, ZbarHandler(lambda theta: theta))
    return {site: concentration(trace[site]["fn"]) for site in sites}


def over_complete(
    key: jax.Array, batches: PaddedBatches, num_terms: int, num_topics: int, alpha: float, gamma: float
) -> Assignments:
    """Topics of all words after some sweeps, in each of which topics stand at their posterior mean."""
    priors = jnp.full((1, num_topics), alpha, jnp.float32), jnp.float32(gamma)
    z, own = _first(key, batches, num_topics, num_terms), own_shards(batches)
    for step in range(SWEEPS):
        told = words_given(jax.random.fold_in(key, step), z.topic_term, *priors)
        if with_kernels(own) or registered():  # these share their work out by themselves
            swept = _sweep_at_once(told, own_topics(z), own)
        else:
            swept = by_threads(_sweep, own, told, own_topics(z), own)
        swept = gathered(swept, len(batches.terms), limits(batches, told.weights))
        z = _assembled(Swept(*map(jnp.asarray, swept)), told, z, batches, num_terms)
    return z


@jitted(once=True, static_argnames=("num_topics", "num_terms"))
def _first(key: jax.Array, batches: PaddedBatches, num_topics: int, num_terms: int) -> Assignments:
    shapes = jnp.zeros((1, num_topics)), jnp.zeros((num_topics, num_terms))
    return TopicAssignments(*shapes, batches).sample(key)


@jitted
def words_given(key: jax.Array, topic_term: jax.Array, alpha: jax.Array, gamma: jax.Array) -> Given:
    beta = (topic_term + gamma) / (topic_term + gamma).sum(1, keepdims=True)
    term_topic = jnp.maximum(jnp.pad(beta.T, ((0, 1), (0, 0))), FLOOR)
    return Given(tuple(jax.random.split(key)), Weights(term_topic, alpha, ()), None)


@jitted
def _sweep(between: Any, told: Given, z: Assignments, batches: PaddedBatches) -> Swept:
    return sweep_shards(None, True, told, z, batches, between)


@jitted
def _sweep_at_once(told: Given, z: Assignments, batches: PaddedBatches) -> Swept:
    return sweep_tokens(None, True, told, z, batches, by_kernel=with_kernels(batches))


@jitted(static_argnames=("num_terms",))
def _assembled(swept: Swept, told: Given, z: Assignments, batches: PaddedBatches, num_terms: int) -> Assignments:
    long = None if batches.long is None else sweep_long(None, True, told, z, batches.long)
    return assembled(swept, batches, True, num_terms, long)


def merged(
    document_topic: np.ndarray, topic_term: np.ndarray, num_topics: int, alpha: float, gamma: float
) -> np.ndarray:
    """For each of many topics the number of the one that it becomes, [topics], merged two by two."""
    rows = np.unique(np.linspace(0, len(document_topic) - 1, MOST_DOCUMENTS).astype(int))
    of_documents, of_terms = (np.rint(part).astype(np.int32) for part in (document_topic[rows].T, topic_term))
    share, prior = len(document_topic) / len(rows), gamma * of_terms.shape[1]
    documents = gammaln(alpha + np.arange(of_documents.sum(0).max(initial=0) + 1))
    terms = gammaln(gamma + np.arange(of_terms.sum(0).max(initial=0) + 1))

    def density(n: np.ndarray, m: np.ndarray) -> np.ndarray:
        """What topics with these counts have of the log joint density."""
        return terms[n].sum(-1) - gammaln(prior + n.sum(-1)) + share * documents[m].sum(-1)

    products = of_terms.astype(float) @ of_terms.T.astype(float)  # of whole numbers, and so exact

    def nearest(i: int, alive: np.ndarray) -> np.ndarray:
        """The others whose terms are most like a topic's."""
        likeness = products[i] / np.maximum(np.sqrt(np.diag(products)), 1.0)
        others = np.flatnonzero(alive & (np.arange(len(alive)) != i))
        return others[np.argsort(-likeness[others], kind="stable")[:NEAREST]]

    number = len(of_terms)
    own, alive, becomes = density(of_terms, of_documents), np.ones(number, bool), np.arange(number)
    gain = np.full((number, number), -np.inf)

    def look(i: int) -> None:
        others = nearest(i, alive)
        together = density(of_terms[i] + of_terms[others], of_documents[i] + of_documents[others])
        gain[i, others] = gain[others, i] = together - own[i] - own[others]

    for i in range(number):
        look(i)
    while alive.sum() > num_topics:
        i, j = map(int, np.unravel_index(gain.argmax(), gain.shape))
        of_terms[i] += of_terms[j]
        of_documents[i] += of_documents[j]
        products[i] += products[j]
        products[:, i] += products[:, j]
        becomes[becomes == j], alive[j] = i, False
        gain[[i, j]] = gain[:, [i, j]] = -np.inf
        own[i] = density(of_terms[i], of_documents[i])
        look(i)
    return (np.cumsum(alive) - 1)[becomes]


def in_order(
    becomes: np.ndarray, document_topic: np.ndarray, topic_term: np.ndarray, alpha: np.ndarray, gamma: np.ndarray
) -> np.ndarray:
    """The same with numbers at which the priors fit best, where those of topics differ: seeded topics keep their names."""
    if not np.ptp(alpha) and not np.ptp(gamma, axis=0).any():
        return becomes
    number = len(alpha)
    terms, documents = np.zeros((number, topic_term.shape[1])), np.zeros((number, len(document_topic)))
    np.add.at(terms, becomes, topic_term)
    np.add.at(documents, becomes, document_topic.T)
    prior = np.broadcast_to(gamma, terms.shape)
    fits = np.empty((number, number))
    for k in range(number):  # the topic with number k of the story
        words = gammaln(prior[k] + terms).sum(1) - gammaln(prior[k].sum() + terms.sum(1))
        fits[k] = words + gammaln(alpha[k] + documents).sum(1)
    from scipy.optimize import linear_sum_assignment  # a tenth of a second of start-up

    _, found = linear_sum_assignment(-fits)
    return np.argsort(found)[becomes]
