"""The stages of a demo's start: a spinner on a terminal, one line per stage in a pipe."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.running.supervision import Supervisor
    from streaming.terminal import Terminal

POLL_SECONDS: Final = 0.1


class StageFailed(IsrwatchError):
    """A part runs but does not become ready: the message names the stage."""


@dataclass(slots=True)
class StartStage:
    """The current stage; ``label`` is printed on its line when it is over."""

    label: str


@dataclass(frozen=True, slots=True)
class StartStages:
    """Shows stages on a console."""

    console: Terminal

    @contextmanager
    def stage(self, name: str) -> Iterator[StartStage]:
        """Show a stage while it runs, then print a line with its duration; no line if it fails."""
        began = time.monotonic()
        with self.console.status(name):
            stage = StartStage(name)
            yield stage
        line = Text.assemble(("✓ ", "green"), stage.label, (f"  {time.monotonic() - began:.1f} s", "dim"))
        self.console.print(line, soft_wrap=True)


def wait_until(ready: Callable[[], object], what: str, parts: Supervisor, seconds: float) -> None:
    """Poll until something is ready, while all parts run.

    Raises:
        PartEnded: a part has ended.
        StageFailed: it took longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        parts.check()
        if time.monotonic() > deadline:
            raise StageFailed(f"{what} was not ready after {seconds:.0f} s; see the logs of the parts")
        time.sleep(POLL_SECONDS)
