"""Asks processes over HTTP whether they hang.

A process that hangs says so itself (``/-/alive`` of collector and job, ``/-/healthy`` of the exporter: 503), or does
not answer at all any more, once it has answered before. One answer proves nothing, so several in a row count. What
refuses the connection, asks for a login, or answers anything else is no reason to restart it.
"""

from __future__ import annotations

import ssl
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Final

from streaming.web.config_file import has_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS_BETWEEN_PROBES: Final = 10.0
LONGEST_ANSWER_SECONDS: Final = 10.0
PROBES_THAT_FAIL: Final = 3
PROBES_WITHOUT_ANSWER: Final = 6
_HANGS: Final = 503


def local_url(listen: str, web_config_file: str, path: str) -> str:
    """Return a URL of a program on this machine by the addresses that it listens on; "" if it listens on none."""
    host, _, port = listen.split(",", maxsplit=1)[0].strip().rpartition(":")
    if not port:
        return ""
    shown = "127.0.0.1" if host in {"", "0.0.0.0", "[::]"} else host  # noqa: S104 - an address that is shown
    return f"{'https' if has_tls(web_config_file) else 'http'}://{shown}:{port}{path}"


class LivenessProbe:
    """The last answers of one process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._has_answered = False
        self._failed = self._unanswered = 0

    def ask(self) -> str | None:
        """Ask once; return why the process is to be restarted, None if it is not."""
        try:
            status, said = _answer(self._url)
        except TimeoutError:
            self._unanswered += self._has_answered
            if self._unanswered < PROBES_WITHOUT_ANSWER:
                return None
            return f"it has not answered {self._unanswered} times at {self._url}"
        except (OSError, HTTPException):  # it does not listen yet, or not any more, or has ended while it answered
            return None
        self._has_answered, self._unanswered = True, 0
        self._failed = self._failed + 1 if status == _HANGS else 0
        return said if self._failed >= PROBES_THAT_FAIL else None


def _answer(url: str) -> tuple[int, str]:
    """Return the status and the first line of an answer; ``TimeoutError`` if none comes."""
    trusting = ssl._create_unverified_context()  # noqa: S323, SLF001 - a process of ours, of which a status is read
    try:
        with urllib.request.urlopen(url, timeout=LONGEST_ANSWER_SECONDS, context=trusting) as answer:  # noqa: S310 - http alone
            return answer.status, ""
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode(errors="replace").partition("\n")[0]
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise error.reason from None
        raise


class LivenessWatch(threading.Thread):
    """Asks processes in turn until it is stopped."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        """Ask nothing before ``start``; ``urls`` are by the name of the process."""
        super().__init__(name="liveness", daemon=True)
        self._urls = {name: url for name, url in urls.items() if url}
        self._probes = {name: LivenessProbe(url) for name, url in self._urls.items()}
        self._hanging: dict[str, str] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        """Ask, rest, repeat."""
        while not self._stopped.wait(SECONDS_BETWEEN_PROBES):
            for name, probe in list(self._probes.items()):
                why = probe.ask()
                if why is not None and self._probes[name] is probe:  # else it was started again meanwhile
                    self._hanging[name] = why

    def hangs(self, name: str) -> str | None:
        """Return why a process is to be restarted; None if it is not."""
        return self._hanging.get(name)

    def begin_again(self, name: str) -> None:
        """Forget what a process answered before it was started again."""
        if name in self._urls:
            self._probes[name] = LivenessProbe(self._urls[name])
        self._hanging.pop(name, None)

    def stop(self) -> None:
        """End soon."""
        self._stopped.set()
