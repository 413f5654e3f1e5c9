"""The primary source: the metadata log where it is authorised; otherwise the brokers are polled, and it is said why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming.commands import collect as command
from streaming.errors import ConnectionRefused
from streaming.settings import ClusterSettings, CollectSettings, Settings

if TYPE_CHECKING:
    from pathlib import Path


def settings_for(quorum: Any, primary_source: str) -> Settings:
    cluster = ClusterSettings(bootstrap_servers=quorum.addresses())
    return Settings(cluster=cluster, collect=CollectSettings(primary_source=primary_source))


@pytest.mark.parametrize("primary_source", ["auto", "metadata_log"])
def test_the_log_is_the_primary_source_where_it_is_authorised(
    quorum: Any, frames: Any, tmp_path: Path, primary_source: str
) -> None:
    quorum.append(*frames)
    source = command._metadata_log(settings_for(quorum, primary_source), tmp_path)
    assert source is not None
    assert source.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    source.close()


def test_a_refusal_is_reported_and_the_brokers_are_polled_instead(
    quorum: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quorum.fetch_error = 31
    assert command._metadata_log(settings_for(quorum, "auto"), tmp_path) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("isrwatch collect: polling the brokers, because the metadata log cannot be read: 127.0.0.1:")
    assert "grant ClusterAction" in line


def test_controllers_that_cannot_be_reached_are_waited_for_and_then_given_up(
    quorum: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CONNECT_SECONDS", 0.1)
    quorum.fetch_error = 6
    assert command._metadata_log(settings_for(quorum, "auto"), tmp_path) is None
    assert "no controller serves the metadata log" in capsys.readouterr().err


def test_a_refusal_is_an_error_where_only_the_log_is_wanted(quorum: Any, tmp_path: Path) -> None:
    quorum.fetch_error = 31
    with pytest.raises(ConnectionRefused, match="grant ClusterAction"):
        command._metadata_log(settings_for(quorum, "metadata_log"), tmp_path)


def test_polling_on_demand_asks_no_controller(quorum: Any, tmp_path: Path) -> None:
    assert command._metadata_log(settings_for(quorum, "poll"), tmp_path) is None
    assert not quorum.requests
