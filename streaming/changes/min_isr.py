"""The configured ``min.insync.replicas`` of a topic, from what is known.

Kafka's own order (KIP-226): the topic's value, the cluster's dynamic default, the broker's static value. The first two
stand in the metadata log; the third only a broker can tell (DescribeConfigs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.state import ConfigKey, MinIsr
from streaming.contracts.observations import ConfigOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import ConfigObserved

KEY: Final = "min.insync.replicas"
CLUSTER_DEFAULT: Final = ""


def configured_min_isr(known: Callable[[ConfigKey], MinIsr | None], cluster_id: ClusterId, topic: str) -> int | None:
    """Give the configured minimum of a topic, None while nobody has told.

    Args:
        known: looks one value up.
        cluster_id: the topic's cluster.
        topic: the topic's name.
    """
    for name, origin in (
        (topic, ConfigOrigin.LOG),
        (CLUSTER_DEFAULT, ConfigOrigin.LOG),
        (topic, ConfigOrigin.DESCRIBE),
    ):
        told = known(ConfigKey(cluster_id, name, origin))
        if told is not None and told.min_isr is not None:
            return told.min_isr
    return None


def told_by(observed: ConfigObserved) -> tuple[ConfigKey, MinIsr]:
    """Read a configured minimum; a value that is no number counts as unset."""
    value = observed.value
    minimum = int(value) if value is not None and value.isdecimal() else None
    return ConfigKey(observed.cluster_id, observed.topic, observed.origin), MinIsr(minimum, observed.metadata_offset)


def is_news(told: MinIsr, known: MinIsr | None) -> bool:
    """Tell whether a value is newer than what is known, and different."""
    if known is None:
        return told.min_isr is not None
    is_older = told.offset is not None and known.offset is not None and told.offset <= known.offset
    return told.min_isr != known.min_isr and not is_older
