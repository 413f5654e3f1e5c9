"""Metrics and health of a program, with its own web configuration."""

from __future__ import annotations

import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from streaming.runtime.listening import address_of, listen
from streaming.web.protection import protection_of
from streaming.web.server import SECURITY_HEADERS
from streaming.web.status import StatusServer
from tests.plugins.certificates import make_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Program = tuple[str, list[str], ssl.SSLContext]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    make_certificate(tmp_path, "authority")
    make_certificate(tmp_path, "server", signed_by="authority")
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}")
    registry = CollectorRegistry()
    Counter("things", "What is counted.", registry=registry).inc(3)
    problems: list[str] = []
    opened = listen("127.0.0.1:0", "--listen")
    address = address_of(opened)
    protected = protection_of(str(web))
    status = StatusServer(
        [opened], registry, lambda: problems, program="job", prefix="job_", healthy="all <is> well", protected=protected
    )
    with closing(status):
        yield address, problems, ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))


def get(program: Program, path: str) -> tuple[int, Any, str]:
    url = f"https://{program[0]}{path}"
    try:
        with urllib.request.urlopen(url, timeout=20, context=program[2]) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers, refusal.read().decode()


def test_metrics_and_health_are_served_with_tls_and_security_headers(program: Program) -> None:
    status, headers, text = get(program, "/metrics")
    assert (status, "things_total 3.0" in text) == (200, True)
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    for path in ("/-/healthy", "/healthz"):
        assert get(program, path)[::2] == (200, "all <is> well\n")
    assert get(program, "/other")[0] == 404


def test_its_requests_are_among_its_metrics(program: Program) -> None:
    get(program, "/healthz")
    get(program, "/healthz")
    text = get(program, "/metrics")[2]
    assert 'job_http_requests_total{code="200",handler="/healthz"} 2.0' in text
    assert "\njob_http_requests_in_flight 1.0" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE job_")]
    assert names == [
        "job_http_requests_total",
        "job_http_request_duration_seconds_total",
        "job_http_requests_in_flight",
        "job_http_refused_connections_total",
    ]
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_problems_are_shown_with_the_links(program: Program) -> None:
    assert "all &lt;is&gt; well" in get(program, "/")[2]
    program[1].extend(["one is <down>", "another, too"])
    for path in ("/-/healthy", "/healthz"):
        assert get(program, path)[::2] == (503, "one is <down>\nanother, too\n")
    assert get(program, "/-/alive")[::2] == (200, "isrwatch job does not hang\n"), "of these none does"
    text = get(program, "/")[2]
    assert "one is &lt;down&gt;" in text
    assert 'href="/metrics"' in text
