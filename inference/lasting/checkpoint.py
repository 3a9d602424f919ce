"""Checkpoints of a run in a folder: about one a minute, and one when it is told to stop.

    run.json, documents.npz   what the run is of (:mod:`.manifest`)
    state-000007.npz          where it is: the state of its chains, how far they are, and which parts belong to them
    part-000007.npz           the draws since the checkpoint before

Every file is written whole or not at all and has a checksum. Draws are written once, so that a long run does not write more
and more; of the states the last two are there. Where the last one is damaged the one before serves.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topiczoo.corpora.streams import Stream

from ..programs import processes
from ..story.bound import BoundGraph
from .manifest import DOCUMENTS, RUN, Described, read_manifest, refuse_another, write_manifest
from .sealed import PART, Damaged, read_sealed, write_sealed
from .signals import Signals
from .trees import Kinds, flat, in_shape_of

EVERY = 60.0  # seconds between two checkpoints
MOST = 0.01  # share of a run's time that writing may take
KEPT = 2  # states
OWN = (RUN, DOCUMENTS)
COMMAND = "command.json"  # what the command line remembers of its call
STREAM = "stream"  # what a run's documents come from, where they are not in the folder
NOT_SETTINGS = ("checkpoint", "progress_bar")

Chunk = Mapping[str, np.ndarray]  # draws by name, [chains, draws, ...]


class Kept(NamedTuple):
    """A checkpoint that was read."""

    arrays: dict[str, np.ndarray]
    kinds: Kinds
    counts: dict[str, Any]
    chunks: tuple[Chunk, ...]

    def state(self, like: Any) -> Any:
        """The state, given one of the same structure."""
        try:
            return in_shape_of(like, self.arrays, self.kinds)
        except Damaged as error:
            raise ValueError(f"The checkpoint is of another state ({error}); start anew in another folder.") from error


class Nowhere:
    """What serves a run without checkpoints."""

    more = 0  # draws beyond those that were asked for at first
    kept: Kept | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        yield

    def look(self, tell: Callable[[], tuple], *, last: bool = False) -> None:
        """To be called wherever a run could be taken up again; ``tell`` gives the state, counts, all
        chunks of draws so far, and arrays beside them, of which the last two may be left out. All processes call it, and
        are asked to tell together: they may have to tell each other first."""


class Checkpoint(Nowhere):
    """The checkpoints of a run."""

    def __init__(self, folder: str | os.PathLike, engine: str, settings: Mapping[str, Any]) -> None:
        if not isinstance(folder, str | os.PathLike) or not isinstance(os.fspath(folder), str):
            raise TypeError(f"checkpoint is {folder!r}; give the name of a folder.")
        self.folder, self.engine, self.settings = Path(folder), engine, settings
        self.signals = Signals()
        self.parts: list[tuple[int, str]] = []  # number and checksum of each
        self.written = 0  # chunks in the parts
        self.number = 0
        self.due = 0.0

    @classmethod
    def of_call(cls, engine: Callable, arguments: Sequence[Any], named: Mapping[str, Any]) -> Checkpoint:
        """For a call of an engine, with all its settings, defaults among them."""
        signature = inspect.signature(engine)
        given = signature.bind(*arguments, **named).arguments
        settings = {
            name: given.get(name, parameter.default)
            for name, parameter in signature.parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name not in NOT_SETTINGS
        }
        if isinstance(corpus := given.get("corpus"), Stream):
            settings[STREAM] = corpus.told()
        settings = {name: os.fspath(v) if isinstance(v, os.PathLike) else v for name, v in settings.items()}
        return cls(named["checkpoint"], engine.__name__, settings)

    def begin(self, graph: BoundGraph) -> None:
        """Write down what the run is of; where the folder has a run that is of the same, go on with it."""
        described = Described(self.engine, self.settings, graph)
        if processes.largest(
            (self.folder / RUN).exists()
        ):  # of all processes: who comes late must not find what one has made
            then = read_manifest(self.folder)
            refuse_another(self.folder, then, described.manifest)
            self.more = then["more"]
            self.kept = self._read()
        elif processes.is_first():
            self._make(described)
        processes.agree(
            self.kept and self.kept.counts, f"checkpoint {str(self.folder)!r} is not the same folder for all processes."
        )
        self.due = time.monotonic() + EVERY

    def _make(self, described: Described) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
            foreign = [path.name for path in self.folder.iterdir() if not _own(path.name)]
            if not foreign:
                _clear(self.folder)  # of a run whose removal was cut short: its states must not be taken for this one's
                described.write(self.folder)
        except OSError as error:
            raise OSError(
                f"checkpoint {str(self.folder)!r} cannot be written to ({error.strerror or error}); give another folder."
            ) from error
        if foreign:
            raise ValueError(
                f"checkpoint {str(self.folder)!r} holds {sorted(foreign)[0]!r}, which is no checkpoint; give a folder of "
                "its own, which need not be there."
            )

    def _read(self) -> Kept | None:
        """The last checkpoint that can be read; None where the run did not come as far as one."""
        numbers = states(self.folder)
        for number in numbers:
            try:
                arrays, told = read_sealed(_state(self.folder, number))
                parts = [(int(part), str(digest)) for part, digest in told["parts"]]
                chunks = tuple(read_sealed(_part(self.folder, part), digest)[0] for part, digest in parts)
            except Damaged as damage:
                after = "; the one before serves" if number != numbers[-1] else ""
                warnings.warn(
                    f"The checkpoint {number} of {str(self.folder)!r} is damaged ({damage}){after}.", stacklevel=6
                )
                continue
            for damaged in numbers[: numbers.index(number)] if processes.is_first() else ():
                _state(self.folder, damaged).unlink(missing_ok=True)
            self.parts, self.written, self.number = parts, len(chunks), number
            return Kept(arrays, told["kinds"], told["counts"], chunks)
        if numbers:
            raise ValueError(f"No checkpoint of {str(self.folder)!r} can be read; start anew in another folder.")
        return None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self.signals:
            yield

    def look(self, tell: Callable[[], tuple], *, last: bool = False) -> None:
        if noted := processes.largest(self.signals.noted or 0):
            self.signals.noted = noted  # what ends one process ends all
        if processes.largest(last or self.signals.noted is not None or time.monotonic() >= self.due):
            began = time.monotonic()
            told = tell()
            if processes.is_first():
                self._try(*told)
            now = time.monotonic()
            self.due = now + max(EVERY, (now - began) / MOST)
        if self.signals.noted is not None:
            self.signals.pass_on()

    def _try(
        self, state: Any, counts: Mapping[str, Any], chunks: Sequence[Chunk] = (), beside: Chunk | None = None
    ) -> None:
        """Write a checkpoint; a disk that is full, say, leaves the one before, and the run goes on."""
        try:
            self._write(state, counts, chunks, beside or {})
        except (OSError, TypeError) as error:
            warnings.warn(
                f"No checkpoint could be written to {str(self.folder)!r} ({getattr(error, 'strerror', None) or error}); "
                "the run goes on, the one before stands, and the next is tried in a minute: make room until then.",
                stacklevel=5,
            )

    def _write(self, state: Any, counts: Mapping[str, Any], chunks: Sequence[Chunk], beside: Chunk) -> None:
        number, parts, new = self.number + 1, list(self.parts), chunks[self.written :]
        if new:
            joined = {name: np.concatenate([chunk[name] for chunk in new], 1) for name in new[0]}
            parts.append((number, write_sealed(_part(self.folder, number), joined)))
        arrays, kinds = flat(state)
        write_sealed(
            _state(self.folder, number), {**arrays, **beside}, {"kinds": kinds, "counts": dict(counts), "parts": parts}
        )
        self.number, self.parts, self.written = number, parts, len(chunks)
        for old in states(self.folder)[KEPT:]:
            _state(self.folder, old).unlink(missing_ok=True)


def opened(checkpoint: Any, graph: BoundGraph) -> Nowhere:
    """The checkpoints of a run whose input has been checked."""
    if checkpoint is None:
        return Nowhere()
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            "checkpoint is for the public functions: call topiczoo.inference.gibbs, nuts, svi, vem or online."
        )
    checkpoint.begin(graph)
    return checkpoint


def lengthen(folder: Path, more: int) -> None:
    """Ask of a folder's run so many draws more."""
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "more": manifest["more"] + more})


def remove(folder: Path) -> None:
    """Remove a folder of checkpoints, and nothing else that may be in it."""
    if not (folder / RUN).exists():
        return
    (folder / RUN).unlink()  # first: what is left is no checkpoint
    _clear(folder)
    (folder / COMMAND).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _clear(folder: Path) -> None:
    """Remove a run's files, but for what the command line remembers of its call."""
    for path in folder.iterdir():
        if _own(path.name) and path.name != COMMAND:
            path.unlink(missing_ok=True)


def states(folder: Path) -> list[int]:
    """The numbers of the states in a folder, the last first."""
    return sorted(
        (int(path.stem[6:]) for path in folder.glob("state-*.npz") if path.stem[6:].isdecimal()), reverse=True
    )


def _state(folder: Path, number: int) -> Path:
    return folder / f"state-{number:06d}.npz"


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.npz"


def _own(name: str) -> bool:
    """Whether a file is one of a run's."""
    name = name.removesuffix(PART)
    return name in (*OWN, COMMAND) or (name.startswith(("state-", "part-")) and name.endswith(".npz"))
