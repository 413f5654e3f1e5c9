"""Topics and partitions: what is at risk, which replicas are missing or behind, what is reassigned, what changed.

Internal topics are topics: a filter narrows the board to them, and a column says what fails with each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dashboards import style
from dashboards.board import (
    BROKER,
    IN_CLUSTER,
    PARTITION,
    RANGE,
    TOPIC,
    WINDOW,
    Board,
    BoardSettings,
    PanelRow,
    board,
    choice,
    in_range,
    or_nothing,
    stat,
    top,
    while_fresh,
)
from dashboards.promql import Scope, Signal, Unit, of_variable
from dashboards.signals import brokers, clusters, derived, partitions
from dashboards.style import CellLook, KeyColumn, PanelQuery, TableColumn, alarm, colored
from streaming.contracts.durability import Weakness
from streaming.contracts.topic_roles import TopicRole, failing

_INTERNAL: Final = (
    "__.+",
    ".+-changelog",
    ".+-repartition",
    "(.*[._-])?(connect|mirrormaker2?|mm2)[._-](.*[._-])?(configs?|offsets?|status(es)?)",
    "mm2-offset-syncs[.].+[.]internal",
    ".+[.]checkpoints[.]internal",
)
"""The names of Kafka's own topics, and the usual ones of the state of Streams, Connect and MirrorMaker."""
KINDS: Final = {".+": "all topics", "|".join(_INTERNAL): "internal topics"}
SELECTED: Final = Scope({**IN_CLUSTER.matchers, "topic": f'{of_variable("topic")}, topic=~"$kind"'})
LISTED: Final = 10


# Topics at risk.


_LISTED: Final = (partitions.TOPIC_OFFLINE, partitions.TOPIC_UNDER_MIN_ISR, partitions.TOPIC_UNDER_REPLICATED)
_RISKS: Final = {
    "3": ("offline", style.DARK_RED),
    "2": ("writes rejected", style.RED),
    "1": ("replicas missing", style.ORANGE),
    "0": (style.NOT_SO, style.TEXT),
}
_ROLE: Final = partitions.TOPIC_ROLE.now(SELECTED)
_AT_RISK: Final = " or ".join(f"{signal.now(SELECTED)} > 0" for signal in _LISTED)
_BY_RISK: Final = " or ".join(f"0 * ({signal.now(SELECTED)} > 0) + {3 - index}" for index, signal in enumerate(_LISTED))


def _with_role(expression: str) -> str:
    """Add the purpose of an internal topic."""
    others = f'label_replace(({expression}) unless on (cluster, topic) {_ROLE}, "role", "{style.NOT_SO}", "", "")'
    return f"({expression}) * on (cluster, topic) group_left (role) {_ROLE} or {others}"


def _count(signal: Signal) -> str:
    """Count of every topic that is listed, 0 included: an empty cell means that it is unknown."""
    return _with_role(f"{signal.now(SELECTED)} and on (cluster, topic) ({_AT_RISK})")


# Harm to clients fills its cell; a missing replica colours the text only, so that harm stands out.
AT_RISK: Final = style.table(
    "Topics at risk",
    "Topics with partitions that are offline, under min ISR or under-replicated, the worst first. The first two affect "
    "clients now: rejected writes, stalled consumers. Of an internal topic it says what fails with it.",
    [
        replace(TOPIC, width=400),
        KeyColumn(
            "role",
            "What fails with it",
            380,
            words={
                **{role.value: (failing(role), style.TEXT) for role in TopicRole},
                style.NOT_SO: (style.NOT_SO, style.TEXT),
            },
        ),
    ],
    [
        TableColumn(
            title="State",
            expression=or_nothing(_with_role(_BY_RISK), "topic", "", _AT_RISK, also=["role"]),
            look=style.in_words(_RISKS),
            pixels=150,
        ),
        TableColumn(title="Offline", expression=_count(partitions.TOPIC_OFFLINE), look=alarm(style.DARK_RED)),
        TableColumn(title="Under min ISR", expression=_count(partitions.TOPIC_UNDER_MIN_ISR), look=alarm(style.RED)),
        TableColumn(title="At min ISR", expression=_count(partitions.TOPIC_AT_MIN_ISR)),
        TableColumn(
            title="Under-replicated",
            expression=_count(partitions.TOPIC_UNDER_REPLICATED),
            look=colored(style.TEXT, (1, style.ORANGE)),
        ),
    ],
    "State",
    nothing="no topic is at risk",
)
_NO_WEAKNESS: Final = "no topic has a weakness"
_WEAKNESSES: Final = {
    each: (text, style.TEXT)
    for each, text in (
        (Weakness.MIN_ISR_ABOVE_REPLICATION_FACTOR.value, "min ISR above the replicas"),
        (Weakness.ONE_REPLICA.value, "one replica"),
        (Weakness.NOT_COMPACTED.value, "not compacted"),
        (Weakness.UNCLEAN_ELECTION.value, "unclean election allowed"),
        (Weakness.MIN_ISR_ONE.value, "min ISR of 1"),
        (Weakness.NO_REPLICA_TO_SPARE.value, "no replica to spare"),
        (Weakness.ONE_RACK.value, "all replicas in one rack"),
        (_NO_WEAKNESS, _NO_WEAKNESS),
    )
}
WEAK: Final = style.table(
    "Topics with weak settings",
    f"{clusters.WEAK_TOPICS.meaning} It counts the topics of the whole cluster.",
    [KeyColumn("weakness", "Weakness", 240, words=_WEAKNESSES)],
    [
        TableColumn(
            title="Topics",
            expression=or_nothing(f"{clusters.WEAK_TOPICS.now(IN_CLUSTER)} > 0", "weakness", _NO_WEAKNESS),
            look=colored(style.TEXT, (1, style.YELLOW)),
        )
    ],
    "Topics",
)


