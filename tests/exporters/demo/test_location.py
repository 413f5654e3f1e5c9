"""The folder and the port of a demo."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporters.demo import location
from exporters.demo.location import DemoLocation, empty_folder, free_port
from streaming.errors import ConfigurationError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_without_a_directory_the_state_is_in_a_fresh_temporary_one() -> None:
    first, second = empty_folder(None), empty_folder(None)
    assert first != second
    assert list(first.iterdir()) == []
    first.rmdir()
    second.rmdir()


def test_a_new_directory_is_made(tmp_path: Path) -> None:
    assert empty_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bus").mkdir()
    with pytest.raises(ConfigurationError, match="is not empty; name a new folder"):
        empty_folder(tmp_path)


@pytest.mark.parametrize("place", ["/proc/x", __file__])
def test_a_directory_that_cannot_be_made_is_named(place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--directory {place} cannot be used: .*; name a folder"):
        empty_folder(Path(place))


def test_a_requested_port_is_used_or_refused(taken: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--port {taken} is taken"):
        free_port(taken)


def test_when_the_default_port_is_taken_another_one_is_chosen(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "PORT", taken)
    port = free_port(None)
    assert port not in {taken, 0}


def test_metrics_are_empty_while_the_exporter_does_not_respond(tmp_path: Path) -> None:
    assert DemoLocation(directory=tmp_path, port=free_port(None)).metrics() == ""


def test_metrics_are_the_response_of_the_exporter(tmp_path: Path) -> None:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(b"kafka_brokers 3\n")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert DemoLocation(directory=tmp_path, port=server.server_port).metrics() == "kafka_brokers 3\n"
