"""The site: links inside it lead somewhere, pages on stories say what is so, nothing is fetched; and it builds."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topiczoo import models
from topiczoo.models.catalogue import stories

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"
PARTS = ("accessible", "gallery", "measured", "pages", "reference", "story_pages", "zoo")
SPEED = "film reviews, K=50, alpha 0.1, gamma 0.05"
NUMBERS = {22: "twenty-two", 23: "twenty-three", 24: "twenty-four"}
PIXEL = b"\x89PNG and so on"


@pytest.fixture(scope="module")
def site():
    """The modules that build the site, which are scripts beside each other and no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SITE))
        yield type("Site", (), {name: importlib.import_module(name) for name in PARTS})
    for name in PARTS:
        sys.modules.pop(name, None)


def test_every_story_has_an_entry_and_what_it_quotes_is_there(site):
    assert set(site.zoo.ZOO) == set(stories())
    for entry in site.zoo.ZOO.values():
        for title in entry.sections:
            found = site.measured.section(title)
            assert found.tables and found.heading.endswith(title)
        if entry.figure is not None:
            table = site.measured.section(entry.figure.section).tables[entry.figure.table]
            x, lines = site.measured.series(table, entry.figure.rows)
            assert len(x) >= 3 and x == sorted(x) and set(lines) == set(entry.figure.rows)
            assert all(sum(value is not None for value in values) >= 2 for values in lines.values())
        assert all((ROOT / "tutorials" / f"{name}.ipynb").exists() for name in entry.tutorials)


TABLE = """| method | topics | kept: 1 | 2 | 10 |
|---|---|---|---|---|
| ours | 50 | 0.5 ± 0.1 (5) | -1e-3 |  |
| theirs | 50 | 0.25 | 0.5 | 3 |"""


def test_numbers_of_a_table_are_read_by_their_heads(site):
    x, lines = site.measured.series(TABLE, ("ours | 50", "theirs | 50"))
    assert x == [1, 2, 10] and lines == {"ours | 50": [0.5, -0.001, None], "theirs | 50": [0.25, 0.5, 3.0]}
    with pytest.raises(LookupError, match="no row 'ours'"):
        site.measured.series(TABLE, ("ours",))
    with pytest.raises(LookupError, match="no section 'nothing'"):
        site.measured.section("nothing")


def test_a_chart_shows_the_lines_and_takes_its_colours_from_the_page(site):
    drawn = site.measured.chart(
        [1, 2, 10], {"ours": [0.5, None, 0.1], "a < b": [1.0, 2.0, 3.0]}, "topics", "error & more"
    )
    assert drawn.startswith("<svg") and "currentColor" in drawn and "#000000" not in drawn
    assert 'aria-label="error &amp; more by topics: ours, a &lt; b"' in drawn


def test_verdicts_are_those_of_the_page_and_of_the_test(site):
    found = site.measured.verdicts()
    page = (ROOT / "benchmarks" / "calibration.md").read_text()
    assert sum(map(len, found.values())) == len(
        re.findall(r"^### \w+ by .*: (?:passes|fails)$", page, flags=re.MULTILINE)
    )
    assert [(settings, passes) for settings, passes, _ in found["slda", "gibbs"]] == [
        ("", True),
        ("topics collapsed", True),
    ]
    assert [passes for _, passes, _ in found["slda", "vem"]] == [False]
    assert found["slda", "nuts"][0][2] == "slda-by-nuts-fails"
    tested = site.measured.tested()
    assert tested["mixture", "nuts"] == [""] and "response='probit', sigma=0.5" in tested["sstm", "gibbs"]


def test_cards_say_what_the_page_on_calibration_says(site):
    """Renewed by docs/site/measured.py."""
    assert json.loads((ROOT / "models" / "verdicts.json").read_text()) == site.measured.by_story()