# Replicas that are missing or behind, on which broker, since when.


_TAKES_LONG: Final = ((900.0, style.ORANGE), (3600.0, style.RED))
_MISSING_BROKER: Final = KeyColumn("broker", "Missing broker", style.heading_width("Missing broker"), BROKER.links)
_FENCED: Final = f"{brokers.FENCED.now(IN_CLUSTER)} == 1"
_IN_ISR: Final = partitions.REPLICA_IN_SYNC.now(SELECTED)
_UNHEALTHY: Final = f"({partitions.UNDER_REPLICATED.now(SELECTED)} + {partitions.OFFLINE.now(SELECTED)} > 0)"
_AWAY: Final = f"({_IN_ISR} == 0 or {_IN_ISR} and on (cluster, broker) ({_FENCED}))"
_MISSING: Final = f"({_AWAY} and on (cluster, topic, partition) {_UNHEALTHY})"
# 1 of what has every committed record: in the ELR, or still in the ISR of a partition that lost its last broker.
_MAY_LEAD: Final = f"{partitions.REPLICA_IN_ELR.now(SELECTED)} and {_MISSING} or {_MISSING}"


def _of_partition(expression: str) -> str:
    """Repeat a value of a partition for each replica that is missing."""
    return f"0 * {_MISSING} + on (cluster, topic, partition) group_left () ({expression})"


def _since(signal: Signal) -> TableColumn:
    return TableColumn(
        title=signal.name,
        expression=_of_partition(f"time() - {signal.now(SELECTED)}"),
        unit=Unit.DURATION,
        look=colored(style.TEXT, *_TAKES_LONG),
        empty=style.NOT_SO,
    )


def _missing_for() -> str:
    """Return how long each replica is missing: no longer than its partition lacks any, and since it was last in sync.

    The first replica to go is as old as the trouble of its partition. One that went later was seen in the ISR until
    then, and that is looked up: to half a minute, and for two hours.
    """
    incomplete = _of_partition(f"time() - {partitions.UNDER_REPLICATED_SINCE.now(SELECTED)}")
    in_sync = f"timestamp({partitions.REPLICA_IN_SYNC.series(SELECTED)} == 1)"
    labels = ", ".join(partitions.REPLICA_IN_SYNC.labels)
    seen = f"time() - max by ({labels}) (max_over_time({in_sync}[{SEEN}]))"
    return f"({seen}) < ({incomplete}) or {incomplete}"


SEEN: Final = "2h:30s"
"""For how long, and how exactly, it is looked up when a replica was last in sync."""
MISSING: Final = style.table(
    "Missing replicas",
    "Each replica that is not in the ISR of its partition, or is in it and fenced, by broker; fewest in sync first. "
    "One broker in all rows: look there. In sync below min ISR: writes are rejected. Leader none: offline; start a "
    "broker that may lead first, because its replica has every committed record. Missing for: the replica, within half "
    "a minute; after two hours that of its partition.",
    [TOPIC, PARTITION, _MISSING_BROKER],
    [
        TableColumn(
            title=partitions.REPLICA_IN_ELR.name,
            expression=or_nothing(_MAY_LEAD, "topic", "", _MISSING, also=["partition", "broker"], value=-1),
            look=style.in_words({"1": ("yes", style.GREEN), "0": ("no", style.TEXT), "-1": (style.NOT_SO, style.TEXT)}),
        ),
        TableColumn(
            title=partitions.LEADER.name,
            expression=_of_partition(partitions.LEADER.now(SELECTED)),
            unit=Unit.BARE,
            look=CellLook({"-1": ("none", style.DARK_RED)}, style.steps(style.TEXT)),
        ),
        *(
            TableColumn(title=signal.name, expression=_of_partition(signal.now(SELECTED)), unit=Unit.BARE)
            for signal in (partitions.IN_SYNC, partitions.MIN_ISR, partitions.REPLICAS)
        ),
        TableColumn(
            title="Missing for",
            expression=_missing_for(),
            unit=Unit.DURATION,
            look=colored(style.TEXT, *_TAKES_LONG),
            empty=style.NOT_SO,
        ),
        _since(partitions.UNDER_MIN_ISR_SINCE),
        _since(partitions.OFFLINE_SINCE),
    ],
    partitions.IN_SYNC.name,
    ascending=True,
    nothing="no replica is missing",
)
BEHIND: Final = style.table(
    "Replicas that are behind",
    "Replicas that have not caught up with their leaders between two samples, in or out of the ISR, by broker. Many "
    "of one broker: that broker. A lag that does not shrink has no time of arrival.",
    [TOPIC, PARTITION, BROKER],
    [
        TableColumn(
            title=partitions.REPLICA_LAG.name,
            expression=or_nothing(partitions.REPLICA_LAG.now(SELECTED), "topic", "", also=["partition", "broker"]),
        ),
        *(
            TableColumn(title=signal.name, expression=signal.now(SELECTED), unit=Unit.DURATION, empty=empty)
            for signal, empty in (
                (partitions.REPLICA_BEHIND, style.NOT_SO),
                (partitions.REPLICA_UNTIL_CAUGHT_UP, "not shrinking"),
            )
        ),
    ],
    partitions.REPLICA_LAG.name,
    nothing="no replica is behind",
)


