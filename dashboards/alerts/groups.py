"""Opt-in: groups that stand still, fall behind, or lose records that were deleted before they read them.

A group is about an application. Its readers decide: one without members may have been left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.rule import Rule, rule, scope, threshold
from dashboards.signals import groups as signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.promql import Signal
    from streaming.settings import Settings

_GROUP: Final = "{{ $labels.group }} of {{ $labels.cluster }}"
_COMMAND: Final = "isrwatch state --groups --cluster {{ $labels.cluster }}"
_ABOUT: Final = {"cluster": "cluster", "group": "group"}
_WINDOW_MINUTES: Final = 15
_GROWTH_SECONDS: Final = 60


def groups(settings: Settings) -> Iterator[Rule]:
    """Yield the rules of consumer groups."""
    read = f"({signals.MEMBERS.now()} > 0 or {signals.PROGRESS_AGE.now()} >= 0)"
    lag = f"max by (cluster, group) ({_by_topic(signals.LAG_SECONDS, settings)})"
    least = threshold("IsrwatchGroupLagGrows", settings)
    yield _of_group(
        "LagGrows",
        f"({_grown(settings)} > {_GROWTH_SECONDS} < {_ALL_THE_TIME})\nand on (cluster, group) {lag} > {least:g}",
        f"Group {_GROUP} falls behind. First: did new records become more, or the application slower?",
        settings,
    )
    yield _of_group(
        "Stuck",
        f"{_grown(settings)} >= {_ALL_THE_TIME}\nand on (cluster, group) {read}",
        f"Group {_GROUP} commits nothing of a partition with records. First: read the log of its application",
        settings,
    )
    used, before = (_by_topic(signals.RETENTION_USED, settings, at) for at in ("", f" offset {_WINDOW_MINUTES}m"))
    limit = threshold("IsrwatchGroupNearRetention", settings)
    yield _of_group(
        "NearRetention",
        f"max by (cluster, group) ({used} > {limit:g} and {used} >= {before})",
        f"Group {_GROUP} is about to lose records that it has not read. First: raise the retention of the topic",
        settings,
    )
    yield _of_group(
        "LosesRecords",
        f"max by (cluster, group) ({signals.LOST.series(scope(settings))}) > 0",
        "Records of {{ $labels.cluster }} are deleted before group {{ $labels.group }} reads them. First: "
        "raise the retention, or delete a group that was left behind",
        settings,
    )


def _of_group(name: str, expression: str, sentence: str, settings: Settings) -> Rule:
    return rule(f"IsrwatchGroup{name}", expression, sentence, settings, command=_COMMAND, about=_ABOUT)


_ALL_THE_TIME: Final = _WINDOW_MINUTES * 57
"""Growth of a lag, in seconds, that nothing was read of; a sample is a few seconds old."""


def _by_topic(signal: Signal, settings: Settings, at: str = "") -> str:
    return f"max by (cluster, group, topic) ({signal.series(scope(settings))}{at})"


def _grown(settings: Settings) -> str:
    """Return by how many seconds the lag of a group has grown in the topic where it grew most."""
    now, before = (_by_topic(signals.LAG_SECONDS, settings, at) for at in ("", f" offset {_WINDOW_MINUTES}m"))
    return f"max by (cluster, group) ({now} - {before})"
