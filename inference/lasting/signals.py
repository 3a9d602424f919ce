"""Ctrl-C and the end that a scheduler asks for (SIGTERM): noted, so that a run can write first where it is."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

WATCHED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Notes the first signal, and leaves the second to whoever had them before. Only the main thread is sent any."""

    def __init__(self) -> None:
        self.noted: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in WATCHED}
            # who ignores a signal goes on doing so, and what is not Python's cannot be put back
            self._before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}
            for number in self._before:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        self.pass_on()

    def _note(self, number: int, _: FrameType | None) -> None:
        again, self.noted = self.noted is not None, number
        if again:
            self.pass_on()

    def pass_on(self) -> None:
        """Send the signal that was noted again, to whoever had it before: Ctrl-C becomes KeyboardInterrupt."""
        number, self.noted = self.noted, None
        self._restore()
        if number is not None:
            signal.raise_signal(number)

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
