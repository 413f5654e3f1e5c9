"""A headless Chromium that a test drives over the DevTools protocol, through two pipes: keys, scripts, print.

What it focuses and prints is what a reader gets. Scripts are those of the test; pages have none.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS: Final = {"Tab": 9, "Enter": 13}
_SHIFT: Final = 8
_A4_INCHES: Final = {"paperWidth": 8.27, "paperHeight": 11.69}


class Browser:
    """One tab."""

    def __init__(self, commands: int, answers: int) -> None:
        """Take the ends of the pipes, and open a tab."""
        self._commands, self._answers, self._numbers, self._read = commands, answers, count(1), b""
        self._events: list[str] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and give its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {} if self._session is None else {"sessionId": self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._events.append(answer.get("method", ""))
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._answers, 1 << 20)
            if not more:
                raise AssertionError("Chromium has ended")
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(message))

    def open(self, address: str) -> None:
        """Go to an address."""
        self._events.clear()
        self.call("Page.navigate", url=address)
        self._wait_until_loaded()

    def _wait_until_loaded(self) -> None:
        while "Page.loadEventFired" not in self._events:
            self._events.append(self._next().get("method", ""))

    def press(self, key: str, *, shift: bool = False, leads_away: bool = False) -> None:
        """Press a key; ``leads_away``: to another page, which is waited for."""
        self._events.clear()
        code = _KEYS[key]
        values = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": _SHIFT if shift else 0}
        values |= {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **values)
        if leads_away:
            self._wait_until_loaded()
        else:
            self.call("Input.dispatchKeyEvent", type="keyUp", **{**values, "text": ""})

    def value_of(self, script: str) -> Any:
        """Return the value of an expression on the page."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def prefer(self, scheme: str, *, prints: bool = False) -> None:
        """Prefer light or dark colours; ``prints``: lay the page out as it is printed."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media="print" if prints else "", features=features)

    def printed(self) -> bytes:
        """Return the page as the PDF that it prints."""
        return base64.b64decode(self.call("Page.printToPDF", **_A4_INCHES)["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium, with a window of 1,000 px; end it afterwards."""
    assert shutil.which("chromium"), "Chromium is missing; ./.ci/tools chromium installs it"
    with ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        theirs_in, commands = os.pipe()
        answers, theirs_out = os.pipe()
        command = [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", "--window-size=1000,900", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        redirected = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        log = stack.enter_context((Path(profile) / "log").open("w"))
        running = subprocess.Popen(
            ["bash", "-c", redirected, "bash", *command], pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
            running.terminate()
            running.wait(timeout=60)
