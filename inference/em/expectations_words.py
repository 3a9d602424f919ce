"""Variational EM for words without a response: the E-step of :mod:`..kernels.word_steps`, topics Dirichlet or additive."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Pairs, distinct_pairs, documents

from ..kernels.word_steps import e_step, first_gamma, pair_batches
from ..story.bound import BoundGraph
from ..story.graph import LABEL
from ..story.tracing import ZbarHandler, run
from .additive_site import AdditiveSite, dealt_counts, warmed_up
from .expectations import (
    DirichletSite,
    Marginals,
    Settings,
    concentrations,
    expected_log,
    fit_alpha,
    refuse,
    require_dirichlet,
)
from .expectations_additive import additive_topics
from .expectations_counted import counted_sites


class WordsState(NamedTuple):
    """What one turn of EM hands to the next."""

    topics: Any  # see DirichletSite and AdditiveSite
    alpha: np.ndarray  # [K] or [D, K]
    gamma: jax.Array  # [D, K]
    counts: np.ndarray  # [K, V] expected, where topics are a label's [labels, K, V]
    bound: np.ndarray  # [D]


class Words:
    """Stories of a Dirichlet theta for each document, Dirichlet or additive topics, and what is counted from y alone.

    Where topics are those of an observed label, a term said under another label is another term.
    """

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        self.graph, self.settings = graph, settings
        self.theta, self.topics, self.alpha = read_words(graph, settings, labels=True)
        extra = sorted(set(graph.latent) - {self.theta, *self.topics.names})
        # what is observed and read by the words as their label may have a density that depends on nothing
        observed = [name for name in graph.observed if not graph.has_labels or graph.parents[name] - {name}]
        self.counted = counted_sites(graph, extra, settings.topics == "mle", observed)
        self.shape = self.topics.prior.shape  # [K, V] or [labels, K, V]
        self.labels = observed_labels(graph) if graph.has_labels else None
        self.pairs = pair_batches(*labelled_pairs(graph.corpus, self.labels, self.shape))
        self.lengths = graph.corpus.lengths.astype(np.float64)

    def start(self, rng: np.random.Generator) -> WordsState:
        nothing, counts = np.zeros(0), np.zeros(())
        if isinstance(self.topics, AdditiveSite) and self.labels is not None:
            shares = self.labels == np.arange(self.shape[0])[:, None]
            counts = dealt_counts(rng, self.graph.corpus, self.shape[-2], shares)
        state = WordsState(self.topics.start(rng, counts), self.alpha, jnp.zeros(0), nothing, nothing)
        return warmed_up(self.topics, state, self.expect)

    def expect(self, state: WordsState, fresh: bool) -> WordsState:
        log_mean = np.swapaxes(self.topics.log_mean(state.topics), -1, -2)  # [..., V, K]
        log_beta = jnp.asarray(log_mean.reshape(-1, log_mean.shape[-1]), jnp.float32)
        start = first_gamma(state.alpha, self.lengths) if fresh else state.gamma
        limits = self.settings.e_tolerance, self.settings.e_iterations
        found = e_step(self.pairs, log_beta, state.alpha, start, limits)
        expected = np.swapaxes(np.asarray(found.counts, np.float64).reshape(log_mean.shape), -1, -2)
        return state._replace(gamma=found.gamma, counts=expected, bound=found.bound)

    def maximise(self, state: WordsState, fresh: bool) -> WordsState:
        alpha = state.alpha
        if self.settings.estimate_alpha and not fresh:
            alpha = fit_alpha(alpha, expected_log(np.asarray(state.gamma, np.float64)))
        return state._replace(topics=self.topics.update(state.counts, state.topics), alpha=alpha)

    def bound(self, state: WordsState) -> float:
        counted = sum(site.bound(counts) for site, counts in self.counted)
        return float(state.bound.sum()) + self.topics.bound(state.topics) + counted

    def marginals(self, state: WordsState) -> Marginals:
        marginals = Marginals(dirichlet={self.theta: np.asarray(state.gamma)})
        for site, value in ((self.topics, state.topics), *self.counted):
            site.put(value, marginals)
        return marginals


def observed_labels(graph: BoundGraph) -> np.ndarray:
    """The label that the story gives to draw_words for each document, [D]."""
    if above := sorted(graph.parents[LABEL]):
        refuse(graph, above[0], "the label given to draw_words depends on it, and vem wants it observed")

    @jax.jit
    def look(corpus: Any, y: Any) -> jax.Array:
        answer = ZbarHandler(lambda theta: theta)
        run(graph.story, corpus, y, {}, answer)
        return answer.label

    return np.asarray(look(documents(graph.corpus), jax.tree.map(jnp.asarray, graph.y)))


def labelled_pairs(corpus: Corpus, labels: np.ndarray | None, shape: tuple[int, ...]) -> tuple[Pairs, int, int]:
    """What :func:`pair_batches` wants; term v under label j is term j V + v."""
    pairs = distinct_pairs(corpus.counts)
    if labels is None:
        return pairs, *corpus.counts.shape
    shift = labels[np.asarray(pairs.document)] * shape[-1]
    return pairs._replace(term=pairs.term + jnp.asarray(shift, jnp.int32)), len(corpus), shape[0] * shape[-1]


def read_words(
    graph: BoundGraph, settings: Settings, labels: bool = False
) -> tuple[str, DirichletSite | AdditiveSite, np.ndarray]:
    """The names and priors of theta and of the topics, where only the words read them.

    theta is a Dirichlet site, and so is beta, or it is the softmax of a sum with a sparse site in it.

    alpha comes as [D, K]; as [K] when it is to be estimated, which asks that documents share it.
    """
    theta, beta = graph.theta, graph.beta
    if graph.has_labels and not labels:
        refuse(
            graph,
            (*graph.response_sites, "draw_words")[0],
            "vem knows topics of a label without a response of topics only",
        )
    additive = additive_topics(graph, settings) if not beta else None
    for name, what in ((theta, "theta"), (beta, "beta")):
        if what == "beta" and additive is not None:
            continue
        if not name:
            above = sorted(graph.parents["~" + what] - {"~" + what}) or ["draw_words"]
            refuse(graph, above[0], f"the {what} given to draw_words is computed, not a Dirichlet site itself")
        require_dirichlet(graph, name)
        if others := sorted(graph.children([name]) - {name}):
            refuse(graph, others[0], f"it reads {name!r}, which vem wants read by the words alone")
    if graph.latent[theta].document_axis is None:
        refuse(graph, theta, "it has no axis of documents")
    if additive is None and graph.latent[beta].document_axis is not None:
        refuse(graph, beta, "it has an axis of documents")
    priors = concentrations(graph, [theta] if not beta else [theta, beta])
    alpha = priors[theta]
    if settings.estimate_alpha:
        if np.ptp(alpha, axis=0).any():
            refuse(graph, theta, "estimate_alpha=True asks for one alpha for all documents, and theirs differ")
        alpha = alpha[0]
    return theta, additive or DirichletSite(beta, priors[beta], settings.topics == "mle"), alpha
