"""What the theme leaves out for those who do not see the page or do not use a mouse, put into its pages at the end."""

from __future__ import annotations

import re
from pathlib import Path

CHANGES = [
    (re.compile(r'(<p class="caption" role="heading")(>)'), r'\1 aria-level="2"\2'),
    (re.compile(r'<aside class="sidebar-drawer">'), '<aside class="sidebar-drawer" aria-label="pages of the site">'),
    (
        re.compile(r'<aside class="toc-drawer( no-toc)?">'),
        r'<aside class="toc-drawer\1" aria-label="parts of this page">',
    ),
    # what may be wider than a phone scrolls in a box of its own, which must be reached by the keyboard
    (re.compile(r"<pre>"), '<pre tabindex="0">'),
    (re.compile(r'<div class="(table-wrapper[^"]*|formula|chart|plates)">'), r'<div class="\1" tabindex="0">'),
    (re.compile(r'<div id="search-results"></div>'), '<h1>Search</h1>\n<div id="search-results"></div>'),
    # a head of a table without words is none
    (re.compile(r"<th(?: [^>]*)?>(?:<p></p>)?\s*</th>"), "<td></td>"),
]


def finish(folder: Path) -> None:
    """Change all pages of a folder."""
    for page in folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for found, put in CHANGES:
            text = found.sub(put, text)
        page.write_text(text, encoding="utf-8")
