"""Lines that Spark's Java process prints, and its Python workers through it: passed on to stderr.

Spark waits ten seconds for a Python worker to connect, and not at all while it stops. A worker that is later, as on a
loaded machine, finds nothing to connect to and ends with a traceback, which is no news: Spark has failed the query by
then, the job has said so in one sentence and starts the query again, or everything is stopping. It alone is left out.

While the job stops, lines are held back: a signal to the whole group ends Java in the middle of its work, of which it
prints a lot. A stop that fails shows them.
"""

from __future__ import annotations

import os
import re
from collections import deque
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from streaming.escapes import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BEGIN: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:: |$)")
_LATE: Final = re.compile(r"pyspark\.errors\.\S+: \[CANNOT_OPEN_SOCKET\]")
_MOST_LINES: Final = 500
_END_SECONDS: Final = 5.0
STDERR: Final = 2


def without_late_workers(lines: Iterable[str]) -> Iterator[str]:
    r"""Yield lines without the tracebacks of Python workers that were too late to connect.

    A traceback is held back until the line of its error; lines of Java in the middle of it are not.

    >>> late = "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] timed out"
    >>> [*without_late_workers(["a", "Traceback (most recent call last):", "  File x", late, "b"])]
    ['a', 'b']
    """
    held: list[str] = []
    for line in lines:
        if line == _BEGIN:
            yield from held
            held = [line]
        elif not held:
            yield line
        elif line.startswith(" ") and len(held) < _MOST_LINES:
            held.append(line)
        elif _RAISED.match(line) or line.startswith(" "):
            if not _LATE.match(line):
                yield from (*held, line)
            held = []
        else:
            yield line
    yield from held


class JavaOutput:
    """The stderr of a Java process, from before its start until it and all that it has started have ended."""

    def __init__(self) -> None:
        """Pass on nothing yet."""
        self._thread: Thread | None = None
        self._held: deque[str] | None = None

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the file that a process is to write to, for as long as it takes to start it."""
        reading, writing = os.pipe()
        self._thread = Thread(target=self._pass_on, args=(reading,), name="java output", daemon=True)
        self._thread.start()
        try:
            yield writing
        finally:
            os.close(writing)

    def wait(self) -> None:
        """Wait until the last line of a process that has ended is passed on."""
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def hold(self) -> None:
        """Hold lines back from now on; safe in a signal handler."""
        if self._held is None:
            self._held = deque(maxlen=_MOST_LINES)

    @contextmanager
    def shown_on_failure(self) -> Iterator[None]:
        """Pass on the lines that are held if the block fails."""
        try:
            yield
        except BaseException:
            held, self._held = self._held, None
            for line in held or ():
                _write(line)
            raise

    def _pass_on(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in without_late_workers(each.rstrip("\n") for each in lines):
                if (held := self._held) is None:
                    _write(line)
                else:
                    held.append(line)


def _write(line: str) -> None:
    shown = printable(line.expandtabs()) if os.isatty(STDERR) else line
    with suppress(OSError):  # Java would wait for a reader that has ended
        # Not by Python's own file, which the end of the interpreter would find locked by the thread.
        os.write(STDERR, f"{shown}\n".encode())
