"""Topics that are recognised by role, what fails with them, and whom it concerns."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import partition_for
from streaming.contracts.topic_roles import (
    COMPACTED,
    GUESSED,
    KEYED,
    TopicRole,
    consequence,
    failing,
    keys_by_partition,
    role_of,
)


@pytest.mark.parametrize(
    ("topic", "role"),
    [
        ("__consumer_offsets", "consumer_offsets"),
        ("__transaction_state", "transaction_state"),
        ("__share_group_state", "share_group_state"),
        ("__remote_log_metadata", "remote_log_metadata"),
        # Kafka's quick start, Confluent's images, Strimzi, and MirrorMaker with workers of its own.
        ("connect-configs", "connect_configs"),
        ("connect-offsets", "connect_offsets"),
        ("connect-status", "connect_status"),
        ("docker-connect-configs", "connect_configs"),
        ("_connect-offsets", "connect_offsets"),
        ("connect-cluster-status", "connect_status"),
        ("my-connect-cluster-offsets", "connect_offsets"),
        ("kafka-connect.statuses", "connect_status"),
        ("mirrormaker2-cluster-configs", "connect_configs"),
        ("mm2-offsets.primary.internal", "connect_offsets"),
        ("mm2-status.primary.internal", "connect_status"),
        ("mm2-offset-syncs.backup.internal", "mirror_offset_syncs"),
        ("primary.checkpoints.internal", "mirror_checkpoints"),
        ("fraud-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog", "streams_changelog"),
        ("fraud-totals-repartition", "streams_repartition"),
    ],
)
def test_a_topic_is_recognised_by_its_name(topic: str, role: str) -> None:
    assert role_of(topic) == role


@pytest.mark.parametrize(
    "topic",
    [
        "orders", "connect", "connections", "disconnect-status", "connect-offsets-audit", "consumer_offsets",
        "__consumer_offsets_backup", "_schemas", "changelog", "orders-changelog", "-changelog", "a-repartition",
        "order-status", "heartbeats", "checkpoints.internal",
    ],
)  # fmt: skip
def test_an_ordinary_topic_has_no_role(topic: str) -> None:
    assert role_of(topic) is None


def test_what_is_a_guess_is_called_one() -> None:
    guesses = {role for role in TopicRole if "guess" in consequence(role)}
    assert guesses == GUESSED
    assert {role_of(name) for name in ("__consumer_offsets", "__transaction_state")} <= COMPACTED - GUESSED


def test_every_role_says_what_fails() -> None:
    assert len({failing(role) for role in TopicRole}) == len(TopicRole)
    assert consequence(TopicRole.CONSUMER_OFFSETS) == "commits and rebalances of the groups kept there fail"
    assert consequence(TopicRole.CONSUMER_OFFSETS, 14) == "commits and rebalances of 14 groups fail"
    assert consequence(TopicRole.CONSUMER_OFFSETS, 0) == "commits and rebalances of 0 groups fail"
    assert consequence(TopicRole.CONSUMER_OFFSETS, 1) == "commits and rebalances of 1 group fail"
    assert (
        consequence(TopicRole.TRANSACTION_STATE, 1) == "transactions of the transactional ids kept there (1 open) fail"
    )
    assert [role for role in TopicRole if "{" in consequence(role) or "{" in consequence(role, 3)] == []
    assert {role for role in TopicRole if consequence(role, 3) != consequence(role)} == set(KEYED)


@given(keys=st.lists(st.text(min_size=1), max_size=40, unique=True), partitions=st.integers(1, 60))
def test_each_group_is_counted_in_its_coordinators_partition(keys: list[str], partitions: int) -> None:
    counts = keys_by_partition(keys, partitions)
    assert counts == Counter(partition_for(key, partitions) for key in keys)
    assert sum(counts.values()) == len(keys)
    assert all(0 <= partition < partitions for partition in counts)
