"""The primary source: the metadata log where it is authorised; otherwise the brokers are polled, and it is said why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import SnapshotBegin
from streaming.errors import ConnectionRefused
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector import opening
from tests.sources.metadata_log.conftest import FRAMES

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.sources.metadata_log.source import MetadataLogSource


NOW = Micros(2_000_000_000_000_000)


def settings_for(quorum: Any, primary_source: str) -> Settings:
    cluster = ClusterSettings(bootstrap_servers=quorum.addresses())
    return Settings(cluster=cluster, collect=CollectSettings(primary_source=primary_source))


@pytest.mark.parametrize("primary_source", ["auto", "metadata_log"])
def test_the_log_is_the_primary_source_where_it_is_authorised(quorum: Any, tmp_path: Path, primary_source: str) -> None:
    quorum.append(*FRAMES)
    source = opening.open_log(settings_for(quorum, primary_source), tmp_path, lambda _: None)
    assert source is not None
    assert source.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    source.close()


def check_reads(source: MetadataLogSource) -> None:
    """Check that the log is read now, from a full report on."""
    observations = [observed for _ in range(20) for observed in source.poll(NOW)]
    assert source.is_primary
    assert isinstance(observations[0], SnapshotBegin)
    source.close()


def test_a_log_that_is_refused_at_the_start_is_read_as_soon_as_it_is_permitted(quorum: Any, tmp_path: Path) -> None:
    quorum.append(*FRAMES)
    quorum.fetch_error = 31
    source = opening.open_log(settings_for(quorum, "auto"), tmp_path, lambda _: None)
    assert source is not None
    with pytest.raises(ConnectionRefused, match="lacks ClusterAction"):
        source.poll(NOW)
    assert not source.is_primary
    quorum.fetch_error = 0
    check_reads(source)


def test_controllers_that_cannot_be_reached_are_waited_for_and_then_tried_in_the_background(
    quorum: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CONNECT_SECONDS", 0.1)
    quorum.append(*FRAMES)
    quorum.fetch_error = 6
    source = opening.open_log(settings_for(quorum, "auto"), tmp_path, lambda _: None)
    assert source is not None
    assert not source.is_primary
    quorum.fetch_error = 0
    check_reads(source)


def test_a_refusal_is_an_error_where_only_the_log_is_wanted(quorum: Any, tmp_path: Path) -> None:
    quorum.fetch_error = 31
    with pytest.raises(ConnectionRefused, match="lacks ClusterAction"):
        opening.open_log(settings_for(quorum, "metadata_log"), tmp_path, lambda _: None)


def test_polling_on_demand_asks_no_controller(quorum: Any, tmp_path: Path) -> None:
    assert opening.open_log(settings_for(quorum, "poll"), tmp_path, lambda _: None) is None
    assert not quorum.requests


def test_a_cluster_with_zookeeper_is_polled_because_it_has_no_metadata_log(quorum: Any, tmp_path: Path) -> None:
    quorum.versions = {55: -1}  # no DescribeQuorum
    lines: list[str] = []
    assert opening.open_log(settings_for(quorum, "auto"), tmp_path, lines.append) is None
    assert ["with ZooKeeper, which has no metadata log" in line for line in lines] == [True]
    with pytest.raises(ConnectionRefused, match=r"with ZooKeeper, which has no metadata log: set collect.primary_sour"):
        opening.open_log(settings_for(quorum, "metadata_log"), tmp_path, lines.append)
