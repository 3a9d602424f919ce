"""The blocks that own the topics of words: the document-parallel sweep, and the lecture's fully collapsed sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from ..gpu.choosing import KERNEL
from ..kernels.assignments import Assignments
from ..kernels.sweep import BatchSweep, Swept, categorical
from ..native.build import COMPILED, registered
from ..samplers.gamma import dirichlet
from ..story.assignments import AssignmentHandler, log_switches
from ..story.bound import BoundGraph
from ..story.graph import BETA
from ..story.sweeping import StorySupervision, read_weights, sweep, why_no_kernel
from ..story.tracing import Data, Values, concentration, run, total
from .block import Block
from .conjugate import log_densities_of_counts

RECORDED = ("lp", "usage", "moved", "proposed")  # by topic_statistics


class TopicBlock(Block):
    """z by the topic sweep, and with it theta where theta is integrated out of the sweep."""

    averages = True
    recorded = RECORDED

    def __init__(
        self,
        graph: BoundGraph,
        collapsed: bool,
        draw_theta: bool = True,
        theta_is_read: bool = True,
    ) -> None:
        """``draw_theta``: or its mean given the topics stands for it; ``theta_is_read``: by another block."""
        super().__init__(graph, ["z", graph.theta] if collapsed else ["z"])
        self.theta_is_read = theta_is_read
        self.collapsed, self.draw_theta, self.supervised = collapsed, draw_theta, bool(graph.response_sites)
        self.swept: Swept | Assignments | None = None  # of this draw, where threads have made the sweep
        self.no_kernel = why_no_kernel(graph, collapsed)  # why a GPU does not sweep by one kernel, empty where it does
        self.label = "topic sweep, theta integrated out" if collapsed else "topic sweep given theta"
        if graph.has_sentences:
            self.label = "topics of sentences, filtered forward and drawn backward"

    @property
    def supervision(self) -> StorySupervision | None:
        """The response that topics are accepted by."""
        return StorySupervision(self.graph) if self.supervised else None

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        return self._drawn(key, values, data, dirichlet)

    def draw_unless(self, passing: jax.Array, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        def shares(key: jax.Array, posterior: jax.Array) -> jax.Array:
            if self.theta_is_read:
                return dirichlet(key, posterior)
            return jax.lax.cond(
                passing, lambda: jnp.full_like(posterior, 1 / posterior.shape[-1]), partial(dirichlet, key, posterior)
            )

        return self._drawn(key, values, data, shares)

    def _drawn(self, key: jax.Array, values: Values, data: Data, shares: Callable) -> tuple[dict, dict]:
        """``shares``: theta given a key and its Dirichlet's concentrations."""
        sweep_key, theta_key = jax.random.split(key)
        if self.collapsed and self.graph.has_sentences:
            # the sweep is given theta, and what stands above it may have been drawn with theta integrated out
            posterior = values["z"].from_theta + self._prior(values, data)
            values = {**values, self.graph.theta: dirichlet(jax.random.fold_in(theta_key, 1), posterior)}
        z = sweep(
            sweep_key, values["z"], self.graph, *data, values,
            collapsed=self.collapsed, supervised=self.supervised, swept=self.swept,
            by_kernel=not self.no_kernel,
        )  # fmt: skip
        if not self.collapsed:
            return {"z": z}, {}
        posterior = z.from_theta + self._prior({**values, "z": z}, data)
        mean = posterior / posterior.sum(-1, keepdims=True)
        theta = shares(theta_key, posterior) if self.draw_theta else mean
        return {"z": z, self.graph.theta: theta}, {self.graph.theta: mean}

    def _prior(self, values: Values, data: Data) -> jax.Array:
        """The concentrations of theta."""
        trace = run(self.graph.story, *data, values, AssignmentHandler(counted=False))
        return concentration(trace[self.graph.theta]["fn"])

    @property
    def swept_by(self) -> str:
        """What makes the sweep, in words."""
        if not self.no_kernel:
            return KERNEL
        return COMPILED if self._is_compiled() else f"plain JAX: {self.no_kernel}"

    def _is_compiled(self) -> bool:
        if not registered() or self.supervision is None:
            return registered()
        graph, rows = self.graph, jnp.arange(len(self.graph.few_corpus))
        context = graph.few_documents.take(rows), graph.few_y, graph.few_values
        return self.supervision.quadratic(context) is not None

    def record(self, values: Values, before: Values, data: Data) -> dict[str, jax.Array]:
        return topic_statistics(self.graph, values, before["z"], data, self.collapsed, self.integrated)

    def token_weights(self, values: Values, data: Data, document: int, n: int) -> jax.Array:
        """log p(z_dn = k | the rest) up to a constant, [topics], for checking against the story."""
        batches = data.documents.laid_out
        shard, batch, lane = jnp.unravel_index(batches.lane[document], batches.lengths.shape)
        weights = read_weights(self.graph, *data, values, self.collapsed)
        rows, lengths = batches.rows[shard, batch], batches.lengths[shard, batch]
        walk = BatchSweep(self.supervision, self.collapsed, weights, (*data, values), rows, lengths)
        place = batches.start[shard, batch] + n
        counts = jnp.where(lengths > 0, values["z"].document_topic[rows].T, 0.0)
        state = walk.move(walk.start(counts), values["z"].topics[shard, place], -(n < lengths).astype(jnp.float32))
        terms = batches.terms[shard, place] + (0 if weights.labels is None else weights.labels.first[rows])
        words = jnp.log(walk.words(state, weights.term_topic[terms].T))
        return (words + walk.responses(state) if self.graph.response_sites else words)[:, lane]


