"""The report's page: plain data in, escaped HTML out. Nothing here knows what a topic is."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from ..drawing.charts import CONTROL, plain

LEVELS = {"good": "Passes", "caution": "Take care", "bad": "Fails"}


class Column(NamedTuple):
    """A column of a table: its heading, whether it holds numbers, and what it means."""

    name: str
    number: bool = False
    meaning: str = ""


class Cell(NamedTuple):
    """What a cell shows, what it is sorted by, and a class for its looks; several texts stand side by side."""

    text: str | Sequence[str]
    value: float | str | None = None
    look: str = ""


class Section(NamedTuple):
    """A part of the page under its own heading; ``body`` is HTML made by the functions below."""

    anchor: str
    title: str
    body: str


def number(value: Any, digits: int = 3) -> Cell:
    """A number as readers want it, in so many significant digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return Cell("–", None)
    value = float(value)
    if value == int(value) and abs(value) < 1e6:
        text = f"{int(value)}"
    elif 1e-3 <= abs(value) < 1e6:
        text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    else:
        text = f"{value:.{digits - 1}e}"
    return Cell(text.replace("-", "−"), value)


def fixed(value: Any, places: int = 2, unit: str = "") -> Cell:
    """A number with so many decimal places, so that columns line up."""
    if value is None or not math.isfinite(value):
        return Cell("–", None)
    return Cell(f"{value:.{places}f}{unit}".replace("-", "−"), float(value))


def outcome(passes: Any) -> Cell:
    """Whether a check passes, in a word and a colour; None is what cannot be known."""
    if passes is None or passes != passes:
        return Cell("not known", 1, "caution")
    return Cell("passes", 2, "good") if passes else Cell("fails", 0, "bad")


def safe(text: Any) -> str:
    """Any text as part of the page: markup is text, and characters that no page may hold are replaced."""
    return escape(CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text).encode("utf-8", "replace").decode("utf-8")))


def isolated(texts: Sequence[str]) -> str:
    """Texts side by side, none of which turns the direction of another."""
    return " ".join(f"<bdi>{safe(text)}</bdi>" for text in texts)


def paragraph(text: str) -> str:
    return f"<p>{safe(text)}</p>\n"


def note(text: str) -> str:
    """A line that explains or excuses."""
    return f'<p class="note">{safe(text)}</p>\n'


def code(text: str) -> str:
    return f'<pre tabindex="0"><code>{safe(text)}</code></pre>\n'


def facts(pairs: Mapping[str, Any]) -> str:
    """Names and values, as a list of definitions."""
    rows = "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(str(value))}</dd></div>" for name, value in pairs.items())
    return f'<dl class="facts">{rows}</dl>\n'


def verdict(level: str, text: str) -> str:
    """The first thing a reader sees: a word, a colour and a sentence."""
    return f'<div class="verdict {level}"><p class="level">{LEVELS[level]}</p><p>{safe(text)}</p></div>\n'


def sentences(text: str) -> list[str]:
    """A text by its sentences."""
    return re.split(r"(?<=\.)\s+(?=[A-Z])", text.strip())


def listed(texts: Sequence[str]) -> str:
    """Sentences one below the other."""
    return f"<ul>{''.join(f'<li>{safe(text)}</li>' for text in texts)}</ul>\n" if texts else ""


def drawing(svg: str, caption: str, title: str = "") -> str:
    """An SVG element that the package has drawn: it is part of the page and takes its colours."""
    head = f'<p class="title"><bdi>{safe(title)}</bdi></p>' if title else ""
    below = f"<figcaption>{safe(caption)}</figcaption>" if caption else ""
    return f"<figure>{head}{svg}{below}</figure>\n"


def pictures(*figures: str, look: str = "") -> str:
    """Several pictures side by side where there is room."""
    return f'<div class="pictures{" " + look if look else ""}">{"".join(figures)}</div>\n'


def table(anchor: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]], filter: str = "") -> str:
    """A table that sorts by its headings, with a box that filters its rows where ``filter`` says what it filters."""
    head = "".join(
        f'<th scope="col" aria-sort="none"{" class=number" if column.number else ""}>'
        f'<button type="button" title="{safe(column.meaning or f"Sort by {plain(column.name)}")}">'
        f"<span>{safe(column.name)}</span></button></th>"
        for column in columns
    )
    body = "".join(f"<tr>{_cells(columns, row)}</tr>\n" for row in rows)
    box = ""
    if filter:
        box = (
            f'<p class="filter" hidden><label for="{anchor}-filter">{safe(filter)}</label> '
            f'<input id="{anchor}-filter" type="search" autocomplete="off" data-filters="{anchor}"> '
            f'<output for="{anchor}-filter" data-counts="{anchor}">{len(rows)} rows</output></p>'
        )
    return (
        f'{box}<div class="table" tabindex="0" role="region" aria-label="{safe(plain(caption))}">'
        f'<table id="{anchor}" class="sortable"><caption>{safe(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )


def _cells(columns: Sequence[Column], row: Sequence[Any]) -> str:
    parts = []
    for place, (column, item) in enumerate(zip(columns, row, strict=True)):
        cell = item if isinstance(item, Cell) else number(item) if column.number else Cell(str(item), str(item))
        looks = " ".join(filter(None, ["number" if column.number else "", cell.look]))
        value = "" if cell.value is None else safe(str(cell.value).removesuffix(".0"))
        tag = 'th scope="row"' if place == 0 else "td"
        parts.append(
            f'<{tag}{f" class={chr(34)}{looks}{chr(34)}" if looks else ""} data-value="{value}">'
            f"{safe(cell.text) if isinstance(cell.text, str) else isolated(cell.text)}</{tag.split()[0]}>"
        )
    return "".join(parts)


def embedded(anchor: str, data: Any) -> str:
    """Data for the page's script. No `<` is left in it, so no text in it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{anchor}">{text}</script>\n'


def page(title: str, subtitle: str, top: str, sections: Sequence[Section], num_topics: int = 0) -> str:
    """One self-contained file: style and script inside, and a policy that lets it load nothing from anywhere."""
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    style += _topic_colours(num_topics)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<li><a href="#{s.anchor}">{safe(s.title)}</a></li>' for s in sections)
    body = "".join(
        f'<section id="{s.anchor}" aria-labelledby="{s.anchor}-title"><h2 id="{s.anchor}-title">{safe(s.title)}</h2>\n'
        f"{s.body}</section>\n"
        for s in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{safe(plain(title))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{safe(title)}</h1><p>{safe(subtitle)}</p></header>\n"
        f'<main>\n{top}<nav aria-label="Contents"><ol>{links}</ol></nav>\n{body}</main>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _topic_colours(number: int) -> str:
    """A colour for each topic: neighbouring numbers lie a golden angle apart on the wheel of hues."""
    return "".join(
        f".t{k}{{--h:{(137.508 * k + 205) % 360:.0f};--s:{(70, 55, 85)[k % 3]}%;--l:{(82, 76, 88)[k // 3 % 3]}%}}\n"
        for k in range(number)
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
