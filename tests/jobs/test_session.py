"""The Spark session: what the user gave to Spark wins, the rest is what was measured."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyspark
import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters  # type: ignore[import-untyped]  # ships no types
from py4j.protocol import Py4JError, get_return_value  # type: ignore[import-untyped]  # the same

from streaming.commands.job import run_until_stopped
from streaming.delta.log.claim import EVERY_QUERY, claim_of
from streaming.errors import ConfigurationError
from streaming.jobs import session
from streaming.jobs.application import Application
from streaming.jobs.queries import JobLocations
from streaming.jobs.session import (
    DELTA,
    SECONDS_TO_KEEP_PLANNERS,
    configuration,
    end_planners,
    is_local,
    measured_configuration,
    named_by_user,
    parse_properties,
    submit_arguments,
    tasks_at_once,
    waits_for_executors,
)
from streaming.jobs.streams import bus_source
from streaming.resources import conf_path
from streaming.settings import JobSettings
from tests.benchmarks._processes import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_JARS = (Path("/jars/delta-spark_4.2_2.13-4.4.0.jar"), Path("/jars/delta-storage-4.4.0.jar"))


def test_the_measured_configuration_is_the_reference_file() -> None:
    measured = measured_configuration()
    assert measured["spark.master"] == "local[2]"
    assert measured["spark.sql.session.timeZone"] == "UTC"
    assert measured["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"
    assert measured["spark.sql.adaptive.enabled"] == "false"
    assert measured["spark.sql.streaming.minBatchesToRetain"] == "20"
    assert measured["spark.ui.enabled"] == "false"
    assert measured["spark.driver.bindAddress"] == "127.0.0.1"
    assert measured["spark.driver.extraJavaOptions"].endswith("/conf/log4j2.properties")


def test_every_class_whose_log_is_configured_is_one_of_spark() -> None:
    configured = parse_properties(conf_path("log4j2.properties").read_text())
    names = {name for key, name in configured.items() if re.fullmatch(r"logger\.\w+\.name", key)}
    classes = set[str]()
    for jar in Path(pyspark.__file__).parent.glob("jars/*.jar"):
        if jar.name.startswith(("spark-", "hadoop-")):
            with zipfile.ZipFile(jar) as content:
                classes |= {name.removesuffix(".class").replace("/", ".") for name in content.namelist()}
    assert names - classes == set()


def test_what_the_user_gave_is_left_alone() -> None:
    given = {"spark.ui.enabled": "true", "spark.app.name": "mine", "spark.executor.memory": "4g"}
    unset = configuration("isrwatch", given, jars=(), extra={"spark.ui.enabled": "false", "spark.driver.memory": "1g"})
    assert not set(given) & set(unset)
    assert unset["spark.driver.memory"] == "1g"


def test_the_file_of_the_launcher_is_no_name_of_the_application() -> None:
    given = {"spark.app.name": "main.py", "spark.master": "yarn"}
    assert named_by_user(given, "/opt/isrwatch/deploy/spark/main.py") == {"spark.master": "yarn"}
    assert named_by_user({**given, "spark.app.name": "mine"}, "main.py") == {**given, "spark.app.name": "mine"}
    assert configuration("isrwatch", {"spark.master": "yarn"}, (), {})["spark.app.name"] == "isrwatch"


def test_our_own_extra_wins_over_the_reference_file() -> None:
    unset = configuration("isrwatch", {}, jars=(), extra={"spark.sql.streaming.minBatchesToRetain": "8"})
    assert unset["spark.sql.streaming.minBatchesToRetain"] == "8"


def test_a_cluster_keeps_its_own_addresses_pages_plans_and_checkpoint_manager() -> None:
    unset = configuration("isrwatch", {"spark.master": "yarn"}, jars=(), extra={})
    assert "spark.ui.enabled" not in unset
    assert "spark.sql.adaptive.enabled" not in unset
    assert "spark.driver.bindAddress" not in unset
    assert "spark.driver.defaultJavaOptions" not in unset
    assert "spark.driver.host" not in unset
    assert "spark.sql.streaming.checkpointFileManagerClass" not in unset
    assert unset["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize("master", ["", "local[4]", "spark://host:7077", "yarn"])
def test_executors_fold_unless_spark_runs_in_the_driver_alone(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("streaming.jobs.session.is_submitted", lambda: False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master {master} pyspark-shell" if master else "")
    assert is_local() is (master in {"", "local[4]"})


@pytest.mark.parametrize(
    ("given", "expected"), [({}, None), ({"cores": "1"}, 1), ({"cores": "4"}, 4), ({"cores": "4", "cpus": "4"}, 1)]
)
def test_an_executor_with_several_cores_is_noticed(given: dict[str, str], expected: int | None) -> None:
    names = {"cores": "spark.executor.cores", "cpus": "spark.task.cpus"}
    context = SimpleNamespace(getConf=lambda: {names[name]: value for name, value in given.items()})
    assert tasks_at_once(cast("SparkSession", SimpleNamespace(sparkContext=context))) == expected


def test_delta_is_switched_on_only_with_its_jars() -> None:
    without = configuration("isrwatch", {}, jars=(), extra={})
    within = configuration("isrwatch", {}, jars=DELTA_JARS, extra={})
    assert not {"spark.jars", *DELTA} & set(without)
    assert ",".join(map(str, DELTA_JARS)) == within["spark.jars"]
    assert within.items() >= DELTA.items()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a comment\n\n! another", {}),
        ("spark.master  local[2]\nspark.ui.enabled=false\nspark.x: y", {
            "spark.master": "local[2]", "spark.ui.enabled": "false", "spark.x": "y"}),
        ("spark.driver.extraJavaOptions  -Da=b -Dc=d", {"spark.driver.extraJavaOptions": "-Da=b -Dc=d"}),
        ("spark.empty", {"spark.empty": ""}),
    ],
)  # fmt: skip
def test_properties_are_read_as_spark_reads_them(text: str, expected: dict[str, str]) -> None:
    assert expected == parse_properties(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("pyspark-shell", {}),
        ("--master local[1] --name=mine --driver-memory 4g pyspark-shell", {
            "spark.master": "local[1]", "spark.app.name": "mine", "spark.driver.memory": "4g"}),
        ("--conf spark.a=b=c -c 'spark.d=e f' --conf=spark.g=h pyspark-shell", {
            "spark.a": "b=c", "spark.d": "e f", "spark.g": "h"}),
        ("--driver-java-options '-Da=b -Dc=d' --verbose --jars x.jar", {
            "spark.driver.extraJavaOptions": "-Da=b -Dc=d", "spark.jars": "x.jar"}),
    ],
)  # fmt: skip
def test_arguments_are_read_as_spark_submit_reads_them(text: str, expected: dict[str, str]) -> None:
    assert expected == submit_arguments(text)


def test_the_reference_files_are_found_in_a_checkout() -> None:
    assert Path(__file__).parents[2] / "conf" == conf_path("log4j2.properties").parent


@pytest.mark.spark
def test_a_session_has_the_configuration_and_this_python(spark: SparkSession) -> None:
    given = spark.sparkContext.getConf()
    assert given.get("spark.sql.streaming.minBatchesToRetain") == "20"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.pythonExec == os.environ["PYSPARK_PYTHON"] == sys.executable
    assert not waits_for_executors(spark)


SCRIPT = """
from streaming.jobs.session import build_session
conf = build_session('isrwatch').sparkContext.getConf()
for key in ('sql.streaming.minBatchesToRetain', 'app.name', 'ui.showConsoleProgress', 'master'):
    print('found', key, conf.get(f'spark.{key}'))
