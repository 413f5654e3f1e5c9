"""The shipper on a real broker: at least once, in order, whatever is killed; nothing deleted that is not shipped."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from deploy.sandbox import Sandbox
from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.bus.kafka.records import LogRecord, headers_of
from streaming.bus.kafka.shipper import STATE, Shipper
from streaming.bus.kafka.topics import administrator, client_properties, described, ensure
from streaming.contracts.observations import Channel
from streaming.errors import ConnectionRefused, IsrwatchError
from streaming.settings import KafkaBusSettings
from tests.bus.conftest import Heartbeats
from tests.examples import examples
from tests.plugins.kafka_bus import Stored, bus_settings, stored

pytestmark = pytest.mark.kafka
A = "poll:a"
SEGMENT_BYTES = 1_000


@pytest.fixture
def broker(kafka_single: Sandbox) -> Sandbox:
    return kafka_single


@pytest.fixture
def settings(broker: Sandbox) -> KafkaBusSettings:
    return bus_settings(broker.bootstrap_servers)


def publisher_of(directory: Path) -> DirectoryPublisher:
    return DirectoryPublisher(directory, segment_bytes=SEGMENT_BYTES, fsync=False)


def ship_all(shipper: Shipper) -> None:
    """Ship until nothing is left, however often the bus refuses."""
    assert shipper.lock()
    deadline = time.monotonic() + 60
    while True:
        try:
            if not shipper.round():
                return
        except ConnectionRefused:
            assert time.monotonic() < deadline


def log_of(directory: Path, source: str = A) -> dict[int, bytes]:
    """Give the records of a log by position."""
    reader = DirectoryReader(directory)
    starts, ends = (each(Channel.REPLICATION) for each in (reader.start_positions, reader.end_positions))
    items = reader.read(Channel.REPLICATION, source, starts[source], ends[source])
    return {item.position: item.payload for item in items if isinstance(item, BusFrame)}


def first_times(records: list[Stored]) -> dict[int, bytes]:
    """Give each position when it came first."""
    found: dict[int, bytes] = {}
    for each in records:
        found.setdefault(each.position, each.payload)
    return found


class Killed(BaseException):
    """Ends a shipper as kill -9 does: nothing of it runs on."""


STEPS = ("_connected", "_send", "_advance", "_store", "delete_shipped")


def killed_at(shipper: Shipper, step: str, *, after: bool) -> None:
    """Let a shipper die before or after one of its steps."""
    do: Callable[..., Any] = getattr(shipper, step)

    def die(*args: Any, **options: Any) -> Any:
        if after:
            do(*args, **options)
        raise Killed

    setattr(shipper, step, die)


Kill = tuple[str, bool, int, bool]
KILLS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.booleans(), st.integers(0, 12), st.booleans()), min_size=1, max_size=5
)


@hypothesis.settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kills=KILLS)
def test_whatever_is_killed_and_whatever_state_is_old_every_record_comes_and_first_in_order(
    kills: list[Kill], broker: Sandbox, heartbeat: Heartbeats, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A kill: the step, before or after it, how much is published until then, and whether the state file is lost."""
    directory, settings = tmp_path_factory.mktemp("bus"), bus_settings(broker.bootstrap_servers, samples_partitions=1)
    expected: dict[int, bytes] = {}
    old_state: bytes | None = None
    for step, after, records, loses_state in kills:
        with closing(publisher_of(directory)) as publisher:
            publisher.publish([heartbeat(time.monotonic_ns() // 1000) for _ in range(records)])
        expected |= log_of(directory) if records else {}
        shipper = Shipper(directory, settings)
        assert shipper.lock()
        killed_at(shipper, step, after=after)
        with suppress(Killed):
            shipper.round()
            shipper.delete_shipped()
        shipper.close()
        state = directory / STATE
        before, old_state = old_state, state.read_bytes() if state.exists() else None
        if loses_state and before is not None:
            state.write_bytes(before)
        elif loses_state:
            state.unlink(missing_ok=True)
    last = Shipper(directory, settings)
    with closing(publisher_of(directory)) as publisher:
        publisher.publish([heartbeat(1)])
    expected |= log_of(directory)
    ship_all(last)
    last.close()
    found = first_times(stored(settings))
    assert found == expected
    assert [*found] == sorted(found)


def test_nothing_is_deleted_that_the_brokers_have_not_acknowledged(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    with closing(publisher_of(tmp_path)) as publisher:
        for moment in range(1, 30):
            publisher.publish([heartbeat(moment)])
        kept = log_of(tmp_path)
        nowhere = bus_settings("127.0.0.1:1")
        away = Shipper(tmp_path, nowhere, delivery_seconds=1)
        assert away.lock()
        with pytest.raises(ConnectionRefused, match=r"the bus at 127\.0\.0\.1:1 does not answer"):
            away.round()
        away.delete_shipped()
        away.close()
        assert log_of(tmp_path) == kept
        assert away.counts.waiting[Channel.REPLICATION, A] == sum(map(len, kept.values())) + 12 * len(kept)
        assert away.counts.oldest[Channel.REPLICATION, A] == 1
        shipper = Shipper(tmp_path, settings)
        ship_all(shipper)
        shipper.delete_shipped()
        shipper.close()
    assert first_times(stored(settings)) == kept
    assert len(log_of(tmp_path)) < len(kept) / 2
    assert shipper.counts.waiting == {(Channel.REPLICATION, A): 0}


def wait_until_refused(settings: KafkaBusSettings, payload: bytes) -> None:
    """Wait until the broker applies the limit of its topic: the controller has answered before."""
    refused: list[bool] = []
    record = LogRecord(0, len(payload), 1, payload, None)
    producer = Producer({**client_properties(settings), "message.max.bytes": 1_000_000})
    while True not in refused:
        producer.produce(
            settings.replication_topic,
            payload,
            headers=headers_of("another", record, [1]),  # type: ignore[arg-type]  # a list of pairs
            on_delivery=lambda error, _: refused.append(error is not None),
        )
        producer.flush(10)


def test_a_record_that_the_topic_does_not_take_is_cut_and_the_rest_goes_on(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    """The topic takes less than when the shipper asked for it, so the broker is who refuses first."""
    said: list[str] = []
    shipper = Shipper(tmp_path, settings, said.append)
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
        ship_all(shipper)
        resource = ConfigResource(ResourceType.TOPIC, settings.replication_topic)
        resource.add_incremental_config(
            ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
        )
        admin = administrator(settings)
        admin.incremental_alter_configs([resource])[resource].result()
        noise = random.Random(1).randbytes(28_200)
        wait_until_refused(settings, noise)
        publisher.publish_raw(Channel.REPLICATION, A, noise)
        publisher.publish([heartbeat(2)])
    ship_all(shipper)
    shipper.close()
    _, cut, after = [each for each in stored(settings) if each.source == A]
    assert (cut.payload, cut.damage) == (
        noise[:1024],
        "a record of 28200 bytes is larger than its topic takes (max.message.bytes 10000)",
    )
    assert (cut.end, after.damage) == (after.position, None)
    assert shipper.counts.cut == 1
    assert f"replication/{A}: {cut.damage}: its begin alone is shipped" in said


def delete_topic(admin: AdminClient, settings: KafkaBusSettings) -> None:
    """Delete a topic, and wait until the broker has heard of that."""
    topic, deadline = settings.replication_topic, time.monotonic() + 30
    admin.delete_topics([topic])[topic].result()
    while topic in described(admin, settings):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_topic_that_is_created_again_gets_all_that_the_directory_has(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    said: list[str] = []
    shipper = Shipper(tmp_path, settings, said.append, delivery_seconds=1)
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(moment) for moment in range(1, 9)])
        ship_all(shipper)
        before = stored(settings)
        admin = administrator(settings)
        delete_topic(admin, settings)
        publisher.publish([heartbeat(9)])
        ship_all(shipper)
    shipper.close()
    assert first_times(stored(settings)) == log_of(tmp_path)
    assert {each.runs for each in stored(settings)} == {each.runs for each in before}
    assert f"the topic {settings.replication_topic} of the bus was created again" in "".join(said)


def test_a_topic_that_another_program_creates_again_is_noticed_before_anything_is_deleted(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    shipper, admin = Shipper(tmp_path, settings), administrator(settings)
    with closing(publisher_of(tmp_path)) as publisher:
        for moment in range(1, 9):
            publisher.publish([heartbeat(moment)])
        kept = log_of(tmp_path)
        ship_all(shipper)
        delete_topic(admin, settings)
        ensure(admin, settings)
        with pytest.raises(ConnectionRefused, match="was created again"):
            shipper.delete_shipped()
        assert log_of(tmp_path) == kept
        ship_all(shipper)
    shipper.close()
    assert first_times(stored(settings)) == kept


def test_what_brokers_have_acknowledged_and_lost_is_shipped_again(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    """An unclean election of the bus: its topic ends before what was acknowledged. Here the progress is ahead of it."""
    said: list[str] = []
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(moment) for moment in range(1, 9)])
        shipper = Shipper(tmp_path, settings, said.append)
        ship_all(shipper)
        shipper.close()
        progress = json.loads((tmp_path / STATE).read_text())
        for log in progress["logs"].values():
            assert log["offset"] == 7
            log["offset"] += 3
        (tmp_path / STATE).write_text(json.dumps(progress))
        publisher.publish([heartbeat(9)])
        shipper = Shipper(tmp_path, settings, said.append)
        ship_all(shipper)
        shipper.close()
    assert [each.position for each in stored(settings)] == [*list(log_of(tmp_path))[:8], *log_of(tmp_path)]
    assert "ends 3 records before what its brokers had acknowledged" in "".join(said)


def test_a_log_that_was_replaced_is_shipped_from_its_beginning_and_names_no_run_from_before(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    said: list[str] = []
    shipper = Shipper(tmp_path, settings, said.append)
    runs = []
    for moments in (range(1, 6), range(6, 8)):
        with closing(publisher_of(tmp_path)) as publisher:
            publisher.publish([heartbeat(moment) for moment in moments])
        ship_all(shipper)
        runs.append({each.log_id for each in stored(settings)})
        if moments.start == 1:
            shutil.rmtree(tmp_path / Channel.REPLICATION)
    shipper.close()
    new = stored(settings)[5:]
    assert [each.position for each in new] == [*log_of(tmp_path)]
    assert {each.runs for each in new} == {tuple(runs[1] - runs[0])}
    assert "was replaced, restored from a copy, or cut since it was shipped" in said[0]


def test_the_next_run_names_the_one_before_also_once_that_is_deleted(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    for moment in range(1, 6):
        with closing(publisher_of(tmp_path)) as publisher:
            publisher.publish([heartbeat(moment) for _ in range(8)])
        shipper = Shipper(tmp_path, settings)
        ship_all(shipper)
        shipper.delete_shipped()
        shipper.close()
    found = stored(settings)
    runs = tuple(dict.fromkeys(each.log_id for each in found))
    assert len(runs) == 5
    assert found[-1].runs == runs
    assert len(DirectoryReader(tmp_path).segments(Channel.REPLICATION, A)) < 5


def test_what_the_directory_deleted_at_its_bound_is_told(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    said: list[str] = []
    shipper = Shipper(tmp_path, settings, said.append)
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
        ship_all(shipper)
        for moment in range(2, 30):
            publisher.publish([heartbeat(moment)])
        lost = log_of(tmp_path)
        DirectoryReader(tmp_path).delete_below(Channel.REPLICATION, A, 3_000)
        kept = log_of(tmp_path)
        ship_all(shipper)
    shipper.close()
    assert [each.position for each in stored(settings)[1:]] == [*kept]
    assert f"{min(kept) - [*lost][1]} bytes of replication/{A} were deleted before the bus had them" in said[0]
    assert shipper.counts.lost_bytes == min(kept) - [*lost][1]


def test_how_long_a_log_waits_is_there_at_every_moment_of_a_round_that_is_refused(
    heartbeat: Heartbeats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest: list[list[int]] = []
    shipper = Shipper(tmp_path, bus_settings("127.0.0.1:1"), delivery_seconds=0.2)
    monkeypatch.setattr(
        "streaming.bus.kafka.shipper.sync_file", lambda _: oldest.append([*shipper.counts.oldest.values()])
    )
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
        assert shipper.lock()
        for _ in range(2):
            with pytest.raises(IsrwatchError):
                shipper.round()
    shipper.close()
    assert [len(moments) for moments in oldest] == [0, 1]


def test_of_one_directory_one_process_is_the_shipper(settings: KafkaBusSettings, tmp_path: Path) -> None:
    first, second = Shipper(tmp_path, settings), Shipper(tmp_path, settings)
    assert (first.lock(), second.lock()) == (True, False)
    first.close()
    assert second.lock()
    second.close()


def test_the_topics_are_created_as_configured_and_what_differs_is_told_in_one_sentence(
    settings: KafkaBusSettings, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    said: list[str] = []
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
    first = Shipper(tmp_path, settings, said.append)
    ship_all(first)
    first.close()
    assert said == []
    other = replace(settings, replication_partitions=5, min_insync_replicas=1, replication_retention=3_600.0)
    second = Shipper(tmp_path, other, said.append)
    ship_all(second)
    second.close()
    (sentence,) = said
    assert sentence.startswith(f"the topic {settings.replication_topic} of the bus differs from the settings: ")
    assert sentence.endswith(": partitions is 2, not 5, retention.ms is 604800000, not 3600000")


def test_a_bus_that_refuses_its_replication_factor_says_what_to_do(broker: Sandbox, tmp_path: Path) -> None:
    shipper = Shipper(tmp_path, bus_settings(broker.bootstrap_servers, replication_factor=3))
    assert shipper.lock()
    with pytest.raises(IsrwatchError, match=r"cannot be created: .*; grant Create .*bus\.kafka\.replication_factor"):
        shipper.round()
    shipper.close()
