"""Which engines would take a story that one cannot serve. They are asked: each plans its work, and nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .em.components import Settings
from .em.model import EMModel
from .marginal.guides import Guide
from .marginal.model import Marginal
from .mcmc.plan import choose_blocks
from .story.bound import BoundGraph
from .story.reader import bind
from .story.validation import Unserved, is_improper

PLANS: dict[str, Callable[[BoundGraph], object]] = {
    "gibbs": choose_blocks,
    "nuts": lambda graph: Marginal(graph, nodes=1, average="density"),
    "svi": lambda graph: (Marginal(graph, nodes=1, average="log"), Guide(graph, "mean_field", 0)),
    "vem": lambda graph: EMModel(graph, Settings()),
}


def advised(refusal: Unserved) -> ValueError:
    """The sentence of an engine that cannot serve a story, with what would help."""
    graph, why, fix = refusal.graph, refusal.why, refusal.fix
    others = [name for name in engines_that_take(graph) if name not in refusal.engines]
    if others:
        return ValueError(f"{why}; {f'{fix}, or ' if fix else ''}use {_listed(others)}.")
    discrete = any(site.discrete for site in graph.latent.values())
    fix = fix or ("sum it out of the story by hand" if discrete else "edit the story")
    if is_improper(graph):
        others = [name for name in engines_that_take(graph, proper=True) if name not in refusal.engines]
        if others:
            return ValueError(f"{why}; {fix}, or give proper priors and use {_listed(others)}.")
    return ValueError(f"{why}; no engine here serves it otherwise: {fix}.")


def engines_that_take(graph: BoundGraph, *, proper: bool = False) -> list[str]:
    """Engines that would serve the story as they are by default; ``proper``: if its priors were proper."""
    if graph.known is not None:
        return []  # only vem lets a class be missing in some documents
    rows = [graph.corpus.names.tolist().index(name) for name in graph.few_corpus.names]
    small, found = bind(graph.story, graph.few_corpus, graph.response.take(rows)), []
    for name, plan in PLANS.items():
        try:
            plan(small)
        except ValueError:
            continue
        if name == "vem" or proper or not is_improper(small):
            found.append(name)
    return found


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
