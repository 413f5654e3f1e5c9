"""Collector, job and exporter as child processes: each is started again when it ends, and all of them stop together.

Knows processes, not what they do. What a process prints is passed on line by line, so that whatever keeps the output of
the parent, such as journald, keeps all of it. A process that refuses its configuration (exit code 2) ends all: it would
refuse it again. Any other one that ends is started again, after a pause that grows with each failure in a row.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from threading import Thread
from typing import IO, TYPE_CHECKING, Final

from exporters.running.attached import command_line
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
RECOVERED_AFTER_SECONDS: Final = 300.0
"""A process that has run for so long has recovered: its next end is a new failure."""
GRACE_SECONDS: Final = 30.0
"""Time that a process gets to end by itself, as the job ends its batch first."""


class ConfigurationRefused(ConfigurationError):
    """A process refuses its configuration; it has printed why."""


class SupervisedPart:
    """One ``isrwatch`` command that is kept running.

    Attributes:
        name: of the command.
        restarts: number of times that it was started again.
    """

    def __init__(self, name: str, arguments: Sequence[str], pass_on: Callable[[str], None]) -> None:
        """Take a command, which does not run yet; ``pass_on`` takes each line that it prints."""
        self.name, self.restarts = name, 0
        self._arguments, self._pass_on = arguments, pass_on
        self._process: subprocess.Popen[str] | None = None
        self._reading: Thread | None = None
        self._began = self._again_at = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def pid(self) -> int | None:
        """The process; None while there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the command, in a process group of its own: the parent alone handles Ctrl-C."""
        self._began = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            command_line(self.name, self._arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        self._reading = Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reading.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._pass_on(line.rstrip("\n"))

    def check(self, say: Callable[[str], None]) -> None:
        """Start the command again, a while after it has ended; ``say`` takes what happened.

        Raises:
            ConfigurationRefused: it refused its configuration.
        """
        if self._process is None:
            if time.monotonic() >= self._again_at:
                self.restarts += 1
                self.start()
            return
        code = self._process.poll()
        if code is None:
            return
        self._end()
        if code == ConfigurationError.exit_code:
            raise ConfigurationRefused(f"isrwatch {self.name} refuses its configuration: see the line above")
        if time.monotonic() - self._began > RECOVERED_AFTER_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        say(f"isrwatch {self.name} {how}; it starts again in {self._pause:g} s, and nothing is lost")
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def stop(self) -> None:
        """Ask the process to stop, and end it, and all that it has started, after a grace period."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self._end()

    def _end(self) -> None:
        """End what is left of the process and its children, and pass on the last lines."""
        process, self._process = self._process, None
        assert process is not None  # noqa: S101 - for the type checker
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._reading is not None:
            self._reading.join(1.0)


class Supervisor:
    """Runs commands, in order, until its block ends.

    Args:
        commands: the arguments of each ``isrwatch`` command, by its name, in the order in which they start and stop.
        pass_on: takes each line that they print.
        say: takes one sentence about what happened to them.
    """

    def __init__(
        self, commands: Mapping[str, Sequence[str]], pass_on: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        self.parts = [SupervisedPart(name, arguments, pass_on) for name, arguments in commands.items()]
        self._say = say

    def __enter__(self) -> Self:
        """Start all of them."""
        for part in self.parts:
            part.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all of them, one after the other; signals are ignored meanwhile, so nothing is left behind."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for part in self.parts:
            part.stop()

    def check(self) -> None:
        """Start again what has ended.

        Raises:
            ConfigurationRefused: one of them refused its configuration.
        """
        for part in self.parts:
            part.check(self._say)
