"""The block of a document's class where words have topics of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from topiczoo.corpora.layouts import Documents

from ..kernels.assignments import Assignments, document_sums, mean_topics
from ..kernels.sweep import FLOOR
from ..story.bound import BoundGraph
from ..story.classes import num_classes
from ..story.graph import LABEL, THETA
from ..story.tracing import Data, Values, ZbarHandler, by_document, concentration, log_prob, run
from .conjugate import LabelBlock, log_beta_function


class ClassBlock(LabelBlock):
    """A document's class given the topics of its words: every value is tried for all documents at once.

        p(c_d | rest)  is proportional to  p(c_d)  p(theta_d | c_d)  prod_n beta_{c_d, z_dn, w_dn}  p(what else reads c_d)

    as far as the story has these factors. Where theta is integrated out of the topic sweep it is integrated out here too:
    B(alpha_c + n_d) / B(alpha_c) stands in the place of p(theta_d | c_d). This block stands right before the sweep: that
    draws theta anew, and counts words by their documents' new labels, so that nothing reads either in between.
    """

    label = "class of a document, tried value by value"

    def __init__(self, graph: BoundGraph, sites: Sequence[str], collapsed: bool) -> None:
        super().__init__(graph, sites)
        integrated = collapsed and bool(graph.parents[graph.theta] & set(sites))
        self.integrated_out: tuple[str, ...] = (graph.theta,) if integrated else ()

    def logits(self, values: Values, data: Data) -> jax.Array:
        (site,), graph = self.sites, self.graph
        z: Assignments = values["z"]
        zbar = mean_topics(z, data.documents)
        children = sorted(graph.children(self.sites) - {*self.integrated_out})
        of_words, of_theta = (site in graph.parents.get(part, ()) for part in (LABEL, THETA))
        if of_words:  # topics themselves do not depend on classes: their logarithm is taken once
            first = ZbarHandler(zbar)
            run(graph.story, *data, values, first)
            log_beta = jnp.log(jnp.maximum(first.beta, FLOOR))

        def terms(value: jax.Array) -> jax.Array:
            tried = {**values, site: jnp.full_like(values[site], value)}
            answer = ZbarHandler(zbar)
            trace = run(graph.story, *data, tried, answer)
            total = jnp.zeros(data.documents.num_documents)
            for name in children:
                total = total + by_document(log_prob(trace[name]), cast(int, graph.density_axis[name]))
            for name in self.integrated_out:
                alpha = concentration(trace[name]["fn"])
                total = total + log_beta_function(alpha + z.document_topic) - log_beta_function(alpha)
            if of_theta:
                total = total + xlogy(z.document_topic, answer.theta).sum(-1)
            if of_words:
                total = total + word_terms(z, data.documents, log_beta, answer.label)
            return total

        return jax.lax.map(terms, jnp.arange(num_classes(graph, site))).T  # [documents, values]


def word_terms(z: Assignments, documents: Documents, log_beta: jax.Array, label: jax.Array) -> jax.Array:
    """sum_n log beta_{label_d, z_dn, w_dn} of each document, [documents], in one pass over the tokens."""
    _, num_topics, num_terms = log_beta.shape

    def of_tokens(document: jax.Array, term: jax.Array, topic: jax.Array) -> jax.Array:
        return jnp.ravel(log_beta)[(label[document] * num_topics + topic) * num_terms + term]

    return document_sums(of_tokens, documents, z)
