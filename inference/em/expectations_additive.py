"""Additive components in variational EM: beta_k = softmax(rest + deviation_k), the deviations point estimates.

Whether a story has such components is seen by trying: at deviations of 0 beta says what else is added, and at others it must
be the softmax of the sum. Several sites may be added (facets: of topics, of labels, of both).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from topiczoo.corpora.layouts import documents
from topiczoo.models.distributions import NormalJeffreys
from topiczoo.models.vocabulary import BagOfWords

from ..kernels.additive import JeffreysPenalty, LaplacePenalty, Penalty
from ..story.bound import BoundGraph
from ..story.graph import BETA
from ..story.tracing import ZbarHandler, base_distribution, run
from .additive_site import AdditiveSite, Facet, counts_of
from .expectations import Marginals, Settings, refuse
from .expectations_counted import counted_sites

SPARSE = dist.Laplace, NormalJeffreys  # priors of deviations
# of the normal prior that deviations start under: where it is told which words are a component's, and where it is latent and
# words said once are more often another's
TOLD, LATENT = 10.0, 0.3


def has_sparse_prior(graph: BoundGraph, name: str) -> bool:
    return isinstance(graph.latent[name].prior, SPARSE)


def additive_topics(graph: BoundGraph, settings: Settings) -> AdditiveSite | None:
    """The deviations of the topics that the story gives to draw_words, where they are softmax(rest + deviations)."""
    above = sorted(graph.parents[BETA] - {BETA})
    if not above or not all(has_sparse_prior(graph, name) for name in above):
        return None

    def topics(values: dict) -> jax.Array:
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

    def components(values: dict) -> jax.Array:
        return base_distribution(run(graph.story, graph.few_documents, graph.few_y, values)[bags[0]]["fn"]).beta

    return bags[0], _additive(graph, settings, [name], components, bags[0])


def _additive(
    graph: BoundGraph, settings: Settings, names: list[str], components: Callable[[dict], jax.Array], words: str = ""
) -> AdditiveSite:
    """Check that components are softmax(rest + deviations), find which deviations are in which, and read their priors."""
    penalties = {name: _penalty(graph, settings, name, words) for name in names}

    @jax.jit
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


class BagsState(NamedTuple):
    """What one turn hands to the next."""

    deviation: Any  # see AdditiveSite
    bound: float  # of the words


class Bags:
    """Stories of observed classes: all words of a document from its class' component, and what is counted from y alone."""

    afresh = False

    def __init__(self, graph: BoundGraph, settings: Settings) -> None:
        deviation = next(name for name in graph.latent if has_sparse_prior(graph, name))
        self.words, self.site = additive_bags(graph, settings, deviation)
        extra = sorted(set(graph.latent) - {deviation})
        observed = [name for name in graph.observed if graph.parents[name] - {name, deviation}]
        self.counted = counted_sites(graph, extra, settings.topics == "mle", observed)

        @jax.jit
        def look(corpus: Any, y: Any) -> jax.Array:
            return base_distribution(run(graph.story, corpus, y, {})[self.words]["fn"]).z

        z = np.asarray(look(documents(graph.corpus, pairs=True), jax.tree.map(jnp.asarray, graph.y)))
        self.counts = counts_of((z == np.arange(len(self.site.rest))[:, None]).astype(np.float32), graph.corpus)

    def start(self, rng: np.random.Generator) -> BagsState:
        return BagsState(self.site.start(rng, self.counts), 0.0)

    def expect(self, state: BagsState, fresh: bool) -> BagsState:
        return state._replace(bound=float((self.counts * self.site.log_mean(state.deviation)).sum()))

    def maximise(self, state: BagsState, fresh: bool) -> BagsState:
        return state._replace(deviation=self.site.settle(self.counts, state.deviation))

    def bound(self, state: BagsState) -> float:
        return state.bound + self.site.bound(state.deviation) + sum(site.bound(found) for site, found in self.counted)

    def marginals(self, state: BagsState) -> Marginals:
        marginals = Marginals()
        self.site.put(state.deviation, marginals)
        for site, found in self.counted:
            site.put(found, marginals)
        return marginals
