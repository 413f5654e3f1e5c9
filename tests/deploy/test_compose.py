"""The compose file, as far as it can be checked without a container engine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.images.plan import images
from streaming.commands import COMMANDS, load
from streaming.settings import load as load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("isrwatch:")]
VARIANT = {"collector": "slim", "job": "full", "exporter": "slim"}
LASTING = [name for name, service in SERVICES.items() if service["restart"] != "no"]


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Give source, target and whether it is read-only."""
    for mount in service.get("volumes", []):
        source, target, *mode = mount.split(":")
        yield source, target, mode == ["ro"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_by_its_tag(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+(-full)?", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_the_loopback_address_only(name: str) -> None:
    assert [port for port in SERVICES[name].get("ports", []) if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_may_gain_privileges_or_carries_a_secret(name: str) -> None:
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(SERVICES[name])
    named = [key for key in SERVICES[name].get("environment", {}) if re.search("PASSWORD|SECRET|TOKEN|KEY", key)]
    assert named == []


@pytest.mark.parametrize("name", [name for name in LASTING if name not in OURS])
def test_every_lasting_service_tells_whether_it_is_healthy(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)


@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_what_serves_http_is_asked_whether_it_is_alive_and_not_whether_it_has_data(name: str) -> None:
    # Not /-/ready: an exporter waits there for tables, and is not to be restarted for that.
    (address,) = re.findall(r"http://[^'\s]+", " ".join(SERVICES[name]["healthcheck"]["test"]))
    (published,) = SERVICES[name]["ports"]
    host, port, inside = published.split(":")
    assert port == inside
    assert address == f"http://{host}:{port}/-/healthy"


def test_the_pages_of_our_programs_are_where_they_listen() -> None:
    settings = load_settings(DEPLOY / "isrwatch.toml")
    listening = {"collector": settings.collect.listen, "job": settings.job.listen, "exporter": settings.export.listen}
    assert {name: f":{SERVICES[name]['ports'][0].rpartition(':')[2]}" for name in OURS} == listening


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_the_generated_files_are_mounted_as_a_folder_so_that_new_ones_come_in(service: str) -> None:
    generated = DEPLOY.parent / "dashboards" / "generated"
    sources = [(DEPLOY / source).resolve() for source, _, _ in mounts(SERVICES[service]) if source.startswith(".")]
    assert generated in sources
    assert [source for source in sources if generated in source.parents] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_exists_and_can_become_ready(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        expected = "service_healthy" if other in LASTING else "service_completed_successfully"
        assert how["condition"] == expected, other


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists_and_is_read_only(name: str) -> None:
    for source, target, read_only in mounts(SERVICES[name]):
        if source.startswith("."):
            assert (DEPLOY / source).resolve().exists(), source
            assert read_only, target
        else:
            assert source in COMPOSE["volumes"]


def test_every_volume_is_used() -> None:
    used = {source for service in SERVICES.values() for source, _, _ in mounts(service) if not source.startswith(".")}
    assert set(COMPOSE["volumes"]) == used


@pytest.mark.parametrize("name", OURS)
def test_our_commands_and_their_options_exist(name: str) -> None:
    command, *arguments = SERVICES[name]["command"]
    assert command in COMMANDS
    known = {option for parameter in load(command).params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= known


@pytest.mark.parametrize("name", OURS)
def test_our_containers_read_a_configuration_that_is_mounted_and_valid(name: str) -> None:
    path = images().configuration
    (source,) = [source for source, target, _ in mounts(SERVICES[name]) if target == path]
    settings = load_settings(DEPLOY / source)
    folders = {settings.bus.directory, settings.tables.directory, settings.job.checkpoint}
    assert all(folder.startswith("/data/") for folder in folders)
    assert "/data" in {target for _, target, _ in mounts(SERVICES[name])}


def test_our_containers_ask_the_brokers_that_are_there() -> None:
    asked = load_settings(DEPLOY / "isrwatch.toml").cluster.bootstrap_servers.split(",")
    told = [
        service["environment"]["KAFKA_ADVERTISED_LISTENERS"].removeprefix("BROKER://")
        for name, service in SERVICES.items()
        if name.startswith("kafka-")
    ]
    assert asked == told


def test_the_brokers_form_one_quorum() -> None:
    brokers = {name: service["environment"] for name, service in SERVICES.items() if name.startswith("kafka-")}
    voters = [f"{settings['KAFKA_NODE_ID']}@{name}:9093" for name, settings in brokers.items()]
    assert {settings["KAFKA_CONTROLLER_QUORUM_VOTERS"] for settings in brokers.values()} == {",".join(voters)}
    assert len({settings["CLUSTER_ID"] for settings in brokers.values()}) == 1


def test_kafka_is_the_version_that_the_sandbox_runs() -> None:
    lock = tomllib.loads((DEPLOY.parent / "conf/jars.lock").read_text())
    coordinates = re.findall(r"org\.apache\.kafka:kafka_2\.13:([\d.]+)", str(lock["sandbox"]))
    assert {SERVICES["kafka-1"]["image"]} == {f"apache/kafka:{version}" for version in coordinates}


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_the_image_that_their_command_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["image"] == images().tag(VARIANT[name])
    assert service["build"] == {"context": "..", "dockerfile": "deploy/docker/Dockerfile", "target": VARIANT[name]}


@pytest.mark.parametrize("name", OURS)
def test_our_containers_can_write_nothing_but_their_volume_and_tmp(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp:exec"], ["ALL"])  # noqa: S108
    assert [target for source, target, read_only in mounts(service) if not read_only] == ["/data"]
    assert "healthcheck" not in service, "the image's is asked"
