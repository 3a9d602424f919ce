"""Folding in: topics of documents outside the fit, given their words and posterior draws of all that is not of documents."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import LEAST_POSITIONS, Documents, rounded_up

from ..blocks.local import above_theta
from ..gpu.choosing import expected_counts_of, soft_sweeps_of, with_kernels
from ..kernels.assignments import Assignments, mean_topics
from ..kernels.sharding import by_threads, side_by_side
from ..kernels.soft_sweep import expected_counts_of_long
from ..kernels.sweep import Given, sweep_long
from ..posterior.posterior import Posterior
from ..programs.compiling import jitted
from ..programs.keeping import Unkeyed, frozen, keep
from ..programs.progress import tqdm
from ..steps.words import by_document
from ..story.bound import BoundGraph
from ..story.classes import check_labels
from ..story.reader import bind
from ..story.reading import check_covariates
from ..story.response import Response
from ..story.sweeping import read_weights, sweep
from ..story.tracing import Story, Values, traced
from .local_fold import Folded, LocalFold

AT_ONCE = 16  # posterior draws that threads share out together
ESTIMATED = "estimated_prior"  # an argument of a story whose theta has a prior that the engine has found
MOST_TOGETHER = 2**22  # numbers in the draws of topics that are made side by side
MOST_KEPT = 64 * 2**20  # bytes of draws that a fit keeps on the device
CENTRING = 10  # steps to the expected counts of topics


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


class FoldIn:
    """Sweeps of the topics of some documents, theta integrated out and no response seen, at each posterior draw.

    Where theta cannot be integrated out, what drives it is drawn beside the topics (:mod:`.local_fold`).

    ``data``, the documents and their responses, is handed to ``step`` as an argument: compiled code must not hold it.
    What is compiled is kept, so that new documents of the same shapes need not wait for it again.
    """

    def __init__(
        self, fit: Posterior, corpus: Corpus, response: Response | None = None, *, chains: Sequence[int] | None = None,
        alike: bool = False,
    ) -> None:  # fmt: skip
        known = known_words(fit, corpus)
        self.fit = fit
        self.chains = chains or range(next(iter(fit.global_draws().values())).shape[0])
        self.graph = self._bound(known, response)
        check_covariates(self.graph)
        words = self.graph.has_words
        self.local = None  # where theta is not integrated out
        if words and (self.graph.has_sentences or not self.graph.theta_is_integrable()):
            self.local = self._local(known)
        check_labels(self.graph)
        self.corpus = self.graph.documents(pairs=not words, batches=words)
        self.alike = alike
        if alike and words:
            self.corpus = replace(self.corpus, batches=self.corpus.laid_out.known_by_words(known))
        # the room that a compiled program has for a document
        self.deepest = rounded_up(max(int(np.max(self.corpus.laid_out.depth)), LEAST_POSITIONS)) if words else 0
        self.data = self.corpus, self.graph.response.on_device()

    @property
    def responses(self) -> list[str]:
        """What follows from topics or proportions, at once or by way of other sites, and is observed or read by nothing."""
        graph, above = self.graph, above_theta(self.graph)
        seen = set() if self.local is None else {*self.local.parts}  # of the documents, whatever their responses are
        after = {*graph.response_sites, *(graph.children(above) - {*above} - seen)}
        while more := graph.children(sorted(after)) - after:
            after |= more
        return [n for n in graph.density_axis if n in after and (n in graph.observed or graph.children([n]) == {n})]

    def _bound(self, known: Corpus, response: Response | None) -> BoundGraph:
        """The story read on the documents; on others that look alike it is not read again."""
        y = {} if response is None else response.parts
        shown = {name: (part.shape[1:], bool(np.isnan(part).any())) for name, part in y.items()}
        columns = tuple(known.covariates.dtypes.items())
        key = bind, columns, tuple(shown.items()), response is not None and response.several
        if key not in self.fit.compiled:
            self.fit.compiled[key] = bind(_story(self.fit), known, response)
        found = self.fit.compiled[key]
        return replace(found, corpus=known, response=Response({}) if response is None else response)

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
        bare = copy.copy(self)
        bare.graph = self.graph.bare()
        bare.fit = bare.corpus = bare.data = None  # type: ignore[assignment]

        def make(form: Any = None) -> Callable:
            return jitted(traced(functools.partial(function, bare, *fixed)), keys=True, form=form)

        try:
            key = FoldIn, function, self.deepest, frozen((fixed, self.local, self.graph))
        except Unkeyed:
            return make()
        return keep(key, lambda: make(key))

    def run(
        self, step: Callable, *fixed: Any, seed: int, most_draws: int, num_burn: int, progress_bar: bool = False
    ) -> Iterator[Any]:
        """What ``step(fold, num_burn, *fixed, data, key, centre, values)`` returns for every draw, chain after chain.

        ``most_draws`` a chain at the most. ``centre`` is for :meth:`topics`.
        """
        draws = self._draws(most_draws)
        num_draws = len(next(iter(draws[0].values())))
        together = self._work * num_draws <= MOST_TOGETHER
        compiled = self.compiled(_for_all if together else _for_one, step, num_burn, *fixed)
        with tqdm(total=len(self.chains) * num_draws, disable=not progress_bar, desc="fold in", unit="draw") as bar:
            for chain in self.chains:
                key, centre, own = jax.random.fold_in(jax.random.key(seed), chain), self._centre(chain), draws[chain]

                def at(i: int) -> Any:
                    return compiled(self.data, key, centre, own, i)

                if together:
                    found = jax.tree.map(np.asarray, compiled(self.data, key, centre, own))
                    yield from (jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(num_draws))
                    bar.update(num_draws)
                    continue
                for first in range(0, num_draws, AT_ONCE):
                    some = range(first, min(first + AT_ONCE, num_draws))
                    for part in side_by_side(at, some, compiled, (self.data, centre)):
                        yield jax.tree.map(np.asarray, part)
                        bar.update()

    @property
    def _work(self) -> int:
        """Numbers that a draw of all topics computes with, about."""
        words = self.graph.corpus.num_tokens if self.corpus.batches is None else self.corpus.batches.terms.size
        return (words + self.corpus.num_documents) * max(self.graph.num_topics, 1)

    def _draws(self, most_draws: int) -> list[dict[str, jax.Array]]:
        """Draws of all sites that are not of documents, chain by chain, on the device; a fit keeps them if they are few."""
        key = FoldIn._draws, most_draws
        if key not in self.fit.compiled:
            draws = self.fit.global_draws(most_draws)
            chains = range(len(next(iter(draws.values()))))
            found = [{name: jnp.asarray(value[chain]) for name, value in draws.items()} for chain in chains]
            if sum(value.nbytes for value in draws.values()) > MOST_KEPT:
                return found
            self.fit.compiled[key] = found
        return self.fit.compiled[key]

    def points(self, most_draws: int) -> Iterator[dict[str, jax.Array]]:
        """The sites that are not of documents at every draw, chain after chain, ``most_draws`` a chain at the most."""
        draws = self.fit.global_draws(most_draws)
        for chain in self.chains:
            for i in range(next(iter(draws.values())).shape[1]):
                yield {name: jnp.asarray(value[chain, i]) for name, value in draws.items()}

    def means(self, chain: int) -> dict[str, jax.Array]:
        """A chain's posterior means of all sites that are not of documents."""
        key = FoldIn.means, chain
        if key not in self.fit.compiled:
            means = self.fit.global_means(chain)
            self.fit.compiled[key] = {name: jnp.asarray(value) for name, value in means.items()}
        return self.fit.compiled[key]

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


