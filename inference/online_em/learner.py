"""One step of online variational EM after the other: an E-step of a minibatch, and a little of the M-step that it asks for.

The parts are those of variational EM (:mod:`..em.components`), bound to a sample of the documents: what they know of a story
is the same, and words and responses of a minibatch take the place of the sample's.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, documents, rounded_up

from ..em.classes import ObservedClass
from ..em.components import NoResponse, Posterior, Settings, State
from ..em.model import EMModel
from ..em.responses import SmoothResponse
from ..em.sites import DirichletSite
from ..em.words import BagWords
from ..steps.words import Room
from ..story.bound import BoundGraph
from ..story.response import Y
from ..story.tracing import ZbarHandler, concentration, run
from ..story.validation import Unserved
from ..streams.minibatches import Minibatch
from .responses import OnlineResponse
from .topics import OnlineTopics


class Rates(NamedTuple):
    """rho_t = (tau + t)^-kappa, and how many documents there are."""

    kappa: float
    tau: float
    num_documents: int

    def at(self, step: int) -> float:
        return float((self.tau + step) ** -self.kappa)


class Learned(NamedTuple):
    """All that has been learned, and from how many minibatches."""

    topics: OnlineTopics
    response: OnlineResponse | None
    steps: int = 0


class Learner:
    """Steps of online variational EM on a story."""

    def __init__(self, graph: BoundGraph, settings: Settings, rates: Rates, size: int) -> None:
        self.graph, self.rates, self.size = graph, rates, size
        self.model = EMModel(graph, settings)
        _refuse(self.model)
        assert isinstance(self.model.words, BagWords) and isinstance(self.model.topics, DirichletSite)
        self.words, self.topics = self.model.words, self.model.topics
        response: Any = self.model.response
        self.response, self.supervised = response, isinstance(response, SmoothResponse)
        alpha = self.words.alpha
        self.alpha = None if graph.covariates or np.ptp(alpha, axis=0).any() else alpha[0]
        self.room, self.room_of_terms = self.words.pairs.needed.larger(), 0  # in what is compiled
        if self.supervised:
            _ = response.is_normal  # once, for all minibatches

    def start(self, rng: np.random.Generator) -> Learned:
        """Topics as variational EM starts them: at what the sample's responses suggest, else alike but for noise."""
        values, counts = self.response.start(rng)
        found = self.topics.start(rng, counts * (self.rates.num_documents / len(self.graph.corpus)))
        response = OnlineResponse.start(values) if self.supervised else None
        return Learned(OnlineTopics.start(self.topics.prior, found), response)

    def step(self, learned: Learned, batch: Minibatch) -> tuple[Learned, float]:
        """After a minibatch; and its documents' part of the bound, before they moved anything."""
        # a batch that had to be filled up is a smaller step
        rho, scale = self.rates.at(learned.steps) * batch.number / self.size, self.rates.num_documents / batch.number
        terms, counts = self._own_terms(batch.corpus)
        log_mean = np.zeros((self.topics.prior.shape[0], counts.shape[1]), np.float32)
        log_mean[:, : len(terms)] = learned.topics.log_mean(terms)
        words = self.words.of_others(counts, self._alpha(batch), self.room)
        if any(map(operator.gt, words.pairs.needed, self.room)):
            self.room = Room(*map(max, self.room, words.pairs.needed.larger()))
        response = self.response
        if self.supervised:
            response = response.of_others(self._data(batch))
        values = None if learned.response is None else learned.response.values
        state = State(None, words.alpha, values)
        state = response.e_step(words, log_mean, state, fresh=True)
        expected = np.asarray(state.counts)[:, : len(terms)]
        found = learned.response
        if found is not None:
            found = found.step(response, words, log_mean, state, rho, scale)
        topics = learned.topics.step(terms, expected, rho, scale)
        bound = float(np.asarray(state.local.bound, np.float64)[: batch.number].sum())
        return Learned(topics, found, learned.steps + 1), bound

    def bound_of_corpus(self, learned: Learned) -> float:
        """What is no document's in the bound."""
        found = self.topics.bound(learned.topics.concentration())
        return found if learned.response is None else found + float(self.response.log_prior(learned.response.values))

    def q(self, learned: Learned) -> Posterior:
        """The approximate posterior, with the proportions of the sample's documents."""
        values = None if learned.response is None else learned.response.values
        state = State(learned.topics.concentration(), self.words.alpha, values)
        return self.model.q(self.model.e_step(state, fresh=True))

    def _own_terms(self, corpus: Corpus) -> tuple[np.ndarray, sparse.csr_array]:
        """The terms that documents have, and their counts in the order of these, with room for as many as others had."""
        terms, place = np.unique(corpus.counts.indices, return_inverse=True)
        if len(terms) > self.room_of_terms:
            self.room_of_terms = rounded_up(min(3 * len(terms) // 2, corpus.num_terms))
        counts, shape = corpus.counts, (len(corpus), self.room_of_terms)
        own = sparse.csr_array((counts.data, place.astype(np.int32), counts.indptr), shape=shape)
        return terms, own

    def _alpha(self, batch: Minibatch) -> np.ndarray:
        if self.alpha is not None:
            return np.broadcast_to(self.alpha, (len(batch.corpus), len(self.alpha)))
        found = self.graph.program(_concentration, self.words.theta)(*self._data(batch))
        return np.asarray(found, np.float64)

    def _data(self, batch: Minibatch) -> tuple[Documents, Y]:
        laid = replace(documents(batch.corpus), arguments=self.graph.story.given)
        return laid, batch.response.on_device()


def _concentration(graph: BoundGraph, name: str, corpus: Documents, y: Y) -> jax.Array:
    """alpha of each document, [D, K]."""
    site = run(graph.story, corpus, y, {}, ZbarHandler(lambda theta: theta))[name]
    return jnp.broadcast_to(concentration(site["fn"]), jnp.shape(site["value"]))


def _refuse(model: EMModel) -> None:
    """Say no to what variational EM serves and minibatches do not."""
    graph = model.graph

    def no(site: str, why: str) -> None:
        what = f"online variational EM cannot serve the site {site!r} of the story {graph.story.name!r}: {why}"
        raise Unserved(graph, ["online"], what)

    if model.words is None:
        no(sorted(graph.latent)[0], "it wants words with topics of their own, and a document has one here")
    if model.priors.names:
        no(sorted(model.priors.names)[0], "it stands above a Dirichlet prior, which minibatches do not estimate")
    if not isinstance(model.topics, DirichletSite):
        no(sorted(model.topics.names)[0] if model.topics else "w", "it wants topics that are a Dirichlet site")
    if graph.has_labels:
        no(graph.beta or "w", "topics are those of a label, and it wants topics that all documents share")
    if not isinstance(model.response, NoResponse | SmoothResponse):
        no(graph.response_sites[0], "it wants a response with a smooth density, and this one is a margin")
    classes = model.classes
    if not isinstance(classes, ObservedClass):
        no(classes.name, "it is a latent class of documents")
    elif classes.counted:
        no(classes.counted[0][0].name, "it stands above what is seen of documents, beside their words and topics")
