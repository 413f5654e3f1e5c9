"""``isrwatch doctor``: what works, what does not and the fix, one sentence each; no password, nothing changed."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from streaming.commands import app, doctor, doctor_machine
from streaming.commands.doctor import CHECKS, CHECKS_OF_THE_MACHINE, findings_of_clusters
from streaming.commands.doctor_machine import Status
from streaming.errors import ConfigurationError
from streaming.runtime.listening import address_of, listen
from streaming.settings import NO_LINKS, ClusterSettings, CollectSettings, Settings
from streaming.web.protection import protection_of
from streaming.web.status import StatusServer
from tests.plugins.certificates import make_certificate
from tests.plugins.fake_kafka import FakeKafka
from tests.sources.metadata_log.conftest import FRAMES, OF_ZOOKEEPER, batch

HASH = "$2y$04$PTGfq2o8T0Lq0Ja3oFKlV.bDZNIuhrfBoGAPCLlBTCEzVjJHdcoIC"


def settings_for(servers: str, **collect: Any) -> Settings:
    return Settings(cluster=ClusterSettings(bootstrap_servers=servers), collect=CollectSettings(**collect))


def found(check: str, servers: str, **collect: Any) -> list[tuple[Status, str]]:
    return list(CHECKS[check](settings_for(servers, **collect)))


def test_each_bootstrap_server_is_asked_alone_so_that_one_that_is_wrong_is_found(quorum: Any) -> None:
    servers = f"{quorum.addresses()},127.0.0.1:1"
    *answers, wrong = found("brokers", servers)
    assert [status for status, _ in answers] == [Status.OK] * 3
    assert "answers; it is of cluster 4L6g3nShT-eMCtK--X86sw" in answers[0][1]
    assert wrong == (Status.WARNING, wrong[1])
    assert "127.0.0.1:1 cannot be reached" in wrong[1]


def test_bootstrap_servers_of_two_clusters_are_a_problem(fake_kafka: Callable[[int], FakeKafka], quorum: Any) -> None:
    other = fake_kafka(1)
    other.cluster_id = "another-cluster"
    *_, (status, sentence) = found("brokers", f"{quorum.addresses()},{other.bootstrap_servers}")
    assert status is Status.PROBLEM
    assert sentence.startswith("cluster.bootstrap_servers names brokers of several clusters: 127.0.0.1:")
    assert f"{other.bootstrap_servers} is of another-cluster; name those of one" in sentence


@pytest.mark.parametrize("check", ["brokers", "polling", "samples", "reassignments"])
def test_a_login_that_there_is_not_is_named_by_every_check_that_asks_brokers(check: str) -> None:
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
    settings = Settings(cluster=ClusterSettings(bootstrap_servers="127.0.0.1:1", client=client))
    with pytest.raises(ConfigurationError, match=r"^cluster\.client sasl\.mechanism is 'GSSAPI', but"):
        list(CHECKS[check](settings))


def test_the_log_is_read_and_a_missing_permission_is_named_with_what_happens_meanwhile(quorum: Any) -> None:
    servers = quorum.addresses()
    assert [status for status, _ in found("metadata log", servers)] == [Status.OK]
    quorum.fetch_error = 31
    ((status, sentence),) = found("metadata log", servers)
    assert status is Status.WARNING
    assert "--operation ClusterAction --cluster" in sentence
    assert sentence.endswith("; the brokers are polled meanwhile")
    for primary_source, expected in (("metadata_log", Status.PROBLEM), ("poll", Status.SKIPPED)):
        assert [it for it, _ in found("metadata log", servers, primary_source=primary_source)] == [expected]


def test_a_record_of_a_newer_kafka_is_named_with_what_becomes_of_it(
    quorum: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum.append(*FRAMES, batch(192, 1, b"\x01\x63\x00"))
    unread = (
        "the metadata record at offset 192 cannot be read: unknown metadata record type 99 version 0: upgrade isrwatch"
    )
    first, read = found("metadata log", quorum.addresses())
    assert (first, read[0]) == ((Status.WARNING, unread), Status.OK)
    monkeypatch.setattr("streaming.commands.doctor_log.SECONDS", 0.2)
    quorum.append(batch(193, 1, b"\x01\x05\x03" + bytes(21)))
    first, (_, second), (status, then) = found("metadata log", quorum.addresses())
    assert (first, status) == ((Status.WARNING, unread), Status.WARNING)
    assert second.endswith("PartitionChange version 3, this program reads up to 2: upgrade isrwatch")
    assert then.startswith("the metadata log is not read until")


@pytest.mark.parametrize(("seconds", "expected"), [(0, Status.OK), (60, Status.WARNING), (-60, Status.WARNING)])
def test_a_clock_that_differs_from_the_controllers_is_found(quorum: Any, seconds: int, expected: Status) -> None:
    quorum.versions = {55: 1}  # Kafka before 3.9 gives no addresses of controllers, and their time all the same
    quorum.voters = {1: round((time.time() - seconds) * 1_000)}
    ((status, sentence),) = found("clock", quorum.addresses())
    assert status is expected
    assert ("ahead of" in sentence, "behind" in sentence) == (seconds > 0, seconds < 0)


@pytest.mark.parametrize(
    ("features", "expected", "sentence"),
    [
        ({"metadata.version": 33}, Status.OK, "metadata.version is 33, that of Kafka 4.4.0, with which isrwatch is"),
        ({"metadata.version": 21}, Status.OK, "metadata.version is 21, that of Kafka 3.9.1, with which isrwatch is"),
        ({"metadata.version": 15}, Status.OK, "the metadata log is tested with 33 (Kafka 4.4.0), 30 (Kafka 4.3.1), "),
        ({"metadata.version": 99}, Status.OK, "the metadata log says if one of its records cannot be read"),
        ({}, Status.OK, "a cluster with ZooKeeper, which is polled"),
    ],
)
def test_the_version_of_the_metadata_records_is_compared_with_what_can_be_read(
    quorum: Any, features: dict[str, int], expected: Status, sentence: str
) -> None:
    quorum.features = features
    quorum.versions = {} if features else OF_ZOOKEEPER
    ((status, said),) = found("versions", quorum.addresses())
    assert status is expected
    assert sentence in said


def test_brokers_whose_proxy_leaves_out_their_features_are_not_called_those_of_zookeeper(quorum: Any) -> None:
    for versions in ({}, {55: -1}):
        quorum.versions = versions
        ((status, said),) = found("versions", quorum.addresses())
        assert status is Status.WARNING
        assert "do not say which metadata.version they use: a proxy leaves that out" in said


def test_a_disk_that_is_full_for_a_check_does_not_end_the_others(
    quorum: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quorum.append(*FRAMES)
    few = {name: CHECKS[name] for name in ("metadata log", "broker metrics")}  # others wait for what is not answered
    monkeypatch.setattr(doctor, "CHECKS", few)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    settings = Settings(cluster=ClusterSettings(bootstrap_servers=quorum.addresses()))
    said = {each.check: each for each in findings_of_clusters([settings])}
    assert said["metadata log"].status is Status.PROBLEM
    assert said["metadata log"].sentence.startswith(str(tmp_path / "full"))
    assert said["metadata log"].sentence.endswith("No such file or directory")
    assert "broker metrics" in said


def test_what_can_be_polled_is_counted(fake_kafka: Callable[[int], FakeKafka]) -> None:
    cluster = fake_kafka(3)
    empty = found("polling", cluster.bootstrap_servers)
    assert empty[0] == (Status.OK, "visible: 3 brokers and 0 topics")
    cluster.create_topic("orders", partitions=2, replicas=1)
    first, second, *_ = found("polling", cluster.bootstrap_servers)
    assert first == (Status.OK, "visible: 3 brokers and 1 topic")
    assert second == (Status.OK, "min.insync.replicas of 1 topic can be read")


def test_a_folder_that_cannot_be_written_and_a_full_disk_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = Settings()
    settings = replace(settings, bus=replace(settings.bus, directory=str(file / "bus")))
    assert next(iter(CHECKS_OF_THE_MACHINE["folders"](settings)))[0] is Status.PROBLEM
    monkeypatch.setattr(doctor_machine, "LEAST_FREE_BYTES", 1 << 62)
    assert {status for status, _ in CHECKS_OF_THE_MACHINE["folders"](settings)} == {Status.PROBLEM, Status.WARNING}


def test_it_says_whether_alerts_have_links() -> None:
    settings = Settings()
    assert list(CHECKS_OF_THE_MACHINE["links"](settings)) == [(Status.SKIPPED, NO_LINKS)]
    settings = replace(settings, export=replace(settings.export, url="https://isrwatch.example/"))
    sentence = (
        "export.url: alerts and boards link to https://isrwatch.example/incidents and https://isrwatch.example/runbook"
    )
    assert list(CHECKS_OF_THE_MACHINE["links"](settings)) == [(Status.OK, sentence)]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (f"basic_auth_users: {{me: {HASH}}}", Status.OK, "gives logins"),
        ("basic_auth_users: {me: secret}", Status.PROBLEM, "basic_auth_users.me is no bcrypt hash"),
        ("tls_server_config: {cert_file: a.crt, key_file: a.key}", Status.PROBLEM, "cannot load"),
        ("http_server_config: {http2: false}", Status.WARNING, "protects nothing; write TLS or logins into it"),
        (None, Status.PROBLEM, "cannot read the web configuration"),
    ],
)
@pytest.mark.parametrize("program", ["collect", "job", "export"])
def test_the_web_configuration_of_each_program_is_checked(
    program: str, text: str | None, status: Status, said: str, tmp_path: Path
) -> None:
    web = tmp_path / "web.yml"
    if text is not None:
        web.write_text(text)
    settings = Settings()
    assert list(CHECKS_OF_THE_MACHINE["web files"](settings)) == []
    configured: dict[str, Any] = {program: replace(getattr(settings, program), web_config_file=str(web))}
    settings = replace(settings, **configured)
    ((it, sentence),) = CHECKS_OF_THE_MACHINE["web files"](settings)
    assert it is status
    assert sentence.startswith(f"{program}.web_config_file: {web}" if text else f"{program}.web_config_file:")
    assert said in sentence


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (f"basic_auth_users: {{me: {HASH}}}", Status.OK, "metrics and health checks are open to everyone, without a"),
        (
            "tls_server_config: {cert_file: web.crt, key_file: web.key}",
            Status.WARNING,
            "there are no logins, so it has",
        ),
    ],
)
def test_metrics_that_need_no_login_are_named(text: str, status: Status, said: str, tmp_path: Path) -> None:
    make_certificate(tmp_path, "web")
    web = tmp_path / "web.yml"
    web.write_text(text)
    exporting = replace(Settings().export, web_config_file=str(web), metrics_without_login=True)
    _, (it, sentence) = CHECKS_OF_THE_MACHINE["web files"](replace(Settings(), export=exporting))
    assert it is status
    assert said in sentence


def test_the_command_prints_findings_as_json_ends_with_1_at_a_problem_and_shows_no_password(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text(
        '[cluster]\nbootstrap_servers = "127.0.0.1:1"\n[cluster.client]\n"security.protocol" = "SASL_PLAINTEXT"\n'
        '"sasl.mechanism" = "PLAIN"\n"sasl.username" = "reader"\n"sasl.password" = "hunter2"\n'
        '[collect.broker_metrics]\n"1" = "http://reader:hunter3@127.0.0.1:1/metrics"\n'
        '"2" = "https://127.0.0.1:1/metrics"\n'
        '[collect.broker_metrics_client]\n"basic.auth.user.info" = "reader:hunter4"\n'
    )

    run = CliRunner().invoke(app, ["doctor", "--config", str(config), "-o", "json"])

    rows = json.loads(run.output)["findings"]
    assert run.exit_code == 1
    assert [row["status"] for row in rows if row["check"] == "brokers"] == ["problem"]
    assert {row["status"] for row in rows if row["check"] in {"metadata log", "clock", "polling"}} == {"skipped"}
    assert any("127.0.0.1:1/metrics of broker 1 does not respond" in row["sentence"] for row in rows)
    assert "hunter" not in run.output
    lines = CliRunner().invoke(app, ["doctor", "--config", str(config)]).output.splitlines()
    assert lines[-1].startswith("1 problem, ")


def test_each_of_several_clusters_is_checked_and_the_machine_once(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text(
        '[[cluster]]\nname = "prod"\nbootstrap_servers = "127.0.0.1:1"\n'
        '[[cluster]]\nname = "test"\nbootstrap_servers = "127.0.0.1:2"\n'
    )

    run = CliRunner().invoke(app, ["doctor", "--config", str(config), "-o", "json"])

    rows = json.loads(run.output)["findings"]
    refused = {row["cluster"]: row["sentence"] for row in rows if row["check"] == "brokers"}
    assert "127.0.0.1:1" in refused["prod"]
    assert "127.0.0.1:2" in refused["test"]
    assert {row["cluster"] for row in rows if row["check"] in CHECKS_OF_THE_MACHINE} == {""}
    lines = CliRunner().invoke(app, ["doctor", "--config", str(config), "--cluster", "test"]).output.splitlines()
    assert lines[-1].startswith("1 problem, ")


def test_the_option_that_a_sentence_about_no_servers_names_is_there(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text("")

    def brokers(*options: str) -> list[str]:
        run = CliRunner().invoke(app, ["doctor", "--config", str(config), "-o", "json", *options])
        rows = json.loads(run.output)["findings"]
        return [row["sentence"] for row in rows if row["check"] == "brokers"]

    assert ["(or --bootstrap-server)" in sentence for sentence in brokers()] == [True]
    (refused,) = brokers("--bootstrap-server", "127.0.0.1:1")
    assert "127.0.0.1:1 cannot be reached" in refused


def test_brokers_that_have_replicas_and_are_not_listed_are_named(fake_kafka: Callable[[int], FakeKafka]) -> None:
    kafka = fake_kafka(3)
    kafka.create_topic("orders", partitions=2, replicas=3)
    kafka.create_topic("alone", partitions=1, replicas=1)
    kafka.take_down(3)
    for part in (each for topic in kafka.view.topics.values() for each in topic.parts):
        part.isr = [each for each in part.isr if each != 3]
    said = found("polling", kafka.bootstrap_servers)
    assert said[0] == (Status.OK, "visible: 2 brokers and 2 topics")
    missing = "broker 3 is not among them, and 2 partitions have a replica on it: start it, or reassign them"
    assert said[1] == (Status.WARNING, missing)


def test_a_broker_that_the_controller_has_fenced_is_named(quorum: Any) -> None:
    quorum.append(*FRAMES[:88])
    read, *fenced = found("metadata log", quorum.addresses())
    assert read[0] is Status.OK
    ended = "broker 3 is fenced: it is not up; start it, or unregister it if it is gone for good"
    assert fenced == [(Status.WARNING, ended)]


def test_a_port_that_isrwatch_itself_listens_on_is_no_warning(tmp_path: Path) -> None:
    make_certificate(tmp_path, "server")
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
    for file in ("", str(web)):
        opened = listen("127.0.0.1:0", "--listen")
        address = address_of(opened)
        served: Any = {"listen": address, "web_config_file": file}
        settings = replace(Settings(), collect=CollectSettings(listen="", web_config_file=file))
        running = replace(settings, job=replace(settings.job, **served), export=replace(settings.export, listen=""))
        other = replace(running, job=settings.job, export=replace(settings.export, **served))
        protected = protection_of(file)
        said: Any = {"program": "job", "prefix": "job_", "healthy": "well", "protected": protected}
        with closing(StatusServer([opened], CollectorRegistry(), list, **said)):
            assert (Status.OK, f"job.listen: isrwatch job runs already at {address}") in ports(running)
            assert [status for status, sentence in ports(other) if address in sentence] == [Status.WARNING]


def test_a_port_of_a_program_that_says_nothing_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "ANSWER_SECONDS", 0.2)
    opened = listen("127.0.0.1:0", "--listen")
    address = address_of(opened)
    settings = Settings()
    said = ports(replace(settings, job=replace(settings.job, listen=address)))
    opened.close()
    assert [status for status, sentence in said if address in sentence] == [Status.WARNING]


def ports(settings: Settings) -> list[tuple[Status, str]]:
    return list(CHECKS_OF_THE_MACHINE["ports"](settings))
