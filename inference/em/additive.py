"""Additive components in variational EM: beta = softmax(rest + deviations), point estimates in place of Dirichlet topics.

Whether a story has such components is seen by trying: at deviations of 0 beta says what else is added, and at others it must
be the softmax of the sum. Several sites may be added (facets: of topics, of labels, of both).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora import Corpus
from topiczoo.models.vocabulary.distributions import NormalJeffreys
from topiczoo.models.vocabulary.words import BagOfWords

from ..programs.compiling import jitted
from ..steps.additive import JeffreysPenalty, LaplacePenalty, NormalPenalty, Penalty, first_deviation, newton, spread
from ..story.bound import BoundGraph
from ..story.graph import BETA
from ..story.tracing import Values, ZbarHandler, base_distribution, run
from .components import Posterior, Settings, refuse
from .starts import dealt_counts

SPARSE = dist.Laplace, NormalJeffreys  # priors of deviations
# of the normal prior that deviations start under: where it is told which words are a component's, and where it is latent and
# words said once are more often another's
TOLD, LATENT = 10.0, 0.3
Limits = tuple[int, float]
START = 20, 1e-6  # Newton steps under the normal prior, and when to end them
# the same under the story's: where nothing but the deviations is to be found, and in one turn of EM, whose counts are not
# yet right. To 0 it is a long way under the Laplace prior and a short one under the Jeffreys prior.
WHOLE: dict[type, Limits] = {JeffreysPenalty: (100, 1e-6), LaplacePenalty: (200, 1e-7)}
TURN: dict[type, Limits] = {JeffreysPenalty: (1, 0.0), LaplacePenalty: (20, 1e-6)}
ZERO = 1e-3  # a deviation below is a tenth of a percent of a frequency
WARM_UP = 10  # turns of EM under the normal prior: a deviation that is 0 early would stay 0


class Facet(NamedTuple):
    """A site of deviations: those of topics, say, or of labels."""

    name: str
    shape: tuple[int, ...]  # [..., terms]
    owner: jax.Array | None  # the component in each sum, see :func:`..steps.additive.newton`
    penalty: Penalty

    def flat(self, value: Any) -> jax.Array:
        """[components, terms]."""
        return jnp.asarray(value).reshape(-1, self.shape[-1])


@dataclass(frozen=True)
class AdditiveSite:
    """Deviations as variational EM estimates them; the methods are those of DirichletSite.

    The state holds the value of every facet. Facets move in turn, those of fewer components first: a deviation that
    several sums share is theirs before it is that of one alone.
    """

    rest: jax.Array  # log beta at deviations of 0, [..., topics, terms]
    facets: tuple[Facet, ...]
    corpus: Corpus
    start_variance: float  # of the normal prior that deviations start under

    reads: frozenset[str] = frozenset({"topics", "start_variance"})

    @property
    def name(self) -> str:
        return self.facets[0].name

    @property
    def names(self) -> set[str]:
        return {facet.name for facet in self.facets}

    @property
    def prior(self) -> np.ndarray:
        """An array of the shape of beta."""
        return np.asarray(self.rest)

    def start(self, rng: np.random.Generator, counts: np.ndarray | float = 0.0) -> Any:
        """At counts, where there are none at those of documents dealt to the components by chance.

        A facet of interactions stays at 0 until :meth:`complete`: it could say alone what all say together, and topics of
        different labels would be different topics.
        """
        if not isinstance(counts, np.ndarray) or not counts.ndim:
            counts = dealt_counts(rng, self.corpus, self.rest.shape[-2])
        state = {facet.name: np.zeros(facet.shape, np.float32) for facet in self.facets}
        for facet in self._first_facets:
            state = self._begun(facet, self._flat(counts), state)
        return state

    def warm(self, counts: np.ndarray, state: Any) -> Any:
        """The optimum under a normal prior."""
        for facet in self._first_facets:
            state = self._moved(facet, self._flat(counts), state, START, NormalPenalty(self.start_variance))
        return state

    def complete(self, counts: np.ndarray, state: Any) -> Any:
        """The same with a facet of interactions, which is left what the others cannot say."""
        for facet in self.facets[len(self._first_facets) :]:
            state = self._begun(facet, self._flat(counts), state)
        return state

    @cached_property
    def _first_facets(self) -> tuple[Facet, ...]:
        """All but a last one that has a component for each sum, where the others tell the sums apart without it."""
        number = int(np.prod(self.rest.shape[:-1]))
        others = [np.arange(number) if f.owner is None else np.asarray(f.owner) for f in self.facets[:-1]]
        apart = bool(others) and len(np.unique(np.stack(others), axis=1).T) == number
        return self.facets[:-1] if apart and self.facets[-1].owner is None else self.facets

    def _begun(self, facet: Facet, expected: jax.Array, state: dict) -> dict:
        number = facet.flat(state[facet.name]).shape[0]
        first = first_deviation(expected, self._others(state, facet), facet.owner, number)
        state = {**state, facet.name: np.asarray(first).reshape(facet.shape)}
        return self._moved(facet, expected, state, START, NormalPenalty(self.start_variance))

    def m_step(self, counts: np.ndarray, state: Any) -> Any:
        """Newton steps on the deviations, under the Jeffreys prior one, as in the paper: counts are not yet right."""
        for facet in self.facets:
            state = self._moved(facet, self._flat(counts), state, TURN[type(facet.penalty)], facet.penalty)
        return state

    def converge(self, counts: np.ndarray, state: Any) -> Any:
        """Newton steps on the deviations until they rest, facet after facet."""
        for facet in self.facets:
            state = self._moved(facet, self._flat(counts), state, WHOLE[type(facet.penalty)], facet.penalty)
        return state

    def _moved(self, facet: Facet, expected: jax.Array, state: dict, limits: Limits, penalty: Penalty) -> dict:
        before = facet.flat(state[facet.name])
        found = newton(before, expected, self._others(state, facet), penalty, *limits, facet.owner).deviation
        return {**state, facet.name: np.asarray(found).reshape(facet.shape)}

    def _flat(self, counts: Any) -> jax.Array:
        return jnp.asarray(counts, jnp.float32).reshape(-1, self.rest.shape[-1])

    def _others(self, state: dict, left_out: Facet | None = None) -> jax.Array:
        """What is added in each sum beside a facet, [sums, terms]."""
        total = self._flat(self.rest)
        for facet in self.facets:
            if facet is not left_out:
                total = total + spread(facet.flat(state[facet.name]), facet.owner)
        return total

    def log_mean(self, state: Any) -> np.ndarray:
        """log beta."""
        logits = np.asarray(self._others(state), np.float64)
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits.reshape(self.rest.shape)

    def point(self, state: Any) -> jax.Array:
        """The value of the one site there is."""
        (value,) = state.values()
        return jnp.asarray(value, jnp.float32)

    def bound(self, state: Any) -> float:
        """log p(deviation); that of an improper prior is counted from 0."""
        total = 0.0
        for facet in self.facets:
            value = jnp.asarray(state[facet.name])
            away = facet.penalty.log_prior(jnp.zeros_like(value), value) + facet.penalty.at_zero
            total += float(np.asarray(away, np.float64).sum())
        return total

    def q(self, state: Any) -> Posterior:
        """What is 0 for all purposes is put to 0."""
        return {name: dist.Delta(np.where(np.abs(value) < ZERO, 0.0, value)) for name, value in state.items()}


def has_sparse_prior(graph: BoundGraph, name: str) -> bool:
    return isinstance(graph.latent[name].prior, SPARSE)


def additive_topics(graph: BoundGraph, settings: Settings) -> AdditiveSite | None:
    """The deviations of the topics that the story gives to draw_words, where they are softmax(rest + deviations)."""
    above = sorted(graph.parents[BETA] - {BETA})
    if not above or not all(has_sparse_prior(graph, name) for name in above):
        return None

    def topics(values: Values) -> jax.Array:
        answer = ZbarHandler(lambda theta: theta)
        run(graph.story, graph.few_documents, graph.few_y, values, answer)
        return answer.beta

    return _additive(graph, settings, above, topics)


def additive_bags(graph: BoundGraph, settings: Settings, name: str) -> tuple[str, AdditiveSite]:
    """The deviations of the components that the story gives to draw_bags, with the site of the words."""
    trace = run(graph.story, graph.few_documents, graph.few_y, graph.few_values)
    bags = [
        site
        for site in trace
        if site in graph.observed and isinstance(base_distribution(trace[site]["fn"]), BagOfWords)
    ]
    if len(bags) != 1 or name not in graph.parents[bags[0]]:
        refuse(graph, name, "no words depend on it")

    def components(values: Values) -> jax.Array:
        return base_distribution(run(graph.story, graph.few_documents, graph.few_y, values)[bags[0]]["fn"]).beta

    return bags[0], _additive(graph, settings, [name], components, bags[0])


def _additive(
    graph: BoundGraph, settings: Settings, names: list[str], components: Callable[[dict], jax.Array], words: str = ""
) -> AdditiveSite:
    """Check that components are softmax(rest + deviations), find which deviations are in which, and read their priors."""
    penalties = {name: _penalty(graph, settings, name, words) for name in names}

    @jitted
    def log_beta(deviations: dict) -> jax.Array:
        beta = components({**graph.few_values, **deviations})
        return jnp.log(jnp.maximum(beta, jnp.finfo(jnp.float32).tiny))

    shapes = {name: graph.latent[name].shape for name in names}
    nothing = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    rest = log_beta(nothing)
    rng = np.random.default_rng(0)

    def some(shape: tuple[int, ...]) -> jax.Array:
        return jnp.asarray(rng.normal(0, 0.5, shape), jnp.float32)

    def flat(value: jax.Array) -> jax.Array:
        return value.reshape(-1, value.shape[-1])

    facets = []
    for name, shape in shapes.items():
        if not shape or shape[-1] != rest.shape[-1]:
            refuse(graph, name, "the words' probabilities are not a softmax of it plus what is fixed")
        tried = some(shape)
        moved = flat(log_beta({**nothing, name: tried}) - rest)
        owner = _nearest(moved, jnp.pad(flat(tried), ((0, 1), (0, 0))))
        own = np.array_equal(owner, np.arange(len(flat(tried))))
        facets.append(Facet(name, shape, None if own else jnp.asarray(owner), penalties[name]))
    facets.sort(key=lambda facet: int(np.prod(facet.shape[:-1])))
    told = not any(site.discrete for site in graph.latent.values()) and not graph.has_words
    variance = settings.start_variance or (TOLD if told else LATENT)
    site = AdditiveSite(rest, tuple(facets), graph.corpus, variance)
    for _ in range(2):
        values = {name: some(shape) for name, shape in shapes.items()}
        if not np.allclose(log_beta(values), site.log_mean({n: np.asarray(v) for n, v in values.items()}), atol=1e-3):
            refuse(graph, names[0], "the words' probabilities are not a softmax of it plus what is fixed")
    return site


def _nearest(rows: jax.Array, candidates: jax.Array) -> np.ndarray:
    """For each row the candidate nearest to it, but for a number added to all terms."""
    rows, candidates = (part - part.mean(-1, keepdims=True) for part in (rows, candidates))
    return np.asarray(((candidates**2).sum(-1) - 2 * rows @ candidates.T).argmin(-1), np.int32)


def _penalty(graph: BoundGraph, settings: Settings, name: str, words: str) -> Penalty:
    """The prior of a site of deviations, which must be independent and centred, and read by the words alone."""
    site = graph.latent[name]
    if site.document_axis is not None:
        refuse(graph, name, "it has an axis of documents")
    if above := sorted(graph.parents[name] - {name}):
        refuse(graph, above[0], f"it is a latent parameter of the prior of {name!r}")
    if others := sorted(graph.children([name]) - {name, words}):
        refuse(graph, others[0], f"it reads {name!r}, which vem wants read by the words alone")
    if settings.topics == "mle":
        refuse(graph, name, "topics='mle' would leave out its prior, and deviations would no longer be sparse")
    traced = run(graph.story, graph.few_documents, graph.few_y, graph.few_values, ZbarHandler(lambda theta: theta))
    if traced[name]["scale"] is not None:
        refuse(graph, name, "its density is scaled")
    prior = base_distribution(traced[name]["fn"])
    if isinstance(prior, dist.Laplace) and np.any(prior.loc):
        refuse(graph, name, "its Laplace prior is not centred at 0")
    return LaplacePenalty(jnp.asarray(prior.scale)) if isinstance(prior, dist.Laplace) else JeffreysPenalty()
