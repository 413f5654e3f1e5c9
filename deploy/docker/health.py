"""HEALTHCHECK of the images: asks each program of the container whether it hangs, and exits with 1 if one does.

A container is not started again because Kafka does not answer: collector and job are asked for ``/-/alive``, the
exporter for ``/-/healthy``. Where they listen is read as they read it: from configuration, variables and options.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
from contextlib import suppress
from http.client import HTTPException
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.request import urlopen

from streaming.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ASKED: Final = {"collect": "/-/alive", "job": "/-/alive", "export": "/-/healthy"}
STARTERS: Final = ("isrwatch", "entrypoint.py", "exporters.running.attached")
"""Ends of the words that start a command of isrwatch; the last one has the id of its parent before the command."""
LAUNCHER: Final = "deploy/spark/main.py"
SECONDS: Final = 4.0
SERVER_ERROR: Final = 500


def command_of(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return which program a command line is, and its options; None for any other process."""
    for place, word in enumerate(words[:4]):
        if word.endswith(LAUNCHER):
            return "job", list(words[place + 1 :])
        if word.endswith(STARTERS):
            rest = [each for each in words[place + 1 :] if not each.isdecimal()]
            return (rest[0], rest[1:]) if rest and rest[0] in ASKED else None
    return None


def address(command: str, options: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return ``host:port`` of a program as it can be asked from here; empty if it does not listen."""
    given = dict(_options(options))
    file = given.get("--config") or given.get("--config.file")
    settings = load(Path(file) if file else None, variables)
    configured = {"collect": settings.collect.listen, "job": settings.job.listen, "export": settings.export.listen}
    option = "--web.listen-address" if command == "export" else "--listen"
    listen = given.get(option, configured[command]).split(",")[0].strip()
    host, _, port = listen.rpartition(":")
    return f"{host if host not in {'', '0.0.0.0', '[::]'} else '127.0.0.1'}:{port}" if port else ""  # noqa: S104 - asked


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            yield name, value if equals else following


def answers(place: str, path: str) -> bool:
    """Return whether a program answers, and not that it hangs; to ask for a login or a certificate is an answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for scheme in ("http", "https"):
        try:
            with urlopen(f"{scheme}://{place}{path}", timeout=SECONDS, context=context):  # noqa: S310 - one of these two
                return True
        except urllib.error.HTTPError as refused:
            return refused.code < SERVER_ERROR
        except (OSError, HTTPException) as error:
            if isinstance(getattr(error, "reason", error), ssl.SSLError):
                return True
    return False


def programs(processes: Path = Path("/proc")) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Give each program of the container: its command, its options and its variables, ours if they cannot be read."""
    for process in processes.glob("[0-9]*"):
        try:
            program = command_of((process / "cmdline").read_text().split("\0")[:-1])
        except OSError:  # it has ended
            continue
        if program:
            variables = dict(os.environ)
            with suppress(OSError):
                texts = (process / "environ").read_text().split("\0")
                variables = dict(each.split("=", 1) for each in texts if "=" in each)
            yield *program, variables


def main() -> int:
    """Ask every program; that there is none is not healthy either."""
    running = list(programs())
    silent = [] if running else ["no program that serves a page runs here"]
    for command, options, variables in running:
        place = address(command, options, variables)
        if place and not answers(place, ASKED[command]):
            silent.append(f"no good answer from isrwatch {command} at {place}")
    sys.stdout.write(f"{'; '.join(silent) or 'ok'}\n")
    return bool(silent)


if __name__ == "__main__":
    sys.exit(main())
