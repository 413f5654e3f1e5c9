"""Transcripts: commands to a small cluster and what it did, as text files that are read like a log.

A line that begins with ``> `` is a command; the indented lines below are its output, and a line with ``#`` is a remark.
``pytest tests/model --rewrite-golden`` plays every transcript and writes the outputs anew; read the diff.

A command is a function marked with :func:`command`: it gets the :class:`Script`, the words after its name, and
``name=value`` pairs as keywords; ``[1,2,3]`` is a tuple of ids, ``1->3`` stays one word. What it returns is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

COMMANDS: dict[str, Callable[..., Iterable[str] | None]] = {}


def command(act: Callable[..., Iterable[str] | None]) -> Callable[..., Iterable[str] | None]:
    """Make a function a command of its name; ``_`` in the name is ``-`` in a transcript."""
    name = act.__name__.replace("_", "-")
    assert name not in COMMANDS, f"two commands are called {name}"
    COMMANDS[name] = act
    return act


class Script:
    """One transcript being played.

    Attributes:
        lab: the laboratory, from the command ``cluster`` on.
        shown: how many of its commits were printed.
        clients: by name, what commands for producers and consumers keep.
        told: its broken promises and excused losses that were printed.
    """

    def __init__(self) -> None:
        self.lab: Any = None
        self.shown = 0
        self.clients: dict[str, Any] = {}
        self.told: set[str] = set()

    def play(self, line: str) -> list[str]:
        """Carry out one command; what it broke is printed with a ``!``."""
        name, *words = line.split()
        assert name in COMMANDS, f"there is no command {name}; known: {', '.join(sorted(COMMANDS))}"
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        given = (_value(word) for word in words if "=" not in word)
        output = COMMANDS[name](self, *given, **{name: _value(text) for name, text in pairs.items()})
        return [*(output or ()), *(f"! {line}" for line in self._harm(is_new=name == "cluster"))]

    def _harm(self, *, is_new: bool) -> list[str]:
        if self.lab is None:
            return []  # a rule was asked, no cluster
        watch = self.lab.watch
        watch.check()
        harm = [f"{it.invariant}: {it.complaint}" for it in watch.violations]
        harm += [f"{it.records} acknowledged records are lost: {it.excuse}" for it in watch.losses]
        told, self.told = set() if is_new else self.told, set(harm)
        return [line for line in harm if line not in told]


def _value(text: str) -> Any:
    if text.startswith("["):
        return tuple(_value(item) for item in text[1:-1].split(",") if item)
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


def milliseconds(text: str | int) -> int:
    """Read ``1500``, ``1500ms``, ``1.5s`` or ``2m``."""
    for unit, factor in (("ms", 1), ("s", 1_000), ("m", 60_000)):
        if str(text).endswith(unit):
            return round(float(str(text).removesuffix(unit)) * factor)
    return int(text)


def replay(text: str) -> str:
    """Play a transcript; give it with the outputs that there are now."""
    script, lines = Script(), []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *(f"  {output}".rstrip() for output in script.play(line[2:]))]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.fixture
def transcript(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Play the transcript in a file and compare its outputs."""

    def compare(path: Path) -> None:
        expected = path.read_text(encoding="utf-8")
        actual = replay(expected)
        if request.config.getoption("--rewrite-golden"):
            path.write_text(actual, encoding="utf-8")
        else:
            assert expected == actual

    return compare
