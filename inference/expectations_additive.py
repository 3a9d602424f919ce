"""Additive components in variational EM: beta_k = softmax(rest + deviation_k), the deviations point estimates.

Whether a story has such components is seen by trying: at deviations of 0 beta says what else is added, and at others it must
be the softmax of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.models.distributions import NormalJeffreys
from topiczoo.models.vocabulary import BagOfWords

from .additive import JeffreysPenalty, LaplacePenalty, NormalPenalty, Penalty, climb, first_deviation
from .expectations import Marginals, Settings, refuse
from .expectations_counted import counted_sites
from .reading import BETA, Reading
from .running import Answer, run, unwrapped

Limits = tuple[int, float]
SPARSE = dist.Laplace, NormalJeffreys  # priors of deviations
START = 20, 1e-6  # Newton steps under the normal prior, and when to end them
# the same under the story's: where nothing but the deviations is to be found, and in one turn of EM, whose counts are not
# yet right. To 0 it is a long way under the Laplace prior and a short one under the Jeffreys prior.
WHOLE: dict[type, Limits] = {JeffreysPenalty: (100, 1e-6), LaplacePenalty: (200, 1e-7)}
TURN: dict[type, Limits] = {JeffreysPenalty: (1, 0.0), LaplacePenalty: (20, 1e-6)}
WARM_UP = 10  # turns of EM under the normal prior: a deviation that is 0 early would stay 0


@dataclass(frozen=True)
class AdditiveSite:
    """Deviations [components, terms] as variational EM estimates them; the methods are those of DirichletSite."""

    name: str
    rest: jax.Array  # log beta at deviations of 0, [components, terms]
    penalty: Penalty
    corpus: Corpus

    @property
    def prior(self) -> np.ndarray:
        """An array of the site's shape."""
        return np.asarray(self.rest)

    def start(self, rng: np.random.Generator, counts: np.ndarray | float = 0.0) -> np.ndarray:
        """At counts, where there are none at those of documents dealt to the components by chance."""
        if not isinstance(counts, np.ndarray) or not counts.ndim:
            owner = rng.integers(0, len(self.rest), len(self.corpus))
            counts = counts_of((owner == np.arange(len(self.rest))[:, None]).astype(np.float32), self.corpus)
        first = first_deviation(jnp.asarray(counts, jnp.float32), self.rest)
        return self.warm(counts, np.asarray(first))

    def warm(self, counts: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The optimum under a normal prior."""
        return self.update(counts, state, START, NormalPenalty())

    def update(
        self, counts: np.ndarray, state: np.ndarray, limits: Limits | None = None, penalty: Penalty | None = None
    ) -> np.ndarray:
        """Newton steps on the deviations, under the Jeffreys prior one, as in the paper: counts are not yet right."""
        limits = limits or TURN[type(self.penalty)]
        expected = jnp.asarray(counts, jnp.float32)
        return np.asarray(climb(jnp.asarray(state), expected, self.rest, penalty or self.penalty, *limits).deviation)

    def log_mean(self, state: np.ndarray) -> np.ndarray:
        """log beta."""
        logits = np.asarray(self.rest, np.float64) + state
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))

    def point(self, state: np.ndarray) -> jax.Array:
        """The site's value."""
        return jnp.asarray(state, jnp.float32)

    def bound(self, state: np.ndarray) -> float:
        """log p(deviation); that of an improper prior is counted from 0."""
        away = self.penalty.log_prior(jnp.zeros_like(self.rest), jnp.asarray(state))
        return float(np.asarray(away + self.penalty.at_zero, np.float64).sum())

    def put(self, state: np.ndarray, marginals: Marginals) -> None:
        marginals.point[self.name] = state


def counts_of(shares: np.ndarray, corpus: Corpus) -> np.ndarray:
    """Expected counts [components, terms] of documents that belong to components by ``shares`` [components, documents]."""
    return np.asarray((corpus.counts.T @ shares.T).T, np.float64)


def has_sparse_prior(reading: Reading, name: str) -> bool:
    return isinstance(reading.latent[name].prior, SPARSE)


def additive_topics(reading: Reading, settings: Settings) -> AdditiveSite | None:
    """The deviations of the topics that the story gives to draw_words, where they are softmax(rest + deviation)."""
    above = sorted(reading.parents[BETA] - {BETA})
    if len(above) != 1 or not has_sparse_prior(reading, above[0]):
        return None

    def topics(values: dict) -> jax.Array:
        answer = Answer(lambda theta: theta)
        run(reading.story, reading.few_documents, reading.few_y, values, answer)
        return answer.beta

    return _additive(reading, settings, above[0], topics)


def additive_bags(reading: Reading, settings: Settings, name: str) -> tuple[str, AdditiveSite]:
    """The deviations of the components that the story gives to draw_bags, with the site of the words."""
    trace = run(reading.story, reading.few_documents, reading.few_y, reading.few_values)
    bags = [site for site in trace if site in reading.observed and isinstance(unwrapped(trace[site]["fn"]), BagOfWords)]
    if len(bags) != 1 or name not in reading.parents[bags[0]]:
        refuse(reading, name, "no words depend on it")

    def components(values: dict) -> jax.Array:
        return unwrapped(run(reading.story, reading.few_documents, reading.few_y, values)[bags[0]]["fn"]).beta

    return bags[0], _additive(reading, settings, name, components, bags[0])


def _additive(
    reading: Reading, settings: Settings, name: str, components: Callable[[dict], jax.Array], words: str = ""
) -> AdditiveSite:
    """Check that components are softmax(rest + deviation) and that the prior is independent and centred."""
    site = reading.latent[name]
    if site.document_axis is not None:
        refuse(reading, name, "it has an axis of documents")
    if above := sorted(reading.parents[name] - {name}):
        refuse(reading, above[0], f"it is a latent parameter of the prior of {name!r}")
    if others := sorted(reading.children([name]) - {name, words}):
        refuse(reading, others[0], f"it reads {name!r}, which vem wants read by the words alone")
    if settings.topics == "mle":
        refuse(reading, name, "topics='mle' would leave out its prior, and deviations would no longer be sparse")
    traced = run(reading.story, reading.few_documents, reading.few_y, reading.few_values, Answer(lambda theta: theta))
    if traced[name]["scale"] is not None:
        refuse(reading, name, "its density is scaled")
    prior = unwrapped(traced[name]["fn"])
    if isinstance(prior, dist.Laplace) and np.any(prior.loc):
        refuse(reading, name, "its Laplace prior is not centred at 0")

    @jax.jit
    def log_beta(deviation: jax.Array) -> jax.Array:
        beta = components({**reading.few_values, name: deviation})
        return jnp.log(jnp.maximum(beta, jnp.finfo(jnp.float32).tiny))

    rest = log_beta(jnp.zeros(site.shape))
    rng = np.random.default_rng(0)
    for _ in range(2):
        tried = jnp.asarray(rng.normal(0, 0.5, site.shape), jnp.float32)
        if rest.shape != site.shape or not np.allclose(log_beta(tried), jax.nn.log_softmax(rest + tried), atol=1e-3):
            refuse(reading, name, "the words' probabilities are not a softmax of it plus what is fixed")
    penalty = LaplacePenalty(jnp.asarray(prior.scale)) if isinstance(prior, dist.Laplace) else JeffreysPenalty()
    return AdditiveSite(name, rest, penalty, reading.corpus)


class BagsState(NamedTuple):
    """What one turn hands to the next."""

    deviation: np.ndarray  # [components, terms]
    bound: float  # of the words


class Bags:
    """Stories of observed classes: all words of a document from its class' component, and what is counted from y alone."""

    afresh = False

    def __init__(self, reading: Reading, settings: Settings) -> None:
        deviation = next(name for name in reading.latent if has_sparse_prior(reading, name))
        self.words, self.site = additive_bags(reading, settings, deviation)
        extra = sorted(set(reading.latent) - {deviation})
        observed = [name for name in reading.observed if reading.parents[name] - {name, deviation}]
        self.counted = counted_sites(reading, extra, settings.topics == "mle", observed)

        @jax.jit
        def look(corpus: Any, y: Any) -> jax.Array:
            return unwrapped(run(reading.story, corpus, y, {})[self.words]["fn"]).z

        z = np.asarray(look(documents(reading.corpus, pairs=True), jax.tree.map(jnp.asarray, reading.y)))
        self.counts = counts_of((z == np.arange(len(self.site.rest))[:, None]).astype(np.float32), reading.corpus)

    def start(self, rng: np.random.Generator) -> BagsState:
        return BagsState(self.site.start(rng, self.counts), 0.0)

    def expect(self, state: BagsState, fresh: bool) -> BagsState:
        return state._replace(bound=float((self.counts * self.site.log_mean(state.deviation)).sum()))

    def maximise(self, state: BagsState, fresh: bool) -> BagsState:
        return state._replace(deviation=self.site.update(self.counts, state.deviation, WHOLE[type(self.site.penalty)]))

    def bound(self, state: BagsState) -> float:
        return state.bound + self.site.bound(state.deviation) + sum(site.bound(found) for site, found in self.counted)

    def marginals(self, state: BagsState) -> Marginals:
        marginals = Marginals()
        self.site.put(state.deviation, marginals)
        for site, found in self.counted:
            site.put(found, marginals)
        return marginals
