"""What an engine says of a story that it cannot serve: why, and which engines would take it. They are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

import jax
import numpy as np

from topiczoo.models.distributions import NormalJeffreys

from .graph import StoryGraph
from .tracing import Story

_ASKED = ContextVar("whether an engine is being asked", default=False)  # it then refuses without asking others


def unserved(graph: StoryGraph, engines: Sequence[str], why: str, fix: str = "") -> ValueError:
    """The sentence of one or several engines that cannot serve a story; ``fix`` is what helps without another."""
    if _ASKED.get():
        return ValueError(why)
    others = [name for name in engines_that_take(graph) if name not in engines]
    if others:
        return ValueError(f"{why}; {f'{fix}, or ' if fix else ''}use {_listed(others)}.")
    discrete = any(site.discrete for site in graph.latent.values())
    fix = fix or ("sum it out of the story by hand" if discrete else "edit the story")
    if is_improper(graph) and (others := [n for n in engines_that_take(graph, proper=True) if n not in engines]):
        return ValueError(f"{why}; {fix}, or give proper priors and use {_listed(others)}.")
    return ValueError(f"{why}; no engine here serves it otherwise: {fix}.")


def is_improper(graph: StoryGraph) -> bool:
    """Whether the prior of a site is improper."""
    return any(isinstance(site.prior, NormalJeffreys) for site in graph.latent.values())


def engines_that_take(graph: StoryGraph, *, proper: bool = False) -> list[str]:
    """Engines that would serve the story as they are by default; ``proper``: if its priors were proper.

    Each is asked to plan its work on the few documents of the graph, and nothing is run.
    """
    if graph.known is not None:
        return []  # only vem lets a class be missing in some documents
    story = Story(graph.story.function, graph.story.arguments)
    small = StoryGraph(story, graph.few_corpus, jax.tree.map(np.asarray, graph.few_y))
    asked, found = _ASKED.set(True), []
    try:
        for name, plan in _plans().items():
            try:
                plan(small)
            except ValueError:
                continue
            if name == "vem" or proper or not is_improper(small):
                found.append(name)
    finally:
        _ASKED.reset(asked)
    return found


def _plans() -> dict[str, Callable[[StoryGraph], object]]:
    from ..em.engine import form_of
    from ..em.expectations import Settings
    from ..marginal.guides import Guide
    from ..marginal.model import Marginal
    from ..mcmc.engine import choose_blocks

    return {
        "gibbs": choose_blocks,
        "nuts": lambda graph: Marginal(graph, nodes=1, average="density"),
        "svi": lambda graph: (Marginal(graph, nodes=1, average="log"), Guide(graph, "mean_field", 0)),
        "vem": lambda graph: form_of(graph, Settings(), "parallel"),
    }


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
