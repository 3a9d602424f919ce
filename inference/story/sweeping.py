"""The topic sweep of a story: what it gives to draw_words, and the response that topics are accepted by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from topiczoo.corpora.layouts import Documents, documents, num_places

from ..gpu import choosing
from ..gpu.sweep import LARGEST, Shape
from ..kernels.assignments import Assignments, Labels
from ..kernels.sweep import FLOOR, Given, Swept, Weights, assembled, sweep_long
from .bound import BoundGraph
from .graph import LABEL
from .response import Y
from .sentences import sweep_sentences
from .tracing import Values, ZbarHandler, concentration, run, traced

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
        return (slope(zero), curvature(zero)) if is_constant(curvature, zero) else None


def is_constant(function: Callable, x: jax.Array) -> bool:
    """Whether no operation of a traced function carries its argument to what it gives."""
    traced = jax.make_jaxpr(function)(x)
    return not any(_reached(traced.jaxpr, [True]))


def _reached(jaxpr: Any, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs of a program depend on those of its inputs."""
    reached = {variable for variable, told in zip(jaxpr.invars, inputs, strict=True) if told}

    def depends(part: Any) -> bool:
        return not isinstance(part, Literal) and part in reached

    for equation in jaxpr.eqns:
        told = list(map(depends, equation.invars))
        if any(told):
            inner = equation.params.get("jaxpr") if equation.primitive.name == "jit" else None
            out = [True] * len(equation.outvars) if inner is None else _reached(inner.jaxpr, told)
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


def why_no_kernel(graph: BoundGraph, collapsed: bool) -> str:
    """Why the sweep of a story cannot be one kernel of the GPU; empty where it can."""
    if why := choosing.why_none():
        return why
    if graph.has_sentences:
        return "words of a sentence share their topic"
    if num_places(graph.corpus) >= LARGEST:
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
