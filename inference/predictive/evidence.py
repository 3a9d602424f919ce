"""What a fit says of the words of documents: alpha and beta at posterior draws, and p(w_d) where it is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents

from ..kernels.sweep import read_weights
from ..mcmc.conjugate import LabelBlock
from ..story.tracing import ZbarHandler
from .fold_in import FoldIn, known_words

if TYPE_CHECKING:
    from ..posterior.fit import Fit


class WordWeights(NamedTuple):
    """theta_d ~ Dir(alpha_d), z_dn ~ Cat(theta_d), w_dn ~ Cat(beta_{z_dn}) at some posterior draws."""

    corpus: Corpus  # the documents over the fit's vocabulary, words that it has not seen left out
    beta: np.ndarray  # [chain, draw, topics, terms]
    alpha: np.ndarray  # [chain, draw, documents (or 1, if common to all), topics]


def word_weights(fit: Fit, corpus: Corpus, *, most_draws: int = 10) -> WordWeights:
    """alpha and beta for the documents of a corpus, at ``most_draws`` draws a chain at the most.

    Where the engine has estimated alpha itself (``fit.info["alpha"]``) it is that one.
    """
    fold = FoldIn(fit, corpus)
    graph, name = fold.graph, fit.story.name
    if not graph.has_words:
        raise ValueError(f"The story {name!r} has one topic a document; its p(w_d) is exact: use label_evidence.")
    if graph.has_labels:
        raise ValueError(f"In the story {name!r} topics are those of a label; p(w_d), a sum over labels, is not known.")
    own = [site for site in graph.parents[graph.theta] - {graph.theta} if "document" in graph.story.dims[site]]
    if own:
        raise ValueError(
            f"In the story {name!r} theta's prior depends on {own[0]!r}, which new documents have values of their own "
            "for; p(w_d) is known only where theta's prior is common to documents or follows from covariates."
        )
    draws = fit.global_draws(most_draws)
    num_chains, num_draws = next(iter(draws.values())).shape[:2]

    @jax.jit
    def read(corpus: Documents, values: dict) -> tuple[jax.Array, jax.Array]:
        weights = read_weights(graph, corpus, None, values, collapsed=True)
        return weights.term_topic[:-1].T, weights.proportions

    found = [
        jax.tree.map(np.asarray, read(fold.corpus, {site: jnp.asarray(value[c, i]) for site, value in draws.items()}))
        for c in range(num_chains)
        for i in range(num_draws)
    ]
    beta, alpha = (np.stack(part).reshape(num_chains, num_draws, *part[0].shape) for part in zip(*found, strict=True))
    if np.ptp(alpha, axis=2).max() == 0:
        alpha = alpha[:, :, :1]
    return WordWeights(known_words(fit, corpus), beta, alpha)


def label_evidence(fit: Fit, corpus: Corpus, *, most_draws: int = 10) -> np.ndarray | None:
    """log p(w_d | draw) = log sum_k p(z_d = k) prod_n beta_{k, w_dn}, [chain, draw, documents], exactly.

    For a story with one topic a document; None for a story whose words have topics of their own.
    """
    fold = FoldIn(fit, corpus)
    graph = fold.graph
    if graph.has_words:
        return None
    labels = [name for name in graph.latent if LabelBlock.recognise(graph, name)]
    if len(labels) != 1:
        raise ValueError(f"The story {fit.story.name!r} has {len(labels)} labels a document; p(w_d) is known for one.")
    (site,) = labels
    num_labels = len(graph.latent[site].fn.enumerate_support(expand=False))
    # what the label drives, less a response: a latent site that nothing reads
    parts = tuple(part for part in sorted(graph.children([site])) if part == site or part not in graph.latent)
    given = site, parts, num_labels
    logs = np.stack(list(fold.run(_log_sum, *given, seed=0, most_draws=most_draws, num_burn=0)))
    return logs.reshape(len(fold.chains), -1, len(corpus)).astype(float)


def _log_sum(
    fold: FoldIn, _burn: int, site: str, parts: tuple[str, ...], num_labels: int, data: tuple, _key: jax.Array,
    _centre: None, values: dict,
) -> jax.Array:  # fmt: skip
    corpus, _ = data

    def log_joint(label: jax.Array) -> jax.Array:
        tried = {**values, site: jnp.full(corpus.num_documents, label, jnp.int32)}
        return fold.graph.document_terms(parts, corpus, None, tried, ZbarHandler())

    return jax.nn.logsumexp(jax.lax.map(log_joint, jnp.arange(num_labels)), axis=0)
