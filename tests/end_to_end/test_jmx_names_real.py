"""The names of Kafka's MBeans, derived without an agent, beside what the agents of real brokers report at that moment.

A third of the brokers is a combined node, so that an agent also reports what a controller has. The exporter is never
shown the agents. Between collector and exporter run the batches of the job itself, without Spark.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.sandbox import Sandbox, plan_cluster
from exporters.metrics.jmx_names import JMX_METRICS
from tests.end_to_end.test_samples_real import PATIENCE, Batches
from tests.plugins.pipeline import Pipeline
from tests.topic_writer import TopicWriter

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "1000",
    "auto.leader.rebalance.enable": "false",
}
ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [3, 2, 1]]
INTERVALS = "".join(f'{name}_interval = "2s"\n' for name in ("offsets", "directories", "quorum"))
# The rules of the exporter's Kafka example, for the MBeans that are compared.
AGENT = """\
lowercaseOutputName: true
includeObjectNames:
  - "kafka.server:type=ReplicaManager,*"
  - "kafka.server:type=KafkaServer,name=BrokerState"
  - "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"
  - "kafka.controller:type=KafkaController,*"
  - "kafka.controller:type=ControllerStats,*"
  - "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"
  - "kafka.log:type=Log,*"
  - "kafka.cluster:type=Partition,*"
rules:
  - pattern: kafka.(\\w+)<type=(.+), name=(.+)PerSec\\w*><>Count
    name: kafka_$1_$2_$3_total
    type: COUNTER
  - pattern: kafka.(\\w+)<type=(.+), name=(.+), (.+)=(.+), (.+)=(.+)><>Value
    name: kafka_$1_$2_$3
    type: GAUGE
    labels: {"$4": "$5", "$6": "$7"}
  - pattern: kafka.(\\w+)<type=(.+), name=([A-Za-z]+)><>Value
    name: kafka_$1_$2_$3
    type: GAUGE