def test_the_page_of_a_story_holds_the_story_its_diagram_and_who_takes_it(site):
    page = site.story_pages.page("mixture", models.mixture, site.zoo.ZOO["mixture"])
    assert inspect.getsource(models.mixture).strip() in page
    assert "```text\ntheta ~ Dir(alpha)\nbeta_k ~ Dir(gamma)\n" in page
    assert '<svg class="plates"' in page and "Plate diagram: " in page
    assert re.search(r"\| `theta` \| Dirichlet \| topic \| ", page) and "| observed |" in page
    for engine in ("gibbs", "nuts", "svi", "vem"):
        assert f"| `{engine}` | yes |" in page
    assert "[passes](../benchmarks/calibration.md#mixture-by-gibbs-passes)" in page
    assert "| `vem` | yes | not published |" in page  # what is not known is not said


def made(site, folder: Path) -> None:
    """Empty pages in the place of those that a build makes."""
    listed = [f"stories/{name}.md" for name in stories()] + [f"reference/{name}.rst" for name in site.reference.PARTS]
    for name in [*listed, "stories/index.md", "tutorials/index.md", "reference/index.rst"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_every_link_of_every_page_leads_somewhere(site, tmp_path):
    made(site, tmp_path)
    assert site.pages.lay_out(tmp_path) == []
    assert "](benchmarks/results.md)" in (tmp_path / "weights.md").read_text()  # docs/ is the top of the site
    for page in tmp_path.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"(?ms)^```.*?^```", "", page.read_text())):
            assert (page.parent / target).exists(), (page, target)


def test_a_link_that_leads_nowhere_is_told_and_one_to_code_is_named(site):
    where = {Path("docs/a.md"): Path("a.md"), Path("benchmarks/b.md"): Path("benchmarks/b.md")}
    text = "[b](../benchmarks/b.md#part) [gone](../gone.md) [the rules](../Makefile) [up](https://x.org)\n"
    text += "```python\n[left](alone.md)\n```\n"
    turned, broken = site.pages.turned(text, Path("docs/a.md"), Path("a.md"), where)
    assert "[b](benchmarks/b.md#part)" in turned and "[left](alone.md)" in turned and "[up](https://x.org)" in turned
    assert "the rules (`Makefile`)" in turned
    assert broken == ["docs/a.md: ../gone.md leads nowhere"]


def test_links_between_the_code_of_a_notebook_are_turned_too(site):
    where = {Path("docs/a.md"): Path("a.md")}
    cells = [
        {"cell_type": "markdown", "source": ["[a]", "(../docs/a.md) [b](b.md)"]},
        {"cell_type": "code", "source": "[a](../docs/a.md)"},
    ]
    place = Path("tutorials/n.ipynb")
    turned, broken = site.pages.turned_notebook(json.dumps({"cells": cells}), place, place, where)
    text, code = json.loads(turned)["cells"]
    assert text["source"].startswith("[a](../a.md)") and code == cells[1]
    assert broken == ["tutorials/n.ipynb: b.md leads nowhere"]


def test_numbers_that_pages_quote_are_those_of_the_results(site):
    speed = {tuple(row[:2]): row[2] for row in site.measured.cells(site.measured.section(SPEED).tables[0])}
    page = (ROOT / "docs" / "coming_from" / "tomotopy.md").read_text()
    for part, measure in (("tomotopy", "a sweep"), ("topiczoo", "a sweep"), ("topiczoo", "an iteration")):
        assert f"{speed[f'{part}_speed', f'seconds {measure}']} s" in page
    ratings = site.measured.section("Ratings of films, five-fold cross-validation").tables[0]
    _, found = site.measured.series(ratings, ("gibbs", "tomotopy"))
    assert f"is {found['tomotopy'][-1]:.2f} with tomotopy's `SLDAModel` and {found['gibbs'][-1]:.2f} by" in " ".join(
        page.split()
    )
    assert f"[{NUMBERS[len(stories())]} stories]" in (ROOT / "docs" / "comparison.md").read_text()


def test_requests_to_other_machines_are_found_and_links_are_listed(site, tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="https://x.org">x</a><script src="local.js"></script><img alt="" src="//cdn.org/a.png">'
        '<link rel="stylesheet" href="https://cdn.org/a.css"><link rel="canonical" href="https://x.org">'
    )
    (tmp_path / "a.css").write_text(
        "@font-face { src: url('https://fonts.org/f.woff') } b { background: url(data:abc) }"
    )
    assert site.pages.requests_away(tmp_path) == [
        "a.css: https://fonts.org/f.woff", "a.html: //cdn.org/a.png", "a.html: https://cdn.org/a.css",
    ]  # fmt: skip
    assert site.pages.links_away(tmp_path) == ["https://x.org"]


