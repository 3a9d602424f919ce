"""What an engine says of a story that it cannot serve."""

from __future__ import annotations

from collections.abc import Sequence

from topiczoo.models.vocabulary.distributions import NormalJeffreys

from .bound import BoundGraph


class Unserved(ValueError):
    """A story that an engine cannot serve: why, and what helps without another engine.

    The public functions add which engines would take the story; engines do not know each other.
    """

    def __init__(self, graph: BoundGraph, engines: Sequence[str], why: str, fix: str = "") -> None:
        super().__init__(f"{why}; {fix}." if fix else f"{why}.")
        self.graph, self.engines, self.why, self.fix = graph, tuple(engines), why, fix


def is_improper(graph: BoundGraph) -> bool:
    """Whether the prior of a site is improper."""
    return any(isinstance(site.prior, NormalJeffreys) for site in graph.latent.values())


def refuse_improper(graph: BoundGraph, engine: str) -> None:
    """What draws from the posterior needs one: there is none under an improper prior that is infinite at 0."""
    for name, site in graph.latent.items():
        if isinstance(site.prior, NormalJeffreys):
            raise Unserved(
                graph, [engine],
                f"{engine} cannot serve the site {name!r} of the story {graph.story.name!r}: the posterior is improper "
                "under its prior NormalJeffreys",
                "give it a proper one, e.g. Laplace",
            )  # fmt: skip