"""
SETTLING = 120.0
# A leader does not count a change that it learns from the metadata log before the controller answers it.
ISR = {f"kafka_server_replicamanager_isr{change}s_total" for change in ("shrink", "expand")}
METERS = {each.metric.name for each in JMX_METRICS if each.metric.kind == "counter"}
Page = dict[tuple[str, ...], float]


def page(url: str, instance: str | None = None) -> Page:
    """Read the metrics that are derived, by name, instance, topic and partition; a flag that is 0 is left out."""
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own servers
        text = answer.read().decode()
    found: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            key = labels.get("instance") or instance or "", labels.get("topic") or "", labels.get("partition") or ""
            is_flag = sample.name.startswith("kafka_cluster_partition_")
            if key[1] != "__cluster_metadata" and (sample.value or not is_flag):
                found[sample.name, *key] = sample.value
    return {key: value for key, value in found.items() if key[0] in {each.metric.name for each in JMX_METRICS}}


class Compared:
    """A cluster, what its agents report, and what is exported of it."""

    def __init__(self, sandbox: Sandbox, pipeline: Pipeline, batches: Batches) -> None:
        self.sandbox, self._pipeline, self._batches = sandbox, pipeline, batches
        self._counted = self._both((1, 2, 3))  # meters count from here on

    def equal(self, what: str, brokers: tuple[int, ...] = (1, 2, 3)) -> Page:
        """Wait until both are equal, and return what they say."""
        seen: list[tuple[Page, Page]] = [({}, {})]

        def is_equal() -> bool:
            assert self._batches.errors == []
            seen[0] = tuple(self._since(*pages) for pages in zip(self._both(brokers), self._counted, strict=True))  # type: ignore[assignment]
            derived, reported = ({key: value for key, value in each.items() if key[0] not in ISR} for each in seen[0])
            return derived == reported and all(seen[0][0][key] >= value for key, value in seen[0][1].items())

        try:
            self._pipeline.eventually(is_equal, what, seconds=SETTLING)
        except AssertionError:
            derived, reported = seen[0]
            assert derived, what
            differs = {key for key in derived.keys() | reported.keys() if derived.get(key) != reported.get(key)}
            differs = {key for key in differs if key[0] not in ISR or derived.get(key, 0) < reported[key]}
            assert {key: (derived.get(key), reported.get(key)) for key in sorted(differs)} == {}, what
        return seen[0][0]

    def _both(self, brokers: tuple[int, ...]) -> tuple[Page, Page]:
        """Read what is derived of some brokers, and what their agents report."""
        instances = {str(broker) for broker in brokers}
        derived = page(f"http://127.0.0.1:{self._pipeline.port}/metrics/jmx")
        reported: Page = {}
        for broker in brokers:
            reported |= page(self.sandbox.metrics_url(broker), str(broker))
        # Where the log of a follower begins is not asked for.
        unasked = {key for key in reported.keys() - derived.keys() if key[0] == "kafka_log_log_logstartoffset"}
        shown = {key: value for key, value in derived.items() if key[1] in instances}
        return shown, {key: value for key, value in reported.items() if key not in unasked}

    @staticmethod
    def _since(now: Page, before: Page) -> Page:
        return {key: value - before.get(key, 0.0) if key[0] in METERS else value for key, value in now.items()}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    folder: Path = tmp_path_factory.mktemp("agent")
    (folder / "agent.yml").write_text(AGENT)
    with ExitStack() as stack:
        plan = plan_cluster(combined=True, properties=PROPERTIES, jmx_config=folder / "agent.yml")
        sandbox = stack.enter_context(Sandbox(plan))
        sandbox.admin.create_topic("orders", assignment=ASSIGNMENT, configs={"min.insync.replicas": "2"})
        sandbox.admin.create_topic("strict", assignment=[[1, 3, 2]], configs={"min.insync.replicas": "3"})
        sandbox.admin.create_topic("alone", assignment=[[3], [2]])
        pipeline = Pipeline(tmp_path_factory.mktemp("pipeline"))
        stack.callback(pipeline.close)
        config = pipeline.directory / "isrwatch.toml"
        config.write_text(
            f'[cluster]\nname = "sandbox"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n[collect]\n{INTERVALS}'
        )
        pipeline.collect("--config", str(config))
        batches = Batches(pipeline.bus, pipeline.tables)
        batches.start()
        stack.callback(batches.end)
        pipeline.eventually(lambda: pipeline.rows("partition_state"), "there is state", seconds=PATIENCE)
        pipeline.export("--config", str(config))
        yield Compared(sandbox, pipeline, batches)


def test_every_value_is_the_one_that_the_agent_of_the_broker_reports(compared: Compared) -> None:
    admin, sandbox = compared.sandbox.admin, compared.sandbox
    healthy = compared.equal("a healthy cluster")
    starts = [key for key in healthy if key[0] == "kafka_log_log_logstartoffset"]
    assert len(starts) == len(ASSIGNMENT) + 3  # one for each leader
    assert {name for name, *_ in healthy} == {each.metric.name for each in JMX_METRICS} - {
        "kafka_cluster_partition_underreplicated",
        "kafka_cluster_partition_underminisr",
    }

    with TopicWriter(sandbox.bootstrap_servers, "orders"):
        time.sleep(2)
        sandbox.pause(2)
        for number in (0, 2, 3, 5):
            admin.wait_isr("orders", number, {1, 3}, seconds=90)
        sandbox.resume(2)
        for number in range(len(ASSIGNMENT)):
            admin.wait_isr("orders", number, {1, 2, 3}, seconds=90)
    after = compared.equal("after a pause")
    assert after["kafka_server_brokertopicmetrics_messagesin_total", "1", "", ""] > 0
    meters = [after[f"kafka_server_replicamanager_isr{change}s_total", "1", "", ""] for change in ("shrink", "expand")]
    assert min(meters) >= 2, meters

    sandbox.kill(3)
    for number in range(len(ASSIGNMENT)):
        admin.wait_isr("orders", number, {1, 2}, seconds=90)
    without = compared.equal("without broker 3", (1, 2))
    assert without["kafka_controller_kafkacontroller_offlinepartitionscount", "1", "", ""] == 1
    assert without["kafka_server_replicamanager_underminisrpartitioncount", "1", "", ""] == 1
    assert without["kafka_server_replicamanager_atminisrpartitioncount", "2", "", ""] > 0
    assert without["kafka_cluster_partition_underreplicated", "1", "orders", "0"] == 1
