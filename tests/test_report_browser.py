"""The report in a real browser: Debian's chromium without a window, driven over its own protocol."""

from __future__ import annotations

import time

import numpy as np
import pytest
from chromium import CHROMIUM, Browser
from report_fits import NAME, WICKED, simulated

from topiczoo import diagnostics
from topiczoo.diagnostics.reporting.report import report
from topiczoo.inference.posterior.leading_terms import leading, term_scores

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def fit():
    return simulated(num_documents=12, num_draws=20)


@pytest.fixture(scope="module")
def opened(fit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    path = report(fit, folder / "report.html", documents=12, progress_bar=False)
    browser = Browser(folder / "profile")
    browser.open(path)
    yield browser
    browser.close()


def numbers(texts):
    return [float(text.replace("−", "-").rstrip("%")) for text in texts]


def test_a_heading_sorts_both_ways_and_back(opened):
    heads = opened.texts("#topics thead th")
    place = heads.index("eta") + 1
    cells, head = f"#topics tbody tr > :nth-child({place})", f"#topics thead th:nth-child({place})"
    opened.click(f"{head} button")
    first = numbers(opened.texts(cells))
    assert first == sorted(first) and first[0] < 0 < first[-1]
    opened.click(f"{head} button")
    assert numbers(opened.texts(cells)) == first[::-1]
    assert opened.run(f"document.querySelector('{head}').getAttribute('aria-sort')") == "descending"
    opened.run("document.querySelector('#topics thead button').focus()")
    opened.key("Enter", 13, "\r")  # the keyboard does it too
    assert opened.texts("#topics tbody tr > :first-child") == ["0", "1", "2"]


def test_the_filter_leaves_what_matches(opened):
    visible = (
        "[...document.querySelectorAll('#topics tbody tr')].filter((row) => row.offsetParent).map((r) => r.textContent)"
    )
    every = opened.run(visible)
    cells = [text.split() for text in opened.texts("#topics tbody tr td:nth-child(2)")]
    word = next(word for word in cells[1] if sum(word in cell for cell in cells) == 1)
    opened.type("#topics-filter", word)
    left = opened.run(visible)
    assert 0 < len(left) < len(every) and all(word in row for row in left)
    assert opened.texts("output[data-counts=topics]") == [f"{len(left)} of {len(every)} rows"]
    opened.type("#topics-filter", "no such word")
    assert opened.run(visible) == []
    opened.type("#topics-filter", "")
    assert opened.run(visible) == every


def test_the_slider_orders_terms_by_the_relevance_that_is_chosen(fit, opened):
    aligned = diagnostics.align(fit)
    beta = np.mean([aligned.topic_terms(chain) for chain in range(2)], axis=0)
    for weight, text in ((1.0, "1"), (0.0, "0"), (0.6, "0.6")):
        opened.run(
            f"(() => {{ const s = document.querySelector('#relevance'); s.value = {text};"
            " s.dispatchEvent(new Event('input')); })()"
        )
        chosen = leading(term_scores(beta, np.asarray(fit.corpus.counts.sum(0)), "relevance", weight), 10)
        expected = [" ".join(fit.vocabulary[row]) for row in chosen]
        assert opened.texts("#topics tbody td.terms") == expected
        assert opened.texts("#relevance-value") == [f"{weight:.1f}"]
        assert opened.texts("#relevance-terms .term") == list(fit.vocabulary[chosen[0]])
    opened.run("document.querySelector('#relevance').focus()")
    opened.key("ArrowRight", 39)
    assert opened.texts("#relevance-value") == ["0.7"]
    opened.click(".map .node[data-topic='2'] circle")
    assert opened.run("document.querySelector('#relevance-topic').value") == "2"
    assert opened.run("document.querySelector('.map .chosen').dataset.topic") == "2"


def test_documents_are_browsed(opened):
    visible = "[...document.querySelectorAll('.document')].filter((d) => d.offsetParent)"
    assert opened.run(f"{visible}.length") == 12
    opened.type("#document-filter", "document 7")
    assert opened.run(f"{visible}.map((d) => d.querySelector('.title').textContent)") == ["document 7"]
    assert opened.texts("#document-count") == ["1 of 12 documents"]
    opened.run(f"{visible}[0].querySelector('summary').focus()")
    opened.key("Enter", 13, "\r")  # the keyboard opens it
    assert opened.run(f"{visible}[0].open")
    deadline = time.monotonic() + 10
    while not opened.texts(".document[open] .legend button"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # a colour a topic: words have that of their topic in the legend
    words = opened.run(
        "[...document.querySelectorAll('.document[open] .chips b:not(.u)')]"
        ".map((b) => [b.classList[0], getComputedStyle(b).backgroundColor])"
    )
    swatches = opened.run(
        "[...document.querySelectorAll('.document[open] .legend .swatch, #topics .swatch')]"
        ".map((b) => [b.classList[1], getComputedStyle(b).backgroundColor])"
    )
    assert len(words) > 5 and all(pair in swatches for pair in words)
    assert "topic" in opened.run("document.querySelector('.document[open] .chips b').title")
    opened.click(".document[open] .legend button")
    assert opened.run("document.querySelector('.document[open] .legend button').getAttribute('aria-pressed')") == "true"
    topic = opened.run("document.querySelector('.document[open] .legend li').dataset.topic")
    lit = opened.run("[...document.querySelectorAll('.document[open] b.on')].map((b) => b.classList[0])")
    assert set(lit) == {f"t{topic}"}
    opened.click(".document[open] .legend button")
    assert opened.run("document.querySelectorAll('.document[open] b.on').length") == 0
    opened.type("#document-filter", "")
    assert opened.run(f"{visible}.length") == 12


def test_text_of_documents_is_not_run(opened):
    assert NAME in opened.texts(".document .title")
    everything = " ".join(opened.texts("#topics td:nth-child(2)"))
    assert all(wicked in everything for wicked in WICKED)
    words = {text.split("×")[0] for text in opened.texts(".chips b")}
    assert set(WICKED) <= words
    assert opened.run("window.hacked") is None
    assert opened.run("document.querySelectorAll('.document img, .document script, td img, td script').length") == 0


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_runs_over_the_edge_of_a_phone_and_dark_is_dark(opened, dark):
    opened.look(390, 844, dark=dark)
    opened.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert opened.run("document.documentElement.scrollWidth") <= 390
    paper = opened.run("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, paper.strip("rgb()").split(","))) < 60) == dark
    opened.run("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    opened.look(1400)


def test_quiet_and_alone(opened):
    """Last: nothing is on the console, no error was thrown, and nothing was asked for but the file itself."""
    opened.run("1")
    assert opened.of("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []
    asked = [event["request"]["url"] for event in opened.of("Network.requestWillBeSent")]
    outside = [url for url in asked if not url.startswith("data:")]
    assert len(outside) == 1 and outside[0].startswith("file://") and outside[0].endswith("/report.html")

    # Even an element that got in could neither run nor ask for anything.
    opened.run(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s);"
        " const i = new Image(); i.src = 'http://192.0.2.1/x.png'; document.body.append(i); })()"
    )
    deadline = time.monotonic() + 10
    while not opened.of("Network.loadingFailed"):
        assert opened.run("window.hacked") is None and time.monotonic() < deadline
        time.sleep(0.02)
    (failed,) = opened.of("Network.loadingFailed")
    assert failed["blockedReason"] == "csp"
