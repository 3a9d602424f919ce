"""A page for every story of the zoo, made from it: its code, its graph, the engines that take it, what was measured."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

from measured import chart, section, series, tested, verdicts
from zoo import ZOO, Entry

from topiczoo.diagnostics.drawing.plates import diagram
from topiczoo.diagnostics.reporting.card import ENGINES, one_a_line, sites
from topiczoo.inference.advice import engines_that_take
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.bound import BoundGraph
from topiczoo.inference.story.reading import read
from topiczoo.models.catalogue import stories
from topiczoo.models.examples import EXAMPLES, example

ROOT = Path(__file__).resolve().parents[2]


def write_pages(into: Path) -> None:
    """All pages and the list of them."""
    found = stories()
    if missing := sorted(set(found) ^ set(ZOO)):
        raise LookupError(f"{missing} are not both stories and entries of docs/site/zoo.py: add or remove them there")
    into.mkdir(parents=True, exist_ok=True)
    for name, story in found.items():
        (into / f"{name}.md").write_text(page(name, story, ZOO[name]), encoding="utf-8")
    rows = "".join(f"| [{name}]({name}.md) | {EXAMPLES[name].title} | {EXAMPLES[name].cite} |\n" for name in found)
    listed = "\n".join(found)
    (into / "index.md").write_text(
        "# The stories\n\nEach is one function, shown whole on its page, with the diagram that is drawn from it.\n\n"
        f"| story | what it is | source |\n|---|---|---|\n{rows}\n"
        f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n",
        encoding="utf-8",
    )


def page(name: str, story, entry: Entry) -> str:
    graph, about = read_example(name), EXAMPLES[name]
    told = inspect.cleandoc(story.__doc__ or "")
    joint, _, rest = told.partition("\n====")
    parts = [
        f"# {about.title}: `{name}`",
        f"```text\n{one_a_line(joint)}\n```",
        "```{eval-rst}\n" + ("====" + rest if rest else "") + "\n```",
        f"## Plate diagram\n\nDrawn from the story, with {arguments_in_words(name)}.\n\n"
        f'```{{raw}} html\n<div class="plates">{diagram(graph)}</div>\n```',
        "## Sites\n\n" + sites(graph),
        "## Engines\n\n" + engines(name, graph),
        f"## The story\n\n```python\n{textwrap.dedent(inspect.getsource(story)).rstrip()}\n```",
        *measurements(entry),
        f"## Citation\n\n{about.cite}.",
    ]
    return "\n\n".join(parts) + "\n"


def read_example(name: str) -> BoundGraph:
    """The story read on a dozen tiny documents."""
    return read(name, *example(name))


def arguments_in_words(name: str) -> str:
    given = EXAMPLES[name].arguments
    told = {n: value for n, value in given.items() if n not in ("num_topics", "centres") and not callable(value)}
    return ", ".join(f"`{n}={value!r}`" for n, value in told.items()) or "its default arguments"


def engines(name: str, graph: BoundGraph) -> str:
    """Who would take the story, asked now; and what simulations say of it."""
    takers, known, geweke = engines_that_take(graph), verdicts(), tested()
    lines = ["| engine | takes it | simulation-based calibration |", "|---|---|---|"]
    for engine in ENGINES:
        said = [
            f"[{'passes' if passes else 'fails'}](../benchmarks/calibration.md#{anchor})"
            + (f" ({settings})" if settings else "")
            for settings, passes, anchor in known.get((name, engine), [])
        ]
        said += [
            f"Geweke's test is among the slow tests{f' (`{settings}`)' if settings else ''}"
            for settings in geweke.get((name, engine), [])
        ]
        lines.append(f"| `{engine}` | {'yes' if engine in takers else 'no'} | {'; '.join(said) or 'not published'} |")
    text = "\n".join(lines) + "\n\nWho takes it was asked when this page was made, with the arguments of the diagram. "
    text += (
        "`svi` and `vem` approximate, and so does `nuts` with a response: there, a failure is what is to be expected, "
    )
    text += "and the linked figure shows how much."
    if "gibbs" in takers:
        blocks = choose_blocks(graph).describe()
        drawn = "\n".join(f"* `{site}`: {label}" for site, label in blocks.items())
        text += f"\n\nHow `gibbs` draws each site:\n\n{drawn}"
    return text


def measurements(entry: Entry) -> list[str]:
    parts = []
    if entry.figure is not None:
        figure, found = entry.figure, section(entry.figure.section)
        drawn = chart(*series(found.tables[figure.table], figure.rows), figure.across, figure.up)
        parts.append(
            f"## The paper's figure, measured here\n\n{figure.paper} Drawn when this page was made from [the table of "
            f"{figure.section!r}](../benchmarks/results.md#{found.anchor}).\n\n"
            f'```{{raw}} html\n<div class="chart">{drawn}</div>\n```'
        )
    if entry.sections:
        parts.append("## Measured")
    for title in entry.sections:
        found = section(title)
        parts.append(
            f"### {title}\n\n{found.command}\n\n{found.tables[0]}\n\nAll of it: "
            f"[{found.heading}](../benchmarks/results.md#{found.anchor})."
        )
    if entry.tutorials:
        links = ", ".join(
            f"[{tutorial.replace('_', ' ')}](../tutorials/{tutorial}.ipynb)" for tutorial in entry.tutorials
        )
        parts.append(f"## Tutorial\n\n{links}")
    return parts
