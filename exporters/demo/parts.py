"""The parts of a demo: child processes that start and stop together. Knows processes, not what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporters.running.attached import command_line
from streaming.configuration_file import without_configuration
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

GRACE_SECONDS: Final = 10.0
TAIL_LINES: Final = 20


class PartStopped(IsrwatchError):
    """A part of the demo has ended: the message names it and shows the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One child process: the leader of its process group, with its own log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """Return the end of its log, without the frames of Java stack traces, which would hide the reason."""
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            without_frames = (line for line in lines if not line.startswith(("\tat ", "\t... ")))
            return "".join(deque(without_frames, TAIL_LINES)).rstrip() or "(the log is empty)"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all processes it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass(slots=True, kw_only=True)
class Parts:
    """Starts child processes, detects when one has ended, and stops all of them at exit."""

    logs: Path
    running: list[Part] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Create the folder of the logs."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all parts, also after an error."""
        self.stop()

    def start(self, name: str, *arguments: str) -> Part:
        """Start ``isrwatch NAME ARGUMENTS``; both its streams go to ``LOGS/NAME.log``."""
        log = self.logs / f"{name}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(  # noqa: S603 - this very interpreter
                command_line(name, arguments),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=without_configuration(os.environ),
                start_new_session=True,  # the demo handles Ctrl-C, and a process group can be stopped as one
            )
        part = Part(name=name, process=process, log=log)
        self.running.append(part)
        return part

    def check(self) -> None:
        """Check that every part is running.

        Raises:
            PartStopped: with its name, exit code and the end of its log.
        """
        for part in self.running:
            if (code := part.process.poll()) is not None:
                raise PartStopped(
                    f"isrwatch {part.name} ended with exit code {code}; the end of {part.log}:", part.tail()
                )

    def stop(self) -> None:
        """Stop every part with SIGTERM, and what is left after a grace period with SIGKILL.

        Ctrl-C and SIGTERM are ignored meanwhile: a second Ctrl-C must not leave processes behind.
        """
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        for part in self.running:
            part.process.terminate()  # only the part itself: it stops what it has started
        deadline = time.monotonic() + GRACE_SECONDS
        for part in self.running:
            with suppress(subprocess.TimeoutExpired):
                part.process.wait(max(0.0, deadline - time.monotonic()))
            part.signal(signal.SIGKILL)
            part.process.wait()
        self.running.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
