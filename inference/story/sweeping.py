"""The topic sweep of a story: what it gives to draw_words, and the response that topics are accepted by.

Where words of a sentence share their topic, a draw of the topics of a whole document is exact without a response. With one,
draws given the words alone are proposed, first for the whole document and then for parts of it while the rest keeps its
topics, and each is accepted with the ratio of the response's density (Metropolis-Hastings with proposals that do not
depend on what they replace).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from topiczoo.corpora.layouts import Documents, PaddedBatches, documents, num_places

from ..gpu import choosing
from ..gpu.sweep import LARGEST, Shape
from ..kernels.assignments import Assignments, Labels, documents_of_positions, mean_topics
from ..kernels.sentences import Chain, draw_sentences, of_sentences
from ..kernels.sweep import FLOOR, Given, Swept, Weights, assembled, sweep_long
from ..samplers.uniforms import tokens_of_positions
from .bound import BoundGraph
from .graph import LABEL
from .response import Y
from .tracing import Values, ZbarHandler, concentration, run, traced

PARTS = 1.0, 0.5, 0.25, 0.25, 0.1, 0.1  # of a document that get new topics, one proposal after the other
TRIED = 64  # documents for which a kernel is compiled to see whether it can be
Context = tuple[Documents, Y, Values]  # documents, responses and values of all other sites


class StorySupervision:
    """All that a story draws given zbar, run with the documents of a batch."""

    def __init__(self, graph: BoundGraph) -> None:
        self.graph, self.linear = graph, graph.linear

    def take(self, context: Context, rows: jax.Array) -> Context:
        documents, y, values = context
        return documents.take(rows), jax.tree.map(lambda leaf: leaf[rows], y), self.graph.take(values, rows)

    def __call__(self, context: Context, predictors: Sequence[jax.Array], zbar: jax.Array | None) -> jax.Array:
        handler = ZbarHandler(predictors=list(predictors)) if zbar is None else ZbarHandler(zbar)
        return self.graph.document_terms(self.graph.response_sites, *context, handler)

    def quadratic(self, context: Context) -> tuple[jax.Array, jax.Array] | None:
        """Read off the story: the second derivative of the response's log density must not depend on the predictor."""
        if not self.linear or self.graph.predictor_shapes != ((),):
            return None
        documents, *_ = context

        def slope(x: jax.Array) -> jax.Array:
            return jax.jvp(lambda x: self(context, [x], None), (x,), (jnp.ones_like(x),))[1]

        def curvature(x: jax.Array) -> jax.Array:
            return jax.jvp(slope, (x,), (jnp.ones_like(x),))[1]

        zero = jnp.zeros(documents.num_documents)
        whole = is_smooth(lambda x: self(context, [x], None), zero) and is_constant(curvature, zero)
        return (slope(zero), curvature(zero)) if whole else None


# Operations that are smooth everywhere, and comparisons, by which a choice would be a jump. The derivatives of others, such
# as max and abs, do not tell that pieces differ.
SMOOTH = frozenset(
    "add add_any sub mul neg div integer_pow square dot_general reduce_sum broadcast_in_dim reshape squeeze expand_dims "
    "transpose convert_element_type slice dynamic_slice concatenate gather pad rev copy select_n jit "
    "eq ne lt le gt ge and or not".split()
)


def is_smooth(function: Callable, x: jax.Array) -> bool:
    """Whether all that a traced function does with its argument is smooth, so that its derivatives tell all of it."""
    found: list[str] = []
    _reached(jax.make_jaxpr(function)(x).jaxpr, [True], found.append)
    return SMOOTH.issuperset(found)


def is_constant(function: Callable, x: jax.Array) -> bool:
    """Whether no operation of a traced function carries its argument to what it gives."""
    traced = jax.make_jaxpr(function)(x)
    return not any(_reached(traced.jaxpr, [True]))


def _reached(jaxpr: Any, inputs: Sequence[bool], note: Callable[[str], Any] = str) -> list[bool]:
    """Which outputs of a program depend on those of its inputs; ``note`` is told the operations on the way, and of a
    choice that depends on them that it is a jump."""
    reached = {variable for variable, told in zip(jaxpr.invars, inputs, strict=True) if told}

    def depends(part: Any) -> bool:
        return not isinstance(part, Literal) and part in reached

    for equation in jaxpr.eqns:
        told = list(map(depends, equation.invars))
        if any(told):
            name = equation.primitive.name
            chosen = name == "select_n" or (name == "convert_element_type" and equation.invars[0].aval.dtype == bool)
            note("jump" if chosen and told[0] else name)
            inner = equation.params.get("jaxpr") if name == "jit" else None
            out = [True] * len(equation.outvars) if inner is None else _reached(inner.jaxpr, told, note)
            reached.update(variable for variable, told in zip(equation.outvars, out, strict=True) if told)
    return list(map(depends, jaxpr.outvars))


