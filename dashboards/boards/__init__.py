"""The boards, a module each: panels over signals, in rows that ask a question."""

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
