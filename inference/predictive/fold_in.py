"""Folding in: topics of documents outside the fit, given their words and posterior draws of all that is not of documents."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.primitives import Messenger
from tqdm.auto import tqdm

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, documents

from ..gpu.choosing import expected_counts_of, soft_sweeps_of, with_kernels
from ..kernels.assignments import Assignments, mean_topics
from ..kernels.sharding import by_threads, side_by_side
from ..kernels.soft_sweep import expected_counts_of_long
from ..kernels.sweep import CHUNK, Given, sweep_long
from ..kernels.word_steps import by_document
from ..posterior.posterior import Posterior
from ..story.bound import BoundGraph, bind
from ..story.classes import check_labels
from ..story.reading import check_covariates
from ..story.response import Response
from ..story.sweeping import read_weights, sweep
from ..story.tracing import Story, Values
from .local_fold import Folded, LocalFold

AT_ONCE = 16  # posterior draws that threads share out together
CENTRING = 10  # steps to the expected counts of topics
MOST_COMPILED = 16  # functions kept with a fit


def known_words(fit: Posterior, corpus: Corpus) -> Corpus:
    """The corpus over the fit's vocabulary; words that the fit has not seen are left out."""
    if not isinstance(corpus, Corpus):
        raise TypeError(f"corpus is a {type(corpus).__name__}; make a Corpus of it, e.g. Corpus.from_counts(counts).")
    if np.array_equal(corpus.vocabulary, fit.vocabulary):
        return corpus
    if not np.isin(corpus.vocabulary, fit.vocabulary).any():
        theirs, ours = (
            ", ".join(map(repr, np.asarray(terms)[:3].tolist())) for terms in (corpus.vocabulary, fit.vocabulary)
        )
        raise ValueError(
            f"corpus has the terms {theirs}, ... and the fit {ours}, ..., not one in common; make the corpus with the "
            "fit's vocabulary, e.g. Corpus.from_counts(counts, fit.vocabulary)."
        )
    return corpus.with_vocabulary(fit.vocabulary)


def responses(graph: BoundGraph) -> list[str]:
    """What follows from zbar, at once or by way of other sites, and is observed or read by nothing."""
    after = set(graph.response_sites)
    while more := graph.children(sorted(after)) - after:
        after |= more
    return [n for n in graph.density_axis if n in after and (n in graph.observed or graph.children([n]) == {n})]