def read_weights(
    graph: BoundGraph, corpus: Documents, y: Y, values: Values, collapsed: bool, one_label: bool = False
) -> Weights:
    """Run the story once to see what it gives to draw_words and what it multiplies zbar with.

    ``one_label``: all documents have the label of the first, and the topics are that label's.
    """
    of_label = graph.parents.get(LABEL, frozenset()) - set(values)
    above_theta = graph.parents[graph.theta] - {graph.theta, *values} if collapsed else frozenset()
    if of_label or above_theta:
        what = "topics are those of a label" if of_label else f"theta depends on {sorted(above_theta)[0]!r}"
        raise ValueError(
            f"In the story {graph.story.name!r} {what}, which new documents do not come with; predict and transform weigh "
            "all labels, nothing else does."
        )
    answer = ZbarHandler(zbar=lambda theta: jnp.zeros_like(theta))
    trace = run(graph.story, corpus, y, values, answer)
    if collapsed:
        proportions = jnp.atleast_2d(concentration(trace[graph.theta]["fn"]))
    else:
        proportions = answer.theta
    beta, labels = answer.beta, None
    if answer.label is not None and one_label:
        beta = beta[answer.label[0]]
    elif answer.label is not None:
        labels = Labels.of(answer.label, beta.shape)
        beta = jnp.swapaxes(beta, 0, 1).reshape(beta.shape[1], -1)  # [topics, labels * terms]
    term_topic = jnp.maximum(jnp.pad(beta.T, ((0, 1), (0, 0))), FLOOR)
    return Weights(term_topic, proportions, tuple(answer.coefficients), labels)


def given(key: jax.Array, graph: BoundGraph, corpus: Documents, y: Y, values: Values, collapsed: bool) -> Given:
    """What a sweep at these values is given."""
    weights = read_weights(graph, corpus, y, values, collapsed)
    others = {name: value for name, value in values.items() if name != "z"}
    without_words = corpus.take(jnp.arange(corpus.num_documents))  # they travel in the batches
    return Given(tuple(jax.random.split(key)), weights, (without_words, y, others))


def sweep(
    key: jax.Array, z: Assignments, graph: BoundGraph, corpus: Documents, y: Y, values: Values,
    *, collapsed: bool, supervised: bool, swept: Swept | Assignments | None = None, by_kernel: bool = False,
) -> Assignments:  # fmt: skip
    """A new topic for every token of the corpus; those of the shards may have been drawn already, ``swept``.

    ``by_kernel``: as one kernel of a GPU, where :func:`why_no_kernel` has found nothing against it. Assignments without a
    table of topics and terms stay without one. Where terms lie in files all are ``swept``, or stay as they are.
    """
    batches = corpus.laid_out
    if graph.has_sentences:
        return sweep_sentences(key, z, graph, corpus, y, values, supervised)
    if batches.terms is None:
        return swept if isinstance(swept, Assignments) else z
    assert not isinstance(swept, Assignments)
    told = given(key, graph, corpus, y, values, collapsed)
    supervision = StorySupervision(graph) if supervised else None
    if swept is None:
        swept = choosing.sweep_tokens(supervision, collapsed, told, z, batches, by_kernel=by_kernel)
    long = None if batches.long is None else sweep_long(supervision, collapsed, told, z, batches.long)
    return assembled(swept, batches, z.topic_term is not None, corpus.num_terms, long, told.weights.labels)


def why_no_kernel(graph: BoundGraph, collapsed: bool, places: int | None = None) -> str:
    """Why the sweep of a story cannot be one kernel of the GPU; empty where it can. ``places``: of all words if not told."""
    if why := choosing.why_none():
        return why
    if graph.has_sentences:
        return "words of a sentence share their topic"
    if (num_places(graph.corpus) if places is None else places) >= LARGEST:
        return f"the corpus has more than {LARGEST} places"
    shape = Shape.of(graph.num_topics, TRIED, len(graph.corpus))
    rows = np.resize(np.arange(len(graph.few_corpus)), TRIED)
    corpus, y = documents(graph.few_corpus[rows], batches=True), jax.tree.map(lambda leaf: leaf[rows], graph.few_y)
    values = graph.take(graph.few_values, rows)
    batches = corpus.laid_out
    z = Assignments(jnp.zeros_like(batches.terms), jnp.zeros((len(rows), graph.num_topics)))

    def program(key: jax.Array, z: Assignments, corpus: Documents, y: Y, values: Values) -> Swept:
        told = given(key, graph, corpus, y, values, collapsed)
        supervision = StorySupervision(graph) if graph.response_sites else None
        return choosing.sweep_tokens(supervision, collapsed, told, z, corpus.laid_out, by_kernel=True, shape=shape)

    return choosing.why_not(traced(program), jax.random.key(0), z, corpus, y, values)


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
    new, shares = jax.lax.scan(lambda z, at: propose(z, *at), z, (jnp.asarray(PARTS), keys))
    return new._replace(proposed=shares[0])


def _differ(z: Assignments, new: Assignments, corpus: Documents) -> jax.Array:
    """The share of words whose topics differ."""
    tokens = corpus.laid_out.terms < corpus.num_terms
    return jnp.sum(tokens & (z.topics != new.topics)) / jnp.maximum(corpus.lengths.sum(), 1)


def _outside(key: jax.Array, part: jax.Array, corpus: Documents, batches: PaddedBatches) -> jax.Array:
    """Which words keep their topics: those outside a part of each document, anywhere in it, the whole where it is 1."""
    of_positions = jax.vmap(partial(tokens_of_positions, positions=batches.terms.shape[1]))
    document, position = of_positions(batches.start, batches.depth, batches.rows)
    width = jnp.ceil(part * corpus.lengths)
    first = jnp.where(part < 1, jnp.floor(jax.random.uniform(key, width.shape) * (corpus.lengths + width)) - width, 0)
    return (position < first[document]) | (position >= (first + width)[document])
