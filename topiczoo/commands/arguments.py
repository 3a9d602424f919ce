"""What the command line is given: stories, settings and places for results, each checked before any work is done."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def find_story(name: str) -> Callable:
    """A story by its name in the zoo, or as file.py:function."""
    from topiczoo.models.catalogue import stories

    if ":" not in name:
        if name not in stories():
            raise ValueError(
                f"{name!r} is no story of the zoo; there are {', '.join(stories())}, or give file.py:function."
            )
        return stories()[name]
    path, _, function = name.rpartition(":")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path!r} is no file; give a story as file.py:function.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path!r} does not end in .py; give a story as file.py:function.")
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(Path(path).resolve().parent))  # modules that lie beside the story
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{path!r} is no Python in line {error.lineno} ({error.msg}); mend it.") from None
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        raise ValueError(f"{path!r} stops at line {line} ({type(error).__name__}: {error}); mend it.") from error
    finally:
        sys.path.pop()
    if not callable(getattr(module, function, None)):
        raise ValueError(f"{path!r} has no function {function!r}; name the story in it.")
    return getattr(module, function)


def read_settings(pairs: list[str], story: Callable, engine: Callable, options: Iterable[str] = ()) -> dict[str, Any]:
    """Arguments of the story or the engine, by name; names of ``options`` are set elsewhere on the command line."""
    parameters = list(inspect.signature(story).parameters.values())
    of_story = [p.name for p in parameters[1:] if p.name != "y" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    of_engine = [p.name for p in inspect.signature(engine).parameters.values() if p.kind is p.KEYWORD_ONLY]
    of_engine = [name for name in of_engine if name not in options]
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair!r} has no '='; write --set name=value.")
        if name in options:
            raise ValueError(f"--set {pair!r} has an option of its own; write --{name} {shlex.quote(value)}.")
        if name not in (*of_story, *of_engine) and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise ValueError(
                f"--set {pair!r}: {name!r} is no argument of the story, which takes {', '.join(of_story)}, nor of the "
                f"engine, which takes {', '.join(of_engine)}."
            )
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
    return settings


def check_output(name: str, force: bool, *, stream: bool = False) -> None:
    """Refuse a place for results before the work, not after it. A ``stream`` such as a pipe is written to as it is."""
    path = Path(name)
    if path.is_dir():
        raise IsADirectoryError(f"the output {name!r} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the output {name!r} is in no existing folder; make {str(path.parent)!r} first.")
    if path.exists() and not path.is_file():
        if stream:
            return
        raise FileExistsError(f"the output {name!r} is no ordinary file; name one.")
    if path.exists() and not force:
        raise FileExistsError(f"the output {name!r} is there already; name another, or give --force to replace it.")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, suffix=".part"):
            pass
    except OSError as error:
        raise PermissionError(
            f"the output {name!r} cannot be written ({error.strerror}); name a file elsewhere."
        ) from None


def aside(name: str) -> contextlib.AbstractContextManager:
    """Sentences go beside a stream that results are written to, such as /dev/stdout, and not into it."""
    path = Path(name)
    return contextlib.redirect_stdout(sys.stderr) if path.exists() and not path.is_file() else contextlib.nullcontext()
