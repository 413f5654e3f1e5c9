"""A log directory that its broker has no more, and a member that left the quorum, are gone with the next answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Channel, Observation, SourceKind
from streaming.contracts.samples import LogDirectoryObserved, QuorumMemberObserved
from streaming.contracts.settings import BrokerSettingsObserved
from streaming.jobs.driver.samples import NewestBatch
from tests.jobs.driver.test_batch import published, rows

if TYPE_CHECKING:
    from pathlib import Path


def envelope(second: int) -> dict[str, Any]:
    return {
        "cluster_id": "c",
        "cluster": "prod",
        "source": "samples:a",
        "authority": SourceKind.NONE,
        **dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(second * 1_000_000)),
    }


def directories(broker: int, second: int, *paths: str) -> list[Observation]:
    return [
        LogDirectoryObserved(**envelope(second), broker=BrokerId(broker), log_dir=path, is_online=True)
        for path in paths
    ]


def quorum(second: int, *nodes: int) -> list[Observation]:
    return [
        QuorumMemberObserved(**envelope(second), node=node, is_voter=True, controller=101, controller_epoch=1)
        for node in nodes
    ]


def test_a_directory_that_a_broker_has_no_more_is_gone_and_what_a_silent_broker_has_stays(tmp_path: Path) -> None:
    seen = [*directories(1, 10, "/a", "/b"), *directories(2, 10, "/a"), *directories(1, 15, "/a")]
    NewestBatch(tmp_path, Channel.OFFSETS).apply(published(seen))
    assert {(row["broker"], row["log_dir"]) for row in rows(tmp_path, "log_directories")} == {(1, "/a"), (2, "/a")}


def test_a_member_that_left_the_quorum_is_gone(tmp_path: Path) -> None:
    NewestBatch(tmp_path, Channel.OFFSETS).apply(published([*quorum(10, 101, 102, 103), *quorum(12, 101, 103)]))
    assert {row["node"] for row in rows(tmp_path, "quorum_members")} == {101, 103}


def settings(broker: int, second: int) -> list[Observation]:
    return [BrokerSettingsObserved(**envelope(second), broker=BrokerId(broker), replica_lag_time_max_ms=30_000)]


def test_settings_that_are_read_once_a_minute_stay_while_the_next_round_arrives(tmp_path: Path) -> None:
    """A round a minute by default: broker 2 has not answered yet when broker 1 has, a little more than a minute on."""
    batch = NewestBatch(tmp_path, Channel.OFFSETS)
    batch.apply(published([*settings(1, 10), *settings(2, 10)]))
    batch.apply(published(settings(1, 71), start=10))
    assert {row["broker"] for row in rows(tmp_path, "broker_settings")} == {1, 2}
    batch.apply(published(settings(1, 191), start=20))
    assert {row["broker"] for row in rows(tmp_path, "broker_settings")} == {1}
