"""The tail against real controllers: what Kafka's own tool reads from the disk is what came over the wire."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.cluster_settings import each_cluster
from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.events import EventKind
from streaming.contracts.observations import SnapshotReason, SourceKind
from streaming.runtime.jars import groups
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.metadata_log import tail as tail_module
from streaming.sources.metadata_log.decoding import SCHEMAS, TESTED, decode, raw_records, read_fields
from streaming.sources.metadata_log.opening import open_voters
from streaming.sources.metadata_log.quorum import Bootstrap
from streaming.sources.permissions import CLUSTER_ACTION
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import ServiceRefused, dialer
from streaming.sources.protocol.primitives import ByteReader
from streaming.sources.protocol.security import Security
from streaming.sources.protocol.tokens import COMMAND
from streaming.sources.source import wall_clock
from tests.blocks import singly
from tests.plugins.real_collector import READER, Following, Rules, Tables, facts, of_the_log
from tests.plugins.sandbox import SECURED
from tests.sources.test_tokens import jwt, printing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deploy.sandbox import DumpedRecord, Sandbox
    from tests.plugins.real_collector import Collecting

    MakeSandbox = Callable[..., Sandbox]

pytestmark = pytest.mark.kafka
pytest_plugins = ["tests.plugins.real_collector"]


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Following]]:
    running: list[Following] = []

    def start(cluster: Sandbox, **settings: Any) -> Following:
        running.append(Following(cluster, tmp_path / "checkpoint.json", **settings))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, bytes]]:
    """Keep offset to (batch time, value) of each data record that was given out."""
    found: dict[int, tuple[int, bytes]] = {}

    def noting(frame: Any) -> Any:
        batch = decode(frame)
        for index, (key, value) in enumerate(raw_records(frame)):
            if not key:
                assert frame.base_offset + index not in found, "a record was given out twice"
                found[frame.base_offset + index] = (batch.timestamp, value)
        return batch

    monkeypatch.setattr(tail_module, "decode", noting)
    return found


def same(record: DumpedRecord, on_the_wire: tuple[int, bytes]) -> bool:
    """Tell whether a record of the disk and one of the wire agree in every field that either of them has."""
    timestamp, value = on_the_wire
    reader = ByteReader(value)
    _, key, version = (reader.unsigned_varint() for _ in range(3))
    fields = spelled(read_fields(reader, key, version)) if key in SCHEMAS else {}
    dumped = spelled(record.data) if key in SCHEMAS else {}
    differing = {name for name in fields | dumped if fields.get(name) != dumped.get(name)}
    defaults = (None, [], 0, -1, -2)
    return (record.timestamp, record.version) == (timestamp, version) and all(
        name not in fields and dumped[name] in defaults for name in differing
    )


def spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): spelled(item) for name, item in value.items()}
    return [spelled(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.long
@pytest.mark.parametrize(("version", "level"), [("3.9", 21), ("3.6", 14)])
def test_an_older_cluster_that_is_broken_and_mended_is_reported_record_for_record(
    kafka_cluster: MakeSandbox, follow: Any, wire: dict[int, tuple[int, bytes]], version: str, level: int
) -> None:
    cluster = kafka_cluster(version=version, broker_session_timeout_ms=2000)
    seen = reported_record_for_record(cluster, follow(cluster), wire, level)
    if not cluster.plan.advertises_controllers:
        seen.stop()
        wire.clear()  # the doctor reads them again
        the_doctor_asks_for_the_addresses_of_the_controllers(cluster)


def test_a_cluster_that_is_broken_and_mended_is_reported_record_for_record(
    kafka_4_3: Sandbox, follow: Any, wire: dict[int, tuple[int, bytes]]
) -> None:
    (controller,) = kafka_4_3.controller_addresses.values()
    with pytest.raises(ServiceRefused, match="is no broker, but a controller: name brokers"):
        Bootstrap(parse_servers(controller), dialer(Security())).cluster_id()
    try:
        reported_record_for_record(kafka_4_3, follow(kafka_4_3), wire, 30)
    finally:
        delete_topic(kafka_4_3, "recorded")


def test_kafka_4_4_whose_controllers_ask_for_a_login_is_reported_record_for_record(
    kafka_secured: Sandbox, follow: Any, wire: dict[int, tuple[int, bytes]]
) -> None:
    try:
        reported_record_for_record(kafka_secured, follow(kafka_secured, client=ADMIN), wire, 33)
    finally:
        delete_topic(kafka_secured, "recorded")


def delete_topic(cluster: Sandbox, topic: str) -> None:
    """Delete a topic and ask for it no more: a broker may create what it is asked for."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.delete_topics([topic])[topic].result(30)


