"""The parts of a demo: child processes that live and die together. Knows processes, nothing of what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

GRACE_SECONDS: Final = 10.0
TAIL_LINES: Final = 20


class PartStopped(IsrwatchError):
    """A part of the demo ended by itself: names it, and shows the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One running child: the leader of its own process group, with a log of its own."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """Give the end of its log, without the frames of Java's stack traces: they push the reason out of sight."""
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            telling = (line for line in lines if not line.startswith(("\tat ", "\t... ")))
            return "".join(deque(telling, TAIL_LINES)).rstrip() or "(it wrote nothing)"

    def signal(self, number: signal.Signals) -> None:
        """Signal the part and whatever it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass(slots=True, kw_only=True)
class Parts:
    """Starts children, notices when one has died, and stops all of them on the way out."""

    logs: Path
    running: list[Part] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Make the folder for the logs."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop everything, whatever happened."""
        self.stop()

    def start(self, name: str, *arguments: str) -> Part:
        """Start ``isrwatch NAME ARGUMENTS``; both its streams go to ``LOGS/NAME.log``."""
        log = self.logs / f"{name}.log"
        attached = [sys.executable, "-m", "streaming.commands.demo_attached", str(os.getpid())]
        with log.open("wb") as stream:
            process = subprocess.Popen(  # noqa: S603 - this very interpreter
                [*attached, name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the demo's to handle, and a group can be stopped as one
            )
        part = Part(name=name, process=process, log=log)
        self.running.append(part)
        return part

    def check(self) -> None:
        """Tell if a part has ended.

        Raises:
            PartStopped: with its name, exit code and the end of its log.
        """
        for part in self.running:
            if (code := part.process.poll()) is not None:
                raise PartStopped(
                    f"isrwatch {part.name} ended with exit code {code}; the end of {part.log}:\n{part.tail()}"
                )

    def stop(self) -> None:
        """Stop every part: politely, then after a grace period by force. Nothing of them is left.

        An impatient second Ctrl-C must not leave any of them behind.
        """
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        for part in self.running:
            part.process.terminate()  # the part alone: what it started is its own to stop
        deadline = time.monotonic() + GRACE_SECONDS
        for part in self.running:
            with suppress(subprocess.TimeoutExpired):
                part.process.wait(max(0.0, deadline - time.monotonic()))
            part.signal(signal.SIGKILL)
            part.process.wait()
        self.running.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
