"""The card of a story, made from it: joint density, sites, plate diagram, who serves which site, calibration, cost."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Mapping, Sequence

from topiczoo.inference.advice import engines_that_take
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.mcmc.timing import seconds_of_a_sweep
from topiczoo.inference.story.bound import BoundGraph
from topiczoo.inference.story.graph import BETA, LABEL, THETA, ZBAR

from ..drawing.plates import diagram

ENGINES = ("gibbs", "nuts", "svi", "vem")
ROLES = {
    "proportions": "shares of topics in a document",
    "topics": "words of a topic",
    "coefficients": "what a topic does to the response",
    "class": "class of a document, above its words",
    "response": "response",
    "words": "words of a document",
    "document": "one a document",
    "global": "one for all documents",
}
SWEEPS = 20  # that are timed, after as many
DRAWN_WITH = {THETA: "theta", BETA: "beta", LABEL: "label"}


def card(
    graph: BoundGraph, title: str = "", cite: str = "", verdicts: Mapping[str, Sequence[str]] | None = None,
    cost: str = "", pictures: bool = False,
) -> str:  # fmt: skip
    """The card of a story that was read, as markdown; ``pictures``: with its plate diagram as SVG.

    ``verdicts`` has what simulations have said of engines, ``cost`` what a sweep costs (:func:`cost_of_a_sweep`).
    """
    name = graph.story.name
    told = inspect.cleandoc(graph.story.function.__doc__ or "")
    drawn = f"\n\n{diagram(graph)}" if pictures else ""
    parts = [
        f"# {title}: `{name}`" if title else f"# `{name}`",
        f"```text\n{one_a_line(told.partition(chr(10) + '====')[0])}\n```",
        f"## Plate diagram{drawn}\n\n{arrows(graph)}",
        "## Sites\n\n" + sites(graph),
        "## Engines\n\n" + served(graph),
        "## Calibration\n\n" + _told(verdicts or {}),
    ]
    parts += [f"## Cost\n\n{cost}"] if cost else []
    parts += [f"## Citation\n\n{cite}."] if cite else []
    return "\n\n".join(parts) + "\n"


def one_a_line(joint: str) -> str:
    """The statements of a story's first sentence, which semicolons separate."""
    return "\n".join(
        line.strip() for line in joint.replace(";  ", "\n").replace(";\n", "\n").splitlines() if line.strip()
    )


def arrows(graph: BoundGraph) -> str:
    """What each site is drawn given, a line each."""

    def names(read: frozenset[str]) -> str:
        return ", ".join(f"`{other}`" for other in sorted("z" if other == ZBAR else other for other in read))

    lines = []
    for name in graph.sites:
        above = graph.parents.get(name, frozenset()) - {name}
        lines.append(f"* `{name}`{f' given {names(above)}' if above else ''}")
    if graph.has_words:
        given = [
            f"{DRAWN_WITH[part]} of {names(graph.parents[part])}" for part in DRAWN_WITH if graph.parents.get(part)
        ]
        lines.append(f"* `z`, `w`: a topic and a term for every word, {', '.join(given)}")
    return "\n".join(lines)


def sites(graph: BoundGraph) -> str:
    """Sites with their distributions, axes and roles, as a table."""
    lines = ["| site | distribution | axes | role | |", "|---|---|---|---|---|"]
    for name, site in graph.sites.items():
        axes = ", ".join(axis or "·" for axis in site.axes)
        seen = "observed" if site.observed else ""
        lines.append(f"| `{name}` | {site.family} | {axes} | {ROLES[site.role]} | {seen} |")
    return "\n".join(lines)


def served(graph: BoundGraph) -> str:
    """Who would take the story, asked now, and what serves which site."""
    takers = engines_that_take(graph)
    blocks = choose_blocks(graph).describe() if "gibbs" in takers else {}
    discrete = {name for name, site in graph.latent.items() if site.discrete} | ({"z"} if graph.has_words else set())
    ways = {"nuts": "trajectory", "svi": "its own guide", "vem": "EM"}
    lines = [f"| site | {' | '.join(f'`{engine}`' for engine in ENGINES)} |", "|---|" + "---|" * len(ENGINES)]
    for site in [*graph.latent, *(["z"] if graph.has_words and "z" not in graph.latent else [])]:
        cells = [blocks.get(site, "no")]
        for engine, way in ways.items():
            own = "summed out" if site in discrete and engine != "vem" else way
            cells.append(own if engine in takers else "no")
        lines.append(f"| `{site}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(verdicts: Mapping[str, Sequence[str]]) -> str:
    lines = [f"* `{engine}`: {'; '.join(verdicts.get(engine, ())) or 'not published'}" for engine in ENGINES]
    return "\n".join(lines)


def cost_of_a_sweep(graph: BoundGraph) -> str:
    """CPU seconds of a sweep of gibbs on this machine, measured now, in a sentence."""
    seconds = seconds_of_a_sweep(graph, SWEEPS, SWEEPS)
    size = f"{graph.corpus.num_tokens:,} words of {len(graph.corpus):,} documents over {graph.corpus.num_terms:,} terms"
    topics = f", {graph.num_topics} topics" if graph.num_topics else ""
    return f"A sweep of `gibbs` takes {1000 * seconds:.3g} ms of a processor for {size}{topics} ({platform.machine()})."