"""
GIVEN = ("--conf", "spark.sql.streaming.minBatchesToRetain=5", "--name", "mine", "--master", "local[1]")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("by", ["spark-submit", "PYSPARK_SUBMIT_ARGS"])
def test_arguments_of_spark_submit_and_its_defaults_file_win(tmp_path: Path, by: str) -> None:
    """The arguments win over spark-defaults.conf, which wins over ours."""
    defaults = "spark.sql.streaming.minBatchesToRetain 3\nspark.ui.showConsoleProgress true\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    submit = (str(Path(sys.executable).parent / "spark-submit"), *GIVEN)
    environment = {"PYSPARK_SUBMIT_ARGS": f"{shlex.join(GIVEN)} pyspark-shell"} if by == "PYSPARK_SUBMIT_ARGS" else {}
    ran = subprocess.run(
        [*(submit if by == "spark-submit" else [sys.executable]), script],
        env={**os.environ, **environment, "SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable,
             "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = [line.removeprefix("found ") for line in ran.stdout.splitlines() if line.startswith("found ")]

    assert found == [
        "sql.streaming.minBatchesToRetain 5",
        "app.name mine",
        "ui.showConsoleProgress true",
        "master local[1]",
    ]


class Ended(SimpleNamespace):
    """The part of a session that is asked for at its end; nothing runs."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        java = SimpleNamespace(sc=lambda: SimpleNamespace(stop=self.codes.append))
        super().__init__(sparkContext=SimpleNamespace(_jsc=java), stop=lambda: None)


@pytest.mark.parametrize(("error", "code"), [(ConfigurationError("x"), 2), (KeyboardInterrupt(), 1)])
def test_an_error_before_the_queries_run_is_given_to_sparks_manager_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fails(*_: object) -> None:
        raise error

    spark = Ended()
    monkeypatch.setattr(session, "build_session", lambda *_, **__: spark)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(Application, "start", fails)
    places = JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "checkpoint")
    settings = JobSettings(listen="")
    claim = claim_of(places.tables, EVERY_QUERY, 10.0, print)
    with pytest.raises(type(error)):
        run_until_stopped(settings, places, claim, standby=False)
    assert spark.codes == [code]


@pytest.mark.spark
@pytest.mark.long
def test_planners_end_after_their_work_and_the_next_plan_finds_others(spark: SparkSession, tmp_path: Path) -> None:
    """Spark gives a worker up that was idle for a minute; until then it would use the one that has ended."""
    bus_source.register(spark)
    source = spark.readStream.format(bus_source.FORMAT).options(directory=str(tmp_path), channel="replication")
    schema = source.load().schema
    assert planners(spark)
    end_planners(spark)
    assert planners(spark), "they are young"
    time.sleep(SECONDS_TO_KEEP_PLANNERS + 1)
    end_planners(spark)
    deadline = time.monotonic() + 10
    while planners(spark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not planners(spark)
    assert source.load().schema == schema


def planners(spark: SparkSession) -> list[int]:
    """Name the processes below Spark's that plan."""
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in tree(java)}
    return [pid for pid, command in commands.items() if b"pyspark.sql.worker." in command]


def test_a_call_for_which_java_has_ended_is_an_error_and_no_trace_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_each(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.recv(1)
                connection.close()

    def traces() -> list[str]:
        caplog.clear()
        with pytest.raises(Py4JError):
            get_return_value(client.send_command("c\no0\ngetPid\ne\n", retry=False), client)
        return [record.getMessage() for record in caplog.records]

    monkeypatch.setattr(logging.getLogger(), "filters", [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=end_each, args=(server,), daemon=True).start()
        client = GatewayClient(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        assert traces() == ["Exception while sending command."]
        session.silence_connections()
        assert traces() == []
        logging.getLogger().warning("of others")
        assert caplog.messages == ["of others"]
        server.shutdown(socket.SHUT_RDWR)