class FoldIn:
    """Sweeps of the topics of some documents, theta integrated out and no response seen, at each posterior draw.

    Where theta cannot be integrated out, what drives it is drawn beside the topics (:mod:`.local_fold`).

    ``data``, the documents and their responses, is handed to ``step`` as an argument: compiled code must not hold it.
    What is compiled stays with the fit, so that new documents of the same shapes need not wait for it again.
    """

    def __init__(
        self, fit: Posterior, corpus: Corpus, response: Response | None = None, *, chains: Sequence[int] | None = None
    ) -> None:
        known = known_words(fit, corpus)
        self.fit = fit
        self.chains = chains or range(next(iter(fit.global_draws().values())).shape[0])
        self.graph = bind(_story(fit), known, response)
        check_covariates(self.graph)
        words = self.graph.has_words
        self.local = None  # where theta is not integrated out
        if words and not self.graph.theta_is_integrable():
            self.local = self._local(known)
        check_labels(self.graph)
        self.corpus = documents(known, pairs=not words, batches=words)
        self.deepest = int(np.max(self.corpus.laid_out.depth)) if words else 0
        self.data = self.corpus, self.graph.response.on_device()

    def _local(self, known: Corpus) -> LocalFold:
        """How documents are folded in together with what drives theta; what is found out of the story stays with the fit."""
        if LocalFold not in self.fit.compiled:
            blind = bind(_story(self.fit), known) if self.graph.response else self.graph
            self.fit.compiled[LocalFold] = LocalFold.of(blind)
        if (found := self.fit.compiled[LocalFold]) is None:
            raise ValueError(
                f"Documents outside the fit are folded in one by one, with theta integrated out or drawn from sites of each "
                f"document, which the story {self.fit.story.name!r} does not allow; fit the new documents together with the "
                "old ones, with NaN as their response."
            )
        return found

    def compiled(self, function: Callable, *fixed: Any) -> Callable:
        """``function(fold, *fixed, ...)`` as a function of the rest, compiled; it must not read the fold's data."""
        of_y = jax.tree.structure(self.data[1]), self.graph.story.masked
        key, kept = (function, fixed, -(-self.deepest // CHUNK), of_y), self.fit.compiled
        if key not in kept:
            if len(kept) >= MOST_COMPILED:
                kept.pop(next(iter(kept)))
            bare = copy.copy(self)
            bare.graph = self.graph.bare()
            bare.corpus = bare.data = None  # type: ignore[assignment]
            kept[key] = jax.jit(functools.partial(function, bare, *fixed))
        return kept[key]

    def run(
        self, step: Callable, *fixed: Any, seed: int, most_draws: int, num_burn: int, progress_bar: bool = False
    ) -> Iterator[Any]:
        """What ``step(fold, num_burn, *fixed, data, key, centre, values)`` returns for every draw, chain after chain.

        ``most_draws`` a chain at the most. ``centre`` is for :meth:`topics`.
        """
        draws = self.fit.global_draws(most_draws)
        num_draws = next(iter(draws.values())).shape[1]
        compiled = self.compiled(step, num_burn, *fixed)
        with tqdm(total=len(self.chains) * num_draws, disable=not progress_bar, desc="fold in", unit="draw") as bar:
            for chain in self.chains:
                key, centre = jax.random.fold_in(jax.random.key(seed), chain), self._centre(chain)

                def at(i: int) -> Any:
                    values = {name: jnp.asarray(value[chain, i]) for name, value in draws.items()}
                    return compiled(self.data, jax.random.fold_in(key, i), centre, values)

                for first in range(0, num_draws, AT_ONCE):
                    some = range(first, min(first + AT_ONCE, num_draws))
                    for part in side_by_side(at, some, compiled, (self.data, centre)):
                        yield jax.tree.map(np.asarray, part)
                        bar.update()

    def points(self, most_draws: int) -> Iterator[dict[str, jax.Array]]:
        """The sites that are not of documents at every draw, chain after chain, ``most_draws`` a chain at the most."""
        draws = self.fit.global_draws(most_draws)
        for chain in self.chains:
            for i in range(next(iter(draws.values())).shape[1]):
                yield {name: jnp.asarray(value[chain, i]) for name, value in draws.items()}

    def means(self, chain: int) -> dict[str, jax.Array]:
        """A chain's posterior means of all sites that are not of documents."""
        return {name: jnp.asarray(value) for name, value in self.fit.global_means(chain).items()}

    def _centre(self, chain: int) -> jax.Array | None:
        """Expected counts of topics at a chain's means, [documents, topics]."""
        if self.corpus.batches is None:
            return None
        given = self.corpus, self.means(chain)
        if self.local is not None:
            return self.compiled(FoldIn._local_centre)(*given)
        lanes = by_threads(self.compiled(FoldIn._in_lanes), self.corpus.laid_out, *given)
        return self.compiled(FoldIn._expected_counts)(lanes, *given)

    def _local_centre(self, corpus: Documents, values: Values) -> jax.Array:
        assert self.local is not None
        return self.local.centre(self.graph, corpus, values)

    def expected_counts(self, corpus: Documents, values: Values) -> jax.Array:
        """Expected counts of topics given the words, [documents, topics]."""
        return self._expected_counts(self._in_lanes(None, corpus, values), corpus, values)

    def _in_lanes(self, between: Any, corpus: Documents, values: Values) -> jax.Array:
        """Expected counts of topics given the words, in the lanes of the documents."""
        weights = read_weights(self.graph, corpus, None, values, collapsed=True)
        even = jnp.tile(corpus.lengths[:, None] / self.graph.num_topics, self.graph.num_topics)
        return expected_counts_of(between, even, corpus.laid_out, weights, CENTRING, self.deepest)

    def _expected_counts(self, lanes: Any, corpus: Documents, values: Values) -> jax.Array:
        """The same, of each document."""
        counts = by_document(lanes, corpus.laid_out)
        if corpus.laid_out.long is None:
            return counts
        weights = read_weights(self.graph, corpus, None, values, collapsed=True)
        return counts.at[corpus.laid_out.long.rows].set(expected_counts_of_long(corpus.laid_out, weights, CENTRING))

    def expected_topics(self, corpus: Documents, values: Values) -> tuple[jax.Array, dict]:
        """E[zbar] given the words, [documents, topics], and all values with theta, or what drives it, as expected."""
        if self.local is not None:
            theta, zbar, expected = self.local.expected(self.graph, corpus, values)
        else:
            counts = self.expected_counts(corpus, values)
            theta = self.theta(corpus, Assignments(jnp.zeros(0, jnp.int32), counts), values)
            zbar, expected = counts / jnp.maximum(corpus.lengths, 1)[:, None], {self.graph.theta: theta}
        return jnp.where(corpus.lengths[:, None] > 0, zbar, theta), {**values, **expected}

    def topics(
        self, corpus: Documents, key: jax.Array, centre: jax.Array, values: Values, burn: int
    ) -> Assignments | Folded:
        """A draw of all topics given the words: from the chain's centre, and after ``burn`` exact sweeps."""
        if self.local is not None:
            return self.local.topics(self.graph, corpus, key, centre, values, burn)
        weights = read_weights(self.graph, corpus, None, values, collapsed=True)
        long_key, key = jax.random.split(key)
        z = Assignments(*soft_sweeps_of(key, centre, corpus.laid_out, weights, burn, self.deepest))
        if (long := corpus.laid_out.long) is None:
            return z
        topics, counts = jnp.zeros(long.terms.shape, jnp.int32), centre[long.rows]
        for turn in range(1 + burn):
            z = z._replace(long=topics, document_topic=z.document_topic.at[long.rows].set(counts))
            keys = tuple(jax.random.split(jax.random.fold_in(long_key, turn)))
            told = Given(keys, weights, None)
            topics, counts, _ = sweep_long(None, True, told, z, long)
        return z._replace(long=topics, document_topic=z.document_topic.at[long.rows].set(counts))

    def sweep(self, corpus: Documents, key: jax.Array, z: Any, values: Values) -> Assignments | Folded:
        """One exact sweep more."""
        if self.local is not None:
            return self.local.round(self.graph, corpus, key, z, values)
        return sweep(
            key,
            z,
            self.graph,
            corpus,
            None,
            values,
            collapsed=True,
            supervised=False,
            by_kernel=with_kernels(corpus.laid_out),
        )

    def given(self, z: Any, theta: jax.Array | None, values: Values) -> dict:
        """All values that the response of documents with such topics is run with."""
        return {**values, **z.values} if self.local is not None else {**values, self.graph.theta: theta}

    def theta(self, corpus: Documents, z: Any, values: Values) -> jax.Array:
        """E[theta | z], or theta as it was drawn with z, [documents, topics]."""
        if self.local is not None:
            return z.proportions
        theta = z.document_topic + read_weights(self.graph, corpus, None, values, collapsed=True).proportions
        return theta / theta.sum(-1, keepdims=True)

    def zbar(self, corpus: Documents, z: Any, theta: jax.Array) -> jax.Array:
        """Mean topics; of a document without known words E[zbar] under the prior stands for them."""
        return jnp.where(corpus.lengths[:, None] > 0, mean_topics(z, corpus), theta)


def _story(fit: Posterior) -> Story:
    """The fit's story, with theta's prior as the engine has estimated it where it has."""
    theta = fit.graph.theta
    if fit.info.get("alpha") is None or not theta:
        return fit.story
    alpha = jnp.asarray(fit.info["alpha"], jnp.float32)

    @functools.wraps(fit.story.function)
    def function(*arguments: Any, **named: Any) -> None:
        with _Prior(theta, alpha):
            fit.story.function(*arguments, **named)

    return replace(fit.story, function=function)


class _Prior(Messenger):
    """Dir(alpha) in the place of a site's own prior."""

    def __init__(self, site: str, alpha: jax.Array) -> None:
        super().__init__(None)
        self.site, self.alpha = site, alpha

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] == self.site:
            msg["fn"] = dist.Dirichlet(self.alpha).expand(msg["fn"].batch_shape)
