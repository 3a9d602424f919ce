"""How far a run is: a bar for who can see it move, and else one line a minute."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from topiczoo.inference.programs import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand, and a stream that is no terminal."""

    class Clock:
        now, stream = 1000.0, io.StringIO()

        @property
        def lines(self):
            return self.stream.getvalue().splitlines()

    held = Clock()
    monkeypatch.setattr(progress.time, "monotonic", lambda: held.now)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=held.stream))
    return held


def test_one_line_a_minute_and_one_at_the_end(clock):
    with progress.tqdm(total=600, unit="draw") as bar:
        bar.set_description("warmup")
        for step in range(10):
            bar.set_postfix_str(f"bound {step}")
            clock.now += 15
            bar.update(60)
    assert clock.lines == [
        "warmup: 240 of 600 draws after 1:00, about 1:30 to go; bound 3",
        "warmup: 480 of 600 draws after 2:00, about 0:30 to go; bound 7",
        "warmup: 600 of 600 draws after 2:30; bound 9",
    ]
    assert "\r" not in clock.stream.getvalue()


def test_a_short_run_says_nothing_and_a_long_step_speaks_when_it_is_over(clock):
    assert list(progress.tqdm([1, 2, 3])) == [1, 2, 3]
    assert clock.lines == []
    seen = []
    for value in progress.tqdm(iter("ab"), desc="settings"):
        seen.append(value)
        clock.now += 4000
    assert seen == ["a", "b"]
    assert clock.lines[0] == "settings: 1 steps after 1:06:40" and clock.lines[-1] == "settings: 2 steps after 2:13:20"


def test_who_wants_no_bar_gets_no_line(clock):
    with progress.tqdm(total=2, disable=True) as bar:
        clock.now += 500
        bar.update()
    assert clock.lines == []


def test_terminals_and_notebooks_keep_the_bar(clock, monkeypatch):
    monkeypatch.setattr(clock.stream, "isatty", lambda: True)
    with progress.tqdm(total=2) as bar:
        assert isinstance(bar, progress.bar)
    monkeypatch.setattr(clock.stream, "isatty", lambda: False)
    assert isinstance(progress.tqdm(total=2), progress.Lines)

    class NotebookBar(progress.bar):
        pass

    monkeypatch.setattr(progress, "bar", NotebookBar)
    with progress.tqdm(total=2, disable=False) as bar:
        assert isinstance(bar, NotebookBar)
