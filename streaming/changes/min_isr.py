"""The configured ``min.insync.replicas`` of a topic, from the values that sources have reported.

Kafka's own order (KIP-226): the topic's value, the cluster's dynamic default, the broker's static value. The first two
are in the metadata log; only a broker reports the third (DescribeConfigs).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streaming.contracts.observations import ConfigOrigin
from streaming.contracts.state import ConfigKey, MinIsr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import ConfigObserved

KEY: Final = "min.insync.replicas"
CLUSTER_DEFAULT: Final = ""
UNSET: Final = MinIsr(None, None)
# As Kafka reads it: trimmed, then a Java int, which may have a sign.
_NUMBER: Final = re.compile(r"[\x00-\x20]*\+?0*([0-9]{1,10})[\x00-\x20]*")
_LARGEST: Final = 2**31 - 1


def configured_min_isr(
    minimum_of: Callable[[ConfigKey], MinIsr | None], cluster_id: ClusterId, topic: str
) -> int | None:
    """Return the configured minimum of a topic, None while no source has reported it.

    Args:
        minimum_of: looks one value up.
        cluster_id: the topic's cluster.
        topic: the topic's name.
    """
    for name, origin in (
        (topic, ConfigOrigin.LOG),
        (CLUSTER_DEFAULT, ConfigOrigin.LOG),
        (topic, ConfigOrigin.DESCRIBE),
    ):
        minimum = minimum_of(ConfigKey(cluster_id, name, origin))
        if minimum is not None and minimum.min_isr is not None:
            return minimum.min_isr
    return None


def reported_minimum(observed: ConfigObserved) -> tuple[ConfigKey, MinIsr]:
    """Read a configured minimum as Kafka does, blanks around it and a sign included; no number counts as unset."""
    number = _NUMBER.fullmatch(observed.value or "")
    minimum = int(number[1]) if number and int(number[1]) <= _LARGEST else None
    return ConfigKey(observed.cluster_id, observed.topic, observed.origin), MinIsr(minimum, observed.metadata_offset)


def outdated(key: ConfigKey, minimum: MinIsr, keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    """List the values that brokers have reported and that a removal in the metadata log may have made wrong.

    A broker reports the value that counts, so it may be the one that was removed. Until brokers are asked again the
    minimum is unknown.
    """
    if key.origin is not ConfigOrigin.LOG or minimum.min_isr is not None:
        return []
    return [
        each
        for each in keys
        if each.cluster_id == key.cluster_id
        and each.origin is ConfigOrigin.DESCRIBE
        and key.topic in {each.topic, CLUSTER_DEFAULT}
    ]


def is_news(observed: MinIsr, current: MinIsr | None) -> bool:
    """Return whether a value is newer than the current one, and different."""
    if current is None:
        return observed.min_isr is not None
    is_older = observed.offset is not None and current.offset is not None and observed.offset <= current.offset
    return observed.min_isr != current.min_isr and not is_older
