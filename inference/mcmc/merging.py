"""Topics of a corpus merged two by two, a few at a time with sweeps between, until as many are left as are asked for.

Two topics are merged, with counts n_k of terms and n_dk of documents added up, where that costs the log joint density least,
the documents' part of it by a quarter,

    log B(gamma + n_i + n_j) - log B(gamma + n_i) - log B(gamma + n_j)
        + 1/4 sum_d log Gamma(alpha + n_di + n_dj) - log Gamma(alpha + n_di) - log Gamma(alpha + n_dj),

since topics that go together in documents would else be merged for that, with words of their own or not. A twentieth of
the number that is asked for goes at a time, with some sweeps between, more where the warm-up is longer: what was merged,
and what was left next to nothing, finds its words anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from ..kernels.assignments import Assignments
from ..kernels.sweep import FLOOR, Given, Weights
from ..programs.compiling import jitted

FACTOR = 2  # topics to begin with, for each that is asked for
FEWEST_SWEEPS, SWEEPS = 5, 30  # before the first merge; fewer where the warm-up has fewer
OF_DOCUMENTS = 0.25  # what their part counts where topics are merged
STEPS = 20  # in which topics are merged
FEW_BETWEEN, BETWEEN = 4, 1 / 30  # sweeps after each: the larger of so many and so much of the warm-up
LITTLE = 1 / 15  # of the warm-up: no more than that, and one, in the place of the few
NEAREST = 12  # a topic is merged with one of so many whose terms are most like its own
MOST_DOCUMENTS = 2000  # that speak for all when topics are compared
DEVICE = Lock()  # held by the thread that has work on a GPU


def fewer_and_fewer(
    keys: Sequence[jax.Array],
    chains: Sequence[Assignments],
    num_topics: int,
    alpha: np.ndarray,
    gamma: np.ndarray,
    num_warmup: int,
    sweeps: Callable,
) -> list[tuple[Assignments, np.ndarray]]:
    """Of each chain topics of all words, beginning with more than are asked for; and which number those left shall have.

    ``sweeps`` makes topics of all chains anew a number of times, as :func:`one_by_one`. Topics that are gone keep their
    place, where the prior of proportions is 0, so that all sweeps are one program.
    """
    most, step = FACTOR * num_topics, 0
    first = int(np.clip(num_warmup, FEWEST_SWEEPS, SWEEPS))
    between = max(min(FEW_BETWEEN, 1 + int(LITTLE * num_warmup)), int(BETWEEN * num_warmup))
    priors = float(alpha.mean()), float(gamma.mean())
    numbers = sorted({num_topics + round(num_topics * i / STEPS) for i in range(1, STEPS)} - {num_topics, most})
    number = most

    def with_fewer(z: Assignments) -> Assignments:
        return renumbered(merged(*_tables(z, number), fewer, *priors), z)

    def last(z: Assignments) -> tuple[Assignments, np.ndarray]:
        tables = _tables(z, number)
        new = in_order(merged(*tables, num_topics, *priors), *tables, alpha, gamma)
        return z, np.concatenate([new, np.zeros(most - number, new.dtype)])

    with ThreadPoolExecutor(len(chains)) as threads:
        for fewer in (most, *reversed(numbers)):
            if fewer < number:
                chains = list(threads.map(with_fewer, chains))
            number = fewer
            flat = np.where(np.arange(most) < number, priors[0], 0.0)[None].astype(np.float32)
            steps = range(step, step + (between if number < most else first))
            chains, step = alone(sweeps, chains, keys, steps, flat, np.float32(priors[1])), steps.stop
        return list(threads.map(last, chains))


def one_by_one(
    sweep: Callable,
    chains: Sequence[Assignments],
    keys: Sequence[jax.Array],
    steps: range,
    alpha: np.ndarray,
    gamma: np.ndarray,
) -> list[Assignments]:
    """Topics after so many steps, each by a ``sweep`` that is given :class:`..kernels.sweep.Given` and topics."""
    found = []
    for z, key in zip(chains, keys, strict=True):
        for step in steps:
            z = sweep(words_given(jax.random.fold_in(key, step), z.topic_term, alpha, gamma), z)
        found.append(z)
    return found


def alone(program: Callable, *arguments: Any) -> Any:
    """What a program gives, with no other thread's work on a GPU meanwhile.

    With sixteen threads at one H200 (jax 0.11.2) a kernel read what was not its own: documents had other counts than topics,
    in one chain of fifty. The rest, which is as much, runs in threads on the host.
    """
    with DEVICE if jax.default_backend() == "gpu" else nullcontext():
        return jax.block_until_ready(program(*arguments))


@jitted
def words_given(key: jax.Array, topic_term: jax.Array, alpha: jax.Array, gamma: jax.Array) -> Given:
    return given_words(key, (topic_term + gamma) / (topic_term + gamma).sum(1, keepdims=True), alpha)


def given_words(key: jax.Array, beta: jax.Array, alpha: jax.Array) -> Given:
    """What a sweep of words alone is given, of topics [topics, terms] and prior proportions [1 or documents, topics]."""
    term_topic = jnp.maximum(jnp.pad(beta.T, ((0, 1), (0, 0))), FLOOR)
    return Given(tuple(jax.random.split(key)), Weights(term_topic, alpha, ()), None)


def _tables(z: Assignments, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the first topics in documents and of their terms, [documents, topics] and [topics, terms]."""
    return np.asarray(z.document_topic)[:, :number], np.asarray(z.topic_term)[:number]


