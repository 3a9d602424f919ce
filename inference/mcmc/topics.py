"""The blocks that own the topics of words: the document-parallel sweep, and the lecture's fully collapsed sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import xlogy

from ..kernels.gamma import dirichlet
from ..kernels.sweep import BlockSweep, Swept, categorical, concentration, read_weights, sweep
from ..story.assignments import Assigned, Assignments
from ..story.graph import Reading
from ..story.tracing import run, total
from .conjugate import Block, log_beta_function

WATCHED = ("lp", "usage", "moved", "proposed")  # by watch_topics


class TopicBlock(Block):
    """z by the topic sweep, and with it theta where theta is integrated out of the sweep."""

    watched = WATCHED

    def __init__(
        self,
        model: Callable | None,
        reading: Reading,
        collapsed: bool,
        draw_theta: bool = True,
    ) -> None:
        super().__init__(model, reading, ["z", reading.theta] if collapsed else ["z"])
        self.collapsed, self.draw_theta, self.supervised = collapsed, draw_theta, bool(reading.below)
        self.swept: Swept | None = None  # of this draw, where threads have made the sweep
        self.label = "topic sweep, theta integrated out" if collapsed else "topic sweep given theta"

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        sweep_key, theta_key = jax.random.split(key)
        z = sweep(
            sweep_key, values["z"], self.reading, corpus, y, values,
            collapsed=self.collapsed, supervised=self.supervised, swept=self.swept,
        )  # fmt: skip
        if not self.collapsed:
            return {"z": z}, {}
        trace = run(self.reading.story, corpus, y, {**values, "z": z}, Assigned(counted=False))
        posterior = z.document_topic + concentration(trace[self.reading.theta]["fn"])
        mean = posterior / posterior.sum(-1, keepdims=True)
        theta = dirichlet(theta_key, posterior) if self.draw_theta else mean
        return {"z": z, self.reading.theta: theta}, {self.reading.theta: mean}

    def watch(self, values: dict, before: dict, corpus: Any, y: Any) -> dict[str, jax.Array]:
        return watch_topics(self.reading, values, before["z"], corpus, y, self.collapsed)

    def token_weights(self, values: dict, corpus: Any, y: Any, document: int, n: int) -> jax.Array:
        """log p(z_dn = k | the rest) up to a constant, [topics], for checking against the story."""
        blocks = corpus.blocks
        shard, block, lane = jnp.unravel_index(blocks.lane[document], blocks.lengths.shape)
        weights = read_weights(self.reading, corpus, y, values, self.collapsed)
        rows, lengths = blocks.rows[shard, block], blocks.lengths[shard, block]
        walk = BlockSweep(
            self.reading, self.collapsed, bool(self.reading.below), weights, corpus, y, values, rows, lengths
        )
        place = blocks.start[shard, block] + n
        counts = jnp.where(lengths > 0, values["z"].document_topic[rows].T, 0.0)
        lanes = walk.move(walk.start(counts), values["z"].topics[shard, place], -(n < lengths).astype(jnp.float32))
        words = jnp.log(walk.words(lanes, weights.term_topic[blocks.terms[shard, place]].T))
        return (words + walk.responses(lanes) if self.reading.below else words)[:, lane]


def watch_topics(
    reading: Reading, values: dict, before: Assignments, corpus: Any, y: Any, collapsed: bool
) -> dict[str, jax.Array]:
    """``lp``, the story's log joint density; ``usage``, the share of words in each topic; ``moved``, that of words that have
    just changed it, and ``proposed``, that of words to which the words alone would have given another: where a response
    refuses every move, next to none of these have moved.

    Dirichlet theta and beta that only words read are integrated out: their density is spread over so many numbers near
    zero that it would drown the rest. int prod_k theta_k^n_k Dir(theta; alpha) = B(alpha + n) / B(alpha).
    """
    z: Assignments = values["z"]
    trace = run(reading.story, corpus, y, values, Assigned(counted=False))
    usage = z.topic_term.sum(1) / jnp.maximum(z.topic_term.sum(), 1.0)
    integrated = {}
    if collapsed:
        integrated[reading.theta] = z.document_topic
    if beta_can_be_integrated_out(reading):
        integrated[reading.beta] = z.topic_term
    others = [name for name, site in trace.items() if site["type"] == "sample" and name not in (*integrated, "z")]
    lp = total(trace, others) if others else jnp.zeros(())
    for name, counts in integrated.items():
        prior = concentration(trace[name]["fn"])  # in its own shape, often one row: log Gamma is dear
        lp += (log_beta_function(prior + counts) - log_beta_function(prior)).sum()
    if reading.theta not in integrated:
        lp += xlogy(z.document_topic, trace["z"]["fn"].theta).sum()
    if reading.beta not in integrated:
        lp += xlogy(z.topic_term, trace["z"]["fn"].beta).sum()
    moved = jnp.sum((corpus.blocks.terms < corpus.num_terms) & (z.topics != before.topics))
    if corpus.blocks.long is not None:
        moved += jnp.sum((corpus.blocks.long.terms < corpus.num_terms) & (z.long != before.long))
    moved /= jnp.maximum(corpus.lengths.sum(), 1)
    return {"lp": lp, "usage": usage, "moved": moved, "proposed": z.proposed}


def beta_can_be_integrated_out(reading: Reading) -> bool:
    """beta is a Dirichlet site and words are all that reads it."""
    return (
        reading.beta is not None
        and reading.children([reading.beta]) == {reading.beta}
        and isinstance(reading.latent[reading.beta].prior, dist.Dirichlet)
    )


class CollapsedBlock(Block):
    """The lecture's sampler: theta and beta both integrated out, one token after another; then both drawn.

    p(z_dn = k | rest) is proportional to (n_dk + alpha_k) (n_kw + gamma_w) / (n_k + sum gamma) p(y_d | z_dn = k), all counts
    without the token. Slow and simple: the reference for the fast sweep.
    """

    label = "fully collapsed sampler"
    watched = WATCHED[:3]  # it proposes nothing

    def __init__(self, model: Callable | None, reading: Reading) -> None:
        super().__init__(model, reading, ["z", reading.theta, reading.beta])

    def watch(self, values: dict, before: dict, corpus: Any, y: Any) -> dict[str, jax.Array]:
        found = watch_topics(self.reading, values, before["z"], corpus, y, collapsed=True)
        return {name: found[name] for name in self.watched}

    def _token(self, values: dict, corpus: Any, y: Any) -> Callable:
        """Unnormalised log weights of a token's topics, as a function of the counts without it."""
        reading = self.reading
        weights = read_weights(reading, corpus, y, values, collapsed=True)
        trace = run(reading.story, corpus, y, values, Assigned(counted=False))
        gamma = jnp.broadcast_to(concentration(trace[reading.beta]["fn"]), values[reading.beta].shape)
        alpha = jnp.broadcast_to(weights.proportions, values[reading.theta].shape)
        total = gamma.sum(1)

        def log_weights(
            document: jax.Array, term: jax.Array, counts: jax.Array, topic_term: jax.Array, topic: jax.Array
        ) -> jax.Array:
            log_weight = (
                jnp.log(counts + alpha[document])
                + jnp.log(topic_term[:, term] + gamma[:, term])
                - jnp.log(topic + total)
            )
            if not reading.below:
                return log_weight
            row, length = document[None], corpus.lengths[document][None]
            walk = BlockSweep(reading, True, True, weights, corpus, y, values, row, length)
            return log_weight + walk.responses(walk.start(counts[:, None]))[:, 0]

        return log_weights

    def draw(self, key: jax.Array, values: dict, corpus: Any, y: Any) -> tuple[dict, dict]:
        reading, blocks, z = self.reading, corpus.blocks, values["z"]
        log_weights = self._token(values, corpus, y)
        num_shards, num_places, width = blocks.terms.shape
        sweep_key, theta_key, beta_key = jax.random.split(key, 3)
        uniform = jax.random.uniform(sweep_key, blocks.terms.shape)

        def one_token(i: jax.Array, carry: tuple) -> tuple:
            topics, document_topic, topic_term, topic = carry
            shard, place, lane = jnp.unravel_index(i, blocks.terms.shape)
            block = jnp.searchsorted(blocks.start[shard] + blocks.depth[shard], place, side="right")
            n = place - blocks.start[shard, block]
            document, term, old = (
                blocks.rows[shard, block, lane],
                blocks.terms[shard, place, lane],
                topics[shard, place, lane],
            )
            step = jnp.where((block < blocks.start.shape[1]) & (n < blocks.lengths[shard, block, lane]), 1.0, 0.0)

            def move(carry: tuple, k: jax.Array, step: jax.Array) -> tuple:
                document_topic, topic_term, topic = carry
                return (
                    document_topic.at[document, k].add(step),
                    topic_term.at[k, term].add(step, mode="drop"),
                    topic.at[k].add(step),
                )

            tables = move((document_topic, topic_term, topic), old, -step)
            logits = log_weights(document, jnp.minimum(term, corpus.num_terms - 1), tables[0][document], *tables[1:])
            weight = jnp.exp(logits - logits.max())
            new = categorical(weight[:, None], uniform[shard, place, lane][None])[0]
            new = jnp.where(step > 0, new, old)
            return topics.at[shard, place, lane].set(new), *move(tables, new, step)

        start = z.topics, z.document_topic, z.topic_term, z.topic_term.sum(1)
        topics, document_topic, topic_term, _ = jax.lax.fori_loop(0, num_shards * num_places * width, one_token, start)
        trace = run(reading.story, corpus, y, values, Assigned(counted=False))
        theta, beta = (
            counts + concentration(trace[site]["fn"])
            for site, counts in ((reading.theta, document_topic), (reading.beta, topic_term))
        )
        new = {
            "z": Assignments(topics, document_topic, topic_term, None, jnp.zeros(())),
            reading.theta: dirichlet(theta_key, theta),
            reading.beta: dirichlet(beta_key, beta),
        }
        means = {
            reading.theta: theta / theta.sum(-1, keepdims=True),
            reading.beta: beta / beta.sum(-1, keepdims=True),
        }
        return new, means

    def token_weights(self, values: dict, corpus: Any, y: Any, document: int, n: int) -> jax.Array:
        """log p(z_dn = k | the rest) up to a constant, [topics], for checking against the story."""
        blocks, z = corpus.blocks, values["z"]
        shard, block, lane = jnp.unravel_index(blocks.lane[document], blocks.lengths.shape)
        place = blocks.start[shard, block] + n
        term, old = blocks.terms[shard, place, lane], z.topics[shard, place, lane]
        topic_term = z.topic_term.at[old, term].add(-1.0)
        counts = z.document_topic.at[document, old].add(-1.0)[document]
        return self._token(values, corpus, y)(jnp.asarray(document), term, counts, topic_term, topic_term.sum(1))
