"""``isrwatch alerts test`` through a real Alertmanager to a receiver."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from streaming.commands.alerts import app
from streaming.errors import ConfigurationError, ConnectionRefused, IsrwatchError
from tests.plugins.local_http import collecting_webhook, free_port, wait_until
from tests.plugins.prometheus import running_alertmanager


def run(*options: str) -> str:
    return CliRunner().invoke(app, ["test", *options], catch_exceptions=False).output


@pytest.mark.prometheus
def test_a_test_notification_reaches_the_receiver_and_is_resolved(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text('[export]\nurl = "https://isrwatch.example/kafka/"\n')
    with collecting_webhook() as hook, running_alertmanager(tmp_path, hook) as manager:
        options = (
            "--alertmanager",
            manager.url,
            "--severity",
            "critical",
            "--cluster",
            "prod",
            "--config",
            str(config),
        )
        said = run(*options)
        assert "has accepted IsrwatchTest of cluster prod, severity critical" in said
        assert "it links to https://isrwatch.example/kafka/: do they show it?" in said
        first = wait_until(lambda: hook.notifications)[0]
        assert first["status"] == "firing"
        assert first["alerts"][0]["labels"] == {"alertname": "IsrwatchTest", "severity": "critical", "cluster": "prod"}
        assert first["alerts"][0]["annotations"]["page_url"] == "https://isrwatch.example/kafka/"
        assert f"{manager.url} has ended IsrwatchTest" in run(*options, "--resolve")
        wait_until(lambda: hook.notifications[-1]["status"] == "resolved")


def test_what_does_not_answer_is_one_sentence_without_the_login() -> None:
    with pytest.raises(ConnectionRefused, match=r"--alertmanager http://127.0.0.1:\d+ does not answer") as refusal:
        run("--alertmanager", f"http://me:secret@127.0.0.1:{free_port()}")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("HTTP/1.1 404 Not Found\r\n", "answers 404 Not Found: is it the address of an Alertmanager"),
        ("HTTP/1.1 302 Found\r\nLocation: /login\r\n", "leads to /login: give the address of Alertmanager itself"),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", "answers with a page: is it the address of an Alertm"),
        ("SSH-2.0-OpenSSH\r\n", "does not answer: SSH-2.0-OpenSSH; is it running"),
    ],
)
def test_what_is_no_alertmanager_is_named(answer: str, sentence: str) -> None:
    with answering(answer) as port, pytest.raises(IsrwatchError, match=sentence):
        run("--alertmanager", f"http://127.0.0.1:{port}")


def test_the_severity_is_called_as_in_the_rules(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text('[alerts.severity_names]\ncritical = "page"\n')
    with answering("HTTP/1.1 200 OK\r\n") as port:
        said = run("--alertmanager", f"http://127.0.0.1:{port}", "--severity", "critical", "--config", str(config))
    assert "has accepted IsrwatchTest of cluster test, severity page" in said


@contextmanager
def answering(head: str) -> Iterator[int]:
    """Serve one answer to every request."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(65_536)
                        client.sendall(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "url", ["alertmanager:9093", "http://alertmanager:http", "http://[::1:9093", "http://a b:9093"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="--alertmanager: write a URL, such as http://alertmanager:9093"):
        run("--alertmanager", url)


@pytest.mark.parametrize(
    ("lasting", "sentence"),
    [("5", "--for is 5, without a unit"), ("0s", "at most 1h"), ("2h", "at most 1h, such as 5m")],
)
def test_a_time_that_is_none_is_refused(lasting: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        run("--alertmanager", "http://127.0.0.1:9", "--for", lasting)
