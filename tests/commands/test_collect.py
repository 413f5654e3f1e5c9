"""``isrwatch collect`` as a user runs it: options, refusals, a clean end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from deploy.sandbox import Sandbox
from streaming.bus.segments import folder_of
from streaming.commands import app
from streaming.commands.collect import listening
from streaming.errors import ConfigurationError
from tests.plugins.certificates import make_certificate
from tests.plugins.local_http import free_port

Start = Callable[..., subprocess.Popen[str]]

PATIENCE = 60.0


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Start]:
    """Start the command with its bus in the test's folder."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "streaming.commands", "collect", "--bus", str(tmp_path / "bus"), *arguments]
        named = {**os.environ, "ISRWATCH_COLLECT__COLLECTOR": "collector-1"}
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=named))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Call the command, which must refuse to run, in this process; give its one line."""
    monkeypatch.setenv("ISRWATCH_COLLECT__COLLECTOR", "collector-1")

    def call(*arguments: str) -> str:
        words = ["collect", "--bus", str(tmp_path / "bus"), *arguments]
        result = CliRunner().invoke(app, words, prog_name="isrwatch")
        assert result.exit_code == 2, result.output
        assert len(result.output.splitlines()) == 1, result.output
        return result.output

    return call


def contents(bus: Path, source: str) -> bytes:
    """Return what a source has written on the channel of replication."""
    folder = bus / "replication" / folder_of(source)
    return b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_simulated_cluster_is_collected_until_it_is_stopped(
    collect: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = collect("--simulate", "broker_loss", "--speed", "50", "--seed", "7", "--listen", "")
    wait_for(lambda: b'"cause":' in contents(tmp_path / "bus", "simulated:collector-1"), process)
    process.send_signal(number)
    _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    lines = [re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO (.*)", line) for line in output.splitlines()]
    assert [line and line[1] for line in lines] == [
        f"isrwatch collect: simulated:collector-1: writing to {tmp_path / 'bus'}; Ctrl-C stops it cleanly",
        "isrwatch collect: stopped; the next start continues here",
    ]


def test_the_default_page_may_be_that_of_another_collector_and_no_other_address_may(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as other:
        with suppress(OSError):  # then it is taken anyway
            other.bind(("127.0.0.1", 9310))
            other.listen()
        assert listening("127.0.0.1:9310") == []
        said = capsys.readouterr().err
        assert "cannot listen on 127.0.0.1:9310: Address already in use; choose another address with --listen" in said
        assert "(collect.listen); until then this collector has no page, and alerts on it cannot fire" in said
        with pytest.raises(ConfigurationError, match=r"choose another address with --listen \(collect\.listen\)$"):
            listening("127.0.0.1:9310,127.0.0.1:0")


def test_its_metrics_are_served_on_several_addresses_with_tls(collect: Start, tmp_path: Path) -> None:
    make_certificate(tmp_path, "authority")
    make_certificate(tmp_path, "server", signed_by="authority")
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
    addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    served = ("--listen", ",".join(addresses), "--web.config.file", str(web))
    process = collect("--simulate", "steady", *served)
    wait_for(lambda: contents(tmp_path / "bus", "simulated:collector-1"), process)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))
    for address in addresses:
        with urlopen(f"https://{address}/metrics", timeout=PATIENCE, context=trusting) as response:
            assert b"isrwatch_collector_observations_total{" in response.read()
    process.send_signal(signal.SIGTERM)
    _, lines = process.communicate(timeout=PATIENCE)
    assert (process.returncode, len(lines.splitlines())) == (0, 2), lines


def test_a_second_collector_of_a_bus_ends_before_it_says_that_it_writes(
    collect: Start, refused: Callable[..., str], tmp_path: Path
) -> None:
    first = collect("--simulate", "steady")
    wait_for(lambda: contents(tmp_path / "bus", "simulated:collector-1"), first)
    said = refused("--simulate", "steady")
    assert "already writes the log of simulated:collector-1 in" in said
    assert "another name (collect.collector)" in said
    assert "writing to" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "cluster.bootstrap_servers is empty; name a broker as host:port (or --bootstrap-server)"),
        (["--bootstrap-server", "here"], "has 'here'; write host:port, separated by commas"),
        (["--bootstrap-servers", "here"], "has 'here'; write host:port, separated by commas"),
        (["--simulate", "nowhere"], "there is no scenario nowhere"),
        (
            ["--simulate", "steady", "--listen", "127.0.0.1:0", "--web.config.file", "/none.yml"],
            "cannot read the web configuration /none.yml: No such file or directory",
        ),
        (["--simulate", "steady", "--speed", "0"], "--speed is 0; it must be above 0"),
    ],
)
def test_a_wrong_option_is_one_sentence(refused: Callable[..., str], arguments: list[str], sentence: str) -> None:
    assert sentence in refused(*arguments)


def test_brokers_that_cannot_be_reached_are_one_sentence_of_the_whole_process(collect: Start) -> None:
    process = collect("--bootstrap-server", "127.0.0.1:1")
    printed, output = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (1, "")
    assert "127.0.0.1:1 cannot be reached: Connection refused" in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("source", ["auto", "metadata_log", "poll"])
def test_a_login_that_there_is_not_ends_the_collector_whatever_it_is_to_read(
    refused: Callable[..., str], tmp_path: Path, source: str
) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text(
        f'[collect]\nprimary_source = "{source}"\n'
        '[cluster.client]\n"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "GSSAPI"\n'
    )
    output = refused("--config", str(config), "--bootstrap-server", "127.0.0.1:1")
    assert "cluster.client sasl.mechanism is 'GSSAPI', but isrwatch logs in with PLAIN" in output


def scraped(address: str) -> str:
    with urlopen(f"http://{address}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


@pytest.mark.kafka
def test_a_real_cluster_is_followed_by_its_log_or_polled_on_demand(
    collect: Start, tmp_path: Path, kafka_single: Sandbox
) -> None:
    servers = kafka_single.bootstrap_servers
    address = f"127.0.0.1:{free_port()}"
    process = collect("--bootstrap-server", servers, "--listen", address)
    bus = tmp_path / "bus"
    wait_for(lambda: b'"snapshot_end"' in contents(bus, "metadata_log:collector-1"), process)
    wait_for(lambda: "listener_up{" in scraped(address), process)
    listed = [line for line in scraped(address).splitlines() if "listener_up{" in line]
    assert len(listed) == 2, listed
    assert all(re.search(r'node="(1|101)",role="(broker|controller)"} 1\.0$', line) for line in listed), listed
    assert re.search(r'connection_requests_total\{cluster="kafka",node="101"\} [1-9]', scraped(address))
    process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert b'"snapshot_begin"' not in contents(bus, "admin:collector-1")
    checkpoint = json.loads((bus / "checkpoints" / "metadata_log-collector-1.json").read_text())["checkpoint"]
    assert checkpoint["cluster_id"] == kafka_single.cluster_id
    config = tmp_path / "isrwatch.toml"
    config.write_text('[collect]\nprimary_source = "poll"\n')
    polling = collect("--config", str(config), "--bootstrap-server", servers)
    wait_for(lambda: b'"snapshot_end"' in contents(bus, "admin:collector-1"), polling)


@pytest.mark.kafka
@pytest.mark.long
def test_two_real_clusters_are_collected_by_one_collector_and_each_fails_alone(
    collect: Start, tmp_path: Path, kafka_4_3: Sandbox, kafka_single: Sandbox
) -> None:
    prod, staging = kafka_4_3, kafka_single
    page = f"127.0.0.1:{free_port()}"
    config = tmp_path / "isrwatch.toml"
    config.write_text(
        f'[collect]\nlisten = "{page}"\nheartbeat_interval = "500ms"\n'
        f'[[cluster]]\nname = "prod"\nbootstrap_servers = "{prod.bootstrap_servers}"\n'
        f'[[cluster]]\nname = "staging"\nbootstrap_servers = "{staging.bootstrap_servers}"\n'
        '[[cluster]]\nname = "gone"\nbootstrap_servers = "127.0.0.1:1"\n'
        '[cluster.collect]\nprimary_source = "metadata_log"\n'
    )
    process = collect("--config", str(config))
    logs = {name: f"metadata_log:collector-1@{name}" for name in ("prod", "staging")}
    bus = tmp_path / "bus"
    wait_for(lambda: all(b'"snapshot_end"' in contents(bus, source) for source in logs.values()), process)
    assert source_up(page)["gone", "all:gone"] == 0
    staging.kill(101)
    wait_for(lambda: source_up(page)["staging", logs["staging"]] == 0, process)
    assert source_up(page)["prod", logs["prod"]] == 1
    prod.admin.create_topic("collected", partitions=1, replication_factor=1)
    wait_for(lambda: b'"collected"' in contents(bus, logs["prod"]), process)
    assert b'"collected"' not in contents(bus, logs["staging"])
    prod.admin.delete_topic("collected")
    process.send_signal(signal.SIGTERM)
    _, lines = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, lines
    assert "gone: no broker" in lines or "gone: 127.0.0.1:1 cannot be reached" in lines


def source_up(page: str) -> dict[tuple[str, str], float]:
    """Read which sources are up from the collector's page."""
    with urlopen(f"http://{page}/metrics", timeout=PATIENCE) as response:
        families = text_string_to_metric_families(response.read().decode())
    (family,) = (family for family in families if family.name == "isrwatch_collector_source_up")
    return {(sample.labels["cluster"], sample.labels["source"]): sample.value for sample in family.samples}
