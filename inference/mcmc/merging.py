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

from collections.abc import Callable
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
    key: jax.Array,
    z: Assignments,
    num_topics: int,
    alpha: np.ndarray,
    gamma: np.ndarray,
    num_warmup: int,
    sweep: Callable,
) -> tuple[Assignments, np.ndarray]:
    """Topics of all words, beginning with more than are asked for; and which number each of those left shall have.

    ``sweep`` makes topics anew given :class:`..kernels.sweep.Given`. Topics that are gone keep their place, where the prior
    of proportions is 0, so that all sweeps are one program.
    """
    most, step = FACTOR * num_topics, 0
    first = int(np.clip(num_warmup, FEWEST_SWEEPS, SWEEPS))
    between = max(min(FEW_BETWEEN, 1 + int(LITTLE * num_warmup)), int(BETWEEN * num_warmup))
    priors = float(alpha.mean()), float(gamma.mean())
    numbers = sorted({num_topics + round(num_topics * i / STEPS) for i in range(1, STEPS)} - {num_topics, most})
    number = most
    for fewer in (most, *reversed(numbers)):
        if fewer < number:
            z = renumbered(merged(*_tables(z, number), fewer, *priors), z)
        number = fewer
        flat = np.where(np.arange(most) < number, priors[0], 0.0)[None].astype(np.float32)
        steps = range(step, step + (between if number < most else first))
        z, step = alone(_swept_often, sweep, z, key, steps, flat, np.float32(priors[1])), steps.stop
    tables = _tables(z, number)
    new = in_order(merged(*tables, num_topics, *priors), *tables, alpha, gamma)
    return z, np.concatenate([new, np.zeros(most - number, new.dtype)])


def _swept_often(sweep: Callable, z: Assignments, key: jax.Array, steps: range, alpha: Any, gamma: Any) -> Assignments:
    for step in steps:
        z = sweep(words_given(jax.random.fold_in(key, step), z.topic_term, alpha, gamma), z)
    return z


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
    before = np.asarray(z.document_topic).T, np.asarray(z.topic_term)
    documents, terms = (np.zeros((num_topics, part.shape[1]), part.dtype) for part in before)
    for old, k in enumerate(new):
        documents[k] += before[0][old]
        terms[k] += before[1][old]
    new = np.concatenate([new, np.zeros(len(z.topic_term) - len(new), new.dtype)])
    topics, long = (None if part is None else new.astype(part.dtype)[np.asarray(part)] for part in (z.topics, z.long))
    return z._replace(topics=topics, document_topic=np.ascontiguousarray(documents.T), topic_term=terms, long=long)


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
    of_documents, of_terms = (np.rint(part).astype(np.int32) for part in (document_topic[rows].T, topic_term))
    share, prior = weight * len(document_topic) / len(rows), gamma * of_terms.shape[1]
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
    empty = density(np.zeros_like(of_terms[0]), np.zeros_like(of_documents[0]))
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
        if gaining and gain[i, j] + empty <= 0:
            break
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
