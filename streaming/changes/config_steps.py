"""The steps of configurations, written into a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.cluster_steps import cluster_stepped, configure_time
from streaming.changes.primary_source import has_passed, may_order
from streaming.changes.steps import reconfigured
from streaming.changes.topic_configs import CLUSTER_DEFAULT, is_news, reported_value
from streaming.contracts.observations import CLUSTER_TIMES, DISKLESS, MIN_ISR, ConfigOrigin
from streaming.contracts.state import ConfigKey, ConfigValue

if TYPE_CHECKING:
    from streaming.changes.draft import Draft
    from streaming.contracts.observations import ConfigObserved

UNSET: Final = ConfigValue(None, None)
_OF_TOPICS: Final = frozenset({MIN_ISR, DISKLESS})


def configured(observed: ConfigObserved, draft: Draft) -> None:
    """Apply a time of the cluster, or the value of a topic or of all topics, then also to their partitions."""
    if observed.key in CLUSTER_TIMES:
        configure_time(observed, draft)
        return
    is_default = observed.topic == CLUSTER_DEFAULT
    is_log = observed.origin is ConfigOrigin.LOG
    is_unknown = observed.key not in _OF_TOPICS or (is_default and observed.key == DISKLESS)
    if is_unknown or (is_log and not may_order(draft.cluster(observed), observed)):
        draft.drop(observed)
        return
    key, value = reported_value(observed)
    if not is_news(value, draft.config(key)):
        return
    if any(has_passed(other, value.offset) for other in draft.other_sources(observed)):
        return
    is_removed = is_log and value.value is None
    configs = {key: value, **dict.fromkeys(_outdated(key, draft) if is_removed else (), UNSET)}
    cluster_stepped(draft.cluster(observed), observed, draft, (), configs)
    ids_of_topic = draft.topic_named(observed.cluster_id, observed.topic)
    for topic_id in list(draft.topic_ids(observed.cluster_id)) if is_default else ids_of_topic:
        reconfigured(topic_id, observed, draft)


def _outdated(key: ConfigKey, draft: Draft) -> list[ConfigKey]:
    """List the values that brokers have reported and that a removal in the metadata log may have made wrong.

    A broker reports the value that counts, so it may be the one that was removed. Until brokers are asked again the
    value is unknown.
    """
    if key.topic != CLUSTER_DEFAULT:
        described = key._replace(origin=ConfigOrigin.DESCRIBE)
        return [] if draft.config(described) is None else [described]
    described_of = (key.cluster_id, ConfigOrigin.DESCRIBE, key.key)
    return [each for each in draft.config_keys() if (each.cluster_id, each.origin, each.key) == described_of]
