"""The boards, a module each: panels over signals, in rows that ask a question.

- ``overview``         is data at risk now; which incidents, brokers, topics, partitions
- ``brokers``          which brokers may be stopped, which are missing, suspect, slow, uneven, nearly full
- ``incidents``        what happened, when, and why
- ``topics``           topics and partitions, and the replicas that are missing or behind
- ``groups``           how far groups are behind; transactions
- ``internal_topics``  the topics in which Kafka and its clients store their own state
- ``quorum``           controllers and members of the metadata quorum
- ``slo``              how long partitions were unavailable, against an objective
- ``monitor``          whether isrwatch itself can be believed
- ``shared``           panels that stand on several boards
"""

from __future__ import annotations

from typing import Any

from dashboards.boards import brokers, groups, incidents, internal_topics, monitor, overview, quorum, slo, topics


def all_boards() -> dict[str, dict[str, Any]]:
    """Build every board, by the name of its file without the ending; the overview first."""
    return {
        "replication-overview": overview.built(),
        "replication-brokers": brokers.built(),
        "replication-incidents": incidents.built(),
        "replication-topics": topics.built(),
        "replication-groups": groups.built(),
        "replication-internal-topics": internal_topics.built(),
        "replication-quorum": quorum.built(),
        "replication-slo": slo.built(),
        "replication-monitor": monitor.built(),
    }
