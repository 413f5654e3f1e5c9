"""Topics in which Kafka, its clients and frameworks keep their state, and what fails with one of them. Pure.

Kafka fixes the names of its own (``Topic.java``, KIP-405, KIP-932), and MirrorMaker those of the topics that it writes
next to the copies (``DefaultReplicationPolicy``, KIP-382). Connect's are configured; those of Kafka Streams are made
of the application's names: these roles are guesses, by names that are usual. Any topic may be called so.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import partition_for

if TYPE_CHECKING:
    from collections.abc import Iterable


class TopicRole(StrEnum):
    """Purpose of a topic other than records of an application."""

    CONSUMER_OFFSETS = "consumer_offsets"
    TRANSACTION_STATE = "transaction_state"
    SHARE_GROUP_STATE = "share_group_state"
    REMOTE_LOG_METADATA = "remote_log_metadata"
    CONNECT_CONFIGS = "connect_configs"
    CONNECT_OFFSETS = "connect_offsets"
    CONNECT_STATUS = "connect_status"
    STREAMS_CHANGELOG = "streams_changelog"
    STREAMS_REPARTITION = "streams_repartition"
    MIRROR_OFFSET_SYNCS = "mirror_offset_syncs"
    MIRROR_CHECKPOINTS = "mirror_checkpoints"


_FIXED: Final = {
    "__consumer_offsets": TopicRole.CONSUMER_OFFSETS,
    "__transaction_state": TopicRole.TRANSACTION_STATE,
    "__share_group_state": TopicRole.SHARE_GROUP_STATE,
    "__remote_log_metadata": TopicRole.REMOTE_LOG_METADATA,
}
# Topics of Connect: as the documentation, Confluent's images and Strimzi call them, MirrorMaker's workers included.
_CONNECT: Final = r"(?:.*[._-])?(?:kafka-?)?(?:connect|mirrormaker2?|mm2)(?:[._-].*)?[._-]"
_USUAL: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), role)
    for pattern, role in (
        (r"mm2-offset-syncs\..+\.internal", TopicRole.MIRROR_OFFSET_SYNCS),
        (r".+\.checkpoints\.internal", TopicRole.MIRROR_CHECKPOINTS),
        (_CONNECT + r"configs?(?:\..+\.internal)?", TopicRole.CONNECT_CONFIGS),
        (_CONNECT + r"offsets?(?:\..+\.internal)?", TopicRole.CONNECT_OFFSETS),
        (_CONNECT + r"status(?:es)?(?:\..+\.internal)?", TopicRole.CONNECT_STATUS),
        (r".+-.+-changelog", TopicRole.STREAMS_CHANGELOG),
        (r".+-.+-repartition", TopicRole.STREAMS_REPARTITION),
    )
)
GUESSED: Final = frozenset(
    {
        TopicRole.CONNECT_CONFIGS,
        TopicRole.CONNECT_OFFSETS,
        TopicRole.CONNECT_STATUS,
        TopicRole.STREAMS_CHANGELOG,
        TopicRole.STREAMS_REPARTITION,
    }
)
"""Roles that a topic of another use may seem to have, because of its name."""
COMPACTED: Final = frozenset(
    {
        TopicRole.CONSUMER_OFFSETS,
        TopicRole.TRANSACTION_STATE,
        TopicRole.CONNECT_CONFIGS,
        TopicRole.CONNECT_OFFSETS,
        TopicRole.CONNECT_STATUS,
    }
)
"""Roles whose newest record of each key must stay, however old: without ``cleanup.policy=compact`` state is deleted."""
KEYED: Final = frozenset({TopicRole.CONSUMER_OFFSETS, TopicRole.TRANSACTION_STATE})
"""Roles of which one partition keeps all the state of a group, or transactional id: see :func:`partition_for`."""
_KEPT: Final = {
    TopicRole.CONSUMER_OFFSETS: "the groups kept there",
    TopicRole.TRANSACTION_STATE: "the transactional ids kept there",
}
_COUNTED: Final = {
    TopicRole.CONSUMER_OFFSETS: "{count} group{s}",
    TopicRole.TRANSACTION_STATE: "the transactional ids kept there ({count} open)",
}

_FAILING: Final = {
    TopicRole.CONSUMER_OFFSETS: "commits and rebalances of {whom}",
    TopicRole.TRANSACTION_STATE: "transactions of {whom}",
    TopicRole.SHARE_GROUP_STATE: "acknowledgements of share groups",
    TopicRole.REMOTE_LOG_METADATA: "copies to remote storage and deletions there",
    TopicRole.CONNECT_CONFIGS: "changes of connectors",
    TopicRole.CONNECT_OFFSETS: "commits of source connectors",
    TopicRole.CONNECT_STATUS: "status updates of connectors",
    TopicRole.STREAMS_CHANGELOG: "updates of a Streams state store",
    TopicRole.STREAMS_REPARTITION: "writes between two steps of a Streams application",
    TopicRole.MIRROR_OFFSET_SYNCS: "MirrorMaker's translations of group offsets",
    TopicRole.MIRROR_CHECKPOINTS: "MirrorMaker's checkpoints of group offsets",
}


def role_of(topic: str) -> TopicRole | None:
    """Return what a topic is for; None of an ordinary one. See ``GUESSED``."""
    fixed = _FIXED.get(topic)
    if fixed is not None:
        return fixed
    return next((role for pattern, role in _USUAL if pattern.fullmatch(topic)), None)


def failing(role: TopicRole, concerned: int | None = None) -> str:
    """Name what fails while a partition of such a topic is offline, or under min ISR: its writers use ``acks=all``.

    ``concerned`` is how many groups, or transactional ids with an open transaction, have their state there, if known.
    """
    if concerned is None or role not in KEYED:
        return _FAILING[role].format(whom=_KEPT.get(role))
    return _FAILING[role].format(whom=_COUNTED[role].format(count=concerned, s="" if concerned == 1 else "s"))


def consequence(role: TopicRole, concerned: int | None = None) -> str:
    """Return the same as a sentence, which says so where the role is a guess."""
    sentence = f"{failing(role, concerned)} fail"
    return f"{sentence} (a guess by its name)" if role in GUESSED else sentence


def keys_by_partition(keys: Iterable[str], partitions: int) -> Counter[int]:
    """Count how many groups, or transactional ids, have their state in each partition of a topic in ``KEYED``."""
    return Counter(partition_for(key, partitions) for key in keys)