def renumbered(new: np.ndarray, z: Assignments, num_topics: int | None = None) -> Assignments:
    """Topics with new numbers, of so many; those behind the last number of ``new``, which have no words, have none."""
    num_topics = num_topics or len(z.topic_term)
    if jax.default_backend() == "gpu" and isinstance(z.topics, jax.Array):  # where they are
        new = np.concatenate([new, np.full(len(z.topic_term) - len(new), num_topics, new.dtype)])
        return alone(_renumbered, new, z, num_topics)
    before = np.asarray(z.document_topic).T, np.asarray(z.topic_term)
    documents, terms = (np.zeros((num_topics, part.shape[1]), part.dtype) for part in before)
    for old, k in enumerate(new):
        documents[k] += before[0][old]
        terms[k] += before[1][old]
    new = np.concatenate([new, np.zeros(len(z.topic_term) - len(new), new.dtype)])
    topics, long = (None if part is None else new.astype(part.dtype)[np.asarray(part)] for part in (z.topics, z.long))
    return z._replace(topics=topics, document_topic=np.ascontiguousarray(documents.T), topic_term=terms, long=long)


@jitted(static_argnames=("num_topics",))
def _renumbered(new: jax.Array, z: Assignments, num_topics: int) -> Assignments:
    becomes = jax.nn.one_hot(new, num_topics, dtype=z.topic_term.dtype)
    with jax.default_matmul_precision("highest"):  # of whole numbers, and so exact
        documents, terms = z.document_topic @ becomes, becomes.T @ z.topic_term
    topics, long = (None if part is None else new.astype(part.dtype)[part] for part in (z.topics, z.long))
    return z._replace(topics=topics, document_topic=documents, topic_term=terms, long=long)


