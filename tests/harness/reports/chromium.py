"""A real browser, controlled over a pipe with the Chrome DevTools Protocol."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-default-apps", "--remote-debugging-pipe", "--disable-ipc-flooding-protection"),
)
"""Flags of the browser. Without the last one, it ignores changes of the address after 200 in ten seconds."""
PATIENCE_S = 60
STARTER = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(reads, 3), os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chrome reads commands from descriptor 3 and writes to 4."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str | None:
    """Return the browser's path, or None if there is none."""
    return os.environ.get("ONNXGATE_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Sends commands and receives events, each as one NUL-terminated JSON object."""

    def __init__(self, asks: int, answers: int) -> None:
        self._asks, self._answers = asks, answers
        self._rest = b""
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self.session = ""

    def ask(self, method: str, **parameters: Any) -> Any:
        """Return the result of one command; events that arrive first are stored."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        session = {"sessionId": self.session} if self.session else {}
        sent = json.dumps({**message, **session}).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._asks, sent) :]
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], PATIENCE_S)
            part = os.read(self._answers, 65536) if ready else b""
            assert part, "the browser has ended" if ready else "the browser does not answer"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def evaluate(self, expression: str) -> Any:
        """Evaluate a script in the page and return its result."""
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def named(self, method: str) -> list[dict[str, Any]]:
        """Return the events with that name."""
        return [event["params"] for event in self.events if event.get("method") == method]


@contextmanager
def browser(executable: str, folder: Path) -> Iterator[Browser]:
    """Start a browser with one empty page; it is closed at the end of the block."""
    asks_there, asks = os.pipe()
    answers, answers_there = os.pipe()
    command = [executable, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(asks_there), str(answers_there), *command],
        pass_fds=(asks_there, answers_there),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(asks_there)
    os.close(answers_there)
    try:
        yield _attached(Browser(asks, answers))
    finally:
        os.close(asks)
        os.close(answers)
        process.terminate()
        process.wait(30)


def _attached(browser: Browser) -> Browser:
    """Attach to the page and enable its log and network events."""
    targets = browser.ask("Target.getTargets")["targetInfos"]
    page = next(target["targetId"] for target in targets if target["type"] == "page")
    browser.session = browser.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.ask(f"{domain}.enable")
    return browser


def opened(browser: Browser, address: str, *, width: int, theme: str) -> None:
    """Open a page in a window of that width and wait until it is loaded."""
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    browser.events.clear()
    browser.ask("Page.navigate", url=address)
    browser.evaluate(
        "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))"
    )
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
