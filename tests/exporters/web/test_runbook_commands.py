"""The commands of the runbook for one platform: which they are, and that no name in them is ever executed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exporters.web.runbook_commands import Installations, commands_for, for_platform
from exporters.web.runbook_page import section_page
from streaming.settings import PLATFORMS, ClusterSettings, CollectSettings, Settings
from tests.exporters.web.test_runbook import BOOK, HARMFUL, blocks

ITS_OWN: dict[str, tuple[str, ...]] = {
    "bare metal": ("systemctl", "df -h"),
    "strimzi": ("kubectl",),
    "msk": ("aws ", "systemctl"),  # of isrwatch
    "confluent cloud": (),
    "aiven": (),
}
"""What lines of the blocks of a platform begin with, and those of others do not."""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_platform_has_its_own_blocks_and_those_for_all_and_no_other_ones(platform: str) -> None:
    every = "\n".join(block.text for name in BOOK.sections for block in commands_for(name, platform, {}))
    others = {own for owns in ITS_OWN.values() for own in owns} - {*ITS_OWN[platform]}
    assert [line for line in every.splitlines() if line.startswith(tuple(others))] == []
    assert all(own in every for own in ITS_OWN[platform])
    for name in BOOK.sections:
        (setup, *rest) = commands_for(name, platform, {})
        assert "run() {" in setup.text
        assert rest


def test_every_block_of_a_section_is_for_some_platform_and_without_a_platform_there_are_all() -> None:
    for section in (BOOK.setup, *BOOK.sections.values()):
        assert for_platform(section, "") == section == for_platform(section, "a mainframe")
        chosen = {block for platform in PLATFORMS for block in blocks(for_platform(section, platform) + "\n")}
        assert chosen == set(blocks(section + "\n"))
    everything = [block.text for block in commands_for("IsrwatchBlind", "", {"server": "https://x"})]
    everything[0] = "export ISRWATCH_SERVER={server}"
    assert everything == [
        block.rstrip("\n") for block in (*blocks(BOOK.setup + "\n"), *blocks(BOOK.sections["IsrwatchBlind"]))
    ]


def test_a_class_of_incidents_has_the_blocks_of_its_section_and_an_unknown_name_has_none() -> None:
    assert commands_for("broker_loss", "msk", {}) == commands_for("IsrwatchBrokerDown", "msk", {})
    assert commands_for("no_such_class", "msk", {}) == []


def test_with_the_address_of_the_exporter_commands_run_from_any_machine_and_without_it_that_block_is_left_out() -> None:
    known = Installations(url="https://isrwatch.example/kafka/")
    first, *rest = commands_for("IsrwatchBrokerDown", "msk", known.labels("prod"))
    assert first.text == "export ISRWATCH_SERVER=https://isrwatch.example/kafka"
    assert rest == commands_for("IsrwatchBrokerDown", "msk", {})


def test_without_a_configuration_the_addresses_are_those_that_brokers_advertise() -> None:
    pod = "prod-dual-role-0.prod-kafka-brokers.kafka.svc:9092"
    advertised = {"prod": "broker-1:9092,broker-2:9092", "pods": pod}
    known = Installations(
        clusters={"mine": ClusterSettings(name="mine", bootstrap_servers="b:1")},
        advertised=lambda cluster: advertised.get(cluster, "never"),
    )
    assert known.labels("prod")["bootstrap_servers"] == "broker-1:9092,broker-2:9092"
    assert known.labels("pods") == {"bootstrap_servers": pod, "resource": "prod", "namespace": "kafka"}
    assert known.labels("mine")["bootstrap_servers"] == "b:1", "the configuration counts first"
    setup, *_ = commands_for("IsrwatchBrokerDown", "bare metal", {})
    assert setup.left == ["{bootstrap_servers}"]
    assert commands_for("IsrwatchBrokerDown", "bare metal", known.labels("prod"))[0].left == []


def test_a_block_is_headed_by_what_it_is_for() -> None:
    setup, see, own, unregister = commands_for("IsrwatchBrokerDown", "bare metal", {"broker": "3", "cluster": "prod"})
    assert setup.heading.startswith("Bare metal, Confluent Cloud, Aiven. With Kafka's bin folder")
    assert see.heading == "See. What happened, and what stopping another broker would cost."
    assert own.heading == "Do. By reason"
    assert "cluster=prod subject=3" in own.text
    assert "--extend" not in own.text, "work that is over, or was never announced, cannot be extended"
    assert unregister.heading.startswith("If it will not return")
    assert unregister.text == "run kafka-cluster.sh unregister --bootstrap-server $B --id 3"
    assert "Bare metal" in [block.heading for block in commands_for("IsrwatchBrokerDown", "", {})]


_CALLED = 'command_not_found_handle() { local IFS=$(printf "\\037"); printf "%s\\n" "$*" >>"$CALLS"; }\n'
"""One write for each command, because those of a pipe run at the same time."""


def _calls(text: str, folder: Path) -> list[list[str]]:
    """Run commands in a shell that has none of them, and return the words of each that it would have run."""
    folder.mkdir()
    calls, here = folder / "calls", folder / "here"
    here.mkdir()
    environment = {"PATH": str(here), "CALLS": str(calls)}
    subprocess.run(
        ["/bin/bash", "-c", _CALLED + text], env=environment, cwd=here, check=False, capture_output=True, timeout=60
    )
    assert list(here.iterdir()) == []
    return [call.split("\037") for call in calls.read_text().split("\n")[:-1]]


def _every_command(platform: str, name: str) -> str:
    labels = {"cluster": name, "topic": name, "group": name, "broker": "3", "bootstrap_servers": "b:9092"}
    labels |= {"namespace": "ns", "resource": "k"}
    every = (block.text for section in BOOK.sections for block in commands_for(section, platform, labels))
    return "\n".join(dict.fromkeys(every))


@pytest.mark.parametrize("platform", PLATFORMS[:3])
def test_commands_run_with_any_name_are_those_of_a_plain_name_with_that_one_in_it(
    platform: str, tmp_path: Path
) -> None:
    plain = sorted(_calls(_every_command(platform, "NAME"), tmp_path / "plain"))
    assert len(plain) > 80
    for number, harmful in enumerate(("".join(HARMFUL) + "*~{topic}!x$B#'\"\\'; id #", "*", "~", "#")):
        calls = sorted(_calls(_every_command(platform, harmful), tmp_path / str(number)))
        assert calls == sorted([[word.replace("NAME", harmful) for word in call] for call in plain]), harmful


# What an exporter knows of its clusters.


@pytest.mark.parametrize("written", ["${SERVERS}", "${HOST}:9092", "file:/run/servers"])
def test_addresses_that_stand_elsewhere_are_those_that_the_brokers_advertise(written: str) -> None:
    cluster = ClusterSettings(name="prod", bootstrap_servers=written)
    known = Installations({"prod": cluster}, advertised=lambda _: "broker-1:9092")
    assert known.labels("prod") == {"bootstrap_servers": "broker-1:9092"}


def of_clusters(*clusters: ClusterSettings) -> Installations:
    return Installations.of(Settings(cluster=each) for each in clusters)


@pytest.mark.parametrize(
    ("servers", "labels"),
    [
        ("prod-kafka-bootstrap.kafka.svc:9093", {"resource": "prod", "namespace": "kafka"}),
        ("a-b-kafka-bootstrap.ns-1.svc.cluster.local:9092", {"resource": "a-b", "namespace": "ns-1"}),
        ("x-broker-0.x-kafka-brokers.ns.svc:9092,y:1", {"resource": "x", "namespace": "ns"}),
        ("prod-kafka-bootstrap:9092", {"resource": "prod"}),
        ("broker-1:9092,broker-2:9092", {}),
    ],
)
def test_the_place_of_strimzi_is_read_from_the_bootstrap_servers(servers: str, labels: dict[str, str]) -> None:
    known = of_clusters(ClusterSettings(name="prod", bootstrap_servers=servers, platform="strimzi"))
    assert known.labels("prod") == {"bootstrap_servers": servers, **labels}
    assert known.platform("prod") == "strimzi"


def test_nothing_is_known_of_a_cluster_that_the_configuration_has_not_or_whose_servers_stand_elsewhere() -> None:
    known = of_clusters(ClusterSettings(name="prod", bootstrap_servers="${SERVERS}"), ClusterSettings(name="new"))
    assert (known.labels("other"), known.platform("other")) == ({}, "")
    assert known.labels("new") == {}
    setup = commands_for("IsrwatchBlind", "bare metal", known.labels("prod"))[0].text
    assert setup.startswith("B={bootstrap_servers}\n")


def test_an_exporter_knows_how_often_each_cluster_of_its_configuration_is_polled() -> None:
    often = Settings(cluster=ClusterSettings(name="often"), collect=CollectSettings(poll_interval=1.0))
    known = Installations.of([often, Settings(cluster=ClusterSettings(name="usual"))])
    assert known.poll_intervals == {"often": 1.0, "usual": CollectSettings().poll_interval}


def test_the_resource_of_strimzi_is_called_as_the_cluster_unless_the_servers_say_otherwise() -> None:
    assert "K=prod\n" in commands_for("IsrwatchBlind", "strimzi", {"cluster": "prod"})[0].text
    assert "K=other\n" in commands_for("IsrwatchBlind", "strimzi", {"cluster": "prod", "resource": "other"})[0].text
    assert "K={resource}\n" in commands_for("IsrwatchBlind", "strimzi", {"cluster": "my prod"})[0].text


def test_the_runbook_shows_a_cluster_what_its_platform_needs_and_is_filled_in_with_what_the_configuration_has() -> None:
    servers = "prod-kafka-bootstrap.kafka.svc:9093"
    known = of_clusters(ClusterSettings(name="eu prod", bootstrap_servers=servers, platform="strimzi"))
    page = section_page(BOOK, "IsrwatchBrokerDown", {"cluster": "eu prod", "broker": "3"}, known)
    assert "NS=kafka K=prod\n" in page
    assert "systemctl" not in page
    assert servers not in page.partition("<h2 id=setup>")[0]
    assert "systemctl" in section_page(BOOK, "IsrwatchBrokerDown", {"cluster": "other", "broker": "3"}, known)
