"""Checkpoints of ``topiczoo fit``: where they are, and what ``topiczoo resume`` must know of the command beside them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Remembered(NamedTuple):
    """What a fit's file holds beside what the engine knows, and where it goes."""

    out: str
    info: dict[str, Any]
    story: str | None = None  # file.py:function, for the sentence that says how to go on


@contextlib.contextmanager
def checkpoints(options: argparse.Namespace, call: Remembered) -> Iterator[dict[str, Any]]:
    """What an engine is told of checkpoints, in a folder that stays only if the run has begun."""
    from topiczoo.inference.lasting.checkpoint import COMMAND

    if options.checkpoint and options.no_checkpoint:
        raise ValueError("--checkpoint and --no-checkpoint are both given; leave one of them out.")
    if options.no_checkpoint:
        yield {}
        return
    folder = Path(options.checkpoint or beside(call.out))
    if options.force:
        forget(folder)
    made = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
        if not has_run(folder):
            text = json.dumps(call._replace(out=os.path.abspath(call.out))._asdict())
            (folder / COMMAND).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(
            f"the checkpoint {str(folder)!r} cannot be written ({error.strerror}); give --checkpoint FOLDER, or "
            "--no-checkpoint."
        ) from None
    try:
        with going_on(options, folder, call.story):
            yield {"checkpoint": folder}
    finally:
        if not has_run(folder):
            (folder / COMMAND).unlink(missing_ok=True)
            if made:
                with contextlib.suppress(OSError):
                    folder.rmdir()


@contextlib.contextmanager
def going_on(options: argparse.Namespace, folder: str | Path, story: str | None) -> Iterator[None]:
    """An interruption says how to go on, and another run's checkpoints what to do about them."""
    try:
        yield
    except KeyboardInterrupt:
        if has_run(folder):
            options.kept = f"go on by {to_resume(folder, story)}."
        raise
    except ValueError as error:
        said = str(error).replace("or start anew in another folder", "or give fit --force to start anew")
        said = said.replace("start anew in another folder", "give fit --force to start anew")
        said = said.replace("pass it: resume(folder, story=...)", "give it by --story file.py:function")
        raise ValueError(said) from None


def remembered(folder: str) -> Remembered:
    """The call of a folder's run."""
    from topiczoo.inference.lasting.checkpoint import COMMAND

    if not has_run(folder):
        raise FileNotFoundError(f"{folder!r} holds no checkpoint; give the folder that a fit has left, OUT.checkpoint.")
    try:
        told = json.loads((Path(folder) / COMMAND).read_text(encoding="utf-8"))
        call = Remembered(str(told["out"]), dict(told["info"]))
    except (OSError, ValueError, TypeError, KeyError):
        raise ValueError(
            f"{folder!r} does not say where its fit goes: it was not made by topiczoo fit; go on in Python, by "
            f"inference.resume({folder!r})."
        ) from None
    if "standardised" in call.info:
        call.info["standardised"] = tuple(call.info["standardised"])
    return call


def has_run(folder: str | Path) -> bool:
    from topiczoo.inference.lasting.manifest import RUN

    return (Path(folder) / RUN).exists()


def forget(folder: str | Path) -> None:
    """Remove a folder of checkpoints."""
    from topiczoo.inference.lasting.checkpoint import remove

    remove(Path(folder))


def beside(out: str) -> str:
    return f"{out}.checkpoint"


def is_passing(folder: str, out: str) -> bool:
    """Whether a folder is the one that goes once its fit is saved: it was not asked for by name."""
    return os.path.abspath(folder) == os.path.abspath(beside(out))


def to_resume(folder: str | Path, story: str | None) -> str:
    return shlex.join(["topiczoo", "resume", str(folder), *(["--story", story] if story else [])])
