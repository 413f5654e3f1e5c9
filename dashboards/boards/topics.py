"""Topics and partitions: what is at risk, which replicas are missing or behind, what is reassigned, what changed."""

from __future__ import annotations

from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, board
from dashboards.boards import shared
from dashboards.promql import Scope, Signal, Unit
from dashboards.queries import (
    BROKER,
    IN_CLUSTER,
    PARTITION,
    TOPIC,
    WINDOW,
    Board,
    KeyColumn,
    TableColumn,
    alarm,
    colored,
    in_range,
    or_none,
    selected,
    stat,
    table,
    top,
    while_fresh,
)
from dashboards.signals import clusters, derived, partitions
from dashboards.style import PanelQuery
from streaming.contracts.durability import Weakness

SELECTED: Final = selected("topic")
LISTED: Final = 10


def _count(signal: Signal, title: str, color: str) -> style.Panel:
    return style.stat(title, signal.meaning, signal.now(SELECTED, by=()), style.alarm_above_zero(color))


OFFLINE: Final = _count(partitions.TOPIC_OFFLINE, "Offline partitions", style.RED)
UNDER_MIN_ISR: Final = _count(partitions.TOPIC_UNDER_MIN_ISR, "Under min ISR", style.RED)
UNDER_REPLICATED: Final = _count(partitions.TOPIC_UNDER_REPLICATED, "Under-replicated", style.YELLOW)
REASSIGNING: Final = stat(clusters.REASSIGNING, style.steps(style.BLUE))
BEHIND: Final = table(
    "Replicas that are behind",
    "Replicas that have not caught up with their leaders between two samples, in or out of the ISR, by broker. Many "
    "of one broker: that broker. A lag that does not shrink has no time of arrival. The row none: no replica is "
    "behind.",
    [TOPIC, PARTITION, BROKER],
    [
        TableColumn(
            title=partitions.REPLICA_LAG.name,
            expression=or_none(
                partitions.REPLICA_LAG.now(SELECTED), "topic", also={"partition": "-", "broker": style.NONE_AT_RISK}
            ),
        ),
        *(
            TableColumn(title=signal.name, expression=signal.now(SELECTED), unit=signal.unit, empty=empty)
            for signal, empty in (
                (partitions.REPLICA_BEHIND, style.NOT_SO),
                (partitions.REPLICA_UNTIL_CAUGHT_UP, "not shrinking"),
            )
        ),
    ],
    partitions.REPLICA_LAG.name,
)
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
        (style.NONE_AT_RISK, style.NONE_AT_RISK),
    )
}
WEAK: Final = table(
    "Topics with weak settings",
    f"{clusters.WEAK_TOPICS.meaning} The row none: data is fresh, and no topic has a weakness.",
    [KeyColumn("weakness", "Weakness", 240, words=_WEAKNESSES)],
    [
        TableColumn(
            title="Topics",
            expression=or_none(f"{clusters.WEAK_TOPICS.now(IN_CLUSTER)} > 0", "weakness"),
            look=colored(style.TEXT, (1, style.YELLOW)),
        )
    ],
    "Topics",
)


def most(scope: Scope, title: str = "Topics with most changes") -> style.Panel:
    """List the topics that changed most in the time range."""
    ranked = f"{top(LISTED, in_range(partitions.TOPIC_ISR_SHRINKS, derived.TOPIC, scope=scope))}"
    among = f"and on (cluster, topic) ({while_fresh(ranked)})"
    return table(
        title,
        "The ten topics with the most ISR shrinks in this time range, with their leader changes, unclean elections "
        "and the time in which they refused writes, summed over their partitions. All alike: a broker that they "
        "share. Sizes are those of all replicas.",
        [TOPIC],
        [
            TableColumn(title=partitions.TOPIC_ISR_SHRINKS.name, expression=while_fresh(ranked)),
            TableColumn(
                title=partitions.TOPIC_LEADER_CHANGES.name,
                expression=f"{in_range(partitions.TOPIC_LEADER_CHANGES, derived.TOPIC, scope=scope)} {among}",
            ),
            TableColumn(
                title=partitions.TOPIC_UNCLEAN_ELECTIONS.name,
                expression=f"{in_range(partitions.TOPIC_UNCLEAN_ELECTIONS, derived.TOPIC, scope=scope)} {among}",
                look=alarm(style.RED),
            ),
            TableColumn(
                title="Time refused",
                expression=f"{partitions.TOPIC_UNDER_MIN_ISR_SECONDS.increase('$__range', scope)} {among}",
                unit=Unit.SECONDS,
                look=colored(style.TEXT, (1, style.ORANGE)),
            ),
            TableColumn(
                title=partitions.TOPIC_SIZE.name,
                expression=f"{partitions.TOPIC_SIZE.now(scope)} {among}",
                unit=Unit.BYTES,
            ),
        ],
        partitions.TOPIC_ISR_SHRINKS.name,
    )


SHRINKS: Final = style.timeseries(
    "ISR shrinks by topic",
    partitions.TOPIC_ISR_SHRINKS.meaning,
    [PanelQuery(f"{top(LISTED, partitions.TOPIC_ISR_SHRINKS.per_minute(WINDOW, SELECTED))} > 0", "{{topic}}")],
    Unit.PER_MINUTE,
    bars=True,
)
MOVING: Final = table(
    "Topics being reassigned",
    f"{partitions.TOPIC_REASSIGNING.meaning} The row none: data is fresh, and nothing is reassigned.",
    [TOPIC],
    [
        TableColumn(
            title=partitions.TOPIC_REASSIGNING.name,
            expression=or_none(f"{partitions.TOPIC_REASSIGNING.now(SELECTED)} > 0", "topic"),
        )
    ],
    partitions.TOPIC_REASSIGNING.name,
)
LEFT_TO_COPY: Final = style.timeseries(
    clusters.LEFT_TO_COPY.name,
    clusters.LEFT_TO_COPY.meaning,
    [PanelQuery(clusters.LEFT_TO_COPY.now(IN_CLUSTER), "left to copy", style.BLUE)],
    Unit.BYTES,
)
ROWS: Final = (
    PanelRow(
        "Which topics are at risk?",
        (
            (4, ((OFFLINE, 5), (UNDER_MIN_ISR, 5), (UNDER_REPLICATED, 5), (REASSIGNING, 4), (shared.DATA_AGE, 5))),
            (8, ((shared.topics_at_risk(SELECTED), 12), (WEAK, 12))),
        ),
    ),
    PanelRow(
        "Which replicas are missing, on which broker, since when?",
        ((10, ((shared.missing_replicas(SELECTED, detailed=True), 24),)), (8, ((BEHIND, 24),))),
    ),
    PanelRow("Which reassignments are under way, and do they proceed?", ((7, ((MOVING, 8), (LEFT_TO_COPY, 16))),)),
    PanelRow("What changed most?", ((8, ((SHRINKS, 10), (most(SELECTED), 14))),)),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.TOPICS,
        "Kafka replication: topics and partitions",
        "Which topics are at risk, and on which brokers their replicas are missing or behind.",
        ROWS,
        variables=["topic"],
    )