def merged(
    document_topic: np.ndarray,
    topic_term: np.ndarray,
    num_topics: int,
    alpha: float,
    gamma: float,
    weight: float = OF_DOCUMENTS,
    gaining: bool = False,
) -> np.ndarray:
    """For each of many topics the number of the one that it becomes, [topics], merged two by two.

    The documents' part of the log joint density counts by ``weight``. With ``gaining`` topics are merged only while
    it rises, where the place of a topic that is gone stays empty.
    """
    rows = np.unique(np.linspace(0, len(document_topic) - 1, MOST_DOCUMENTS).astype(int))
    number, num_terms = topic_term.shape
    share, prior = weight * len(document_topic) / len(rows), gamma * num_terms
    parts = np.rint(topic_term).astype(int), np.rint(document_topic[rows].T).astype(int)
    of_terms, of_documents = (
        gammaln(c + np.arange(part.sum(0).max(initial=0) + 1)) for c, part in zip((gamma, alpha), parts, strict=True)
    )
    # what a count gives beside a count of 0: of terms first, then of documents
    given = np.concatenate([of_terms - of_terms[0], share * (of_documents - of_documents[0])])
    counts = np.concatenate([parts[0], parts[1] + len(of_terms)], 1)
    none = np.repeat([0, len(of_terms)], [part.shape[1] for part in parts])
    empty = -gammaln(prior)
    sizes = parts[0].sum(1)
    products = parts[0].astype(float) @ parts[0].T.astype(float)  # of whole numbers, and so exact
    alive, becomes = np.ones(number, bool), np.arange(number)
    gain = np.full((number, number), -np.inf)

    def nearest(i: int) -> np.ndarray:
        """The others whose terms are most like a topic's."""
        likeness = products[i] / np.maximum(np.sqrt(np.diag(products)), 1.0)
        others = np.flatnonzero(alive & (np.arange(number) != i))
        return others[np.argsort(-likeness[others], kind="stable")[:NEAREST]]

    def look(i: int, others: np.ndarray) -> None:
        """What the log joint density gains where a topic is merged with others; what it has none of makes no difference."""
        own = np.flatnonzero(counts[i] > none)
        more, theirs = counts[i, own], counts[np.ix_(others, own)]
        together = (given.take(theirs + (more - none[own])) - given.take(theirs)).sum(1) - given.take(more).sum()
        gain[i, others] = gain[others, i] = together - of_sizes(i, others)

    def of_sizes(i: Any, others: np.ndarray) -> np.ndarray:
        return gammaln(prior + sizes[others] + sizes[i]) - gammaln(prior + sizes[others]) - gammaln(prior + sizes[i])

    near, own = np.stack([nearest(i) for i in range(number)]), np.arange(number)[:, None]
    if jax.default_backend() == "gpu":
        gain[own, near] = alone(gains_of_pairs, near, counts, none, given) - of_sizes(own, near)
        gain = np.maximum(gain, gain.T)
    else:
        pairs = np.zeros((number, number), bool)
        pairs[own, near] = True
        for i in range(number):
            look(i, np.flatnonzero((pairs | pairs.T)[i, :i]))
    while alive.sum() > num_topics:
        i, j = map(int, np.unravel_index(gain.argmax(), gain.shape))
        if gaining and gain[i, j] + empty <= 0:
            break
        counts[i] += counts[j] - none
        sizes[i] += sizes[j]
        products[i] += products[j]
        products[:, i] += products[:, j]
        becomes[becomes == j], alive[j] = i, False
        gain[[i, j]] = gain[:, [i, j]] = -np.inf
        look(i, nearest(i))
    return (np.cumsum(alive) - 1)[becomes]


def gains_of_pairs(near: np.ndarray, counts: np.ndarray, none: np.ndarray, given: np.ndarray) -> np.ndarray:
    """What topics gain by their counts where they are merged with those near to them, [topics, near], by a GPU."""
    number, none = len(counts), none.astype(np.int32)
    padded = np.tile(none, (1 << (number - 1).bit_length(), 1))  # programs for few numbers of topics
    padded[:number] = counts
    others = np.pad(near, ((0, len(padded) - number), (0, 0)))
    return np.asarray(_gains_of_pairs(others, padded, none, given.astype(np.float32)))[:number]


@jitted
def _gains_of_pairs(near: jax.Array, counts: jax.Array, none: jax.Array, given: jax.Array) -> jax.Array:
    def look(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        own, theirs = pair[0], counts[pair[1]]
        return (given[theirs + own - none] - given[theirs] - given[own]).sum(-1)

    return jax.lax.map(look, (counts, near), batch_size=64)


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
