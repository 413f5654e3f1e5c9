"""Opt-in: groups that stand still, fall behind, stand beyond the end, or lose what was deleted before they read it.

What is wrong, and who reads, is judged in each partition: see ``streaming.contracts.group_readers``. A group that is
stuck, loses records or stands beyond the end is a condition, which no gap in the data begins or ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.rule import Rule, conditions, rule, scope, threshold
from dashboards.signals import groups as signals
from streaming.contracts.group_readers import PartitionReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.promql import Signal
    from streaming.settings import Settings

_BY_LAG: Final = "{{ $labels.group }}"
_OF_CONDITION: Final = "{{ $labels.subject }}"
_CLUSTER: Final = "{{ $labels.cluster }}"
_COMMAND: Final = f"isrwatch groups --cluster {_CLUSTER}"
_WINDOW_MINUTES: Final = 15
_GROWTH_SECONDS: Final = 60


def groups(settings: Settings) -> Iterator[Rule]:
    """Yield the rules of consumer groups."""
    lag = f"max by (cluster, group) ({_by_topic(signals.LAG_SECONDS, settings)})"
    least = threshold("IsrwatchGroupLagGrows", settings)
    yield _of_group(
        "LagGrows",
        f"({_grown(settings)} > {_GROWTH_SECONDS} < {_ALL_THE_TIME})\nand on (cluster, group) {lag} > {least:g}",
        f"Group {_BY_LAG} of {_CLUSTER} falls behind. First: did new records become more, or the application slower?",
        settings,
    )
    yield _of_condition(
        "Stuck",
        f"Group {_OF_CONDITION} of {_CLUSTER} commits nothing of a partition with records. First: read the log of its "
        "application",
        settings,
    )
    used, before = (_by_topic(signals.RETENTION_USED, settings, at) for at in ("", f" offset {_WINDOW_MINUTES}m"))
    limit = threshold("IsrwatchGroupNearRetention", settings)
    yield _of_group(
        "NearRetention",
        f"max by (cluster, group) ({used} > {limit:g} and {used} >= {before})",
        f"Group {_BY_LAG} of {_CLUSTER} is about to lose records that it has not read. First: raise the retention of "
        "the topic",
        settings,
    )
    yield _of_condition(
        "LosesRecords",
        f"Records of {_CLUSTER} were deleted before group {_OF_CONDITION} committed them. First: raise the retention, "
        "or find out why it is slow",
        settings,
    )
    yield _of_condition(
        "BeyondEnd",
        f"Group {_OF_CONDITION} of {_CLUSTER} stands beyond the end of a partition: it skips records or is reset. "
        "First: were records lost, or offsets set?",
        settings,
    )


def _of_condition(name: str, sentence: str, settings: Settings) -> Rule:
    alert, about = f"IsrwatchGroup{name}", {"cluster": "cluster", "group": "subject"}
    return rule(alert, conditions(alert, settings), sentence, settings, command=_COMMAND, about=about)


def _of_group(name: str, expression: str, sentence: str, settings: Settings) -> Rule:
    about = {"cluster": "cluster", "group": "group"}
    return rule(f"IsrwatchGroup{name}", expression, sentence, settings, command=_COMMAND, about=about)


_ALL_THE_TIME: Final = _WINDOW_MINUTES * 57
"""Growth of a lag, in seconds, that nothing was read of; a sample is a few seconds old."""


def _by_topic(signal: Signal, settings: Settings, at: str = "") -> str:
    return f"max by (cluster, group, topic) ({signal.series(scope(settings))}{at})"


def _grown(settings: Settings) -> str:
    """Return by how many seconds the lag of a group has grown, in the topic that it reads where it grew most."""
    now, before = (_by_topic(signals.LAG_SECONDS, settings, at) for at in ("", f" offset {_WINDOW_MINUTES}m"))
    read = signals.READERS.series(scope(settings), f'reader!~"{PartitionReader.NONE}|{PartitionReader.NEVER}"')
    return f"max by (cluster, group) ({now} - {before} and on (cluster, group, topic) {read} > 0)"
