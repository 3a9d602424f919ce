"""The command line: ``topiczoo demo | models | simulate | fit | resume | compare | topics | predict | report | check``.

Exit status: 0 fine, 1 a check failed, 2 bad input, 130 interrupted, 141 the reader of a pipe has gone, 143 told to end
(SIGTERM); 2, 130 and 143 say why in one sentence. docs/command_line.md shows the commands at work.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from . import __version__
from .commands import fitting, stories, using
from .commands.arguments import check_output
from .commands.config import configure
from .commands.parser import build_parser, of_unknown

MISTAKES = (ValueError, TypeError, KeyError, FloatingPointError, OSError, ImportError)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what is wrong with its input, and what an interruption left, is said in one sentence."""
    parser, commands = build_parser(__version__, RUNS)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        commands[options.command].error(of_unknown(options.command, commands[options.command], unknown[0]))
    options.kept = None  # what there is of the result should the command be interrupted
    ends = _Ends()
    try:
        if getattr(options, "config", None):
            configure(options.config, options.command, commands)
            options = parser.parse_args(arguments, argparse.Namespace(kept=None))
        with ends, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _note(options.command, str(message))
            status = options.run(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        sentence = options.kept or "nothing was kept; give the command again to start over."
        what, status = ("told to end", 143) if ends.told else ("interrupted", 130)
        print(f"topiczoo {options.command}: {what}; {sentence}", file=sys.stderr)
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer has nowhere to go
        return 141
    except MISTAKES as error:
        print(f"topiczoo {options.command}: {_sentence(error)}", file=sys.stderr)
        return 2


class _Ends:
    """Within it SIGTERM, by which schedulers end a process, is an interruption: what there is can be kept."""

    told = False
    before: Any = None

    def __enter__(self) -> None:
        alone = threading.current_thread() is threading.main_thread()
        if alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self.before = signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(self, *_: Any) -> None:
        if self.before is not None:
            signal.signal(signal.SIGTERM, self.before)

    def _interrupt(self, *_: Any) -> None:
        self.told = True
        raise KeyboardInterrupt


def _note(command: str, warning: str) -> None:
    print(f"topiczoo {command}: note: {' '.join(warning.split())}", file=sys.stderr)


def _sentence(error: Exception) -> str:
    """What an error says, in one line; Python puts a KeyError's into quotes."""
    said = str(error)
    if isinstance(error, KeyError):
        bare = str(error.args[0]) if error.args else ""
        said = bare if " " in bare else f"{said} is asked for and is not there; look how it is spelt."
    return " ".join(said.split()) or type(error).__name__


def _demo(options: argparse.Namespace) -> int:
    from .demo import demo

    page = Path(options.out).with_suffix(".html")
    if str(page) == options.out:
        raise ValueError(
            f"--out is {options.out!r}, where the report goes; name another file for the fit, e.g. fit.nc."
        )
    check_output(options.out, options.force)
    check_output(str(page), options.force)
    return demo(options.out, options.seed)


RUNS = {
    "demo": _demo, "models": stories.models, "simulate": stories.simulate, "fit": fitting.fit,
    "resume": fitting.resume, "compare": fitting.compare,
    "topics": using.topics, "predict": using.predict, "report": using.report, "check": stories.check,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
