"""Names of topics: numbers until someone who has read them gives them names."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..story.graph import TOPIC
from .posterior import Posterior

P = TypeVar("P", bound=Posterior)


def num_topics(fit: Posterior) -> int:
    """How many topics there are; a site may leave one out, but none has more."""
    sizes = [0]
    for leading, arrays in ((2, fit.draws), (2, fit.snapshots), (1, fit.means)):
        for name, array in arrays.items():
            dims = fit.graph.dims.get(name, ())
            sizes += [array.shape[leading + place] for place, dim in enumerate(dims) if dim == TOPIC]
    return max(sizes)


def topic_labels(fit: Posterior, number: int | None = None) -> np.ndarray:
    """What topics are called in tables: their numbers, or their names."""
    number = num_topics(fit) if number is None else number
    if fit.topic_names is None or len(fit.topic_names) != number:
        return np.arange(number)
    return np.asarray(fit.topic_names, object)


def topic_number(fit: Posterior, topic: Any, number: int | None = None) -> int:
    """The number of a topic that is given by its number or its name."""
    number = num_topics(fit) if number is None else number
    labels = topic_labels(fit, number).tolist()
    if isinstance(topic, str) and topic in labels:
        return labels.index(topic)
    if isinstance(topic, int | np.integer) and not isinstance(topic, bool) and 0 <= topic < number:
        return int(topic)
    named = f", or one of the names {reprlib.repr(labels)}" if labels and isinstance(labels[0], str) else ""
    raise ValueError(f"topic is {topic!r}; give a number from 0 to {number - 1}{named}.")


def renamed(fit: P, names: Mapping[Any, str] | Sequence[str]) -> P:
    """A copy of the fit whose topics have names. See :meth:`Fit.rename`."""
    number = num_topics(fit)
    if not number:
        raise ValueError(f"The story {fit.story.name!r} has no topics to name.")
    chains = len(next(iter({**fit.draws, **fit.snapshots}.values())))
    if chains > 1 and not fit.topics_are_matched and fit.topic_names is None:
        raise ValueError(
            f"Topics are not the same in each of the {chains} chains, and a name is for all of them; match them first: "
            "diagnostics.align(fit).rename(...)."
        )
    found = [str(label) for label in topic_labels(fit, number)]
    for number_, name in _pairs(fit, names, number):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"names has {name!r} for topic {number_}; give a text.")
        found[number_] = name
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise ValueError(f"names makes {twice[0]!r} the name of {found.count(twice[0])} topics; give each its own.")
    copied = copy.copy(fit)
    copied.__dict__.pop("posterior", None)  # made anew, with the names
    copied.topic_names = np.array(found, object)
    return copied


def _pairs(fit: Posterior, names: Any, number: int) -> list[tuple[int, Any]]:
    if isinstance(names, Mapping):
        return [(topic_number(fit, topic, number), name) for topic, name in names.items()]
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray) or len(names) != number:
        raise ValueError(
            f"names is {reprlib.repr(names)}; give a dict such as {{0: 'food'}}, or a list of {number} names, one a topic."
        )
    return list(enumerate(names))
