"""A report in chromium: pictures to look at, and what a browser alone can tell.

    python tests/browser/check.py report.html --out pictures --axe node_modules/axe-core/axe.min.js

At 1400 and 390 pixels, light and dark: nothing is wider than the window, nothing is on the console, nothing is asked for but
the file, every control is reached by the Tab key and shows that it is, and axe-core (if its file is given; ``npm install
axe-core`` anywhere) finds no violation. Without a report, one of a made-up fit with hostile names is checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chromium import CHROMIUM, Browser

CONTROLS = (
    "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]"
    ".filter((e) => e.checkVisibility())"
)
# what has the focus: its place among the controls, whether that is seen
FOCUSED = (
    "(() => { const e = document.activeElement, s = getComputedStyle(e);"
    f" return [{CONTROLS}.indexOf(e), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; }})()"
)


def problems(browser: Browser, axe: str | None) -> list[str]:
    """What is wrong with the page as it stands, in sentences."""
    found = []
    wide, window = browser.run("[document.documentElement.scrollWidth, innerWidth]")
    if wide > window:
        found.append(f"The page is {wide} pixels wide in a window of {window}.")
    if axe is not None:
        browser.run(axe)
        asked = "axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => "
        violations = browser.run(
            asked
            + "[v.id, v.help, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].any.map((a) => a.message)]))"
        )
        found += [
            f"axe-core: {kind} ({told}), {number} times, first {first} {why}"
            for kind, told, number, first, why in violations
        ]
    return found


def unreached(browser: Browser) -> list[str]:
    """Controls that the Tab key does not come to, or whose focus is not seen."""
    number = browser.run(f"{CONTROLS}.length")
    browser.run("(document.activeElement.blur(), window.scrollTo(0, 0))")
    reached, unseen = set(), set()
    for _ in range(number + 2):
        browser.key("Tab", 9)
        place, seen = browser.run(FOCUSED)
        reached.add(place)
        if place >= 0 and not seen:
            unseen.add(place)
    name = "((e) => `${e.tagName} ${e.id} ${e.textContent.slice(0, 40)}`)"
    missed = sorted(set(range(number)) - reached)[:3]
    told = [f"Tab does not reach {browser.run(f'{name}({CONTROLS}[{place}])')}." for place in missed]
    return told + [
        f"No focus is seen on {browser.run(f'{name}({CONTROLS}[{place}])')}." for place in sorted(unseen)[:3]
    ]


def check(path: Path, out: Path | None, axe: str | None) -> list[str]:
    """Everything that is wrong with a report."""
    found = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            for width in (1400, 390):
                for dark in (False, True):
                    look = f"{width}-{'dark' if dark else 'light'}"
                    browser.look(width, 900 if width > 500 else 844, dark=dark)
                    browser.open(path)
                    if out is not None:
                        browser.screenshot(out / f"{path.stem}-{look}.png")
                    browser.run(
                        "[...document.querySelectorAll('details')].slice(0, 3).forEach((d) => { d.open = true; })"
                    )
                    browser.run("new Promise((done) => setTimeout(done, 100))")
                    if out is not None:
                        browser.screenshot(out / f"{path.stem}-{look}-whole.png", whole=True)
                    found += [f"{look}: {problem}" for problem in problems(browser, axe)]
            browser.look(1400, 900)
            browser.open(path)
            found += unreached(browser)
            said = browser.of("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
            found += [f"On the console: {event}" for event in said[:3]]
            asked = {event["request"]["url"] for event in browser.of("Network.requestWillBeSent")}
            found += [
                f"The page asks for {url[:100]}." for url in asked if not url.startswith(("data:", path.as_uri()))
            ]
        finally:
            browser.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("report", nargs="?", type=Path, help="a report; by default one is made")
    parser.add_argument("--out", type=Path, help="folder for pictures of the page")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    given = parser.parse_args()
    if CHROMIUM is None:
        print("Skipped: chromium is not installed (Debian: apt-get install chromium).")
        return 0
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    path = given.report
    if path is None:
        from report_fits import hostile

        from topiczoo.diagnostics import report

        path = report(hostile(), Path(tempfile.mkdtemp()) / "hostile.html", progress_bar=False)
    if given.axe is None:
        print("axe-core is left out: its file was not given (--axe).")
    found = check(path.resolve(), given.out, None if given.axe is None else given.axe.read_text(encoding="utf-8"))
    print("\n".join(found) or f"{path}: nothing found.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
