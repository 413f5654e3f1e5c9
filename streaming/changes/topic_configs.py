"""What is configured for a topic, from the values that sources have reported.

Kafka's own order for ``min.insync.replicas`` (KIP-226): the topic's value, the cluster's dynamic default, the broker's
static value. The first two are in the metadata log; only a broker reports the third (DescribeConfigs). A topic is
diskless by a value of its own, whoever reports it (KIP-1150).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.observations import DISKLESS, MIN_ISR, ConfigOrigin, is_true
from streaming.contracts.state import ConfigKey, ConfigValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import ConfigObserved

CLUSTER_DEFAULT: Final = ""
# As Kafka reads it: trimmed, then a Java int, which may have a sign.
_NUMBER: Final = re.compile(r"[\x00-\x20]*\+?0*([0-9]{1,10})[\x00-\x20]*")
_LARGEST: Final = 2**31 - 1


class TopicConfig(NamedTuple):
    """What is configured for a topic: its ``min.insync.replicas``, None while no source has reported it."""

    min_isr: int | None = None
    is_diskless: bool = False


def topic_config(value_of: Callable[[ConfigKey], ConfigValue | None], cluster_id: ClusterId, topic: str) -> TopicConfig:
    """Return what is configured for a topic.

    Args:
        value_of: looks one value up.
        cluster_id: the topic's cluster.
        topic: the topic's name.
    """
    log, described = ConfigOrigin.LOG, ConfigOrigin.DESCRIBE

    def first(key: str, *places: tuple[str, ConfigOrigin]) -> int | None:
        for name, origin in places:
            config = value_of(ConfigKey(cluster_id, name, origin, key))
            if config is not None and config.value is not None:
                return config.value
        return None

    minimum = first(MIN_ISR, (topic, log), (CLUSTER_DEFAULT, log), (topic, described))
    return TopicConfig(minimum, bool(first(DISKLESS, (topic, log), (topic, described))))


def reported_value(observed: ConfigObserved) -> tuple[ConfigKey, ConfigValue]:
    """Read a value as Kafka does.

    A minimum may have blanks around it and a sign, and what is no number counts as unset. Brokers that know diskless
    topics report of all the others that they are none, which need not be remembered.
    """
    key = ConfigKey(observed.cluster_id, observed.topic, observed.origin, observed.key)
    value = _flag(observed) if observed.key == DISKLESS else _number(observed.value or "")
    return key, ConfigValue(value, observed.metadata_offset)


def _number(text: str) -> int | None:
    number = _NUMBER.fullmatch(text)
    return int(number[1]) if number and int(number[1]) <= _LARGEST else None


def _flag(observed: ConfigObserved) -> bool | None:
    if is_true(observed.value):
        return True
    return None if observed.value is None or observed.origin is ConfigOrigin.DESCRIBE else False


def is_news(observed: ConfigValue, current: ConfigValue | None) -> bool:
    """Return whether a value is newer than the current one, and different."""
    if current is None:
        return observed.value is not None
    is_older = observed.offset is not None and current.offset is not None and observed.offset <= current.offset
    return observed.value != current.value and not is_older
