"""An alert that fires is sent once, through every gap: of collector, job, exporter, source and Alertmanager.

Every program is real: a Kafka of two brokers of which one is killed, the collector at its metadata log, the job with
Spark, the exporter, Prometheus with the shipped rules, Alertmanager with the shipped routes. Shorter than shipped are
the times of routes, and how long an alert is kept firing, which is still longer than the exporter is gone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from tests.dashboards.test_alert_delivery import routes, rules
from tests.plugins.local_http import Webhook, collecting_webhook, free_port, wait_until
from tests.plugins.pipeline import Pipeline, Program
from tests.plugins.prometheus import Prometheus, running_alertmanager, running_prometheus

pytestmark = [
    pytest.mark.kafka, pytest.mark.spark, pytest.mark.prometheus, pytest.mark.long, pytest.mark.timeout(2400),
]  # fmt: skip

PROPERTIES = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}
SHORT = {"interval: 15s": "interval: 1s", "keep_firing_for: 5m": "keep_firing_for: 90s"}
RAISED = "kafka_replication_condition_since_seconds"
ALERT = "IsrwatchUnderMinIsr"
GONE_SECONDS = 40
SILENT_SECONDS = 75
"""A minute, and as much as it takes to see that nothing comes."""
PATIENCE = 240.0


@dataclass
class Installation:
    """All programs, and what was sent."""

    sandbox: Sandbox
    pipeline: Pipeline
    prometheus: Prometheus
    webhook: Webhook
    alerting: Alerting
    programs: dict[str, Program] = field(default_factory=dict)

    def start(self, name: str) -> None:
        starting = {"collector": self._collect, "job": self.pipeline.job, "exporter": self.pipeline.export}
        self.programs[name] = starting[name]()

    def _collect(self) -> Program:
        return self.pipeline.collect("--config", str(self.pipeline.directory / "isrwatch.toml"))

    def configure(self, name: str, *collect: str) -> None:
        """Write the configuration of the collector: the name of the cluster, and keys of the section ``collect``."""
        servers = self.sandbox.bootstrap_servers
        text = (f'[cluster]\nname = "{name}"', f'bootstrap_servers = "{servers}"\n[collect]', *collect)
        (self.pipeline.directory / "isrwatch.toml").write_text("\n".join(text))

    def kill(self, name: str) -> None:
        """End a program as a power cut would; the JVM of the job, too."""
        program = self.programs[name]
        program.kill()
        wait_until(lambda: not program.left(), seconds=60, what=f"nothing is left of the {name}")

    def wait_fresh(self, since: float) -> None:
        """Wait until the exporter shows what was seen after a moment."""
        age = "max(kafka_replication_cluster_state_age_seconds)"
        wait_until(
            lambda: (read := self.prometheus.value(age)) is not None and time.time() - read > since,
            seconds=PATIENCE, what="fresh data",
        )  # fmt: skip

    def firing(self) -> list[dict[str, Any]]:
        return [each for each in self.prometheus.alerts(ALERT) if each["state"] == "firing"]

    def sent(self) -> list[tuple[str, ...]]:
        """Give what was sent of severities that reach somebody: its status, its cluster, its alerts."""
        return [
            (
                each["status"],
                each["groupLabels"]["cluster"],
                *sorted(one["labels"]["alertname"] for one in each["alerts"]),
            )
            for each in list(self.webhook.notifications)
        ]


class Alerting:
    """An Alertmanager that can be restarted: its address and its files stay."""

    def __init__(self, folder: Path, webhook: Webhook) -> None:
        self._folder, self._webhook, self._port = folder, webhook, free_port()
        self._running = ExitStack()
        self.manager = self._start()

    def _start(self) -> Any:
        configuration = routes(self._webhook.url)
        return self._running.enter_context(
            running_alertmanager(self._folder, self._webhook, configuration, port=self._port)
        )

    def restart(self) -> None:
        self._running.close()
        self.manager = self._start()

    def has_it(self) -> bool:
        return ALERT in {each["labels"]["alertname"] for each in self.manager.alerts()}

    def close(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(plan_cluster(brokers=2, properties=PROPERTIES)))
        sandbox.admin.create_topic("orders", partitions=4, replication_factor=2, configs={"min.insync.replicas": "2"})
        pipeline = Pipeline(tmp_path_factory.mktemp("pipeline"))
        stack.callback(pipeline.close)
        webhook = stack.enter_context(collecting_webhook())
        alerting = Alerting(tmp_path_factory.mktemp("alertmanager"), webhook)
        stack.callback(alerting.close)
        prometheus = stack.enter_context(
            running_prometheus(
                tmp_path_factory.mktemp("prometheus"),
                {"isrwatch": f"127.0.0.1:{pipeline.port}"}, [rules(SHORT)], alerting.manager,
            )
        )  # fmt: skip
        made = Installation(sandbox, pipeline, prometheus, webhook, alerting)
        made.configure("prod")
        for name in ("collector", "job", "exporter"):
            made.start(name)
        made.wait_fresh(time.time())
        yield made


def wait_sent(of: Installation, *expected: str, seconds: float = PATIENCE) -> None:
    """Wait for what is to be sent, and no more than that."""
    wait_until(lambda: len(of.sent()) >= len(expected), seconds=seconds, what=f"{expected} of {of.sent()}")
    assert [each[0] for each in of.sent()] == list(expected), of.sent()


def restarted(of: Installation, name: str, seconds: float) -> None:
    of.kill(name)
    time.sleep(seconds)
    assert of.firing()
    began = time.time()
    of.start(name)
    of.wait_fresh(began)


def silent(of: Installation) -> None:
    """Let the collector stand still, so that nothing comes from the source."""
    pid = of.programs["collector"].pid
    os.killpg(pid, signal.SIGSTOP)
    time.sleep(SILENT_SECONDS)
    gauges = of.prometheus.query("kafka_replication_cluster_partitions")
    assert gauges == []  # the data is stale
    began = time.time()
    os.killpg(pid, signal.SIGCONT)
    of.wait_fresh(began)


def test_from_the_first_message_to_the_one_that_all_is_over_none_is_sent_in_any_gap(installation: Installation) -> None:
    it = installation
    it.sandbox.kill(2)
    wait_sent(it, "firing")
    (first,) = it.sent()
    assert first == ("firing", "prod", ALERT)
    (labels,) = [each["labels"] for each in it.firing()]
    for name, seconds in (("collector", 20.0), ("job", 10.0), ("exporter", 0.0), ("exporter", GONE_SECONDS)):
        restarted(it, name, seconds)
        assert it.sent() == [first], f"after the restart of the {name}"
        assert [each["labels"] for each in it.firing()] == [labels]
    silent(it)
    assert it.sent() == [first], "after the silence"
    it.alerting.restart()
    wait_until(it.alerting.has_it, seconds=PATIENCE, what="the alert is sent to Alertmanager again, once a minute")
    time.sleep(10)  # nothing is to be sent meanwhile
    assert it.sent() == [first], "after the restart of Alertmanager"
    assert [each["labels"] for each in it.firing()] == [labels]
    it.sandbox.start(2)
    for number in range(4):
        it.sandbox.admin.wait_isr("orders", number, {1, 2}, seconds=90)
    wait_until(lambda: not it.prometheus.query(f"{RAISED}{{severity='critical'}}"), seconds=400, what="it is over")
    wait_sent(it, "firing", "resolved")
    time.sleep(20)  # nothing is to be sent meanwhile
    assert it.sent() == [first, ("resolved", "prod", ALERT)]


def test_the_alerts_of_a_cluster_that_is_renamed_are_sent_once_more_under_its_new_name(
    installation: Installation,
) -> None:
    it = installation
    it.webhook.notifications.clear()
    it.sandbox.kill(2)
    wait_sent(it, "firing")
    it.kill("collector")
    it.configure("production", 'snapshot_interval = "30s"')  # a full report takes over the name
    it.start("collector")
    wait_sent(it, "firing", "firing", "resolved")
    assert it.sent() == [("firing", "prod", ALERT), ("firing", "production", ALERT), ("resolved", "prod", ALERT)]
    assert len({each["groupLabels"]["short_id"] for each in it.webhook.notifications}) == 1
    (summary,) = {each["alerts"][0]["annotations"]["summary"] for each in it.webhook.notifications}
    assert "broker 2 was lost" in summary
