"""The page of tutorials: every notebook that is there, with its title, its first sentences and its first picture."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("your_own_csv", "edit_the_story", "four_engines", "did_it_converge")  # what a newcomer should meet first


def write_gallery(into: Path) -> None:
    """tutorials/index.md beside the notebooks, and a picture for each."""
    (into / "thumbnails").mkdir(parents=True, exist_ok=True)
    place = {name: number for number, name in enumerate(FIRST)}
    notebooks = sorted(
        (ROOT / "tutorials").glob("*.ipynb"), key=lambda path: (place.get(path.stem, len(FIRST)), path.stem)
    )
    cards = [card(notebook, into) for notebook in notebooks]
    listed = "\n".join(notebook.stem for notebook in notebooks)
    (into / "index.md").write_text(
        "# Tutorials\n\nNotebooks that have been run; the sources beside them (`tutorials/*.py`) run as scripts.\n\n"
        + "\n\n".join(cards)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n",
        encoding="utf-8",
    )


def card(path: Path, into: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, told = opening(cells, path.stem)
    shown = ""
    if (picture := first_picture(cells)) is not None:
        ending, content = picture
        (into / "thumbnails" / f"{path.stem}.{ending}").write_bytes(content)
        named = f":alt: first picture of the tutorial {title}\n:width: 300px"
        shown = f"```{{image}} thumbnails/{path.stem}.{ending}\n{named}\n```\n\n"
    return f"## [{title}]({path.name})\n\n{shown}{told}"


def opening(cells: list[dict], name: str) -> tuple[str, str]:
    """The first heading, and the paragraph below it."""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            heading = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
            if heading:
                after = text[heading.end() :].strip().split("\n\n")[0]
                return heading[1].strip(), "" if after.startswith(("#", "|", "```", "*", "-")) else after
    return name.replace("_", " "), ""


def first_picture(cells: list[dict]) -> tuple[str, bytes] | None:
    """The ending and the content of the first picture among a notebook's outputs."""
    for cell in cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                return "png", base64.b64decode("".join(data["image/png"]))
            if "image/svg+xml" in data:
                return "svg", "".join(data["image/svg+xml"]).encode()
    return None
