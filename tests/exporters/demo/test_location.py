"""The folder and the port of a demo."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporters.demo import location
from exporters.demo.location import DemoLocation, empty_folder, free_port
from streaming.errors import ConfigurationError
from tests.plugins.local_http import serving_exposition


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_new_directory_is_made_and_without_a_name_a_fresh_temporary_one(tmp_path: Path) -> None:
    made = [empty_folder(tmp_path / "a" / "b"), empty_folder(None), empty_folder(None)]
    assert (made[0], len(set(made))) == (tmp_path / "a" / "b", 3)
    for folder in made:
        folder.rmdir()  # it is empty


@pytest.mark.parametrize("place", ["/proc/x", __file__])
def test_a_directory_that_cannot_be_made_is_named(place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--directory {place} cannot be used: .*; name a folder"):
        empty_folder(Path(place))


def test_when_the_default_port_is_taken_another_one_is_chosen(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "PORT", taken)
    port = free_port(None)
    assert port not in {taken, 0}


def test_metrics_are_empty_while_the_exporter_does_not_respond(tmp_path: Path) -> None:
    assert DemoLocation(directory=tmp_path, port=free_port(None)).metrics() == ""


def test_metrics_are_the_response_of_the_exporter(tmp_path: Path) -> None:
    with serving_exposition("kafka_brokers 3\n") as server:
        port = int(server.address.partition(":")[2])
        assert DemoLocation(directory=tmp_path, port=port).metrics() == "kafka_brokers 3\n"
