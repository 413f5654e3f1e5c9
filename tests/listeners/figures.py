"""The figures of README.md: for each fault of one broker when what could be seen, in seconds after the fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.listeners.recordings import NEVER, VERSIONS, Play, plays

BROKER: Final = 3
_OTHERS: Final = (1, 2)
_HEAD: Final = (
    "fault",
    "Kafka",
    "session",
    "listener",
    "late in quorum",
    "left ISRs",
    "not listed",
    "registered",
    "new connection",
    "kept connection",
)
_FAULTS: Final = (
    "stop",
    "stop_idle",
    "stop_and_restart",
    "kill",
    "kill_and_restart",
    "freeze_shortly",
    "freeze",
    "cut_from_all",
    "cut_from_us",
    "cut_from_controllers",
    "cut_from_cluster",
    "cut_from_brokers",
    "one_link",
    "slow_network",
    "disk_lost",
    "stop_by_default",
    "kill_by_default",
    "kill_and_restart_by_default",
    "freeze_by_default",
    "cut_from_controllers_by_default",
)


def table() -> str:
    """Return the table, in Markdown."""
    rows = [
        (fault.replace("_", " "), version, *_figures(plays(version)[fault]))
        for fault in _FAULTS
        for version in VERSIONS
        if fault in plays(version)
    ]
    lines = [_HEAD, ("---",) * len(_HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _figures(play: Play) -> Iterator[str]:
    yield f"{play.session_ms / 1000:g}"
    at, how = _listener(play)
    yield f"{how} {_seconds(at)}".strip()
    yield _seconds(play.late(BROKER, _OTHERS))
    yield _seconds(play.removed(BROKER))
    yield _seconds(play.unlisted(BROKER, _OTHERS))
    yield _seconds(play.written(register=BROKER))
    for probe in ("new connection", "Metadata"):
        yield "" if at == NEVER else _seconds(play.first(BROKER, probe, "answered", at + 1))


def _listener(play: Play) -> tuple[int, str]:
    """Return when and how a new connection first failed."""
    return next(
        ((at, how) for at, how in play.hows(BROKER, "new connection", 0) if how != "answered" and "reset" not in how),
        (NEVER, "answers"),
    )


def _seconds(millis: int) -> str:
    return "" if millis == NEVER else f"{millis / 1000:.1f}"
