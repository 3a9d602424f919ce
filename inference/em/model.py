"""Variational EM for a story: the components that it asks for, composed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..story.bound import BoundGraph
from ..story.graph import BETA, LABEL
from .additive import WARM_UP, AdditiveSite, additive_topics
from .classes import LatentClass, ObservedClass, latent_class
from .components import NoResponse, Posterior, Response, Settings, State, refuse
from .margin_beside import MarginBeside
from .margins import Margin, margins_of
from .priors import LearnedPriors
from .responses import SmoothResponse
from .sites import DirichletSite, Points, concentrations
from .starts import dealt_counts
from .words import BagWords, TokenWords, require_given


class EMModel:
    """The turns of EM on a story, whatever its components are."""

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph = graph
        latent = any(site.discrete for site in graph.latent.values())
        self.response: Response = _response(graph, settings, latent)
        self.words: BagWords | TokenWords | None = None
        self.topics: DirichletSite | AdditiveSite | None = None
        self.priors = LearnedPriors(graph, settings)
        if graph.has_sentences:
            refuse(graph, graph.theta or graph.beta, "words of a sentence share their topic")
        if graph.has_words:
            self.topics = _topics(graph, settings)
            kind = TokenWords if settings.order == "sequential" and graph.response_sites else BagWords
            if kind is TokenWords and (graph.has_labels or latent):
                refuse(graph, graph.response_sites[0], "order='sequential' knows no label and no latent class")
            self.words = kind(graph, settings, latent_class(graph) if latent else None)
        self.classes: ObservedClass | LatentClass
        if latent:
            self.classes = LatentClass(graph, settings, getattr(self.response, "names", set()))
        else:
            own = {self.words.theta, *self.topics.names} if self.words and self.topics else set()
            own |= getattr(self.response, "names", set()) | self.priors.names
            extra = sorted(set(graph.latent) - own)
            # what is observed and read by the words as their label may have a density that depends on nothing
            seen = [name for name in graph.observed if name not in own]
            seen = [name for name in seen if not graph.has_labels or graph.parents[name] - {name}]
            if not graph.has_words and not extra:
                refuse(graph, graph.observed[0], "the story has no site to estimate")
            self.classes = ObservedClass(graph, settings, extra, seen)
        parts = (self.words, self.topics, self.response, self.classes, self.priors)
        self.reads = frozenset().union(*(part.reads for part in parts if part is not None))
        self.monotone = self.response.monotone
        self.afresh = latent or graph.has_words  # whether an E-step has anything to start afresh

    def start(self, rng: np.random.Generator) -> State:
        """Parameters of response and classes, topics at the counts that these suggest, and no E-step yet."""
        if self.words is None or self.topics is None:
            state = State(None, np.zeros(0), classes=self.classes.start(rng))
            return self.classes.warmed_up(state) if isinstance(self.classes, LatentClass) else state
        response, counts = self.response.start(rng)
        classes, shares = self.classes.start(rng), None
        labels = getattr(self.words, "labels", None)
        if isinstance(self.classes, LatentClass) and self.classes.of_label:
            shares = self.classes.first_shares(rng, classes)
        elif labels is not None and isinstance(self.topics, AdditiveSite):
            shares = labels == np.arange(self.topics.prior.shape[0])[:, None]
        if shares is not None:
            counts = dealt_counts(rng, self.graph.corpus, self.topics.prior.shape[-2], shares)
        state = State(self.topics.start(rng, counts), self.words.alpha, response, classes)
        return self.warmed_up(self._under(state, self.priors.start()))

    def _under(self, state: State, priors: Points) -> State:
        """The state with other values above the prior of theta; words keep their topics, and q(theta) follows."""
        if self.words is None or self.words.theta not in self.priors.of:
            return state._replace(priors=priors)
        alpha = self.priors.concentration(self.words.theta, priors, self.words.alpha.shape)
        if state.local is not None:
            state = state._replace(local=state.local._replace(gamma=state.local.gamma + (alpha - state.alpha)))
        return state._replace(priors=priors, alpha=alpha)

    def warmed_up(self, state: State) -> State:
        """After some turns of EM under the normal prior where topics are additive and nothing else says how they start."""
        if not isinstance(self.topics, AdditiveSite) or self.graph.response_sites:
            return state
        for _ in range(WARM_UP):
            state = self.e_step(state, fresh=True)
            state = state._replace(topics=self.topics.warm(state.counts, state.topics))
        return state._replace(topics=self.topics.complete(state.counts, state.topics))

    def e_step(self, state: State, fresh: bool) -> State:
        """The documents' q, expected counts and statistics: afresh, or from where the last E-step ended."""
        if self.words is None or self.topics is None:
            return self.classes.e_step(None, None, None, state, fresh)
        log_mean = self.topics.log_mean(state.topics)
        if self.classes.latent:
            return self.classes.e_step(self.words, self.response, log_mean, state, fresh)
        return self.response.e_step(self.words, log_mean, state, fresh)

    def m_step(self, state: State, fresh: bool) -> State:
        """All parameters given the documents' q; what is above theta and beta only once topics have settled."""
        classes = self.classes.m_step(state)
        if self.words is None or self.topics is None:
            return state._replace(classes=classes)
        log_mean, shift = self.topics.log_mean(state.topics), 0.0
        response = self.response.m_step(self.words, log_mean, state)
        if isinstance(self.response, SmoothResponse):
            shift = self.response.shift(self.words, log_mean, state, response)
        alpha = self.words.next_alpha(state, fresh)
        if self.priors.names and not fresh:
            state = self._under(state, self.priors.m_step(state, self.topics))
            alpha = state.alpha
        topics = self.priors.topics(self.topics, state.priors).m_step(state.counts, state.topics)
        return state._replace(topics=topics, alpha=alpha, response=response, classes=classes, shift=shift)

    def bound(self, state: State) -> float:
        total = float(np.asarray(state.local.bound, np.float64).sum())
        if self.topics is not None:
            total += self.priors.topics(self.topics, state.priors).bound(state.topics)
        return total + self.response.bound(state) + self.classes.bound(state) + self.priors.bound(state)

    def q(self, state: State) -> Posterior:
        """The approximate posterior of every latent site."""
        words = self.words.q(state) if self.words else {}
        topics = self.topics.q(state.topics) if self.topics else {}
        return words | topics | self.classes.q(state) | self.response.q(state) | self.priors.q(state)

    def report(self, state: State) -> Mapping[str, float]:
        return self.response.report(state)