def _for_one(fold: FoldIn, step: Callable, burn: int, *rest: Any) -> Any:
    """A step at one draw of a chain."""
    *fixed, data, key, centre, draws, i = rest
    values = jax.tree.map(lambda leaf: leaf[i], draws)
    return step(fold, burn, *fixed, data, jax.random.fold_in(key, i), centre, values)


def _for_all(fold: FoldIn, step: Callable, burn: int, *rest: Any) -> Any:
    """A step at all draws of a chain side by side: a loop over few words takes as long for many draws as for one."""
    *fixed, data, key, centre, draws = rest
    number = len(next(iter(draws.values())))
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))
    return jax.vmap(lambda key, values: step(fold, burn, *fixed, data, key, centre, values))(keys, draws)


def _story(fit: Posterior) -> Story:
    """The fit's story, with theta's prior as the engine has estimated it where it has."""
    theta = fit.graph.theta
    if fit.info.get("alpha") is None or not theta:
        return fit.story
    arguments = {**fit.story.arguments, ESTIMATED: np.asarray(fit.info["alpha"], np.float32)}
    return replace(fit.story, function=_with_prior(fit.story.function, theta), arguments=arguments)


@functools.lru_cache(maxsize=32)
def _with_prior(story: Callable, theta: str) -> Callable:
    """A story that takes alpha of the site theta as an argument more; the same function for the same story."""

    @functools.wraps(story)
    def function(*arguments: Any, **named: Any) -> None:
        alpha = named.pop(ESTIMATED)
        with _Prior(theta, jnp.asarray(alpha)):
            story(*arguments, **named)

    own = inspect.signature(story)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = inspect.Parameter(ESTIMATED, inspect.Parameter.KEYWORD_ONLY)
    rest = [p for p in own.parameters.values() if p.kind is p.VAR_KEYWORD]
    function.__signature__ = own.replace(parameters=[*parameters, more, *rest])  # type: ignore[attr-defined]
    return function


class _Prior(Messenger):
    """Dir(alpha) in the place of a site's own prior."""

    def __init__(self, site: str, alpha: jax.Array) -> None:
        super().__init__(None)
        self.site, self.alpha = site, alpha

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] == self.site:
            msg["fn"] = dist.Dirichlet(self.alpha).expand(msg["fn"].batch_shape)
