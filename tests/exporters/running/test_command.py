"""``isrwatch run``: options reach every part, it says what it reads, and one command monitors a real cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from exporters.running.command import BATCH_ROW, overrides, page_url, print_next_steps
from streaming.cluster_settings import each_cluster
from streaming.jobs.batch_rows import row_of
from streaming.jobs.queries import BatchResult
from streaming.settings import ExportSettings, Settings
from tests.plugins.local_http import free_port, wait_until
from tests.plugins.sandbox import MakeSandbox

PATIENCE = 240.0


def run(*options: str, folder: Path, output: Path, **variables: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ISRWATCH_")} | variables
    root = Path(__file__).parents[3]
    with output.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "streaming.commands", "run", *options],
            cwd=folder, stdout=stream, stderr=subprocess.STDOUT, env={**environment, "PYTHONPATH": str(root)},
        )  # fmt: skip


def test_options_are_what_a_configuration_says_to_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=PLAINTEXT\n")
    given = overrides(None, "b:9092", Path("client.properties"), "kept", "127.0.0.1:1")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (settings,) = each_cluster(None)
    assert (settings.cluster.bootstrap_servers, settings.cluster.client_file) == ("b:9092", str(properties))
    assert (settings.bus.directory, settings.tables.directory) == (f"{tmp_path}/kept/bus", f"{tmp_path}/kept/tables")
    assert (settings.job.checkpoint, settings.export.listen) == (f"{tmp_path}/kept/checkpoint", "127.0.0.1:1")


def test_rows_of_batches_are_known_by_how_the_job_begins_them() -> None:
    result = BatchResult(observations=1, changes=1, refused=0, version=1, seconds=0.1)
    assert row_of("replication", [result]).startswith(BATCH_ROW)


def test_a_url_of_data_is_that_of_the_tables_alone() -> None:
    assert overrides(None, None, None, "s3://b/t", None) == {"ISRWATCH_TABLES__DIRECTORY": "s3://b/t"}


@pytest.mark.parametrize(
    ("export", "url"),
    [
        (ExportSettings(), "http://127.0.0.1:9308/"),
        (ExportSettings(listen=":9308"), "http://127.0.0.1:9308/"),
        (ExportSettings(listen="[::]:9308, 127.0.0.1:1"), "http://127.0.0.1:9308/"),
        (ExportSettings(url="https://isrwatch.example/x"), "https://isrwatch.example/x/"),
    ],
)
def test_the_address_of_the_pages_is_one_that_a_browser_here_can_open(export: ExportSettings, url: str) -> None:
    assert page_url(Settings(export=export)) == url


def test_the_metrics_are_where_the_exporter_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = ExportSettings(url="https://isrwatch.example/x/", telemetry_path="/prom")
    print_next_steps([Settings(export=export)], tmp_path)
    assert "let Prometheus scrape https://isrwatch.example/x/prom" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "scheme"),
    [("basic_auth_users: {}\n", "http"), ("tls_server_config: {cert_file: a.crt, key_file: a.key}\n", "https")],
)
def test_the_address_of_the_pages_is_one_of_https_if_they_have_tls(tmp_path: Path, content: str, scheme: str) -> None:
    file = tmp_path / "web.yml"
    file.write_text(content)
    export = ExportSettings(listen="[::1]:9308", web_config_file=str(file))
    assert page_url(Settings(export=export)) == f"{scheme}://[::1]:9308/"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], r"which cluster\? Name a broker of it: isrwatch run --bootstrap-server broker-1:9092"),
        (["--command-config", "absent"], "cannot read the client properties .*absent: No such file or directory"),
        (["--bootstrap-server", "b:1", "--data", "ftp://x/y"], r"tables.directory \(--tables\) begins with ftp:/"),
    ],
)
def test_what_cannot_work_is_one_sentence_before_anything_starts(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    process = run(*options, folder=tmp_path, output=tmp_path / "output")
    assert process.wait(60) == 2
    assert re.search(sentence, (tmp_path / "output").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def listening() -> dict[str, str]:
    """Return variables that let collector and job listen where nothing else does."""
    return {f"ISRWATCH_{part}__LISTEN": f"127.0.0.1:{free_port()}" for part in ("COLLECT", "JOB")}


def parts_of(pid: int) -> dict[str, int]:
    """Return the processes of a running `isrwatch run`, by the command that they run."""
    named = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text(errors="replace").split("\0")
            parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
            if "exporters.running.attached" in words and parent == str(pid):
                named[words[words.index("exporters.running.attached") + 1]] = int(path.parent.name)
    return named


def scraped_from(port: int) -> str:
    with suppress(OSError):
        return str(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read(), "utf-8")
    return ""


def left_of(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder, and of Spark's JVM of it."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if path.readlink() == folder:
                lines.append((path.parent / "cmdline").read_text(errors="replace").replace("\0", " "))
    return [line for line in lines if line]


@pytest.mark.long
@pytest.mark.spark
def test_of_a_killed_run_no_process_is_left(tmp_path: Path) -> None:
    output = tmp_path / "output"
    options = ("--bootstrap-server", "127.0.0.1:1", "--data", "d", "--listen", f"127.0.0.1:{free_port()}")
    process = run(*options, folder=tmp_path, output=output, **listening())
    try:
        wait_until(lambda: any("org.apache.spark" in line for line in left_of(tmp_path)), seconds=PATIENCE)
        assert parts_of(process.pid).keys() == {"collect", "job", "export"}
    finally:
        process.kill()
        process.wait(30)
    wait_until(lambda: not left_of(tmp_path), seconds=90)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.spark
def test_one_command_monitors_a_real_cluster_and_keeps_running(kafka_cluster: MakeSandbox, tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output"
    sandbox = kafka_cluster(brokers=3)
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=PLAINTEXT\nrequest.timeout.ms=10000\n")
    options = ("--bootstrap-server", sandbox.bootstrap_servers, "--command-config", "client.properties")
    options += ("--data", "d", "--listen", f"127.0.0.1:{port}")
    process = run(*options, folder=tmp_path, output=output, **listening())

    def until(text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.3)

    try:
        until("what is wrong, what each broker holds")
        assert "every change is recorded with its cause" in output.read_text()
        scraped = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        assert re.search(r"^kafka_replication_cluster_brokers\{.*\} 3", scraped, re.MULTILINE), scraped
        job = parts_of(process.pid)["job"]
        os.kill(job, signal.SIGKILL)
        until("isrwatch job was ended by signal 9; it starts again in 1 s, and nothing is lost")
        began = output.read_text().count("isrwatch job: running")
        deadline = time.monotonic() + PATIENCE
        while output.read_text().count("isrwatch job: running") == began:
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.3)
        os.kill(parts_of(process.pid)["export"], signal.SIGSTOP)
        until("isrwatch export hangs (it has not answered 6 times at http://127.0.0.1:")
        until("and was ended; it starts again in 1 s, and nothing is lost")
        wait_until(lambda: scraped_from(port), seconds=PATIENCE)
    finally:
        process.terminate()
        code = process.wait(120)
    assert code == 0
    assert output.read_text().rstrip().endswith("isrwatch run: stopped; the next start continues here")