def _response(graph: BoundGraph, settings: Settings, latent: bool) -> Response:
    if not graph.response_sites:
        return NoResponse()
    if latent and graph.has_words:
        if margins_of(graph):
            refuse(graph, graph.response_sites[0], "beside a latent class vem knows no margin")
        return SmoothResponse(graph, settings, latent=latent_class(graph)[0])
    if margins_of(graph):
        return (Margin if len(graph.response_sites) == 1 else MarginBeside)(graph, settings)
    return SmoothResponse(graph, settings)


def _topics(graph: BoundGraph, settings: Settings) -> DirichletSite | AdditiveSite:
    """The topics that the story gives to draw_words: a Dirichlet site, or the softmax of a sum with sparse sites in it."""
    if above := sorted(graph.parents.get(LABEL, frozenset()) - {n for n, s in graph.latent.items() if s.discrete}):
        refuse(graph, above[0], "the label given to draw_words depends on it, and vem wants it observed or one class")
    additive = additive_topics(graph, settings) if not graph.beta else None
    if additive is not None:
        return additive
    name = require_given(graph, graph.beta, BETA.strip("~"))
    if graph.latent[name].document_axis is not None:
        refuse(graph, name, "it has an axis of documents")
    return DirichletSite(name, concentrations(graph, [name])[name], settings.topics == "mle")
