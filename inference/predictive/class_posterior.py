"""Labels above the words: a story that draws a document's class first, and its words given the class.

A new document's class follows from Bayes' rule, p(c | w) proportional to p(c) p(w | c). Where all words of a document come
from one topic p(w | c) is exact; where they have topics of their own it is the bound of variational inference, which lies
below: for documents of a few words the probabilities of classes are no better than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, softmax

from topiczoo.corpora.layouts import Documents, distinct_pairs

from ..posterior.posterior import Posterior
from ..steps.words import e_step, first_gamma, pair_batches
from ..story.bound import BoundGraph
from ..story.classes import densities_of_classes, is_class, num_classes
from ..story.graph import THETA
from ..story.sweeping import read_weights
from ..story.tracing import Data, Values, ZbarHandler, run
from .fold_in import FoldIn
from .responding import respond

LIMITS = 1e-5, 100  # of an E-step: tolerance and iterations


def label_above(graph: BoundGraph, drawn: Collection[str]) -> str | None:
    """The site of a document's class that words depend on, if there is one.

    ``graph`` is of documents without responses. Where all words of a document have one topic, a class that the fit has
    ``drawn`` itself is that topic, unless something but the words follows from it.
    """
    for name in graph.latent:
        if name in graph.response_sites or not is_class(graph, name):
            continue
        children = graph.children([name]) - {name}
        if not graph.has_words:
            if (children and name not in drawn) or children - {*graph.observed}:
                return name
        elif graph.drives_words([name]) or graph.parents[THETA] & children:
            return name
    return None


def answers(fold: FoldIn, site: str) -> list[str]:
    """What is predicted where a class stands above the words: the class, or where the fit has never seen classes what they
    generate, sites of documents beside theta that depend on the class or on the topics and that nothing reads."""
    graph, drawn = fold.graph, fold.fit.sites
    if site not in drawn and not _never_seen(fold.fit, site):
        return [site]
    below = graph.children([site]) | {*graph.response_sites}
    found = sorted(below - {site, graph.theta, *drawn, *graph.observed})
    found = [name for name in found if graph.children([name]) == {name}]
    return found or ([] if graph.has_words else [site])  # of bags of words the one topic of each


def _never_seen(fit: Posterior, site: str) -> bool:
    """Whether a class was latent in the fit: svi and nuts sum it out, and keep no draws of it."""
    return site in fit.graph.latent


class ClassPosterior:
    """The classes of some documents, and their topics given each class."""

    def __init__(self, fold: FoldIn, site: str, told: list[str] | None = None) -> None:
        """``told``: what is predicted, where it is known."""
        self.fold, self.site, self.graph = fold, site, fold.graph
        self.answers = answers(fold, site) if told is None else told
        self.classes = np.arange(num_classes(self.graph, site))

    @cached_property
    def _pairs(self) -> Any:
        counts = self.graph.corpus.counts
        return pair_batches(distinct_pairs(counts), *counts.shape)

    def _compiled(self, method: Callable, *fixed: Any) -> Callable:
        """A method, after the fixed arguments, as a program that is kept."""
        return self.fold.compiled(_of_classes, method, self.site, self.answers, *fixed)

    def _values(self, corpus: Documents, values: Values, label: Any) -> dict:
        return {**values, self.site: jnp.full(corpus.num_documents, label, jnp.int32)}

    def _logits(self, corpus: Documents, values: Values) -> jax.Array:
        # nothing that is to be predicted counts
        seen = self.graph.children([self.site]) & {self.site, *self.graph.observed}
        return densities_of_classes(self.graph, self.site, sorted(seen), Data(corpus, None), values)

    def _weights_and_prior(self, corpus: Documents, values: Values, label: jax.Array) -> tuple:
        """log beta [V, K], alpha [D, K] and log p(c) [D] given the class."""
        values = self._values(corpus, values, label)
        weights = read_weights(self.graph, corpus, None, values, collapsed=True, one_label=True)
        prior = self.graph.document_terms([self.site], corpus, None, values, ZbarHandler(lambda theta: theta))
        shape = corpus.num_documents, self.graph.num_topics
        return jnp.log(weights.term_topic[:-1]), jnp.broadcast_to(weights.proportions, shape), prior

    def log_joint(self, values: Values) -> tuple[np.ndarray, np.ndarray | None]:
        """log p(c, w) [documents, classes], and where words have topics E[theta | c, w] [classes, documents, topics]."""
        corpus = self.fold.corpus
        if not self.graph.has_words:
            logits = self._compiled(ClassPosterior._logits)
            return np.asarray(logits(corpus, self._values(corpus, values, 0)), float), None
        joint, proportions = [], []
        read, lengths = self._compiled(ClassPosterior._weights_and_prior), np.asarray(corpus.lengths)
        for label in self.classes:
            log_beta, alpha, prior = read(corpus, values, label)
            start = first_gamma(alpha, lengths)
            found = e_step(self._pairs, log_beta, alpha, start, LIMITS, counted=False)
            posterior = np.asarray(found.gamma, float)
            joint.append(np.asarray(prior, float) + found.bound)
            proportions.append(posterior / posterior.sum(1, keepdims=True))
        return np.stack(joint, 1), np.stack(proportions)

    def __call__(self, values: Values) -> tuple[np.ndarray, np.ndarray | None]:
        """p(c | w) [documents, classes], and E[theta | w] [documents, topics] where words have topics, at given values."""
        joint, proportions = self.log_joint(values)
        shares = softmax(joint, axis=1)
        return shares, None if proportions is None else np.einsum("dc,cdk->dk", shares, proportions)

    def part(self, key: jax.Array, values: Values, repeats: int) -> dict[str, dict]:
        """The response at given values, as :func:`.prediction.as_prediction` wants it."""
        joint, _ = self.log_joint(values)
        shares = softmax(joint, axis=1)
        if self.answers != [self.site]:
            method = ClassPosterior._responses if self.reads_topics else ClassPosterior._generated
            found = self._compiled(method, repeats)(self.fold.corpus, values, key, jnp.asarray(shares))
            return jax.tree.map(np.asarray, found)
        draws = jax.random.categorical(key, jnp.log(shares), shape=(repeats, len(shares)))
        told = {"draw": np.asarray(draws), "mean": shares @ self.classes, "probabilities": shares}
        told["log_probabilities"] = log_softmax(joint, axis=1)  # a share of 0 has one too
        return {self.site: told}

    @property
    def reads_topics(self) -> bool:
        """Whether what is predicted depends on the topics of words."""
        return bool({*self.answers} & {*self.graph.response_sites})

    def topics(self, key: jax.Array, corpus: Documents, values: Values, label: jax.Array) -> tuple[jax.Array, dict]:
        """A draw of zbar [documents, topics] given the words, were all documents of a class, and all values with theta's."""
        values, fold = self._values(corpus, values, label), self.fold
        z = fold.topics(corpus, key, fold.expected_counts(corpus, values), values, 1)
        theta = fold.theta(corpus, z, values)
        return fold.zbar(corpus, z, theta), {**values, self.graph.theta: theta}

    def _responses(
        self, repeats: int, corpus: Documents, values: Values, key: jax.Array, shares: jax.Array
    ) -> dict[str, dict]:
        """Responses that read topics: drawn for each class, and then mixed."""
        label_key, key = jax.random.split(key)

        def given(label: jax.Array) -> dict[str, dict]:
            topic_key, response_key = jax.random.split(jax.random.fold_in(key, label))
            zbar, of_class = self.topics(topic_key, corpus, values, label)
            return respond(self.graph, self.answers, repeats, response_key, corpus, zbar, of_class)

        of_classes = jax.lax.map(given, jnp.asarray(self.classes))
        label = jax.random.categorical(label_key, jnp.log(shares), shape=(repeats, len(shares)))
        repeat, document = jnp.arange(repeats)[:, None], jnp.arange(len(shares))

        def mixed(what: str, value: jax.Array) -> jax.Array:
            if what == "draw":
                return value[label, repeat, document]
            return jnp.einsum("dc,cd...->d...", shares, value)

        return {name: {what: mixed(what, value) for what, value in part.items()} for name, part in of_classes.items()}

    def _generated(
        self, repeats: int, corpus: Documents, values: Values, key: jax.Array, shares: jax.Array
    ) -> dict[str, dict]:
        """What the class generates without topics."""

        def once(key: jax.Array, label: jax.Array) -> dict:
            given = {**values, self.site: label}
            return run(self.graph.story, corpus, None, given, ZbarHandler(lambda theta: theta), key=key, prior=True)

        def drawn(key: jax.Array) -> dict:
            label_key, key = jax.random.split(key)
            label = jax.random.categorical(label_key, jnp.log(shares))
            return {name: once(key, label)[name]["value"] for name in self.answers}

        def means(label: jax.Array) -> dict:
            trace = once(key, jnp.full(corpus.num_documents, label))
            return {name: trace[name]["fn"].mean for name in self.answers}

        draws = jax.vmap(drawn)(jax.random.split(key, repeats))
        of_classes = jax.lax.map(means, jnp.asarray(self.classes))
        return {
            name: {"draw": draws[name], "mean": jnp.einsum("dc,cd...->d...", shares, of_classes[name])}
            for name in self.answers
        }


def _of_classes(fold: FoldIn, method: Callable, site: str, told: list[str], *arguments: Any) -> Any:
    """A method of the class posterior for compiled code, whose fold knows no fit."""
    return method(ClassPosterior(fold, site, told), *arguments)
