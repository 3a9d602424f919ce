"""The project's pages laid out for Sphinx: docs/ at the top, notebooks and measurements beside it, links kept."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?\[[^\]\[]*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
AWAY = re.compile(r"[a-z]+:", re.IGNORECASE)  # https: and its like


def places() -> dict[Path, Path]:
    """Where every page, notebook and picture of the project goes, from the project's root to the site's."""
    found = {ROOT / name: Path(name) for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")}
    for folder, pattern in (
        ("docs", "**/*.md"),
        ("docs", "pictures/*"),
        ("tutorials", "*.ipynb"),
        ("benchmarks", "*.md"),
    ):
        found |= {path: path.relative_to(ROOT) for path in sorted((ROOT / folder).glob(pattern))}
    found |= {path: path.relative_to(ROOT) for path in (ROOT / "benchmarks" / "figures").glob("*")}
    # docs/ is the top of the site
    return {
        path.relative_to(ROOT): Path(*place.parts[1:]) if place.parts[0] == "docs" else place
        for path, place in found.items()
    }


def lay_out(into: Path) -> list[str]:
    """Copy all pages into a folder, with their links turned; sentences on links that lead nowhere come back.

    Pages that have been made in the folder before are pages of docs/ to those who link to them.
    """
    copied, broken = places(), []
    made = [path.relative_to(into) for path in into.rglob("*") if path.suffix in (".md", ".rst")]
    where = copied | {Path("docs") / path: path for path in made}
    for source, place in copied.items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in (".md", ".ipynb"):
            turn = turned if source.suffix == ".md" else turned_notebook
            text, lost = turn((ROOT / source).read_text(encoding="utf-8"), source, place, where)
            broken += lost
            target.write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)
    return broken


def turned(text: str, source: Path, place: Path, where: dict[Path, Path]) -> tuple[str, list[str]]:
    """A page with its links as they are from its new place, outside its blocks of code; and what leads nowhere.

    A file of the project that is no page of the site, such as a module, is named and not linked.
    """
    broken: list[str] = []

    def turn(found: re.Match[str]) -> str:
        head, target, tail = found.groups()
        if AWAY.match(target) or target.startswith("#"):
            return found[0]
        path, _, anchor = target.partition("#")
        file = Path(os.path.normpath(source.parent / path))
        if file in where:
            there = os.path.relpath(where[file], place.parent)
            return f"{head}{there}{'#' + anchor if anchor else ''}{tail}"
        if (ROOT / file).exists():
            return f"`{file}`" if head == f"[{file}](" else f"{head[:-1].strip('[]')} (`{file}`)"
        broken.append(f"{source}: {target} leads nowhere")
        return found[0]

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(turn, part) for part in parts), broken


def turned_notebook(text: str, source: Path, place: Path, where: dict[Path, Path]) -> tuple[str, list[str]]:
    """The same for the text between the code of a notebook."""
    notebook, broken = json.loads(text), []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"], lost = turned("".join(cell["source"]), source, place, where)
            broken += lost
    return json.dumps(notebook), broken


def links_away(folder: Path) -> list[str]:
    """Addresses outside the site that its pages link to, for who wants to look whether they are still there."""
    found = set()
    for page in folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        # what the theme's foot says of itself is not ours
        found |= set(re.findall(r'<a\b[^>]*\bhref="(https?://[^"]+)"', text)) - {"https://pradyunsg.me"}
    return sorted(found)


def requests_away(folder: Path) -> list[str]:
    """What a page of the site would ask another machine for: scripts, styles, pictures, fonts."""
    loads = re.compile(
        r'<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc="((?:https?:)?//[^"]+)"'
        r'|<link\b(?=[^>]*\brel="(?:stylesheet|preload|icon|shortcut icon)")[^>]*\bhref="((?:https?:)?//[^"]+)"'
        r"|@import\s+[\"']?((?:https?:)?//[^\"';]+)|url\([\"']?((?:https?:)?//[^\"')]+)"
    )
    found = []
    for page in [*folder.rglob("*.html"), *folder.rglob("*.css")]:
        for match in loads.finditer(page.read_text(encoding="utf-8")):
            found.append(f"{page.relative_to(folder)}: {next(filter(None, match.groups()))}")
    return sorted(set(found))
