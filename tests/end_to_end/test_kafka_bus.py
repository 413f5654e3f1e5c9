"""A collector, Kafka between, and a job: every table equals what the collector's own directory gives without Kafka.

Both programs are killed on the way, and started again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.sandbox import Sandbox
from streaming.contracts.observations import Channel
from streaming.settings import KafkaBusSettings
from tests.chaos.comparison import all_differences, undisturbed
from tests.plugins.kafka_bus import bus_settings, stored
from tests.plugins.logs import last_positions
from tests.plugins.pipeline import Pipeline, Program
from tests.plugins.sandbox import MakeSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def brokers(kafka_module_cluster: MakeSandbox) -> Sandbox:
    return kafka_module_cluster(brokers=1)


class KafkaPipeline(Pipeline):
    """Programs that have one configuration, in which Kafka is the bus."""

    def __init__(self, directory: Path, settings: KafkaBusSettings, bus: str = "") -> None:
        super().__init__(directory)
        self.settings, self.config = settings, directory / "isrwatch.toml"
        self.config.write_text(
            f'[bus]\ndirectory = "{self.bus}"\n{bus}\n'
            f'[bus.kafka]\nbootstrap_servers = "{settings.bootstrap_servers}"\n'
            f'replication_topic = "{settings.replication_topic}"\nsamples_topic = "{settings.samples_topic}"\n'
            f"replication_partitions = {settings.replication_partitions}\n"
            f"samples_partitions = {settings.samples_partitions}\n"
            f"replication_factor = {settings.replication_factor}\n"
            f"min_insync_replicas = {settings.min_insync_replicas}\n"
            "[bus.kafka.client]\n"
            + "".join(f'"{name}" = "{value}"\n' for name, value in settings.client.items())
            + '[collect]\ncollector = "collector-1"\nlisten = ""\n'
            f'[tables]\ndirectory = "{self.tables}"\n'
            f'[job]\ncheckpoint = "{self.checkpoint}"\nlisten = ""\n'
        )

    def job_arguments(self) -> list[str]:
        return ["--config", str(self.config)]

    def simulate(self, *more: str) -> Program:
        """Start a collector of a simulated cluster, which ships to Kafka."""
        return self.start("collect", "collect", "--config", str(self.config), "--simulate", "broker_loss", *more)

    def last_positions(self) -> dict[tuple[Channel, str], int]:
        """Give the position of the last record of each log of the directory."""
        return last_positions(self.bus)

    def is_applied(self) -> bool:
        """Return whether the tables have the last record of each log of the directory."""
        return all(
            self.applied(channel, source) >= position for (channel, source), position in self.last_positions().items()
        )

    def applied(self, channel: Channel, source: str) -> int:
        found = {(row["channel"], row["source"]): row["position"] for row in self.rows("source_progress")}
        return int(found.get((channel, source), -1))


@pytest.fixture
def pipeline(tmp_path: Path, brokers: Sandbox) -> Iterator[KafkaPipeline]:
    made = KafkaPipeline(tmp_path, bus_settings(brokers.bootstrap_servers))
    try:
        yield made
    finally:
        made.close()


def test_with_kafka_between_and_both_ends_killed_the_tables_are_those_of_the_directory(pipeline: KafkaPipeline) -> None:
    collector = pipeline.simulate("--speed", "30")
    job = pipeline.job()
    pipeline.eventually(lambda: len(pipeline.rows("partition_changes")) > 20, "the job applies", job)
    collector.kill()
    job.kill()
    kept = pipeline.directory / "kept"  # the next collector deletes what it has shipped of the run before
    shutil.copytree(pipeline.bus, kept)
    again = pipeline.simulate("--speed", "30", "--seed", "2")
    job = pipeline.job()
    source = "simulated:collector-1"
    killed_at = pipeline.last_positions()[Channel.REPLICATION, source]
    pipeline.eventually(lambda: pipeline.applied(Channel.REPLICATION, source) > killed_at + 20_000, "it goes on", again)
    assert again.stop() == 0, again.text()
    pipeline.eventually(pipeline.is_applied, "everything is applied", job)
    assert job.stop() == 0, job.text()[-3000:]
    shutil.copytree(pipeline.bus, kept, dirs_exist_ok=True)
    expected = pipeline.directory / "expected"
    undisturbed(kept, expected)
    assert [*all_differences(pipeline.tables, expected)] == []
    shipped = stored(pipeline.settings)
    assert {len({each.partition for each in shipped if each.channel == channel}) for channel in Channel} == {1}
