"""Debian's chromium without a window, driven over its own protocol: nothing is installed beside it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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
        """The value of an expression in the page; of a promise what it keeps."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
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

    def look(self, width, height=900, *, dark=False, printed=False):
        """A window of that size, light or dark."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media="print" if printed else "", features=scheme)

    def screenshot(self, path, whole=False):
        """What is seen of the page, or all of it, as a PNG."""
        options = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            options = {"captureBeyondViewport": True, "clip": clip}
        Path(path).write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", **options)["data"]))

    def close(self):
        try:
            self.session = None
            self.send("Browser.close")
        finally:
            self.process.wait(timeout=20)
            os.close(self.write)
            os.close(self.read)
