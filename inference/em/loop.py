"""The turns of variational EM, and draws from what they end with.

An E-step that starts where the last one ended can only raise the bound, but keeps documents with the topics they
first took: from uniform topics it ends several percent lower than E-steps that start afresh. So E-steps start afresh
until the bound rests or a fresh one would let it fall, and from then on where the last one ended, until it rests again.
alpha is estimated only then: while topics are still alike, all documents look alike, and alpha would run away.

Scales that follow from held-out documents (a weight of the response) move the bound up or down. A rise is counted from where
they have put it, and they must rest as well.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpyro.distributions as dist

from ..programs.progress import tqdm
from ..story.bound import BoundGraph
from .components import Posterior

LARGEST_SITE = 2**28  # bytes: the draws of the largest site stay below
LARGEST_POINT, FEWEST = (
    2**24,
    8,
)  # bytes: copies of a point beside what is drawn say nothing new; and so many draws at least
FRESH = 10  # E-steps that start afresh at least: nearly equal topics rise slowly at first
ROUNDING = 1e-6  # relative fall of the bound that float32 explains


class Steps(Protocol):
    """What the loop asks of a model; see :class:`.model.EMModel`."""

    monotone: bool
    afresh: bool

    def e_step(self, state: Any, fresh: bool) -> Any: ...
    def m_step(self, state: Any, fresh: bool) -> Any: ...
    def bound(self, state: Any) -> float: ...
    def q(self, state: Any) -> Posterior: ...


class Turn(NamedTuple):
    """Where EM is after an iteration: all that the next one depends on, and the time that it took."""

    state: Any
    bounds: tuple[float, ...]  # one an iteration, the first before any
    fresh: bool
    seconds: float


def ascend(
    model: Steps,
    state: Any,
    graph: BoundGraph,
    num_iterations: int,
    tolerance: float,
    progress_bar: bool,
    name: str = "EM",
    turn: Turn | None = None,
    look: Callable[[Callable[[], Turn]], None] = lambda _: None,
) -> tuple[Any, dict[str, Any]]:
    """E-steps and M-steps in turn until the bound rests, or from a ``turn`` on; ``look`` is called after every iteration."""
    began, fresh = time.perf_counter() - (turn.seconds if turn else 0.0), turn.fresh if turn else model.afresh
    bounds: list[float] = list(turn.bounds) if turn else []
    info: dict[str, Any] = {"bound": bounds, "converged": False, "interrupted": False}
    with tqdm(total=num_iterations, desc=name, disable=not progress_bar) as bar:
        if turn:
            state = turn.state
            bar.update(len(bounds) - 1)
        else:
            state = model.e_step(state, fresh=True)
            bounds.append(finite_bound(model, state, graph))
        try:
            for i in range(len(bounds), num_iterations + 1):
                moved, was_fresh = model.m_step(state, fresh), fresh
                before = bounds[-1] + (shift := getattr(moved, "shift", 0.0))
                new = model.e_step(moved, fresh=fresh)
                bound = finite_bound(model, new, graph)
                if fresh and bound - before < -ROUNDING * abs(before):
                    fresh, new = False, model.e_step(moved, fresh=False)
                    bound = finite_bound(model, new, graph)
                rise = (bound - before) / (abs(before) or 1.0)  # one term: nothing is unknown, and the bound is 0
                fresh = fresh and not (i >= FRESH and rise < tolerance)
                if model.monotone and rise < -ROUNDING:
                    info["warning"] = f"the bound fell from {before:.8g} to {bound:.8g} in iteration {i}"
                    warnings.warn(f"vem stopped: {info['warning']}.", RuntimeWarning, stacklevel=5)
                    break
                state = new
                bounds.append(bound)
                bar.update()
                bar.set_postfix_str(f"bound {bound:.6g}")
                if not was_fresh and max(abs(rise), abs(shift / (before or 1.0))) < tolerance:
                    info["converged"] = True
                    break
                look(lambda: Turn(state, tuple(bounds), fresh, time.perf_counter() - began))
        except KeyboardInterrupt:
            info["interrupted"] = True
    info["seconds"] = time.perf_counter() - began
    return state, info


def finite_bound(model: Steps, state: Any, graph: BoundGraph) -> float:
    """The bound, if it is a number; else name the site that is none."""
    bound = model.bound(state)
    if np.isfinite(bound):
        return bound
    bad = [name for name, law in model.q(state).items() if not np.isfinite(_parameter(law)).all()]
    bad = bad or list(graph.response_sites) or ["w"]
    raise FloatingPointError(
        f"The bound of the story {graph.story.name!r} became {bound} at the site {bad[0]!r}; look at its "
        "prior and at the scale of y."
    )


def _parameter(law: dist.Distribution) -> np.ndarray:
    """The first parameter of a site's approximate posterior: concentration, probabilities, mean, or value."""
    for name in ("concentration", "probs", "loc", "v"):
        if hasattr(law, name):
            return np.asarray(getattr(law, name))
    raise TypeError(f"vem cannot draw from {type(law).__name__}")