def topic_statistics(
    graph: BoundGraph, values: Values, before: Assignments, data: Data, collapsed: bool, dirichlet: Sequence[Any] = ()
) -> dict[str, jax.Array]:
    """``lp``, the story's log joint density; ``usage``, the share of words in each topic; ``moved``, that of words that have
    just changed it, and ``proposed``, that of words to which the words alone would have given another: where a response
    refuses every move, next to none of these have moved.

    Dirichlet theta and beta that only words read are integrated out: their density is spread over so many numbers near
    zero that it would drown the rest. int prod_k theta_k^n_k Dir(theta; alpha) = B(alpha + n) / B(alpha). So are sites of
    ``dirichlet`` blocks that beta is made of: p(x, rest) = c Dir(x; a) for all x, so c follows from x at the centre.
    """
    z: Assignments = values["z"]
    whole = {graph.beta} if graph.beta_is_integrable() else set()
    parts = {block.sites[0]: block for block in dirichlet if block.sites[0] in graph.parents[BETA] - whole}
    centred = {site: jnp.full_like(values[site], 1.0 / values[site].shape[-1]) for site in parts}
    values = {**values, **centred}
    trace = run(graph.story, *data, values, AssignmentHandler(counted=False))
    in_topic = z.topic_term.sum(1) if z.topic_term.ndim == 2 else z.topic_term.sum((0, 2))
    usage = in_topic / jnp.maximum(z.topic_term.sum(), 1.0)
    integrated = {}
    if collapsed and z.given_prior is None:
        integrated[graph.theta] = z.from_theta
    integrated |= dict.fromkeys(whole, z.topic_term)
    known = {"z", *integrated, *([graph.theta] if collapsed else [])}
    others = [name for name, site in trace.items() if site["type"] == "sample" and name not in known]
    lp = total(trace, others) if others else jnp.zeros(())
    if z.given_prior is not None:
        lp += z.given_prior
    for name, counts in integrated.items():
        prior = concentration(trace[name]["fn"])  # in its own shape, often one row: log Gamma is dear
        lp += log_densities_of_counts(prior, counts).sum()
    if not collapsed:
        lp += xlogy(z.from_theta, trace["z"]["fn"].theta).sum()
    if graph.beta not in integrated:
        lp += xlogy(z.topic_term, trace["z"]["fn"].beta).sum()
    for site, block in parts.items():
        lp -= block.conditional(values, data).log_prob(centred[site]).sum()
    if graph.has_sentences:
        lp += log_switches(z, data.documents.laid_out, trace["z"]["fn"].switch)
    if z.moved is not None:
        return {"lp": lp, "usage": usage, "moved": z.moved, "proposed": z.proposed}
    moved = jnp.sum((data.documents.laid_out.terms < data.documents.num_terms) & (z.topics != before.topics))
    if data.documents.laid_out.long is not None:
        moved += jnp.sum((data.documents.laid_out.long.terms < data.documents.num_terms) & (z.long != before.long))
    moved /= jnp.maximum(data.documents.lengths.sum(), 1)
    return {"lp": lp, "usage": usage, "moved": moved, "proposed": z.proposed}


