"""Build the site: lay its pages out, make those on stories, tutorials and the reference, and have Sphinx put them together.

    python docs/site/build.py [--into build/site]

Warnings, links inside the site that lead nowhere, and requests to other machines end it. Links to elsewhere are listed in
links.txt beside the site: they are not tried, since a build needs no network.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from accessible import finish
from gallery import write_gallery
from pages import ROOT, lay_out, links_away, requests_away
from reference import write_reference
from sphinx.cmd.build import main as sphinx
from story_pages import write_pages

HERE = Path(__file__).resolve().parent


def build(into: Path) -> int:
    source = ROOT / ".cache" / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(into, ignore_errors=True)
    source.mkdir(parents=True)
    shutil.copytree(HERE / "_static", source / "_static")
    write_pages(source / "stories")
    write_gallery(source / "tutorials")
    write_reference(source / "reference")
    if broken := lay_out(source):
        print("\n".join(broken))
        return 1
    html = into / "html"
    strictly = ["-b", "html", "-W", "--keep-going", "-q", "-c", str(HERE), "-d", str(into / "kept")]
    if failed := sphinx([*strictly, str(source), str(html)]):
        return failed
    finish(html)
    if away := requests_away(html):
        print("pages that ask other machines for something:", *away, sep="\n")
        return 1
    links = links_away(html)
    (into / "links.txt").write_text("\n".join(links) + "\n", encoding="utf-8")
    pages = len(list(html.rglob("*.html")))
    print(f"{pages} pages in {html.relative_to(ROOT) if html.is_relative_to(ROOT) else html}; open index.html")
    print(f"{len(links)} addresses elsewhere are linked, listed in links.txt and not tried")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the site.")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site")
    sys.exit(build(parser.parse_args().into.resolve()))
