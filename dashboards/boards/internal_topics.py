"""Internal topics: in which Kafka, its clients and frameworks store their own state, and what fails with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dashboards import style
from dashboards.board import PanelRow, board, line
from dashboards.boards import shared
from dashboards.boards import topics as topic_panels
from dashboards.promql import Scope, Signal
from dashboards.queries import IN_CLUSTER, TOPIC, Board, KeyColumn, TableColumn, table
from dashboards.signals import partitions
from streaming.contracts.topic_roles import TopicRole, failing

OF_KAFKA: Final = {
    "__consumer_offsets": TopicRole.CONSUMER_OFFSETS,
    "__transaction_state": TopicRole.TRANSACTION_STATE,
    "__share_group_state": TopicRole.SHARE_GROUP_STATE,
    "__remote_log_metadata": TopicRole.REMOTE_LOG_METADATA,
}
_OF_CLIENTS: Final = (
    ".+-changelog",
    ".+-repartition",
    "(.*[._-])?(connect|mirrormaker2?|mm2)[._-](.*[._-])?(configs?|offsets?|status(es)?)",
    "mm2-offset-syncs[.].+[.]internal",
    ".+[.]checkpoints[.]internal",
)
"""The usual names of the state of Streams, Connect and MirrorMaker. Those with other names are not listed."""
SELECTED: Final = Scope({**IN_CLUSTER.matchers, "topic": f'topic=~"__.+|{"|".join(_OF_CLIENTS)}"'})


def _count(signal: Signal, title: str, color: str) -> style.Panel:
    return style.stat(
        title,
        f"Of internal topics only. {signal.meaning} What fails with each is in the table.",
        signal.now(SELECTED, by=()),
        style.alarm_above_zero(color),
    )


def _with_consequence(expression: str) -> str:
    """Add a label that says what fails with the topic."""
    for name, role in OF_KAFKA.items():
        expression = f'label_replace({expression}, "fails", "{failing(role)}", "topic", "{name}")'
    return f'label_replace({expression}, "fails", "state of an application", "fails", "")'


STATES: Final = table(
    "Internal topics",
    "Every internal topic, and what fails while one of its partitions is offline or under min ISR: their writers use "
    "acks=all. isrwatch state says how many groups and transactional ids have their state in such a partition.",
    [replace(TOPIC, width=420), KeyColumn("fails", "What fails with it", 380)],
    [
        TableColumn(title=signal.name, expression=_with_consequence(signal.now(SELECTED)), look=look)
        for signal, look in shared.BY_TOPIC.items()
    ],
    partitions.TOPIC_UNDER_MIN_ISR.name,
)

ROWS: Final = (
    PanelRow(
        "Is Kafka's own state at risk?",
        (
            line(
                4,
                _count(partitions.TOPIC_OFFLINE, "Offline", style.RED),
                _count(partitions.TOPIC_UNDER_MIN_ISR, "Under min ISR", style.RED),
                _count(partitions.TOPIC_UNDER_REPLICATED, "Under-replicated", style.YELLOW),
                shared.DATA_AGE,
            ),
            (7, ((STATES, 24),)),
        ),
    ),
    PanelRow(
        "Which replicas are missing, and what changed?",
        (
            (9, ((shared.missing_replicas(SELECTED, detailed=True), 24),)),
            (6, ((topic_panels.most(SELECTED, "Internal topics with most changes"), 24),)),
        ),
    ),
)


def built() -> dict[str, Any]:
    """Build the board."""
    return board(
        Board.INTERNAL_TOPICS,
        "Kafka replication: internal topics",
        "The topics in which Kafka and its clients store their own state, and what fails with them.",
        ROWS,
    )
