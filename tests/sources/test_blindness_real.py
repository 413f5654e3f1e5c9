"""What makes the collector of a real cluster blind: clocks that jump, damaged snapshots, addresses, newer records.

While it is blind it says so in one sentence, shows no sign of freshness, and the brokers are polled where they can be.
Within a minute of the cure it is right again, and no change is lost or invented.
"""

from __future__ import annotations

import itertools
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import DamagedRange
from streaming.contracts.codec import decode
from streaming.contracts.events import EventKind
from streaming.contracts.observations import Channel, SourceKind
from streaming.errors import ConnectionRefused, InvalidObservation
from streaming.jobs.shards.decoded_batch import decode_row
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from streaming.sources.collector import opening
from streaming.sources.metadata_log.decoding import PARTITION_CHANGE, SCHEMAS
from tests.plugins.pipeline import Pipeline, Program
from tests.plugins.real_collector import Collecting, Tables, facts, of_the_log

pytestmark = [pytest.mark.kafka, pytest.mark.long]
pytest_plugins = ["tests.plugins.pipeline", "tests.plugins.real_collector"]
MINUTE = 60.0
HOUR = 3_600_000_000
CONTROLLER = 101
UNREACHABLE = "192.0.2.1:9093"  # of the network for documentation (RFC 5737), which is nowhere

LOG = "metadata_log:collector-1"
SAME, OTHER = "the job's machine is the collector's", "the clock of the job's machine is right"
FAKETIME = next(map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), "")
COLLECT = """
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)  # clock_nanosleep fails under libfaketime 0.9.10
from streaming.commands import main
main()
"""


class Clock:
    """The clock of a machine, for the programs that are started with its environment. Timers run on as they should."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.environment = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # with it the waits of a JVM end at once, or hardly ever
            "NO_FAKE_STAT": "1",
        }
        self.set(0)

    def set(self, hours: int) -> None:
        """Be so many hours ahead of the true time from now on."""
        if hours and not FAKETIME:
            pytest.skip("there is no libfaketime: install the Debian package faketime, as make tools does")
        new = self._file.with_suffix(".new")
        new.write_text(f"{hours:+d}h\n")
        new.replace(self._file)


class Seen(Tables):
    """Keeps what cannot be read, too."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable = list[Any]()

    def publish_raw(self, *raw: Any) -> None:
        self.unreadable.append(raw)

    def until_of(self, source: str) -> int | None:
        """Up to when a source has reported."""
        with self._lock:
            return next((one.observed_until for one in self.state.sources.values() if one.source == source), None)

    def age(self) -> float:
        """Seconds since the time up to which the state is right; negative if that time is to come."""
        with self._lock:
            (cluster,) = self.state.clusters.values()
        return time.time() - (cluster.primary_watermark or 0) / 1e6


class OfBus:
    """What jobs on two machines make of a bus."""

    def __init__(self, bus: Path) -> None:
        self._reader, self._read = DirectoryReader(bus), dict[str, int]()
        self.tables = {SAME: Seen(), OTHER: Seen()}
        self.refused = list[str]()

    def has_refused(self) -> bool:
        """Whether the other machine's job did not believe something."""
        self.shows(OTHER, in_sync)
        return bool(self.refused)

    def shows(self, side: str, holds: Callable[[Seen], bool]) -> bool:
        """Whether something holds on one of the machines, after everything that is on the bus."""
        for source, end in self._reader.end_positions(Channel.REPLICATION).items():
            for item in self._reader.read(Channel.REPLICATION, source, self._read.get(source, 0), end):
                assert not isinstance(item, DamagedRange)
                self.tables[SAME].publish([decode(item.payload)])
                try:
                    self.tables[OTHER].publish([decode_row(item.payload, None, Channel.REPLICATION)])
                except InvalidObservation as reason:
                    self.refused.append(str(reason))
            self._read[source] = end
        return holds(self.tables[side])


def loopback() -> str:
    """The loopback address of IPv6 as it is written in addresses, or that of IPv4 where the kernel has no other."""
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return "[::1]"
    return "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def controllers_clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("controller") / "clock")