def notebook(folder: Path, name: str, text: str, *outputs: dict) -> None:
    cells = [{"cell_type": "markdown", "source": [text]}, {"cell_type": "code", "source": [], "outputs": list(outputs)}]
    (folder / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))


def test_the_gallery_has_every_notebook_with_its_first_picture(site, tmp_path, monkeypatch):
    folder = tmp_path / "tutorials"
    folder.mkdir()
    picture = {"data": {"image/png": base64.b64encode(PIXEL).decode()}}
    notebook(
        folder,
        "other",
        "# A title\n\nFirst words.\n\nMore.",
        {"text": "no picture"},
        picture,
        {"data": {"image/png": ""}},
    )
    notebook(folder, "your_own_csv", "no heading")
    monkeypatch.setattr(site.gallery, "ROOT", tmp_path)
    into = tmp_path / "site"
    site.gallery.write_gallery(into)
    page = (into / "index.md").read_text()
    assert page.index("[your own csv](your_own_csv.ipynb)") < page.index("[A title](other.ipynb)")
    assert "First words." in page and "More." not in page
    assert [path.name for path in (into / "thumbnails").iterdir()] == ["other.png"]
    assert (into / "thumbnails" / "other.png").read_bytes() == PIXEL


def test_the_reference_has_the_public_names_and_no_others(site, tmp_path):
    site.reference.write_reference(tmp_path)
    for part in site.reference.PARTS:
        module = importlib.import_module(f"topiczoo.{part}")
        text = (tmp_path / f"{part}.rst").read_text()
        shown = re.findall(
            rf"^\.\. (?:autoclass|autofunction|py:data):: topiczoo\.{part}\.(\w+)$", text, flags=re.MULTILINE
        )
        assert sorted(shown) == sorted(module.__all__)


def test_boxes_that_scroll_can_be_reached_and_headings_have_a_level(site, tmp_path):
    page = tmp_path / "a.html"
    page.write_text('<pre>x</pre><p class="caption" role="heading">y</p><th class="head"><p></p></th><th>z</th>')
    site.accessible.finish(tmp_path)
    expected = '<pre tabindex="0">x</pre><p class="caption" role="heading" aria-level="2">y</p><td></td><th>z</th>'
    assert page.read_text() == expected


@pytest.mark.slow
@pytest.mark.longest
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("furo", reason="make docs installs what builds the site")
    pytest.importorskip("myst_nb", reason="make docs installs what builds the site")
    command = [sys.executable, str(SITE / "build.py"), "--into", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    html = tmp_path / "html"
    slda = (html / "stories" / "slda.html").read_text()
    assert "<math" in (html / "how" / "gibbs.html").read_text() and '<svg class="plates"' in slda
    assert (html / "tutorials" / "edit_the_story.html").exists() and (html / "reference" / "inference.html").exists()
    assert "https://num.pyro.ai" in (tmp_path / "links.txt").read_text()


def test_badges_say_what_the_files_of_the_project_say(site, monkeypatch):
    badges = importlib.import_module("badges")
    monkeypatch.delitem(sys.modules, "badges")
    for name, parts in badges.told().items():
        kept = (ROOT / "docs" / "pictures" / f"badge-{name}.svg").read_text()
        assert kept == badges.badge(*parts), "python docs/site/badges.py"
        assert f"docs/pictures/badge-{name}.svg" in (ROOT / "README.md").read_text()


def test_every_link_of_the_front_page_leads_to_a_file():
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_formulas_become_mathml_and_indices_stand_beside_accents(site):
    nodes = pytest.importorskip("docutils.nodes", reason="make docs installs it")
    pytest.importorskip("sphinx", reason="make docs installs it")
    mathml = importlib.import_module("mathml")
    sys.modules.pop("mathml")
    found = mathml.mathml(nodes.math(text=r"\bar{z}_d \Big( \dots \Big)"), display=False)
    assert found.startswith("<math") and "<msub>" in found and "<munder" not in found and "…" in found
