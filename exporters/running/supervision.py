"""Commands as child processes: each is started again when it ends or hangs, and all of them stop together.

Knows processes, not what they do. What a process prints is passed on line by line, so that whatever keeps the output of
the parent, such as journald, keeps all of it. A process that refuses its configuration (exit code 2) ends all: it would
refuse it again. Any other one that ends is started again, after a pause that grows with each failure in a row; in a
demo, in which a process has nothing to continue from, its end ends all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from threading import Thread
from typing import IO, TYPE_CHECKING, Final

from exporters.running.attached import GRACE_SECONDS, command_line
from exporters.running.liveness import LivenessWatch
from streaming.errors import ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
RECOVERED_AFTER_SECONDS: Final = 300.0
"""A process that has run for so long has recovered: its next end is a new failure."""
TAIL_LINES: Final = 20
_FRAMES_OF_JAVA: Final = ("\tat ", "\t... ")
"""Beginnings of lines that would hide the reason in the end of a log."""


class ConfigurationRefused(ConfigurationError):
    """A process refuses its configuration; it has printed why."""


class PartEnded(IsrwatchError):
    """A process that is not started again has ended; the message names it and shows what it printed last."""


class SupervisedPart:
    """One ``isrwatch`` command that is kept running, with the lines that it printed last (``tail``)."""

    def __init__(
        self, name: str, arguments: Sequence[str], pass_on: Callable[[str, str], None], environment: Mapping[str, str]
    ) -> None:
        """Take a command, which does not run yet; ``pass_on`` takes its name and each line that it prints."""
        self.name, self.restarts = name, 0
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._arguments, self._pass_on, self._environment = arguments, pass_on, environment
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
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        self._reading = Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reading.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            if not line.startswith(_FRAMES_OF_JAVA):
                self.tail.append(line.rstrip("\n"))
            self._pass_on(self.name, line.rstrip("\n"))

    def ended(self) -> int | None:
        """Return the exit code of a process that has just ended, negative for a signal; None if none has."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._end()
        return code

    def begin_again(self, why: str, say: Callable[[str], None]) -> None:
        """End what is left of the process, and start it again after a pause; ``say`` takes what happened to it."""
        if self._process is not None:
            self._end()
        if time.monotonic() - self._began > RECOVERED_AFTER_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        say(f"isrwatch {self.name} {why}; it starts again in {self._pause:g} s, and nothing is lost")
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def start_if_due(self) -> bool:
        """Start the process if its pause is over; return whether it was."""
        if self._process is not None or time.monotonic() < self._again_at:
            return False
        self.restarts += 1
        self.start()
        return True

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
        assert process.stdin is not None  # noqa: S101 - the same
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        if self._reading is not None:
            self._reading.join(1.0)


class Supervisor:
    """Runs commands, in order, until its block ends."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        pass_on: Callable[[str, str], None],
        say: Callable[[str], None],
        *,
        alive: Mapping[str, str] | None = None,
        restarts: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start nothing yet; the commands are started and stopped in their order.

        ``pass_on`` takes the name of a command and each line that it prints, ``say`` one sentence about what happened
        to them. ``alive`` has the URLs, by name, at which they say that they hang; "" for none.
        """
        given = os.environ if environment is None else environment
        self.parts = [SupervisedPart(name, arguments, pass_on, given) for name, arguments in commands.items()]
        self._say, self._restarts = say, restarts
        self._liveness = LivenessWatch(alive or {})

    def __enter__(self) -> Self:
        """Start all of them."""
        for part in self.parts:
            part.start()
        self._liveness.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all of them, one after the other; signals are ignored meanwhile, so nothing is left behind."""
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        self._liveness.stop()
        for part in self.parts:
            part.stop()
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Start again what has ended, and what hangs.

        Raises:
            ConfigurationRefused: one of them refused its configuration.
            PartEnded: one of them has ended, and is not started again.
        """
        for part in self.parts:
            if (code := part.ended()) is not None:
                self._ended(part, code)
            elif part.pid is not None and (why := self._liveness.hangs(part.name)) is not None:
                part.begin_again(f"hangs ({why}) and was ended", self._say)
            elif part.start_if_due():
                self._liveness.begin_again(part.name)

    def _ended(self, part: SupervisedPart, code: int) -> None:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if not self._restarts:
            raise PartEnded(f"isrwatch {part.name} {how}; below is what it printed last", "\n".join(part.tail))
        if code == ConfigurationError.exit_code:
            raise ConfigurationRefused(f"isrwatch {part.name} refuses its configuration: see the line above")
        part.begin_again(how, self._say)
