"""The stages of a demo's start, as people see them: a spinner on a terminal, one line a stage in a pipe."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from streaming.commands.demo_parts import Parts

LOOK_SECONDS: Final = 0.1


class StageFailed(IsrwatchError):
    """A part lives but does not get ready: names the stage and where to look."""


@dataclass(slots=True)
class Stage:
    """The stage under way; ``told`` is what its line will say."""

    told: str


@dataclass(frozen=True, slots=True)
class Stages:
    """Tells stages on a console."""

    console: Console

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Show a stage while it lasts, and a line with its seconds once it is over; none if it fails."""
        began = time.monotonic()
        with self.console.status(name):
            stage = Stage(name)
            yield stage
        line = Text.assemble(("✓ ", "green"), stage.told, (f"  {time.monotonic() - began:.1f} s", "dim"))
        self.console.print(line, soft_wrap=True)


def wait_until(ready: Callable[[], object], what: str, parts: Parts, seconds: float) -> None:
    """Look until something is ready, as long as all parts live.

    Raises:
        PartStopped: a part has ended.
        StageFailed: it took too long; the sentence says where the logs are.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        parts.check()
        if time.monotonic() > deadline:
            raise StageFailed(f"{what} was not ready after {seconds:.0f} s; see the logs in {parts.logs}")
        time.sleep(LOOK_SECONDS)
