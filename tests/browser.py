# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
SECONDS = 30.0  # for one answer
# The browser reads descriptor 3 and writes descriptor 4, which may be others here.
_START = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """The browser's path: ``ONEDISPATCH_BROWSER``, else the first on the path; None where there is none."""
    named = os.environ.get("ONEDISPATCH_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A running browser with one page. ``events`` are those of the page that is open."""

    def __init__(self, process: subprocess.Popen[bytes], send: int, receive: int) -> None:
        self._process, self._send, self._receive = process, send, receive
        self._left, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result; a refusal is a ``RuntimeError``."""
        self._count += 1
        asked = {"id": self._count, "method": method, "params": params}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._send, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") != self._count:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            else:
                return dict(message["result"])

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._left:
            if not select.select([self._receive], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser said nothing for {SECONDS:.0f} seconds")
            read = os.read(self._receive, 1 << 20)
            if not read:
                raise RuntimeError(f"the browser ended with {self._process.poll()}")
            self._left += read
        message, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Opens a file at this size, in the colours that the system would ask for, and waits for it."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def value(self, expression: str) -> Any:
        """What a script's expression comes to in the page, awaited. An exception is a ``RuntimeError``."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", **asked)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """A key goes down and up: ``Enter``, ``ArrowDown``, ``Tab``."""
        code = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37}.get(
            key, 0
        )
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **given)

    @property
    def complaints(self) -> list[str]:
        """Exceptions, errors on the console, and what a policy refused, since the page was opened."""
        found = []
        for event in self.events:
            method, given = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown" or (
                method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert")
            ):
                found.append(json.dumps(given)[:600])
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(given["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        """What the page asked for, itself and data of its own left out."""
        urls = [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls[1:] if not url.startswith("data:")]

    def pdf(self, path: Path) -> None:
        made = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser(path: str) -> Iterator[Browser]:
    """The browser at ``path``, until the block ends."""
    ours, theirs = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        pipes = (ours[0], theirs[1])
        command = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, pipes), *command],
            pass_fds=pipes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield Browser(process, ours[1], theirs[0])
        finally:
            os.close(ours[1])
            os.close(theirs[0])
            process.terminate()
            process.wait(10)
