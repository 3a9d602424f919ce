"""What the project has measured, from its own pages: tables of results.md, verdicts of calibration.md and its test.

python docs/site/measured.py        # writes models/verdicts.json, which cards of stories read
"""

from __future__ import annotations

import ast
import io
import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Section:
    """A section of results.md: its heading, the sentences before its first table, and its tables."""

    heading: str
    command: str
    tables: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """As MyST makes it of the heading."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


def section(title: str) -> Section:
    """The last section of results.md with this title; the date before it is not part of it."""
    parts = (ROOT / "benchmarks" / "results.md").read_text(encoding="utf-8").split("\n## ")[1:]
    found = [part for part in parts if part.split("\n")[0].partition(": ")[2] == title]
    if not found:
        raise LookupError(f"benchmarks/results.md has no section {title!r}: name another in docs/site/zoo.py")
    heading, _, text = found[-1].partition("\n")
    blocks = [block.strip() for block in text.split("\n\n") if block.strip()]
    tables = tuple(block for block in blocks if block.startswith("|"))
    return Section(heading, "" if blocks[0].startswith("|") else blocks[0], tables)


def cells(table: str) -> list[list[str]]:
    """The rows of a table, the heads first, without the line between."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
    return [rows[0], *rows[2:]]


def series(table: str, rows: tuple[str, ...]) -> tuple[list[float], dict[str, list[float | None]]]:
    """Numbers of some rows by the numbers in the heads: "K = 50" is 50, "0.53 ± 0.01 (5)" is 0.53, an empty cell is None."""

    def number(text: str) -> float | None:
        found = re.search(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)
        return float(found[0]) if found else None

    heads, *lines = cells(table)
    places = [(place, value) for place, head in enumerate(heads) if (value := number(head)) is not None]
    named = {" | ".join(line[: places[0][0]]): line for line in lines}
    found = {}
    for row in rows:
        line = named.get(row)
        if line is None:
            raise LookupError(f"the table has no row {row!r}, it has {list(named)}: see docs/site/zoo.py")
        found[row] = [number(line[place]) if place < len(line) else None for place, _ in places]
    return [value for _, value in places], found


def chart(x: list[float], lines: dict[str, list[float | None]], across: str, up: str) -> str:
    """Lines over a number of topics or the like, as an SVG element that takes its colours from the page."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator

    shown = {"svg.fonttype": "none", "font.size": 10, "svg.hashsalt": "topiczoo"}
    with plt.rc_context(shown):
        figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
        for mark, (name, values) in zip("osD^vPX*", lines.items(), strict=False):
            known = [(a, b) for a, b in zip(x, values, strict=True) if b is not None]
            axes.plot(*zip(*known, strict=True), marker=mark, markersize=5, label=name)
        if max(x) / min(x) > 3:
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(x))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{value:g}" for value in x])
        axes.set(xlabel=across, ylabel=up)
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    told = escape(f"{up} by {across}: {', '.join(lines)}")
    return svg.replace("<svg", f'<svg class="chart" role="img" aria-label="{told}"', 1)


def verdicts() -> dict[tuple[str, str], list[tuple[str, bool, str]]]:
    """What calibration.md says of a story and an engine: settings, whether it passes, and the heading's anchor."""
    page = (ROOT / "benchmarks" / "calibration.md").read_text(encoding="utf-8")
    found: dict[tuple[str, str], list[tuple[str, bool, str]]] = {}
    for heading, story, engine, settings, verdict in re.findall(
        r"^### ((\w+) by (\w+)(?:, ([^:]+))?: (passes|fails))$", page, flags=re.MULTILINE
    ):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.setdefault((story, engine), []).append((settings, verdict == "passes", anchor))
    return found


def by_story() -> dict[str, dict[str, list[str]]]:
    """The same in the words of a card, by story and engine: what models/verdicts.json holds."""
    told: dict[str, dict[str, list[str]]] = {}
    for (story, engine), found in verdicts().items():
        words = [
            f"{'passes' if passes else 'fails'}{f' ({settings})' if settings else ''}" for settings, passes, _ in found
        ]
        told.setdefault(story, {})[engine] = words
    return told


def tested() -> dict[tuple[str, str], list[str]]:
    """Stories and engines to which tests/test_calibration.py puts Geweke's test, with their settings."""
    tree = ast.parse((ROOT / "tests" / "test_calibration.py").read_text(encoding="utf-8"))
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXACT"
    )
    assert isinstance(table, ast.Dict)
    found: dict[tuple[str, str], list[str]] = {}
    for value in table.values:
        assert isinstance(value, ast.Tuple)
        story, options = value.elts[0].attr, dict(ast.literal_eval(value.elts[1]))  # type: ignore[attr-defined]
        engine = options.pop("engine", "gibbs")
        settings = ", ".join(f"{name}={value!r}" for name, value in options.items())
        found.setdefault((story, engine), []).append(settings)
    return found


if __name__ == "__main__":
    (ROOT / "models" / "verdicts.json").write_text(json.dumps(by_story(), indent=1) + "\n", encoding="utf-8")
