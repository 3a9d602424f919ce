"""A posterior as tables: the leading terms of topics, with their coefficients, and of deviations."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd

from topiczoo.corpora.layouts import documents

from ..programs.compiling import jitted
from ..story.graph import BETA, THETA
from ..story.reader import bind
from ..story.tracing import ZbarHandler, run
from ..story.validation import check_counts
from .leading_terms import check_order, leading, term_scores
from .naming import topic_labels
from .posterior import Posterior

RAISED = 1e-3  # of a component's largest deviation: a smaller one is a zero that was not quite reached


def are_shares(value: np.ndarray) -> bool:
    """Whether numbers along the last axis are parts of 1."""
    return bool(value.min() >= 0 and np.allclose(value.sum(-1), 1.0, atol=1e-3))


def topics(
    fit: Posterior, n: int = 10, *, by: str = "relevance", weight: float | None = None, chain: int = 0
) -> pd.DataFrame:
    """The n leading terms of every topic of a chain, with the topic's coefficient where there is one. See ``Fit.topics``."""
    check_counts(n=n)
    check_order(by, weight)
    beta = topic_terms(fit, chain)
    n = min(n, beta.shape[1])
    scores = term_scores(beta, np.asarray(fit.corpus.counts.sum(0)), by, weight)
    chosen = leading(scores, n)
    topic = np.repeat(np.arange(len(beta)), n)
    frame = pd.DataFrame({
        "chain": chain,
        "topic": topic_labels(fit, len(beta))[topic],
        "rank": np.tile(np.arange(1, n + 1), len(beta)),
        "term": fit.vocabulary[chosen.ravel()],
        "probability": np.take_along_axis(beta, chosen, 1).ravel(),
        "score": np.take_along_axis(scores, chosen, 1).ravel(),
    })  # fmt: skip
    for name in fit.coefficients:
        value = fit.by_topic(name)[chain]
        if value.ndim == 2:
            frame[name] = value.mean(0)[topic]
            frame[f"{name}_low"], frame[f"{name}_high"] = np.quantile(value, [0.05, 0.95], axis=0)[:, topic]
        elif value.ndim == 3:
            means, names = value.mean(0), fit.classes
            if names is None or len(names) != means.shape[1]:
                names = np.arange(means.shape[1])
            for output, label in enumerate(names):
                frame[f"{name}[{label}]"] = means[topic, output]
    return frame


def leading_words(fit: Posterior, n: int, *, chain: int = 0) -> list[str]:
    """A few words for each topic of a chain, those of :func:`topics`."""
    beta = topic_terms(fit, chain)
    scores = term_scores(beta, np.asarray(fit.corpus.counts.sum(0)))
    return [" ".join(map(str, fit.vocabulary[row])) for row in leading(scores, n)]


def topic_terms(fit: Posterior, chain: int) -> np.ndarray:
    """The mean topics of a chain, [topics, terms]; where they are no site, what the story makes of the other sites' means.

    Where each label has its own topics, their means over labels.
    """
    if fit.graph.topics in fit.sites:
        return fit.mean(fit.graph.topics, chain=chain)
    if not fit.has_topics:
        raise ValueError(
            f"The story {fit.story.name!r} has no site with axes of topics and terms; "
            "deviations(site) shows the leading terms of any site with an axis of terms."
        )
    graph, handler = bind(fit.story, fit.corpus[:2]), ZbarHandler(lambda theta: theta)
    run(graph.story, graph.few_documents, None, fit.global_means(chain), handler)
    beta = np.asarray(handler.beta)
    return beta if beta.ndim == 2 else beta.mean(0)


def deviations(fit: Posterior, site: str, n: int = 10, *, chain: int = 0) -> pd.DataFrame:
    """The n terms that each component of a site of deviations raises most: of a topic, of a label, or of both.

    Columns: topic and label as far as the site has them, rank, term, deviation. A component that raises fewer terms has
    fewer rows.
    """
    check_counts(n=n)
    value = fit.mean(site, chain=chain)
    dims = fit.graph.dims[site]
    if dims[-1] != "term":
        raise ValueError(f"The site {site!r} has no axis of terms; give a site of deviations.")
    n = min(n, value.shape[-1])
    chosen = np.argsort(-value, axis=-1, kind="stable")[..., :n]
    index = np.indices(chosen.shape).reshape(chosen.ndim, -1)
    columns = {}
    for place, size in enumerate(value.shape[:-1]):
        if size > 1 or dims[place] == "topic":
            columns[dims[place] or "label"] = index[place]
    if (names := fit.classes) is not None and "label" in columns and columns["label"].max() < len(names):
        columns["label"] = names[columns["label"]]
    if "topic" in columns:
        columns["topic"] = topic_labels(fit, value.shape[dims.index("topic")])[columns["topic"]]
    columns |= {"rank": index[-1] + 1, "term": fit.vocabulary[chosen.ravel()]}
    largest = np.take_along_axis(value, chosen, -1)
    raised = largest > RAISED * largest.max(-1, keepdims=True)
    return pd.DataFrame({**columns, "deviation": largest.ravel()})[raised.ravel()].reset_index(drop=True)


def made_of_draws(
    fit: Posterior, what: str, most: int | None = 20, chains: Sequence[int] | None = None
) -> np.ndarray | None:
    """theta or beta as the story hands them to draw_words at stored draws, [chain, draw, ...], where they are no site.

    None where a site that it follows from is not stored. ``most``: draws a chain at the most, evenly spaced. ``chains``: of
    these alone.
    """
    if not fit.graph.has_words:
        return None
    needed = fit.graph.parents.get({"theta": THETA, "beta": BETA}[what], frozenset(fit.graph.latent))
    stored = fit.draws if all(name in fit.draws for name in needed) else fit.snapshots
    if not needed or not all(name in stored for name in needed):
        return None
    graph = bind(fit.story, fit.corpus[:3])
    laid = documents(fit.corpus) if what == "theta" else graph.few_documents
    num_chains, num_draws = next(iter(stored.values())).shape[:2]
    chosen = (
        np.arange(num_draws) if most is None or num_draws <= most else np.linspace(0, num_draws - 1, most).astype(int)
    )

    @jitted
    def at(values: dict[str, jax.Array]) -> jax.Array:
        handler = ZbarHandler(lambda theta: theta)
        run(graph.story, laid, None, values, handler)
        return getattr(handler, what)

    own = range(num_chains) if chains is None else chains
    found = [at({name: stored[name][chain, i] for name in needed}) for chain in own for i in chosen]
    return np.stack(found).reshape(len(own), len(chosen), *found[0].shape)
