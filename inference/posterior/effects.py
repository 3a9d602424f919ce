"""What topics and covariates do: coefficients with their intervals, as one table.

Which covariate a site is the coefficient of is read from the story, not from names: with the site, or one of its slices, at
zero the covariate enters no density of the story, whatever its values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpyro.distributions import constraints

from ..story.bound import BoundGraph
from ..story.graph import DOCUMENT, TERM, TOPIC, Dims
from ..story.reader import bind
from ..story.tracing import ZbarHandler, log_prob, run
from ..story.validation import check_counts, check_share
from .naming import topic_labels
from .posterior import Posterior
from .tables import leading_words

COLUMNS = ["chain", "site", "topic", "output", "covariate", "mean", "low", "high", "sign_probability"]


class Slice(NamedTuple):
    """A part of a site that is the coefficient of a covariate: the whole, or one place on an axis."""

    site: str
    covariate: str
    axis: int | None = None
    place: int = 0


def effects(
    fit: Posterior, var_names: Any = None, *, probability: float = 0.9, n: int = 5, chain: int = 0
) -> pd.DataFrame:
    """Coefficients of topics and of covariates with their intervals. See :meth:`Fit.effects`."""
    check_share(probability=probability)
    check_counts(n=n)
    found, dims = covariate_slices(fit), fit.graph.dims
    sites = list(dict.fromkeys([*fit.coefficients, *(part.site for part in found)]))
    if not sites:
        raise ValueError(
            f"The story {fit.story.name!r} has no coefficients of topics or covariates; fit.topics() tells of its topics."
        )
    chosen = _chosen(sites, var_names)
    num_chains = len(fit.draws[sites[0]])
    if not 0 <= chain < num_chains:
        raise ValueError(f"chain is {chain!r}; the fit's chains are 0 to {num_chains - 1}.")
    rows: list[dict[str, Any]] = []
    for site in chosen:
        draws, own = fit.draws[site][chain], [part for part in found if part.site == site]
        covariates = np.full(draws.shape[1:], None, object)
        for part in own:
            where: Any = ... if part.axis is None else (slice(None),) * part.axis + (part.place,)
            covariates[where] = part.covariate
        axes = {part.axis for part in own}  # an axis whose places are covariates needs no number beside the name
        rows += _rows(fit, site, draws, dims[site], covariates, axes, probability)
    frame = pd.DataFrame(rows, columns=["site", "number", *COLUMNS[2:]])
    for name in ("topic", "output"):  # a number that is missing in some rows is none with a decimal point
        told = [row[name] for row in rows if row[name] is not None]
        if told and len(told) < len(rows) and not any(isinstance(one, str) for one in told):
            frame[name] = pd.array([row[name] for row in rows], "Int64")
    frame.insert(0, "chain", chain)
    of_topic = frame["number"].notna()
    if of_topic.any():
        words = leading_words(fit, n, chain=chain)
        frame["terms"] = [words[int(k)] if told else None for k, told in zip(frame["number"], of_topic, strict=True)]
    frame = frame.drop(columns="number")
    empty = [name for name in ("topic", "output", "covariate") if frame[name].isna().all()]
    return frame.drop(columns=empty)


def _chosen(sites: list[str], var_names: Any) -> list[str]:
    if var_names is None:
        return sites
    wanted = [var_names] if isinstance(var_names, str) else list(var_names)
    for name in wanted:
        if name not in sites:
            raise ValueError(f"var_names has {name!r}; the coefficients are {', '.join(map(repr, sites))}: name some.")
    return wanted


def _rows(
    fit: Posterior, site: str, draws: np.ndarray, dims: Dims, covariates: np.ndarray, spoken: set, probability: float
) -> list[dict[str, Any]]:
    tails = (1 - probability) / 2
    low, high = np.quantile(draws, [tails, 1 - tails], axis=0)
    mean = draws.mean(0)
    same = np.mean(np.sign(draws) == np.sign(mean), axis=0)
    topic_axis = dims.index(TOPIC) if TOPIC in dims else None
    labels = topic_labels(fit, mean.shape[topic_axis]) if topic_axis is not None else None
    rows = []
    for index in np.ndindex(*mean.shape):
        number = None if topic_axis is None else index[topic_axis]
        rest = [
            _output(fit, index[place], mean.shape[place])
            for place in range(len(index))
            if place != topic_axis and place not in spoken
        ]
        rows.append({
            "site": site, "number": number, "topic": None if labels is None else labels[number],
            "output": None if not rest else rest[0] if len(rest) == 1 else ", ".join(map(str, rest)),
            "covariate": covariates[index], "mean": mean[index], "low": low[index], "high": high[index],
            "sign_probability": same[index],
        })  # fmt: skip
    return rows


def _output(fit: Posterior, place: int, size: int) -> Any:
    return place if fit.classes is None or len(fit.classes) != size else fit.classes[place]


def covariate_slices(fit: Posterior) -> list[Slice]:
    """Sites, or slices of them, that are coefficients of covariates of the documents; found once for a fit."""
    if not len(fit.corpus.covariates.columns):
        return []
    if "covariates" not in fit.compiled:
        fit.compiled["covariates"] = _covariate_slices(fit)
    return fit.compiled["covariates"]


def _covariate_slices(fit: Posterior) -> list[Slice]:
    graph = bind(fit.story, fit.corpus, fit.response)
    values = {name: np.asarray(value) for name, value in graph.few_values.items()}
    candidates = [
        name
        for name, site in graph.latent.items()
        if name in fit.draws and not site.discrete and not {DOCUMENT, TERM} & set(site.axes) and _is_real(site.fn)
    ]
    found = []
    for covariate in sorted(graph.covariates):
        changed = _changed(graph, covariate)
        if changed is None or _same(graph, values, changed):
            continue
        for site in candidates:
            whole = np.zeros_like(values[site])
            if not _same(graph, {**values, site: whole}, changed):
                continue
            parts = [
                Slice(site, covariate, axis, place)
                for axis, size in enumerate(whole.shape)
                if size > 1
                for place in range(size)
                if _same(graph, {**values, site: _without(values[site], axis, place)}, changed)
            ]
            found += parts if len(parts) == 1 else [Slice(site, covariate)]
    return found


def _is_real(fn: Any) -> bool:
    support = fn.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support in (constraints.real, constraints.real_vector)


def _changed(graph: BoundGraph, covariate: str) -> dict[str, Any] | None:
    """The covariates of the few documents with one of them at other values that occur; None if it has one value alone."""
    few = graph.few_documents.covariates
    kinds = np.unique(np.asarray(graph.corpus.covariates[covariate]))
    if len(kinds) < 2:
        return None
    own = np.asarray(few[covariate])
    next_ = kinds[(np.searchsorted(kinds, own) + 1) % len(kinds)]
    return {**few, covariate: jnp.asarray(next_, own.dtype)}


def _without(value: np.ndarray, axis: int, place: int) -> np.ndarray:
    out = value.copy()
    out[(slice(None),) * axis + (place,)] = 0
    return out


def _same(graph: BoundGraph, values: dict[str, Any], changed: dict[str, Any]) -> bool:
    """Whether every density, and what words are drawn with, is the same with the covariates changed."""
    here, there = (_told(graph, values, columns) for columns in (graph.few_documents.covariates, changed))
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(here, there, strict=True))


def _told(graph: BoundGraph, values: dict[str, Any], columns: Any) -> list[np.ndarray]:
    handler = ZbarHandler(lambda theta: theta)
    documents = replace(graph.few_documents, covariates=columns)
    trace = run(graph.story, documents, graph.few_y, values, handler)
    found = [log_prob(site) for site in trace.values() if site["type"] == "sample"]
    found += [part for part in (handler.theta, handler.beta, handler.label) if part is not None]
    return [np.asarray(part) for part in found]