def reported_record_for_record(
    cluster: Sandbox, seen: Following, wire: dict[int, tuple[int, bytes]], level: int
) -> Following:
    """Break a cluster and mend it, and compare what came over the wire with what Kafka's own tool reads."""
    servers = parse_servers(cluster.bootstrap_servers)
    assert Bootstrap(servers, dialer(Security())).features()["metadata.version"] == level
    assert TESTED[level] in {jar.version for jar in groups()[cluster.plan.jars].jars if jar.artifact == "kafka_2.13"}
    last = cluster.broker_ids[-1]
    cluster.admin.create_topic("recorded", partitions=6, replication_factor=last, configs={"min.insync.replicas": "2"})
    cluster.admin.alter_topic_config("recorded", {"retention.ms": "1000000"})
    cluster.kill(last)
    seen.until(lambda: all(last not in one.isr for one in seen.partitions("recorded").values()), "it is out of sync")
    cluster.admin.create_topic("short", replication_factor=last - 1)
    cluster.start(last)
    seen.until(lambda: all(last in one.isr for one in seen.partitions("recorded").values()), "it is in sync")
    delete_topic(cluster, "short")
    seen.until(lambda: any(one.kind == "topic_removed" for one in tuple(seen.reported)), "the deletion")
    dumped = cluster.dump_metadata_log()
    seen.until(lambda: seen.offset() >= dumped[-1].offset, "the end of the dump")
    known = {record.offset: record for record in dumped}
    assert set(known) == {offset for offset in wire if offset <= dumped[-1].offset}
    assert not [record for offset, record in known.items() if not same(record, wire[offset])]
    assert not seen.source.take_undecodable()
    return seen


@pytest.fixture(scope="module")
def three_controllers(kafka_module_cluster: MakeSandbox) -> Callable[[str], Sandbox]:
    """Return the cluster with three controllers of a version."""
    return cache(lambda version: kafka_module_cluster(brokers=2, controllers=3, version=version))


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.3", "3.6"])
def test_a_killed_controller_leaves_no_gap(
    three_controllers: Callable[[str], Sandbox], follow: Any, wire: dict[int, tuple[int, bytes]], version: str
) -> None:
    cluster = three_controllers(version)
    seen = follow(cluster)
    cluster.admin.create_topic("before", partitions=3, replication_factor=2)
    seen.until_topic("before", 3)
    leader = seen.source._tail._controllers.target
    cluster.kill(leader)
    killed = time.monotonic()
    seen.until(
        lambda: seen.source._tail._controllers.target != leader and seen.source._tail._is_serving, "a new leader"
    )
    print(f"served by the next controller {time.monotonic() - killed:.1f} s after the kill")
    cluster.admin.create_topic("after", partitions=3, replication_factor=2)
    seen.until_topic("after", 3)
    assert len({one.controller for one in tuple(seen.reported) if one.kind == "controller"}) >= 2
    survivor = next(node for node in cluster.controller_ids if node != leader)
    dumped = {record.offset: record for record in cluster.dump_metadata_log(survivor)}
    reached = seen.offset()
    common = {offset for offset in dumped if offset <= reached}
    assert common == {offset for offset in wire if offset in dumped or offset <= max(common)}
    assert not [dumped[offset] for offset in common if not same(dumped[offset], wire[offset])]
    cluster.start(leader)
    seen.stop()
    cluster.admin.create_topic("meanwhile", partitions=2, replication_factor=2)
    resumed = follow(cluster)
    resumed.until_topic("meanwhile", 2)
    assert not any(one.kind == "snapshot_begin" for one in resumed.reported)
    assert not resumed.partitions("after")


