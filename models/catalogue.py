"""The stories by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def stories() -> dict[str, Callable]:
    """What models exports, takes a corpus, and has arguments of its own by name."""
    from topiczoo import models

    functions = {name: getattr(models, name) for name in models.__all__ if inspect.isfunction(getattr(models, name))}
    parameters = {name: inspect.signature(function).parameters.values() for name, function in functions.items()}
    return {
        name: functions[name]
        for name, (first, *others) in parameters.items()
        if first.name == "corpus" and any(other.kind is other.KEYWORD_ONLY for other in others)
    }


def as_story(story: str | Callable) -> Callable:
    """A story as it is, or by its name."""
    if isinstance(story, str) and story in stories():
        return stories()[story]
    if isinstance(story, str) or not callable(story):
        raise ValueError(
            f"story is {story!r}; give a function story(corpus, y=None, *, ...), or the name of one of the zoo: "
            f"{', '.join(stories())}."
        )
    return story
