"""Options from a TOML file: data and nothing else, each as if it had been given on the command line."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .parser import Commands

LEFT_OUT = ("help", "config")  # options that mean nothing in a file
RUNS = "story"  # names code: that is said on the command line, since nothing runs because a file says so


def configure(path: str, command: str, commands: Commands) -> None:
    """Make what a file says of a command the defaults of its parser.

    Keys are long names of options, with - or _, and hold for the command that reads the file; below ``[fit]`` and its
    like they are options of that command alone. ``set`` is a table of arguments: ``set = {num_topics = 10}``.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"--config {path!r} is no file; give a TOML file of options.")
    try:
        told = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {path!r} is no TOML ({error}); mend it.") from None
    sections = {name: told.pop(name) for name in list(told) if name in commands and isinstance(told[name], dict)}
    # a mistake in the part of another command is one, too
    parts = {name: _values(path, section, name, commands) for name, section in sections.items()}
    shared = _values(path, told, command, commands)
    commands[command].set_defaults(**{**shared, **parts.get(command, {})})


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        option.removeprefix("--"): action
        for action in parser._actions for option in action.option_strings
        if option.startswith("--") and action.dest not in LEFT_OUT
    }  # fmt: skip


def _values(path: str, section: Mapping[str, Any], command: str, commands: Commands) -> dict[str, Any]:
    from topiczoo.corpora.files.wording import nearest

    known = _options(commands[command])
    found = {}
    for key, value in section.items():
        name = key.replace("_", "-")
        if name == RUNS:
            raise ValueError(f"--config {path!r} names a {RUNS}, and a file runs nothing; give it on the command line.")
        if name not in known:
            others = [other for other, parser in commands.items() if name in _options(parser)]
            near = nearest(name, known) or f"; there are {', '.join(known)}"
            if others:
                near = f", but of topiczoo {others[0]}; put it below [{others[0]}]"
            raise ValueError(f"--config {path!r} has {key!r}, which is no option of topiczoo {command}{near}.")
        found[known[name].dest] = _value(f"--config {path!r}: {key}", value, known[name])
    return found


def _value(where: str, value: Any, action: argparse.Action) -> Any:
    if action.dest == "set":
        if not isinstance(value, dict):
            raise ValueError(f"{where} is {value!r}; give a table, such as set = {{num_topics = 10}}.")
        return [f"{name}={held!r}" for name, held in value.items()]
    if action.nargs == 0:  # a flag
        if not isinstance(value, bool):
            raise ValueError(f"{where} is {value!r}; give true or false.")
        return value
    if isinstance(value, bool | dict):
        raise ValueError(f"{where} is {value!r}; give what --{action.dest.replace('_', '-')} takes.")
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if callable(action.type):
        try:
            action.type(text)
        except ValueError:
            raise ValueError(f"{where} is {value!r}; give a number.") from None
    if action.choices is not None and text not in action.choices:
        raise ValueError(f"{where} is {value!r}; choose from {', '.join(action.choices)}.")
    return text