# Reassignments that are under way.


REASSIGNING: Final = stat(clusters.REASSIGNING, style.steps(style.BLUE))
MOVING: Final = style.table(
    "Topics being reassigned",
    partitions.TOPIC_REASSIGNING.meaning,
    [TOPIC],
    [
        TableColumn(
            title="Partitions", expression=or_nothing(f"{partitions.TOPIC_REASSIGNING.now(SELECTED)} > 0", "topic", "")
        )
    ],
    "Partitions",
    nothing="nothing is reassigned",
)
LEFT_TO_COPY: Final = style.timeseries(
    clusters.LEFT_TO_COPY.name,
    clusters.LEFT_TO_COPY.meaning,
    [PanelQuery(clusters.LEFT_TO_COPY.now(IN_CLUSTER), "left to copy", style.BLUE)],
    Unit.BYTES,
)


# Changes, the most first.


SHRINKS: Final = style.timeseries(
    "ISR shrinks by topic",
    partitions.TOPIC_ISR_SHRINKS.meaning,
    [PanelQuery(f"{top(LISTED, partitions.TOPIC_ISR_SHRINKS.per_minute(WINDOW, SELECTED))} > 0", "{{topic}}")],
    Unit.PER_MINUTE,
    no_value="no shrinks in this time range",
)
_MOST: Final = while_fresh(top(LISTED, in_range(partitions.TOPIC_ISR_SHRINKS, derived.TOPIC, scope=SELECTED)))


def _of_most(expression: str) -> str:
    return f"{expression} and on (cluster, topic) ({_MOST})"


MOST: Final = style.table(
    "Topics with most changes",
    "The ten topics with the most ISR shrinks in this time range, with their leader changes, unclean elections and the "
    "time in which they rejected writes, summed over their partitions. All alike: a broker that they share. Sizes are "
    "those of all replicas.",
    [TOPIC],
    [
        TableColumn(title=partitions.TOPIC_ISR_SHRINKS.name, expression=_MOST),
        TableColumn(
            title=partitions.TOPIC_LEADER_CHANGES.name,
            expression=_of_most(in_range(partitions.TOPIC_LEADER_CHANGES, derived.TOPIC, scope=SELECTED)),
        ),
        TableColumn(
            title=partitions.TOPIC_UNCLEAN_ELECTIONS.name,
            expression=_of_most(in_range(partitions.TOPIC_UNCLEAN_ELECTIONS, derived.TOPIC, scope=SELECTED)),
            look=alarm(style.RED),
        ),
        TableColumn(
            title="Writes rejected",
            expression=_of_most(partitions.TOPIC_UNDER_MIN_ISR_SECONDS.increase(RANGE, SELECTED)),
            unit=Unit.DURATION,
            look=colored(style.TEXT, (1, style.ORANGE)),
        ),
        TableColumn(
            title=partitions.TOPIC_SIZE.name, expression=_of_most(partitions.TOPIC_SIZE.now(SELECTED)), unit=Unit.BYTES
        ),
    ],
    partitions.TOPIC_ISR_SHRINKS.name,
)

ROWS: Final = (
    PanelRow("Which topics are at risk?", ((8, ((AT_RISK, 24),)),)),
    PanelRow(
        "Which replicas are missing, on which broker, since when?", ((10, ((MISSING, 24),)), (8, ((BEHIND, 24),)))
    ),
    PanelRow(
        "Which reassignments are under way, and do they proceed?",
        ((7, ((REASSIGNING, 4), (MOVING, 8), (LEFT_TO_COPY, 12))),),
    ),
    PanelRow("What changed most, and which settings are weak?", ((8, ((SHRINKS, 14), (WEAK, 10))), (8, ((MOST, 24),)))),
)


def built(settings: BoardSettings) -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.TOPICS,
        "Kafka topics and partitions",
        "Which topics are at risk, and on which brokers their replicas are missing or behind.",
        ROWS,
        settings,
        variables=["topic"],
        more_variables=[choice("kind", "Kind", KINDS)],
    )
