"""The boards, a module each: panels over signals, in rows that ask a question.

One subject is one panel on one board; from elsewhere a link leads there.
"""

from __future__ import annotations

from typing import Any

from dashboards.board import BoardSettings
from dashboards.boards import brokers, cluster, fleet, groups, health, topics


def all_boards(settings: BoardSettings | None = None) -> dict[str, dict[str, Any]]:
    """Build every board, by its uid, which is the name of its file without the ending; that of the fleet first."""
    rooms = (fleet, cluster, brokers, topics, groups, health)
    boards = (room.built(settings or BoardSettings()) for room in rooms)
    return {board["uid"]: board for board in boards}
