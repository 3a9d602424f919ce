"""The story of a saved fit, found again: among the zoo's own, or given by the caller; nothing else is looked up."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any

import numpy as np

from topiczoo import models


def source(function: Callable) -> str:
    """The story's text; empty where Python does not know it."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def plain(value: Any) -> Any:
    """An argument of the story as JSON has it; a function, or what JSON does not know, by its module and name."""
    named = value
    if not callable(value):
        try:
            listed = np.asarray(value).tolist()
            json.dumps(listed, default=methodcaller("tolist"))
            return listed
        except (AttributeError, TypeError, ValueError):
            named = type(value)
    return {"function": f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', '')}"}


def find_story(state: Mapping[str, Any], path: str) -> Callable:
    """The zoo's story of that name. A file is never a reason to import or to call anything else."""
    module, name = state["story_module"], state["story"]
    found = _of_the_zoo(module, name)
    if found is None or not _is_story(found):
        raise ValueError(
            f"The story {name!r} of {path!r} is none of topiczoo's own (module {module!r}); "
            "pass it: load(path, story=...)."
        )
    return found


def find_argument(name: str, value: Any, path: str) -> Any:
    """An argument of the story from its plain form; a function only if it is one of the zoo's."""
    if isinstance(value, list):
        return np.asarray(value)
    if not (isinstance(value, dict) and set(value) == {"function"}):
        return value
    module, _, function = str(value["function"]).partition(":")
    found = _of_the_zoo(module, function)
    if found is None:
        raise ValueError(
            f"The function {function!r} given as {name} to the story of {path!r} is none of topiczoo's own "
            f"(module {module!r}); pass it: load(path, {name}=...)."
        )
    return found


def warn_if_changed(function: Callable, stored: str, path: str) -> None:
    """Say so if the story reads otherwise than when the fit was saved; comments, blanks and its docstring do not count."""
    if not alike(stored, source(function)):
        warnings.warn(
            f"The story {getattr(function, '__name__', '')!r} has changed since {path!r} was saved, and the fit's draws are "
            "those of the old one; fit again, or load(path, story=...) with the old one: fit.info['story_source'] shows it.",
            stacklevel=4,
        )


def alike(then: str, now: str) -> bool:
    """Whether two texts of a function mean the same; one that is not known may."""
    return not (then and now) or _meaning(then) == _meaning(now)


def _of_the_zoo(module: Any, name: Any) -> Any:
    """What the zoo's modules, all imported with it, define under a name; None where there is no such thing."""
    if not isinstance(module, str) or not isinstance(name, str) or not _in_zoo(module):
        return None
    found = getattr(sys.modules.get(module, models), name, None)
    return found if callable(found) and _in_zoo(getattr(found, "__module__", "")) else None


def _in_zoo(module: str) -> bool:
    return f"{module}.".startswith(f"{models.__name__}.")


def _is_story(function: Any) -> bool:
    parameters = list(inspect.signature(function).parameters.values()) if inspect.isfunction(function) else []
    return bool(parameters) and parameters[0].name == "corpus" and any(p.kind is p.KEYWORD_ONLY for p in parameters)


def _meaning(text: str) -> str:
    """What Python makes of a function's text."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError):  # a lambda in the middle of a line
        return "".join(text.split())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
