"""The topics of sentences: forward filtering and backward draws of a story's words, accepted by its response.

Without a response the draw is exact at once. With one, draws given the words alone are proposed, first for a whole
document and then for a part of it while the rest keeps its topics, and each is accepted with the ratio of the response's
density (Metropolis-Hastings with proposals that do not depend on what they replace).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from topiczoo.corpora.layouts import Documents, PaddedBatches

from ..kernels.assignments import Assignments, documents_of_positions, mean_topics
from ..kernels.sentences import Chain, draw_sentences, of_sentences
from ..kernels.sweep import FLOOR
from ..samplers.uniforms import tokens_of_positions
from .bound import BoundGraph
from .response import Y
from .tracing import Values, ZbarHandler, run

PARTS = 1.0, 0.5, 0.25, 0.25, 0.1, 0.1  # of a document that get new topics, one proposal after the other


def read_chain(graph: BoundGraph, corpus: Documents, y: Y, values: Values) -> Chain:
    """What the story gives to draw_words."""
    answer = ZbarHandler(zbar=lambda theta: jnp.zeros_like(theta))
    run(graph.story, corpus, y, values, answer)
    term_topic = jnp.maximum(jnp.pad(answer.beta.T, ((0, 1), (0, 0))), FLOOR)
    return Chain(term_topic, answer.theta, jnp.asarray(answer.switch, term_topic.dtype))


def sweep_sentences(
    key: jax.Array, z: Assignments, graph: BoundGraph, corpus: Documents, y: Y, values: Values, supervised: bool
) -> Assignments:
    """New topics for all sentences, and which of them take a new one."""
    chain, batches = read_chain(graph, corpus, y, values), corpus.laid_out
    shape = graph.num_topics, corpus.num_terms
    if not supervised:
        drawn = of_sentences(*draw_sentences(key, chain, batches), batches, *shape)
        proposed = None if z.proposed is None else _differ(z, drawn, corpus)
        return drawn._replace(proposed=proposed, topic_term=None if z.topic_term is None else drawn.topic_term)
    document = documents_of_positions(batches)

    def terms(z: Assignments) -> jax.Array:
        answer = ZbarHandler(mean_topics(z, corpus))
        return graph.document_terms(graph.response_sites, corpus, y, values, answer)

    def propose(z: Assignments, part: jax.Array, key: jax.Array) -> tuple[Assignments, jax.Array]:
        draw_key, part_key, accept_key = jax.random.split(key, 3)
        kept = _outside(part_key, part, corpus, batches)
        new = of_sentences(*draw_sentences(draw_key, chain, batches, kept, z.topics), batches, *shape)
        chance = jax.random.uniform(accept_key, (corpus.num_documents,))
        taken = jnp.log1p(-chance) < terms(new) - terms(z)
        chosen = taken[document]
        topics, begun = (jnp.where(chosen, *pair) for pair in ((new.topics, z.topics), (new.taken, z.taken)))
        return of_sentences(topics, begun, batches, *shape)._replace(proposed=z.proposed), _differ(z, new, corpus)

    keys = jax.random.split(key, len(PARTS))
    new, proposed = jax.lax.scan(lambda z, at: propose(z, *at), z, (jnp.asarray(PARTS), keys))
    return new._replace(proposed=proposed[0])


def _differ(z: Assignments, new: Assignments, corpus: Documents) -> jax.Array:
    """The share of words whose topics differ."""
    tokens = corpus.laid_out.terms < corpus.num_terms
    return jnp.sum(tokens & (z.topics != new.topics)) / jnp.maximum(corpus.lengths.sum(), 1)


def _outside(key: jax.Array, part: jax.Array, corpus: Documents, batches: PaddedBatches) -> jax.Array:
    """Which words keep their topics: those outside a part of each document, anywhere in it, the whole where it is 1."""
    of_positions = jax.vmap(lambda *own: tokens_of_positions(*own, positions=batches.terms.shape[1]))
    document, position = of_positions(batches.start, batches.depth, batches.rows)
    width = jnp.ceil(part * corpus.lengths)
    first = jnp.where(part < 1, jnp.floor(jax.random.uniform(key, width.shape) * (corpus.lengths + width)) - width, 0)
    return (position < first[document]) | (position >= (first + width)[document])
