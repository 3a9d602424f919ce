"""What convergence is judged by: series of numbers, one a draw, that mean the same in every chain.

Quantities that do not depend on how topics are numbered (the log joint density, predictions, the sizes of topics in
order) can always be compared. Topics and their coefficients can be once topics are matched, so the fit must be aligned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from topiczoo.inference import Fit
from topiczoo.inference.posterior.leading_terms import leading
from topiczoo.inference.posterior.naming import topic_labels

from .alignment import topic_usage
from .followed import Followed

LEADING_TERMS = 3  # of each topic
LARGEST = 5  # topics in the spectrum of usage
MOST_ELEMENTS = 50  # of one site without topics


class Series(NamedTuple):
    """A quantity's draws, [chain, draw]."""

    quantity: str
    kind: str  # "label-invariant", "prediction", "parameter", "coefficient" or "term"
    topic: int | None
    values: np.ndarray


def series(fit: Fit, followed: Mapping[str, Followed] | None = None) -> list[Series]:
    """Everything worth judging in an aligned fit, with predictions of the documents that were followed."""
    found = [*_invariants(fit), *_predictions(fit, followed or {}), *_sites(fit), *_terms(fit)]
    return [s for s in found if s.values.shape[1] > 1 and not np.ptp(s.values) == 0]


def _invariants(fit: Fit) -> list[Series]:
    found = []
    if "lp" in fit.statistics:
        found.append(Series("log joint density", "label-invariant", None, fit.statistics["lp"]))
    usage = topic_usage(fit)
    if usage is not None and usage.shape[1] > 1:
        spectrum = -np.sort(-usage, axis=-1)
        for rank in range(min(LARGEST, spectrum.shape[-1])):
            name = "usage of the largest topic" if rank == 0 else f"usage of the topic of rank {rank + 1}"
            found.append(Series(name, "label-invariant", None, spectrum[..., rank]))
    for name in fit.coefficients:
        squares = (fit.draws[name] ** 2).sum(tuple(range(2, fit.draws[name].ndim)))
        found.append(Series(f"sum of {name}^2", "label-invariant", None, squares))
    return found


def _predictions(fit: Fit, followed: Mapping[str, Followed]) -> list[Series]:
    """E[y | words, draw] of the documents followed; of a class, the probability of the most probable one."""
    found = []
    for name, part in followed.items():
        values = part.expected.values
        shown = values.mean((0, 1)).argmax(1) if part.expected.of_classes else np.zeros(len(part.documents), int)
        for place, row in enumerate(part.documents):
            what = f"expected {name}"
            if part.expected.of_classes:
                what = f"probability of {name} = {shown[place] if fit.classes is None else fit.classes[shown[place]]}"
            label = f"{what} of document {fit.document_names[row]}"
            found.append(Series(label, "prediction", None, values[:, :, place, shown[place]]))
    return found


def _sites(fit: Fit) -> list[Series]:
    """Elements of sites that belong to no document and no term."""
    coefficients, found = fit.coefficients, []
    for name, value in fit.draws.items():
        dims = fit.graph.dims.get(name, (None,) * (value.ndim - 2))
        if "document" in dims or "term" in dims:
            continue
        flat = value.reshape(*value.shape[:2], -1)
        of_topics = "topic" in dims
        if (not of_topics or dims.count("topic") > 1) and flat.shape[-1] > MOST_ELEMENTS:
            continue
        for place, index in enumerate(np.ndindex(*value.shape[2:])):
            label = name + (f"[{', '.join(_named(fit, value.shape[2:], dims, index))}]" if index else "")
            if np.ptp(flat[..., place]) == 0:
                continue  # the other half of a triangular matrix
            topic = index[dims.index("topic")] if of_topics else None
            kind = "coefficient" if name in coefficients else "parameter"
            found.append(Series(label, kind, topic, flat[..., place]))
    return found


def _named(fit: Fit, shape: tuple[int, ...], dims: tuple[str | None, ...], index: tuple[int, ...]) -> list[str]:
    """The places of an element on its axes, topics by their names where they have some."""
    return [
        str(topic_labels(fit, size)[place] if dim == "topic" else place)
        for size, dim, place in zip(shape, dims, index, strict=True)
    ]


def _terms(fit: Fit) -> list[Series]:
    """The leading terms' probabilities or deviations of each topic, of each class in a story without topics."""
    of_topics, found = fit.has_topics, []
    for name, dims in fit.graph.dims.items():
        value = {**fit.snapshots, **fit.draws}.get(name)
        if dims != ("topic" if of_topics else "label", "term") or value is None:
            continue
        names = topic_labels(fit, value.shape[2]) if of_topics else fit.classes
        for row, terms in enumerate(leading(value.mean((0, 1)), LEADING_TERMS)):
            shown = row if names is None else names[row]
            for term in terms:
                kind, topic = ("term", row) if of_topics else ("parameter", None)
                found.append(Series(f"{name}[{shown}, {fit.vocabulary[term]}]", kind, topic, value[:, :, row, term]))
    return found