@pytest.mark.long
@pytest.mark.usefixtures("hurried")
def test_without_a_quorum_the_brokers_are_polled_at_the_start_and_later_until_it_is_back(
    three_controllers: Callable[[str], Sandbox], collecting: Collecting, tmp_path: Path
) -> None:
    cluster = three_controllers("4.3")
    cluster.admin.create_topic("orders", partitions=2, replication_factor=2)
    earlier, later = both = Tables(), Tables()
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers),
        collect=CollectSettings(heartbeat_interval=1, poll_interval=0.5, config_interval=2),
    )
    collecting.start(settings, tmp_path / "earlier", earlier)
    collecting.until(lambda: earlier.primary() == SourceKind.METADATA_LOG, "the log is read")
    lost = cluster.controller_ids[:2]
    for controller in lost:
        cluster.kill(controller)
    collecting.start(settings, tmp_path / "later", later)
    collecting.until(lambda: all(each.primary() == SourceKind.POLL for each in both), "the brokers are polled")
    collecting.until(lambda: all(("orders", 1) in each.partitions() for each in both), "every partition")
    for controller in lost:
        cluster.start(controller)
    collecting.until(lambda: all(each.primary() == SourceKind.METADATA_LOG for each in both), "the log is read again")
    cluster.admin.create_topic("late", partitions=1, replication_factor=2)
    collecting.until(lambda: all(("late", 0) in each.partitions() for each in both), "a topic that is created later")
    collecting.stop()
    truth = facts(of_the_log(cluster, tmp_path, {}))
    for each in both:
        assert not each.events(EventKind.ISR_SHRINK, EventKind.TOPIC_DELETED, EventKind.LEADER_CHANGE)
        assert facts(each) == truth


def the_doctor_asks_for_the_addresses_of_the_controllers(cluster: Sandbox) -> None:
    """Check what it says before Kafka 3.9, and that the log is read once they are configured."""
    settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers))
    ((_, versions),) = CHECKS["versions"](settings)
    assert versions == "metadata.version is 14, that of Kafka 3.6.2, with which isrwatch is tested"
    ((status, refusal),) = CHECKS["metadata log"](settings)
    assert status is Status.WARNING
    assert "write them into [cluster.controllers.addresses]" in refusal
    for check in ("clock", "polling", "reassignments"):
        assert {status for status, _ in CHECKS[check](settings)} == {Status.OK}
    config = cluster.root / "isrwatch.toml"
    config.write_text(
        f'[cluster]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n[cluster.controllers.addresses]\n'
        + "".join(f'"{node}" = "{address}"\n' for node, address in cluster.controller_addresses.items())
    )

    ((status, readable),) = CHECKS["metadata log"](each_cluster(config)[0])

    assert status is Status.OK, readable
    (voters,) = open_voters(settings).poll(wall_clock())
    assert (voters.voters, voters.caught_up) == ((101,), (101,))


OAUTH_CONTROLLERS = {
    **SECURED,
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "listener.name.controller.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="admin";'
    ),
}
ADMIN = {**READER, "sasl.username": "admin", "sasl.password": "a"}
QUICK_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "internal.metadata.log.segment.bytes": "4000",
    "internal.metadata.delete.delay.millis": "100",
    "metadata.max.retention.bytes": "6000",
}


@pytest.fixture(scope="module")
def guarded(kafka_module_cluster: MakeSandbox) -> Sandbox:
    """One broker, and a controller that asks for a password or a token."""
    return kafka_module_cluster(brokers=1, node_properties=dict.fromkeys((1, 101), OAUTH_CONTROLLERS))


