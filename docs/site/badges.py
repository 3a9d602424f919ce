"""The badges of the front page, each of something that a file of the project says.

python docs/site/badges.py
"""

from __future__ import annotations

import tomllib
from html import escape

from measured import ROOT, verdicts

INTO = ROOT / "docs" / "pictures"
EXACT = {("gibbs", False), ("gibbs", True), ("nuts", False)}  # engine, and whether the story has a response


def told() -> dict[str, tuple[str, str, str]]:
    """Of every badge its two halves and the colour of the second."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    head = "Programming Language :: Python :: "
    versions = [line.removeprefix(head) for line in project["classifiers"] if line.startswith(head + "3.")]
    exact = [
        passes
        for (story, engine), found in verdicts().items()
        for _, passes, _ in found
        if (engine, story.startswith("slda")) in EXACT
    ]
    colour = "#1a7f37" if all(exact) else "#b35900"
    return {
        "python": ("python", f"{versions[0]} to {versions[-1]}", "#1d4f91"),
        "calibration": ("calibration", f"{sum(exact)} of {len(exact)} exact samplers pass", colour),
        "licence": ("licence", project["license"], "#1d4f91"),
    }


def badge(left: str, right: str, colour: str) -> str:
    """Two halves of a small sign; letters are about 6.6 wide."""
    first, second = (round(len(text) * 6.6 + 12) for text in (left, right))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" '
        f'aria-label="{escape(left)}: {escape(right)}" font-family="Verdana, sans-serif" font-size="11" fill="#fff">'
        f'<rect width="{first}" height="20" fill="#444"/><rect x="{first}" width="{second}" height="20" fill="{colour}"/>'
        f'<text x="{first / 2:g}" y="14" text-anchor="middle">{escape(left)}</text>'
        f'<text x="{first + second / 2:g}" y="14" text-anchor="middle">{escape(right)}</text></svg>\n'
    )


if __name__ == "__main__":
    INTO.mkdir(exist_ok=True)
    for name, parts in told().items():
        (INTO / f"badge-{name}.svg").write_text(badge(*parts), encoding="utf-8")
        print(name, *parts)
