"""What ``contracts.topic_roles`` and ``contracts.durability`` say of topics, as Arrow columns of ``topic_settings``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streaming.contracts.durability import TopicDurability
from streaming.contracts.topic_roles import consequence, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEPENDS_ON: Final = ("topic", "replication_factor", "min_isr", "allows_unclean_election", "cleanup_policy")


def rules_of_topics(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
    """Return the columns that follow from others.

    Args:
        columns: of ``topic_settings``, by name.
    """
    rows = zip(*(columns[name].to_pylist() for name in _DEPENDS_ON), strict=True)
    topics = [TopicDurability(*row) for row in rows]
    roles = [role_of(topic.topic) for topic in topics]
    return {
        "role": pa.chunked_array([pa.array(roles, pa.string())]),
        "consequence": pa.chunked_array([pa.array([role and consequence(role) for role in roles], pa.string())]),
        "weaknesses": pa.chunked_array([pa.array([topic.weaknesses() for topic in topics], pa.list_(pa.string()))]),
    }