def means(q: Posterior) -> dict[str, np.ndarray]:
    """The mean of each site, [1 chain, ...] in float32; a class has none."""
    found = {name: _parameter(law) for name, law in q.items() if not isinstance(law, dist.CategoricalProbs)}
    for name, law in q.items():
        if isinstance(law, dist.Dirichlet):
            found[name] = found[name] / found[name].sum(-1, keepdims=True)
    return {name: np.asarray(value, np.float32)[None] for name, value in found.items()}


def together(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """What several starts have to say: the course of the one whose bound is highest, and how each ended."""
    best = int(np.argmax([info["bound"][-1] for info in infos]))
    warned = [info for info in infos if "warning" in info]
    return {
        **(warned or infos)[0], "bound": infos[best]["bound"], "best": best,
        "converged": all(info["converged"] for info in infos), "interrupted": infos[-1]["interrupted"],
        "seconds": sum(info["seconds"] for info in infos), "starts": [info["bound"][-1] for info in infos],
    }  # fmt: skip


def stacked(chains: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Sites of several chains, [chains, ...]."""
    return {name: np.concatenate([chain[name] for chain in chains]) for name in chains[0]}


def draw(q: Posterior, rng: np.random.Generator, num_draws: int, chains: int = 1) -> dict[str, np.ndarray]:
    """Draws from the approximate posterior, [1 chain, draws, ...] for each site."""
    free = any(not isinstance(law, dist.Delta) for law in q.values())

    def affordable(kind: type, bytes_: int) -> int:
        return (
            bytes_
            // chains
            // max((_parameter(law).size * 4 for law in q.values() if isinstance(law, kind)), default=4)
        )

    points = max(FEWEST, affordable(dist.Delta, LARGEST_POINT))
    # one draw says all of what is but estimated
    draws = int(max(1, min(num_draws, affordable(dist.Dirichlet, LARGEST_SITE), points))) if free else 1
    return {name: _draws_of(law, rng, draws) for name, law in q.items()}


def _draws_of(law: dist.Distribution, rng: np.random.Generator, draws: int) -> np.ndarray:
    value, tiny = _parameter(law), np.finfo(np.float32).tiny
    if isinstance(law, dist.Dirichlet):
        out = np.empty((1, draws, *value.shape), np.float32)
        for draw in out[0]:
            gamma = np.maximum(rng.standard_gamma(value), tiny)
            draw[:] = gamma / gamma.sum(-1, keepdims=True)
        return np.maximum(out, tiny)
    if isinstance(law, dist.CategoricalProbs):
        ends = value.cumsum(-1)
        ends /= ends[..., -1:]
        uniform = rng.random((draws, *ends.shape[:-1], 1))
        return (uniform > ends).sum(-1, dtype=np.int32)[None]
    if isinstance(law, dist.MultivariateNormal):
        noise = rng.normal(size=(1, draws, *value.shape)) @ np.swapaxes(np.asarray(law.scale_tril), -1, -2)
        return (value + noise).astype(np.float32)
    if isinstance(law, dist.Normal):
        return rng.normal(value, np.asarray(law.scale), (1, draws, *value.shape)).astype(np.float32)
    return np.broadcast_to(np.asarray(value, np.float32), (1, draws, *value.shape))
