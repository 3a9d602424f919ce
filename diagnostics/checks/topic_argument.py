"""Which argument of a story is the number of its topics: found by reading the story, since none is known by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.inference.story.graph import TOPIC, StoryGraph
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.reading import check_response
from topiczoo.inference.story.tracing import Story


def topic_argument(
    function: Callable, corpus: Corpus, y: Any, topics: Any, arguments: Mapping[str, Any]
) -> tuple[str, list[int]]:
    """The name of the argument that holds the number of topics, and the numbers to try in it, the least first.

    ``topics`` is ``{name: numbers}``, or numbers alone: then the argument is the one with which the number of topics that
    the story draws changes, among those that are not given and are whole numbers by default or have no default.
    """
    if isinstance(topics, Mapping):
        if len(topics) != 1:
            raise ValueError(f"topics is {dict(topics)!r}; name one argument, e.g. {{'how_many': [5, 10, 20]}}.")
        ((name, numbers),) = topics.items()
        if name in arguments:
            raise ValueError(f"{name} is in topics and given beside it; leave one of them out.")
        return name, _whole(numbers)
    values = _whole(topics)
    return _found(function, corpus, y, values, arguments), values


def num_topics(graph: StoryGraph) -> int:
    """How many topics words are drawn from; where a document has but one of them, the length of the axis of topics."""
    axes = [zip(site.axes, site.shape, strict=False) for site in graph.sites.values()]
    return graph.num_topics or max((size for pairs in axes for axis, size in pairs if axis == TOPIC), default=0)


def _whole(numbers: Any) -> list[int]:
    """Different whole numbers of at least 1, the least first."""
    listed = list(numbers) if np.iterable(numbers) else []
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 1 for n in listed)
    if not whole or len(set(listed)) < 2:
        raise ValueError(f"topics is {numbers!r}; give two or more whole numbers of at least 1, e.g. [5, 10, 20].")
    return sorted({int(n) for n in listed})


def _found(function: Callable, corpus: Corpus, y: Any, values: list[int], arguments: Mapping[str, Any]) -> str:
    """The one argument with which the number of topics changes."""
    name = getattr(function, "__name__", type(function).__name__)
    found, refusal = [], None
    for parameter in _free(function, arguments):
        try:
            stories = [Story(function, {**arguments, parameter: value}) for value in values[:2]]
            graphs = [bind(story, corpus, check_response(story, corpus, y)) for story in stories]
        except (TypeError, ValueError) as error:
            refusal = error
            continue
        if num_topics(graphs[0]) != num_topics(graphs[1]):
            found.append(parameter)
    if len(found) == 1:
        return found[0]
    if not found and refusal is not None:
        raise refusal
    said = f"with {' and with '.join(map(repr, found))}" if found else "with no argument that may be a whole number"
    raise ValueError(
        f"The number of topics of the story {name!r} changes {said}; name the argument: topics={{'name': {values!r}}}."
    )


def _free(function: Callable, arguments: Mapping[str, Any]) -> list[str]:
    """Arguments that are not given and may be whole numbers, as far as their defaults tell."""
    _, *parameters = inspect.signature(function).parameters.values()
    return [
        p.name for p in parameters
        if p.name not in {"y", *arguments} and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and (p.default is p.empty or (isinstance(p.default, int | np.integer) and not isinstance(p.default, bool)))
    ]  # fmt: skip
