"""``isrwatch export`` as a user starts it: its options, its addresses, and its log in each format."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from typer import Typer
from typer.testing import CliRunner

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.web import command
from exporters.web.command import export
from streaming.commands import app as whole_app
from streaming.errors import ConfigurationError
from streaming.settings import NO_LINKS
from tests.plugins.certificates import make_certificate
from tests.plugins.local_http import free_port, wait_until


def invoked(*options: str, **environment: str) -> Any:
    app = Typer()
    app.command()(export)
    return CliRunner().invoke(app, options, env=environment)


def test_the_list_of_metrics_has_each_of_them_once() -> None:
    lines = invoked("--list-metrics").stdout.splitlines()
    listed = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert listed == [metric.name for metric in (*CATALOGUE, *(each.metric for each in JMX_METRICS))]


def test_on_a_terminal_the_list_of_metrics_is_a_paragraph_per_metric() -> None:
    coloured = invoked("--list-metrics", FORCE_COLOR="1", COLUMNS="100", TERM="xterm").stdout
    lines = re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()
    listed = [line.split("  ")[:2] for line in lines if line[:1] != " " and not line.startswith("At /")]
    assert listed == [[each.name, each.kind] for each in (*CATALOGUE, *(each.metric for each in JMX_METRICS))]
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if "|" in line] == []


def scrape(address: str, path: str = "/metrics") -> bytes | None:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as response:
            return bytes(response.read())
    except OSError:
        return None


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program; it is terminated at the end unless the test has stopped it."""
    command = [sys.executable, "-m", "streaming.commands", "export", *options]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        if program.poll() is None:
            program.terminate()
        program.communicate(timeout=60)


def stopped(program: subprocess.Popen[str], signal_: signal.Signals) -> list[str]:
    """Stop the program with a signal, and give what it said."""
    program.send_signal(signal_)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    return errors.splitlines()


def test_the_program_serves_the_configured_tables_and_stops_when_it_is_terminated(
    tables: Any, rows: Any, tmp_path: Path
) -> None:
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    address = f"127.0.0.1:{free_port()}"
    config = tmp_path / "isrwatch.toml"
    config.write_text(f'[tables]\ndirectory = "{tables.directory}"\n[export]\nlisten = "{address}"\n')
    with running("--config.file", str(config)) as program:
        wait_until(lambda: program.poll() is not None or b"info{cluster=" in (scrape(address) or b""))
        assert b'kafka_replication_cluster_info{cluster="main"' in (scrape(address) or b"")
        lines = stopped(program, signal.SIGTERM)
    assert (lines[0], lines[-1]) == (f"serving {tables.directory} on http://{address}/metrics", "stopped")
    assert not any("Traceback" in line for line in lines)


