"""The report in a real browser: Debian's chromium without a window, driven over its own protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

import pytest
from report_fits import NAME, WICKED, simulated

from topiczoo.diagnostics.reporting.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Browser:
    """A page in chromium. Commands and events are JSON between zero bytes on the pipes 3 and 4."""

    def __init__(self, folder):
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        arguments = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--no-first-run", f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        # the shell gives the pipes the numbers chromium expects
        script = f'exec "$@" 3<&{to_browser} 4>&{to_us}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", *arguments], pass_fds=(to_browser, to_us), stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(to_us)
        self.write, self.read = from_us, from_browser
        self.buffer, self.number, self.events = b"", 0, []
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self):
        while b"\0" not in self.buffer:
            data = os.read(self.read, 1 << 20)
            assert data, "chromium ended"
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer = json.loads(message)
        if "method" in answer:
            self.events.append(answer)
        return answer

    def open(self, path):
        self.send("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + 30
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            assert time.monotonic() < deadline, "the page did not load"
            time.sleep(0.02)

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector):
        """A true click with the mouse in the middle of an element."""
        where = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{where}.scrollIntoView({{block: 'center'}})")
        x, y = self.run(
            f"(() => {{ const r = {where}.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector, text):
        """Text typed into an element in place of what is there."""
        self.run(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}); box.focus(); box.select(); }})()"
        )
        if text:
            self.send("Input.insertText", text=text)
        else:
            self.key("Delete", 46)

    def key(self, name, code, text=""):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, text=text)

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def choose(self, selector, value):
        box = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{box}.value = {json.dumps(value)}; {box}.dispatchEvent(new Event('change'))")

    def of(self, *methods):
        return [event["params"] for event in self.events if event["method"] in methods]

    def close(self):
        try:
            self.session = None
            self.send("Browser.close")
        finally:
            self.process.wait(timeout=20)
            os.close(self.write)
            os.close(self.read)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    path = report(simulated(num_documents=12, num_draws=20), folder / "report.html", documents=12, progress_bar=False)
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


def test_documents_are_browsed(opened):
    assert len(opened.texts("#document-list option")) == 12
    opened.type("#document-filter", "document 7")
    assert [text.split(" (")[0] for text in opened.texts("#document-list option")] == ["document 7"]
    assert opened.texts(".document h3") == ["document 7"]
    assert "90% interval" in opened.texts(".document .prediction")[0] and "observed" in opened.texts(".prediction")[0]
    chips, groups = opened.texts(".chip"), opened.texts(".group")
    assert len(chips) > 5 and 1 <= len(groups) <= 3
    # a colour a topic: as many colours as groups, and the legend's and the table's swatches have the same
    colours = opened.run(
        "[...document.querySelectorAll('.chip')].map((c) => [c.dataset.topic, c.style.backgroundColor])"
    )
    swatches = opened.run(
        "[...document.querySelectorAll('#topics tbody th')]"
        ".map((c) => [c.dataset.value, c.firstChild.style.backgroundColor])"
    )
    assert len({tuple(pair) for pair in colours}) == len(groups) and all(pair in swatches for pair in colours)
    opened.run("document.querySelector('.chip').dispatchEvent(new MouseEvent('mouseenter'))")
    assert chips[0].split("×")[0] in opened.texts(".detail")[0] and "topic" in opened.texts(".detail")[0]
    opened.run("document.querySelector('.chip').focus()")
    opened.key("ArrowRight", 39)
    assert opened.run("document.activeElement.textContent") == chips[1]
    opened.choose("#word-order", "term")
    words = [text.split("×")[0] for text in opened.texts(".chip")]
    assert sorted(words) == sorted(text.split("×")[0] for text in chips) and opened.texts(".group") == []
    opened.type("#document-filter", "")
    opened.run("document.querySelector('#document-list').focus()")
    opened.key("Home", 36)
    opened.key("ArrowDown", 40)
    shown = opened.texts(".document h3")[0]
    assert shown == opened.run("document.querySelector('#document-list').selectedOptions[0].textContent").split(" (")[0]
    assert shown == "document 1"


def test_text_of_documents_is_not_run(opened):
    opened.type("#document-filter", "")
    opened.choose("#document-list", "0")
    assert opened.texts(".document h3") == [NAME]
    everything = " ".join(opened.texts("#topics td:nth-child(2)"))
    assert all(wicked in everything for wicked in WICKED)
    words = set()
    for place in range(12):
        opened.choose("#document-list", str(place))
        words |= {text.split("×")[0] for text in opened.texts(".chip")}
    assert set(WICKED) <= words
    assert opened.run("window.hacked") is None
    assert opened.run("document.querySelectorAll('.document img, .document script, td img, td script').length") == 0


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
