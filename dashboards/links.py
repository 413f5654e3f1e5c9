"""The boards' addresses, and links from one to another that carry the data source, the cluster and the time range."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Board(StrEnum):
    """The uid of each board: part of its address, so it stays."""

    OVERVIEW = "isrwatch-replication-overview"
    BROKERS = "isrwatch-brokers"
    INCIDENTS = "isrwatch-incidents"
    TOPICS = "isrwatch-topics"
    GROUPS = "isrwatch-groups"
    INTERNAL_TOPICS = "isrwatch-internal-topics"
    QUORUM = "isrwatch-quorum"
    SLO = "isrwatch-slo"
    MONITOR = "isrwatch-monitor"


CHOSEN: Final = ("broker", "topic", "group")
"""The labels by whose values boards are narrowed: cells with them lead to such a board."""
EVERY_VALUE: Final = "$__all"
"""Grafana's own value of a variable of which all values are chosen."""
TAG: Final = "isrwatch"
"""Tag of every board; the menu on top lists the boards with it."""


def to_board(board: Board, **variables: str) -> str:
    """Return the address of a board from a cell: for ``broker="${__value.raw}"`` it shows that broker."""
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    cluster = "" if "cluster" in variables else "&${cluster:queryparam}"
    return f"/d/{board}?${{datasource:queryparam}}{cluster}{chosen}&${{__url_time_range}}"