def test_addresses_a_telemetry_path_tls_and_logins_are_options_and_ctrl_c_stops_it(
    tables: Any, rows: Any, tmp_path: Path
) -> None:
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    make_certificate(tmp_path, "server")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(
        f"tls_server_config: {{cert_file: server.crt, key_file: server.key}}\nbasic_auth_users: {{me: {hashed}}}\n"
    )
    addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    options = [option for address in addresses for option in ("--web.listen-address", address)]
    options += ["--web.telemetry-path", "/probe", "--web.config.file", str(web), "--tables", str(tables.directory)]

    def asked(address: str, password: str) -> str:
        curl = ["curl", "--silent", "--cacert", str(tmp_path / "server.crt"), "--connect-to", f"server:443:{address}"]
        command = [*curl, "--user", f"me:{password}", "https://server/probe"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    with running(*options) as program:
        for each in addresses:
            wait_until(lambda address=each: program.poll() is not None or "cluster_info{" in asked(address, "secret"))
            assert "kafka_replication_cluster_info" in asked(each, "secret")
            assert asked(each, "other") == "log in\n"
        lines = stopped(program, signal.SIGINT)
    assert lines[0].endswith(f" on https://{addresses[0]}/probe, https://{addresses[1]}/probe")
    assert lines[-1] == "stopped"


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--tables", __file__, f"{__file__} is a file; point tables.directory (--tables)"),
        ("--web.telemetry-path", "/-/healthy", "is '/-/healthy'; write a path that nothing else has"),
        ("--topic", "^tmp-", "--topic has '^tmp-', which looks like a regular expression; write a whole name"),
    ],
)
def test_an_option_that_cannot_be_served_is_refused_at_the_start(option: str, value: str, sentence: str) -> None:
    outcome = invoked(option, value)
    assert isinstance(outcome.exception, ConfigurationError)
    assert sentence in str(outcome.exception)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"topics": ("a*",), "disabled": ("quorum",)}),
        (["--topic", "b*", "--topic", "!c", "--group", "!x"], {"topics": ("b*", "!c"), "groups": ("!x",)}),
        (["--no-collector.groups"], {"disabled": ("groups", "quorum")}),
        (["--collector.quorum", "--no-collector.kafka_exporter"], {"disabled": ("kafka_exporter",)}),
    ],
)
def test_options_about_series_override_the_settings(
    options: list[str], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(command, "serve_tables", lambda _folder, settings, _clusters: served.append(settings.export))
    config = tmp_path / "isrwatch.toml"
    config.write_text('[export]\ntopics = ["a*"]\ndisabled = ["quorum"]\n')
    outcome = invoked("--config", str(config), *options)
    assert outcome.exit_code == 0, outcome.output
    (exporting,) = served
    assert {key: getattr(exporting, key) for key in expected} == expected


def test_an_address_that_is_none_ends_the_program_with_one_sentence(tmp_path: Path) -> None:
    ended = CliRunner().invoke(whole_app, ["export", "--tables", str(tmp_path), "--web.listen-address", "nowhere"])
    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
    assert "write host:port" in ended.stderr
    assert "--web.listen-address (export.listen)" in ended.stderr


MESSAGE = 'a "quoted" topic=x'
LOGS = """
import logging, sys
from exporters.web.command import LogFormat, LogLevel, configure
configure(LogLevel(sys.argv[1]), LogFormat(sys.argv[2]))
log = logging.getLogger("any")
log.debug("small")
log.warning('a "quoted" topic=%s', "x")
try:
    int("none")
except ValueError:
    log.error("bad", exc_info=True)
"""


def logged(level: str, how: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", LOGS, level, how], capture_output=True, text=True, check=True)
    return ended.stderr.splitlines()


def test_json_has_a_line_for_each_record_with_its_traceback() -> None:
    small, warning, error = map(json.loads, logged("debug", "json"))
    assert (small["level"], small["msg"]) == ("DEBUG", "small")
    assert (warning["level"], warning["msg"]) == ("WARN", MESSAGE)
    assert error["err"].splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'none'"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", error["time"])


def test_logfmt_quotes_what_would_not_be_one_value() -> None:
    warning, error = logged("warn", "logfmt")
    assert warning.endswith(f" level=WARN msg={json.dumps(MESSAGE)}")
    assert " level=ERROR msg=bad err=" in error


def test_below_the_level_nothing_is_logged_and_text_begins_with_the_time() -> None:
    (line, *traceback) = logged("error", "text")
    assert re.match(r"\d{4}-\d\d-\d\d ", line)
    assert line.endswith("bad")
    assert traceback[-1].startswith("ValueError: ")


def test_the_program_logs_in_the_format_of_its_option(tmp_path: Path) -> None:
    options = ["--log.format", "logfmt", "--topic", "!__*", "--web.listen-address", f"127.0.0.1:{free_port()}"]
    command = [sys.executable, "-m", "streaming.commands", "export", "--tables", str(tmp_path), *options]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    first, second, third = (program.stderr.readline() for _ in range(3))
    os.kill(program.pid, signal.SIGTERM)
    program.communicate(timeout=60)
    assert first.startswith("serving ")
    assert second.startswith("time=")
    assert "!__*" in second
    assert NO_LINKS in third
