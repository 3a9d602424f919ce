"""How far a run is: a bar in terminals and notebooks, and where there is neither one line a minute.

A bar that is written to a file, as of a batch job, is one endless line of carriage returns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any

from tqdm.asyncio import tqdm as plain_bar
from tqdm.auto import tqdm as bar

EVERY = 60.0  # seconds between two lines


def tqdm(iterable: Iterable | None = None, **settings: Any) -> Any:
    """A bar as ``tqdm.auto`` has it, or what serves in its place where nobody would see it move."""
    in_notebook = bar is not plain_bar
    stream = sys.stderr
    if settings.get("disable") or in_notebook or (stream is not None and stream.isatty()):
        return bar(iterable, **settings)
    return Lines(iterable, stream=stream, **settings)


class Lines:
    """What a bar can do, in whole lines: one when a minute has passed since the last, and one at the end of a long run."""

    def __init__(
        self, iterable: Iterable | None = None, *, total: int | None = None, desc: str = "", unit: str = "step",
        disable: bool = False, stream: IO[str] | None = None,
    ) -> None:  # fmt: skip
        if total is None and iterable is not None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        self.iterable, self.total, self.desc, self.unit, self.stream = iterable, total, desc, unit, stream
        self.n, self.postfix = 0, ""
        self.began = self.last = time.monotonic()
        self.told: int | None = None  # how far it was when it last spoke

    def update(self, n: int = 1) -> None:
        self.n += n
        self._look()

    def set_description(self, desc: str = "", refresh: bool = True) -> None:
        self.desc = desc
        self._look()

    def set_postfix_str(self, postfix: str = "", refresh: bool = True) -> None:
        self.postfix = postfix

    def close(self) -> None:
        if self.told not in (None, self.n):
            self._say()

    def __iter__(self) -> Iterator:
        with self:
            for value in self.iterable or ():
                yield value
                self.update()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            self._say()

    def _say(self) -> None:
        gone = time.monotonic() - self.began
        of = "" if self.total is None else f" of {self.total}"
        line = f"{self.desc}: " if self.desc else ""
        line += f"{self.n}{of} {self.unit}s after {_clock(gone)}"
        if self.total is not None and 0 < self.n < self.total:
            line += f", about {_clock(gone * (self.total - self.n) / self.n)} to go"
        line += f"; {self.postfix}" if self.postfix else ""
        if self.stream is not None:
            print(line, file=self.stream, flush=True)
        self.told = self.n


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