@pytest.mark.long
def test_a_log_that_is_restored_from_a_copy_is_another_one_and_one_whose_history_is_lost_is_not(
    guarded: Sandbox, follow: Any
) -> None:
    cluster = guarded
    others = {topic for topic, _ in cluster.admin.describe()}
    seen = follow(cluster, client=ADMIN)
    cluster.admin.create_topic("kept", partitions=2, replication_factor=1)
    seen.until_topic("kept", 2)
    restore_from_a_copy(cluster, seen)
    cluster.admin.create_topic("later", partitions=1, replication_factor=1)
    seen.until_topic("later", 1)

    assert begins(seen) == [(SnapshotReason.START, False), (SnapshotReason.HISTORY_LOST, True)]
    state = ReplicationState()
    folded = fold(state, [replace(one, sequence=number) for number, one in enumerate(tuple(seen.reported), start=1)])
    state.apply(folded.touched)
    found = [one for topic in state.topics.values() for one in topic.values()]
    assert {one.topic for one in found if not one.is_deleted} == {*others, "kept", "later"}
    newest = {(one.topic, one.partition): one for one in singly(tuple(seen.reported)) if one.kind == "partition"}
    for one in found:
        if not one.is_deleted:
            reported = newest[one.topic, one.partition]
            assert (one.leader, one.isr, one.leader_epoch) == (reported.leader, reported.isr, reported.leader_epoch)

    seen.stop()
    lose_the_history(cluster, seen)
    second = follow(cluster, client=ADMIN)
    second.until_topic("more-19", 3)
    assert begins(second) == [(SnapshotReason.HISTORY_LOST, False)]
    assert len(second.partitions("kept")) == 2


def restore_from_a_copy(cluster: Sandbox, seen: Following) -> None:
    """Let the controllers' disk be what it was before forty topics that the follower has seen."""
    cluster.down()
    data, copy = cluster.root / "node-101" / "data", cluster.root / "copy"
    shutil.copytree(data, copy)
    cluster.up()
    for number in range(40):
        cluster.admin.create_topic(f"lost-{number}", partitions=3, replication_factor=1)
    seen.until_topic("lost-39", 3)
    cluster.down()
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    cluster.up()


def lose_the_history(cluster: Sandbox, seen: Following) -> None:
    """Let the controller's log begin with a KRaft snapshot: started again, it drops what is before the newest ones.

    Its cleaner would do so within a minute.
    """
    with (cluster.root / "node-101" / "server.properties").open("a") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in QUICK_SNAPSHOTS.items())
    cluster.kill(101)
    cluster.start(101)
    for number in range(20):
        cluster.admin.alter_topic_config("kept", {"retention.ms": str(1_000_000 + number)})
        cluster.admin.create_topic(f"more-{number}", partitions=3, replication_factor=1)
    log = cluster.root / "node-101" / "data" / "__cluster_metadata-0"
    seen.until(lambda: len(list(log.glob("*.checkpoint"))) > 2, "KRaft snapshots")
    cluster.kill(101)
    cluster.start(101)


def begins(seen: Following) -> list[tuple[SnapshotReason, bool]]:
    return [(one.reason, one.is_new_log) for one in tuple(seen.reported) if one.kind == "snapshot_begin"]


@pytest.mark.long
def test_a_login_without_the_permission_is_reported_which_one_it_needs(guarded: Sandbox, follow: Any) -> None:
    wrong = follow(guarded, client={**READER, "sasl.password": "wrong"})
    wrong.until(lambda: any("refuses the login of 'reader'" in line for line in wrong.lines), "a refused login")
    reader = follow(guarded, client=READER)
    reader.until(lambda: any("lacks ClusterAction on the cluster" in line for line in reader.lines), "a refusal")
    Rules(guarded).allow(CLUSTER_ACTION)
    reader.until(lambda: reader.reported, "the log")


@pytest.mark.long
def test_the_metadata_log_is_read_with_a_token_of_a_command(guarded: Sandbox, follow: Any) -> None:
    """Kafka takes a token that nobody signed where no validator is configured."""
    now = time.time()
    token = jwt(sub="admin", iat=now, exp=now + 3_600)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    guarded.admin.create_topic("orders", partitions=2, replication_factor=1)
    follow(guarded, client={**login, COMMAND: printing(token)}).until_topic("orders", 2)
    expired = jwt(sub="admin", iat=now - 7_200, exp=now - 3_600)
    refused = follow(guarded, client={**login, COMMAND: printing(expired)}, name="metadata_log:late")
    refused.until(lambda: any("refuses the token: " in line for line in refused.lines), "it is refused")
    assert not any(expired in line.replace(repr(printing(expired)), "") for line in refused.lines)
