"""The lag of a group in seconds on a real broker, against when each record was acknowledged."""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from streaming.sources.samples.high_watermarks import SHARE_OF_AGE
from tests.sources.samples.test_groups_real import PERIOD, Clients, Collecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deploy.sandbox import Sandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

STEADY, BURSTS, EARLIER = range(3)
WRITE_SECONDS = 16.0
SECOND = 1_000_000


class Writer:
    """Writes to a partition at a steady pace and to one in bursts.

    Attributes:
        acknowledged: when each record of a partition was, wall clock, in the order of the offsets.
    """

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self.acknowledged: dict[int, list[float]] = {STEADY: [], BURSTS: [], EARLIER: []}

    def write(self, number: int, count: int) -> None:
        def note(error: Any, message: Any) -> None:
            assert error is None
            assert message.offset() == len(self.acknowledged[number])
            self.acknowledged[number].append(time.time())

        for _ in range(count):
            self._producer.produce("paced", b"x", partition=number, on_delivery=note)
        assert self._producer.flush(30) == 0

    def run(self) -> None:
        begin, written = time.monotonic(), 0
        while (passed := time.monotonic() - begin) < WRITE_SECONDS:
            self.write(STEADY, 1)
            if passed > 3 * written:
                self.write(BURSTS, 30)
                written += 1
            time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(kafka_module_cluster: Callable[..., Sandbox]) -> Sandbox:
    sandbox = kafka_module_cluster(brokers=1)
    sandbox.admin.create_topic("paced", partitions=3, replication_factor=1)
    return sandbox


@pytest.fixture
def source(cluster: Sandbox, tmp_path: Path) -> Iterator[Collecting]:
    collecting = Collecting(cluster, tmp_path)
    yield collecting
    collecting.close()


def test_lag_in_seconds_is_the_age_of_the_first_record_that_was_not_read(cluster: Sandbox, source: Collecting) -> None:
    writer, clients = Writer(cluster.bootstrap_servers), Clients(cluster.bootstrap_servers)
    writer.write(EARLIER, 10)
    clients.commit("stuck", 5, topic="paced", partitions=(EARLIER,))
    source.until(lambda tables: bool(tables["group_offsets"]), "the first round")
    thread = Thread(target=writer.run)
    thread.start()
    source.observe(WRITE_SECONDS + 2)
    thread.join()
    errors: dict[int, list[float]] = {STEADY: [], BURSTS: []}
    for tenths in range(1, 10, 2):
        committed = {number: len(writer.acknowledged[number]) * tenths // 10 for number in errors}
        for number, offset in committed.items():
            clients.commit("stuck", offset, topic="paced", partitions=(number,))

        def is_shown(tables: Any, committed: dict[int, int] = committed) -> bool:
            rows = {row["partition"]: row for row in tables["group_offsets"]}
            return all(
                rows[number]["committed_offset"] == offset and rows[number]["lag_seconds"] is not None
                for number, offset in committed.items()
            )

        tables = source.until(is_shown, "what was committed is shown, with seconds")
        for row in tables["group_offsets"]:
            if row["partition"] in committed:
                at = writer.acknowledged[row["partition"]][row["committed_offset"]]
                age = row["collected_at"].timestamp() - at
                errors[row["partition"]].append(row["lag_seconds"] - age)
                most = max(3 * PERIOD / SECOND, age / SHARE_OF_AGE) + 1  # the clients' own time on a busy machine
                assert abs(errors[row["partition"]][-1]) < most, row
    print({number: [round(error, 2) for error in found] for number, found in errors.items()})
    (earlier,) = (row for row in tables["group_offsets"] if row["partition"] == EARLIER)
    assert (earlier["lag"], earlier["lag_seconds"]) == (5, None), "nobody saw when it was written"
    for number in errors:
        clients.commit("stuck", len(writer.acknowledged[number]), topic="paced", partitions=(number,))
    source.until(
        lambda tables: all(row["lag_seconds"] == 0 for row in tables["group_offsets"] if row["partition"] in errors),
        "what was read is no lag",
    )
