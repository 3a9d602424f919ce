"""Several starts of variational EM, one after the other, each taken up where a checkpoint has left it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ..lasting.checkpoint import Kept, Nowhere
from ..story.bound import BoundGraph
from .loop import Turn, ascend
from .model import EMModel


class Ended(NamedTuple):
    """A start that has come to its end."""

    rng: np.random.Generator
    state: Any
    info: dict[str, Any]


def climb(
    model: EMModel, graph: BoundGraph, seed: int, num_starts: int, num_iterations: int, tolerance: float,
    progress_bar: bool, lasting: Nowhere,
) -> list[Ended]:  # fmt: skip
    """EM from so many starts, with random numbers of their own; Ctrl-C ends it with those that there are."""
    ended, under_way = _taken_up(model, seed, lasting.kept) if lasting.kept else ([], None)
    with lasting.watching():
        for i in range(len(ended), num_starts):
            if under_way is None:
                rng, turn = np.random.default_rng(seed if i == 0 else (seed, i)), None
                state = model.start(rng)
            else:
                rng, turn = under_way
                state, under_way = turn.state, None
            name = "EM" if num_starts == 1 else f"EM, start {i + 1} of {num_starts}"

            def look(tell: Any, rng: np.random.Generator = rng) -> None:
                lasting.look(lambda: _told(ended, rng, tell()))

            found = ascend(model, state, graph, num_iterations, tolerance, progress_bar, name, turn, look)
            ended.append(Ended(rng, *found))
            if found[-1]["interrupted"]:
                break
            try:
                lasting.look(lambda: _told(ended), last=len(ended) == num_starts)
            except KeyboardInterrupt:
                ended[-1].info["interrupted"] = True
                break
    return ended


def _told(ended: list[Ended], rng: np.random.Generator | None = None, turn: Turn | None = None) -> tuple[Any, dict]:
    """All starts for a checkpoint: those that have ended, and the one that is under way."""
    states = [one.state for one in ended]
    counts: dict[str, Any] = {"ended": [{"rng": one.rng.bit_generator.state, "info": one.info} for one in ended]}
    if rng is None or turn is None:
        return states, counts
    counts["turn"] = {"rng": rng.bit_generator.state, **turn._asdict(), "state": None}
    return [*states, turn.state], counts


def _taken_up(model: EMModel, seed: int, kept: Kept) -> tuple[list[Ended], tuple[np.random.Generator, Turn] | None]:
    """The starts of a checkpoint. What their states look like is seen in an iteration of another."""
    ended, turn = kept.counts["ended"], kept.counts.get("turn")
    number = len(ended) + (turn is not None)
    like = model.e_step(model.start(np.random.default_rng(seed)), fresh=True)
    like = model.e_step(model.m_step(like, model.afresh), fresh=model.afresh)
    if number * len(jax.tree.leaves(like)) != len(kept.kinds):
        like = model.e_step(model.m_step(like, False), fresh=False)
    states = kept.state([like] * number)
    found = [Ended(_generator(one["rng"]), state, one["info"]) for one, state in zip(ended, states, strict=False)]
    if turn is None:
        return found, None
    return found, (_generator(turn["rng"]), Turn(states[-1], tuple(turn["bounds"]), turn["fresh"], turn["seconds"]))


def _generator(state: dict[str, Any]) -> np.random.Generator:
    """A generator that goes on where another was."""
    generator = np.random.default_rng()
    generator.bit_generator.state = state
    return generator