class CollapsedBlock(Block):
    """The lecture's sampler: theta and beta both integrated out, one token after another; then both drawn.

    p(z_dn = k | rest) is proportional to (n_dk + alpha_k) (n_kw + gamma_w) / (n_k + sum gamma) p(y_d | z_dn = k), all counts
    without the token. Slow and simple: the reference for the fast sweep.
    """

    averages = True
    label = "fully collapsed sampler"
    recorded = RECORDED[:3]  # it proposes nothing

    def __init__(self, graph: BoundGraph) -> None:
        super().__init__(graph, ["z", graph.theta, graph.beta])

    def record(self, values: Values, before: Values, data: Data) -> dict[str, jax.Array]:
        found = topic_statistics(self.graph, values, before["z"], data, collapsed=True)
        return {name: found[name] for name in self.recorded}

    def _token(self, values: Values, data: Data) -> Callable:
        """Unnormalised log weights of a token's topics, as a function of the counts without it."""
        graph = self.graph
        weights = read_weights(graph, *data, values, collapsed=True)
        trace = run(graph.story, *data, values, AssignmentHandler(counted=False))
        gamma = jnp.broadcast_to(concentration(trace[graph.beta]["fn"]), values[graph.beta].shape)
        alpha = jnp.broadcast_to(weights.proportions, values[graph.theta].shape)
        total = gamma.sum(1)

        def log_weights(
            document: jax.Array, term: jax.Array, counts: jax.Array, topic_term: jax.Array, topic: jax.Array
        ) -> jax.Array:
            log_weight = (
                jnp.log(counts + alpha[document])
                + jnp.log(topic_term[:, term] + gamma[:, term])
                - jnp.log(topic + total)
            )
            if not graph.response_sites:
                return log_weight
            row, length = document[None], data.documents.lengths[document][None]
            walk = BatchSweep(StorySupervision(graph), True, weights, (*data, values), row, length)
            return log_weight + walk.responses(walk.start(counts[:, None]))[:, 0]

        return log_weights

    def draw(self, key: jax.Array, values: Values, data: Data) -> tuple[dict, dict]:
        graph, batches, z = self.graph, data.documents.laid_out, values["z"]
        log_weights = self._token(values, data)
        num_shards, num_places, width = batches.terms.shape
        sweep_key, theta_key, beta_key = jax.random.split(key, 3)
        uniform = jax.random.uniform(sweep_key, batches.terms.shape)

        def one_token(i: jax.Array, carry: tuple) -> tuple:
            topics, document_topic, topic_term, topic = carry
            shard, place, lane = jnp.unravel_index(i, batches.terms.shape)
            batch = jnp.searchsorted(batches.start[shard] + batches.depth[shard], place, side="right")
            n = place - batches.start[shard, batch]
            document, term, old = (
                batches.rows[shard, batch, lane],
                batches.terms[shard, place, lane],
                topics[shard, place, lane],
            )
            step = jnp.where((batch < batches.start.shape[1]) & (n < batches.lengths[shard, batch, lane]), 1.0, 0.0)

            def move(carry: tuple, k: jax.Array, step: jax.Array) -> tuple:
                document_topic, topic_term, topic = carry
                return (
                    document_topic.at[document, k].add(step),
                    topic_term.at[k, term].add(step, mode="drop"),
                    topic.at[k].add(step),
                )

            tables = move((document_topic, topic_term, topic), old, -step)
            logits = log_weights(
                document, jnp.minimum(term, data.documents.num_terms - 1), tables[0][document], *tables[1:]
            )
            weight = jnp.exp(logits - logits.max())
            new = categorical(weight[:, None], uniform[shard, place, lane][None])[0]
            new = jnp.where(step > 0, new, old)
            return topics.at[shard, place, lane].set(new), *move(tables, new, step)

        start = z.topics, z.document_topic, z.topic_term, z.topic_term.sum(1)
        topics, document_topic, topic_term, _ = jax.lax.fori_loop(0, num_shards * num_places * width, one_token, start)
        trace = run(graph.story, *data, values, AssignmentHandler(counted=False))
        theta, beta = (
            counts + concentration(trace[site]["fn"])
            for site, counts in ((graph.theta, document_topic), (graph.beta, topic_term))
        )
        new = {
            "z": Assignments(topics, document_topic, topic_term, None, jnp.zeros(())),
            graph.theta: dirichlet(theta_key, theta),
            graph.beta: dirichlet(beta_key, beta),
        }
        means = {
            graph.theta: theta / theta.sum(-1, keepdims=True),
            graph.beta: beta / beta.sum(-1, keepdims=True),
        }
        return new, means

    def token_weights(self, values: Values, data: Data, document: int, n: int) -> jax.Array:
        """log p(z_dn = k | the rest) up to a constant, [topics], for checking against the story."""
        batches, z = data.documents.laid_out, values["z"]
        shard, batch, lane = jnp.unravel_index(batches.lane[document], batches.lengths.shape)
        place = batches.start[shard, batch] + n
        term, old = batches.terms[shard, place, lane], z.topics[shard, place, lane]
        topic_term = z.topic_term.at[old, term].add(-1.0)
        counts = z.document_topic.at[document, old].add(-1.0)[document]
        return self._token(values, data)(jnp.asarray(document), term, counts, topic_term, topic_term.sum(1))