@pytest.fixture(scope="module")
def cluster(controllers_clock: Clock) -> Iterator[Sandbox]:
    """Its log begins with a KRaft snapshot, its controller is at an IPv6 address, and brokers are at one, too."""
    plan = plan_cluster(brokers=2)
    port, host = plan.controllers[CONTROLLER].client, loopback()
    protocols = ",".join(f"{name}:PLAINTEXT" for name in ("CONTROLLER", "SANDBOX", "CLIENT", "REPLICATION", "SIX"))
    common = {
        "listener.security.protocol.map": protocols,
        "controller.quorum.voters": f"{CONTROLLER}@{host}:{port + 20}",  # the ports of a sandbox are a block of 40
    }
    own: dict[int, dict[str, str]] = {
        CONTROLLER: {
            **common,
            "controller.listener.names": "CONTROLLER,SANDBOX",
            "listeners": f"CONTROLLER://{host}:{port + 20},SANDBOX://127.0.0.1:{port}",
            "metadata.log.max.record.bytes.between.snapshots": "60000",
            "metadata.max.retention.bytes": "60000",
            # Kafka waits so long for more records by the wall clock: set back meanwhile, it writes none for hours.
            "controller.quorum.append.linger.ms": "0",
        }
    }
    for broker, ports in plan.brokers.items():
        at = f"CLIENT://127.0.0.1:{ports.client},REPLICATION://127.0.0.1:{ports.replication},SIX://{host}:{ports.metrics}"
        own[broker] = {**common, "listeners": at, "advertised.listeners": at}
    with Sandbox(replace(plan, node_properties=own)) as it:
        it.admin.create_topic("orders", assignment=[[1, 2], [2, 1]])
        for number in (1, 2, 3, 4):  # of half a snapshot each: no configuration is longer
            long = ",".join([f"{number}:1"] * 8_000)
            it.admin.alter_topic_config("orders", {"leader.replication.throttled.replicas": long})
            wait_for(partial(has_snapshots, it, number // 2))
        restart_controller(it, controllers_clock)  # which deletes what is before the newest snapshot
        yield it


def has_snapshots(cluster: Sandbox, number: int) -> bool:
    return len(snapshots(cluster)) == number


def snapshots(cluster: Sandbox) -> list[Path]:
    """The KRaft snapshots on the controller's disk, the newest last."""
    return sorted((cluster.root / f"node-{CONTROLLER}" / "data" / "__cluster_metadata-0").glob("*.checkpoint"))


def restart_controller(cluster: Sandbox, clock: Clock, **properties: str) -> None:
    """Start the controller anew, with other properties, on a machine with this clock."""
    file = cluster.root / f"node-{CONTROLLER}" / "server.properties"
    cluster.kill(CONTROLLER)
    with file.open("a") as lines:
        lines.writelines(f"{key.replace('_', '.')}={value}\n" for key, value in properties.items())
    with pytest.MonkeyPatch.context() as environment:
        for name, value in clock.environment.items():
            environment.setenv(name, value)
        cluster.start(CONTROLLER)


def wait_for(condition: Callable[[], Any], what: Any = "", seconds: float = MINUTE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def until_each(
    collecting: Collecting, tables: Iterable[Seen], holds: Callable[[Seen], bool], what: str, seconds: float = MINUTE
) -> None:
    for seen in tables:
        collecting.until(partial(holds, seen), what, seconds)


def is_polled(seen: Seen) -> bool:
    return seen.primary() == SourceKind.POLL


def is_of_the_log(seen: Seen) -> bool:
    return seen.primary() == SourceKind.METADATA_LOG


def settings_of(cluster: Sandbox, *, servers: str = "", source: str = "auto", controller: str = "") -> Settings:
    addresses = {str(CONTROLLER): controller} if controller else {}
    return Settings(
        cluster=ClusterSettings(
            bootstrap_servers=servers or cluster.bootstrap_servers, controllers=ControllersSettings(addresses=addresses)
        ),
        collect=CollectSettings(
            primary_source=source, heartbeat_interval=1, poll_interval=0.5, offsets_interval=1, config_interval=1
        ),
    )


def in_sync(tables: Tables, *brokers: int) -> bool:
    return all(set(one.isr) == set(brokers) for one in tables.partitions().values())


def collect(pipeline: Pipeline, cluster: Sandbox, source: str, clock: Clock) -> tuple[Program, OfBus]:
    """Start ``isrwatch collect`` on a machine with this clock."""
    folder = pipeline.directory / source
    config = pipeline.directory / f"{source}.toml"
    config.write_text(
        f'[cluster]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n'
        f'[collect]\ncollector = "collector-1"\nlisten = ""\nprimary_source = "{source}"\n'
        'heartbeat_interval = "1s"\npoll_interval = "500ms"\noffsets_interval = "1s"\nconfig_interval = "1s"\n'
    )
    arguments = [sys.executable, "-c", COLLECT, "collect", "--config", str(config), "--bus", str(folder)]
    return pipeline.run(source, arguments, **clock.environment), OfBus(folder)


def test_a_collector_whose_clock_is_set_ahead_and_back_loses_and_invents_nothing(
    cluster: Sandbox, pipeline: Pipeline, tmp_path: Path
) -> None:
    clock = Clock(tmp_path / "clock")
    started = {source: collect(pipeline, cluster, source, clock) for source in ("metadata_log", "poll")}

    def everywhere(holds: Callable[[Seen], bool], *sides: str) -> None:
        for side, (program, bus) in itertools.product(sides or (SAME, OTHER), started.values()):
            wait_for(partial(bus.shows, side, holds), (side, program.text()))

    everywhere(lambda seen: len(seen.partitions()) > 1)
    clock.set(2)
    for program, bus in started.values():
        wait_for(bus.has_refused, program.text())
        assert "set the clock of the machine of" in bus.refused[0]
    cluster.stop(2)
    everywhere(lambda seen: in_sync(seen, 1), SAME)
    clock.set(0)
    everywhere(lambda seen: in_sync(seen, 1))
    clock.set(-2)
    cluster.start(2)
    everywhere(lambda seen: in_sync(seen, 1, 2))
    clock.set(0)
    cluster.admin.create_topic("later", partitions=1, replication_factor=2)
    everywhere(lambda seen: ("later", 0) in seen.partitions())
    everywhere(lambda seen: abs(seen.age()) < 5, OTHER)

    truth = facts(of_the_log(cluster, tmp_path, {}))
    kinds = (EventKind.ISR_SHRINK, EventKind.ISR_EXPAND)
    once = {(kind, *partition): 1 for kind in kinds for partition in truth if partition != ("later", 0)}
    for source, (program, bus) in started.items():
        same, other = bus.tables[SAME], bus.tables[OTHER]
        assert facts(same) == facts(other) == truth
        assert same.events(*kinds) == once
        assert source == "poll" or not same.events(EventKind.CHANGES_MISSED)  # between polls there may be two changes
        assert not [*same.events(EventKind.TOPIC_DELETED), *other.events(EventKind.TOPIC_DELETED)]
        assert program.stop() == 0
        assert "the clock of this machine was set back by 7200 s: everything is reported again" in program.text()


# With its clock set back by four hours the real controller has once not made a topic within a minute and a half.
def test_a_controller_whose_clock_is_set_ahead_and_back_is_followed_at_the_right_time(
    cluster: Sandbox, controllers_clock: Clock, collecting: Collecting, tmp_path: Path
) -> None:
    seen = Seen()
    collecting.start(settings_of(cluster), tmp_path, seen)
    collecting.until(lambda: len(seen.partitions()) > 1, "the first report")
    before = len(cluster.dump_metadata_log())
    try:
        for name, hours in (("ahead", 2), ("behind", -2), ("right", 0)):
            controllers_clock.set(hours)
            cluster.admin.create_topic(name, partitions=1, replication_factor=2)
            until_each(collecting, [seen], lambda seen, name=name: (name, 0) in seen.partitions(), name)
            collecting.until(lambda: abs(seen.age()) < 5, f"data of now, {name}", MINUTE)
    finally:
        controllers_clock.set(0)
    collecting.stop()

    times = [record.timestamp / HOUR for record in cluster.dump_metadata_log()[before:]]
    assert max(times) - min(times) > 3.9, "the controller's records are of other times"
    created = EventKind.TOPIC_CREATED
    assert seen.events(created) == {(created, name, 0): 1 for name in ("ahead", "behind", "right")}
    assert not any("polls the brokers" in line for line in collecting.lines)
    assert facts(seen) == facts(of_the_log(cluster, tmp_path, {}))


@pytest.mark.usefixtures("hurried")
def test_a_damaged_kraft_snapshot_is_not_believed_and_is_read_when_it_is_repaired(
    cluster: Sandbox, collecting: Collecting, tmp_path: Path
) -> None:
    *_, snapshot = snapshots(cluster)
    whole = snapshot.read_bytes()
    middle = len(whole) // 2
    damaged = {"changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], "cut off": whole[:middle]}
    tables = {how: Seen() for how in damaged}
    for how, content in damaged.items():
        snapshot.write_bytes(content)
        collecting.start(settings_of(cluster), tmp_path / how, tables[how])
        until_each(collecting, [tables[how]], is_polled, f"the brokers are polled, {how}")
    sentences = (
        "no data from the metadata log: the controller's KRaft snapshot before offset",
        "does not give its KRaft snapshot at offset",
    )
    collecting.until(lambda: all(map(collecting.count, sentences)), "it is said")
    assert collecting.count(sentences[0]) == 1
    assert [tables[how].until_of(LOG) for how in damaged] == [None, None]

    snapshot.write_bytes(whole)
    until_each(collecting, tables.values(), is_of_the_log, "the log is read")
    collecting.stop()
    assert [facts(seen) for seen in tables.values()] == [facts(of_the_log(cluster, tmp_path, {}))] * 2


def test_brokers_and_controllers_at_ipv6_addresses_are_read_and_polled(
    cluster: Sandbox, collecting: Collecting, tmp_path: Path
) -> None:
    servers = ",".join(f"{loopback()}:{ports.metrics}" for ports in cluster.plan.brokers.values())
    if loopback() != "[::1]":
        with pytest.raises(ConnectionRefused, match=r"\[::1\]:9092 cannot be reached"):
            opening.open_sources(settings_of(cluster, servers="[::1]:9092"), tmp_path, collecting.lines.append)
        return
    tables = {source: Seen() for source in ("metadata_log", "poll")}
    for source, seen in tables.items():
        collecting.start(settings_of(cluster, servers=servers, source=source), tmp_path / source, seen)
    until_each(collecting, tables.values(), lambda seen: len(seen.partitions()) > 1, "the first report")
    assert any("from controller 101 at [::1]:" in line for line in collecting.lines)

    cluster.admin.create_topic("short", partitions=1, replication_factor=2)
    until_each(collecting, tables.values(), lambda seen: ("short", 0) in seen.partitions(), "a topic is created")
    cluster.admin.delete_topic("short")
    deleted = (EventKind.TOPIC_DELETED, "short", 0)
    until_each(collecting, tables.values(), lambda seen: seen.events(deleted[0])[deleted] == 1, "it is deleted")


@pytest.mark.usefixtures("hurried")
def test_addresses_that_are_wrong_are_one_sentence_and_the_brokers_are_polled_if_they_can_be(
    cluster: Sandbox, controllers_clock: Clock, collecting: Collecting, tmp_path: Path
) -> None:
    closed, right = f"127.0.0.1:{free_port()}", f"127.0.0.1:{cluster.plan.controllers[CONTROLLER].client}"
    for wrong, sentence in ((closed, f"{closed} cannot be reached: Connection refused"), (right, "is no broker, but")):
        with pytest.raises(ConnectionRefused, match=sentence):
            opening.open_sources(settings_of(cluster, servers=wrong), tmp_path, collecting.lines.append)
    advertised = cluster.plan.node_properties[CONTROLLER]["controller.quorum.voters"]

    blind = {
        "a closed port": settings_of(cluster, controller=closed),
        "an address that is nowhere": settings_of(cluster),
    }
    tables = {how: Seen() for how in blind}
    restart_controller(cluster, controllers_clock, controller_quorum_voters=f"{CONTROLLER}@{UNREACHABLE}")
    try:
        for how, settings in blind.items():
            collecting.start(settings, tmp_path / how, tables[how])
        until_each(collecting, tables.values(), is_polled, "the brokers are polled")
        sentences = [f"no controller serves the metadata log: {where} cannot be" for where in (closed, UNREACHABLE)]
        collecting.until(lambda: all(map(collecting.count, sentences)), "it is said")
        assert [collecting.count(sentence) for sentence in sentences] == [1, 1]
        assert [seen.until_of(LOG) for seen in tables.values()] == [None, None]
        collecting.stop()

        for how, seen in tables.items():
            collecting.start(settings_of(cluster, controller=right), tmp_path / how, seen)
        until_each(collecting, tables.values(), is_of_the_log, "the log is read")
    finally:
        collecting.stop()
        restart_controller(cluster, controllers_clock, controller_quorum_voters=advertised)


@pytest.mark.usefixtures("hurried")
def test_records_of_a_newer_kafka_are_one_sentence_and_are_read_after_the_upgrade(
    cluster: Sandbox, collecting: Collecting, tmp_path: Path
) -> None:
    seen = Seen()
    collecting.start(settings_of(cluster), tmp_path, seen)
    collecting.until(lambda: is_of_the_log(seen), "the log is read")
    first = cluster.admin.describe("orders")["orders", 0].leader
    with pytest.MonkeyPatch.context() as program:
        program.setitem(SCHEMAS, PARTITION_CHANGE, replace(SCHEMAS[PARTITION_CHANGE], newest=0))
        cluster.admin.reassign("orders", 0, [3 - first, first])
        cluster.admin.elect_preferred("orders")
        collecting.until(lambda: is_polled(seen), "the brokers are polled")
        blind_since = seen.until_of(LOG)
        collecting.until(lambda: seen.partitions()["orders", 0].leader == 3 - first, "the other leader", MINUTE)
        assert seen.until_of(LOG) == blind_since
        assert collecting.count("no data from the metadata log: its record at offset ") == 1
        collecting.stop()
    collecting.start(settings_of(cluster), tmp_path, seen)
    collecting.until(lambda: is_of_the_log(seen), "the log is read after the upgrade", MINUTE)
    cluster.admin.create_topic("upgraded", partitions=1, replication_factor=2)
    collecting.until(lambda: ("upgraded", 0) in seen.partitions(), "it is followed", MINUTE)
    collecting.stop()
    assert seen.events(EventKind.LEADER_CHANGE) == {(EventKind.LEADER_CHANGE, "orders", 0): 1}
    assert facts(seen) == facts(of_the_log(cluster, tmp_path, {}))
