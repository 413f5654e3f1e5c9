"""An alert about a group is sent once, through kills of the job in the middle of a batch, and every gap.

All programs are real: a Kafka, the collector, the job with Spark, the exporter, Prometheus with the shipped rules and
the pack of groups, Alertmanager with the shipped routes. Two groups are in trouble: one stands beyond the end, one that
commits without membership stands still for a quarter of an hour. Each time the job is killed behind the commit of the
condition, before the commit of the rows that it follows from. Shorter than shipped are the times of routes, ``for``,
and how long an alert is kept firing, which is still longer than the exporter is gone.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from deploy.sandbox import Sandbox, plan_cluster
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import Pack
from streaming.contracts.group_readers import STANDING
from streaming.settings import Settings
from tests.end_to_end.test_alert_through_gaps import GONE_SECONDS, PATIENCE, Alerting, Installation
from tests.plugins.local_http import collecting_webhook, wait_until
from tests.plugins.pipeline import Pipeline, Program
from tests.plugins.prometheus import running_prometheus
from tests.sources.samples.test_groups_real import Clients

pytestmark = [
    pytest.mark.kafka, pytest.mark.spark, pytest.mark.prometheus, pytest.mark.long, pytest.mark.timeout(3000),
]  # fmt: skip

HERE = Path(__file__).parent
SHORT = {"interval: 15s": "interval: 1s", "keep_firing_for: 5m": "keep_firing_for: 90s", "for: 2m": "for: 4s"}
BEYOND, STUCK = "IsrwatchGroupBeyondEnd", "IsrwatchGroupStuck"
CONDITION_OF = {BEYOND: "group_beyond_end", STUCK: "group_stuck"}
GROUP_OF = {BEYOND: "ahead", STUCK: "stands"}
PART_OF = {BEYOND: "orders-1", STUCK: "orders-2"}


class Groups:
    """The installation, and the clients of its cluster."""

    def __init__(self, it: Installation) -> None:
        self.it, self.clients = it, Clients(it.sandbox.bootstrap_servers)

    def sent(self, alert: str) -> list[str]:
        """Give what was sent about an alert, in order."""
        return [
            f"{one['status']} {one['labels']['subject']}"
            for each in list(self.it.webhook.notifications)
            for one in each["alerts"]
            if one["labels"]["alertname"] == alert
        ]

    def spells(self, alert: str) -> list[tuple[str, str, bool]]:
        """Give the rows of the condition: its group, its partition, whether it lasts."""
        return [
            (row["subject"], row["part"], row["ended_at"] is None)
            for row in self.it.pipeline.rows("sampled_conditions")
            if row["condition"] == CONDITION_OF[alert]
        ]

    def job_that_dies(self, alert: str) -> Program:
        """Start a job that is killed when the condition has begun."""
        arguments = [CONDITION_OF[alert], "job", *self.it.pipeline.job_arguments()]
        script = [sys.executable, str(HERE / "kill_between.py"), *arguments]
        return self.it.pipeline.run(f"killed-{CONDITION_OF[alert]}", script, PYTHONPATH=str(HERE.parents[1]))

    def goes_on(self, alert: str, killed: Program, seconds: float) -> None:
        """Wait until the job was killed, start it again, and wait until the alert is sent."""
        assert killed.wait(seconds) == -signal.SIGKILL, killed.text()[-3000:]
        wait_until(lambda: not killed.left(), seconds=60, what="nothing is left of the job")
        assert self.spells(alert) == [(GROUP_OF[alert], PART_OF[alert], True)]
        self.it.start("job")
        wait_until(lambda: self.sent(alert), seconds=PATIENCE, what=f"{alert} is sent")

    def is_sent_once(self, *alerts: str) -> None:
        for alert in alerts:
            assert self.sent(alert) == [f"firing {GROUP_OF[alert]}"]
            assert self.spells(alert) == [(GROUP_OF[alert], PART_OF[alert], True)]
            assert [each for each in self.it.prometheus.alerts(alert) if each["state"] == "firing"]


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    settings = Settings(alerts=AlertsSettings(packs=(Pack.GROUPS,)))
    rules = re.sub("|".join(SHORT), lambda found: SHORT[found[0]], as_yaml(rule_file(settings)))
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(plan_cluster(brokers=1)))
        sandbox.admin.create_topic("orders", partitions=6, replication_factor=1)
        pipeline = Pipeline(tmp_path_factory.mktemp("pipeline"))
        stack.callback(pipeline.close)
        webhook = stack.enter_context(collecting_webhook())
        alerting = Alerting(tmp_path_factory.mktemp("alertmanager"), webhook)
        stack.callback(alerting.close)
        prometheus = stack.enter_context(
            running_prometheus(
                tmp_path_factory.mktemp("prometheus"),
                {"isrwatch": f"127.0.0.1:{pipeline.port}"}, [rules], alerting.manager,
            )
        )  # fmt: skip
        made = Groups(Installation(sandbox, pipeline, prometheus, webhook, alerting))
        stack.callback(made.clients.close)
        yield made


def test_an_alert_about_a_group_is_sent_once_through_kills_between_two_commits_and_restarts(groups: Groups) -> None:
    it, clients = groups.it, groups.clients
    clients.produce("orders", 20)
    clients.commit("stands", 3, partitions=(2,))
    killed = groups.job_that_dies(BEYOND)
    it.configure("prod", 'offsets_interval = "5s"', 'groups_interval = "5s"')
    it.start("collector")
    it.pipeline.eventually(lambda: it.pipeline.rows("group_offsets"), "there are positions", killed)
    clients.commit("stands", 5, partitions=(2,))
    standing = time.time()
    clients.commit("ahead", 1_000, partitions=(1,))
    it.start("exporter")
    groups.goes_on(BEYOND, killed, PATIENCE)
    groups.is_sent_once(BEYOND)

    it.kill("job")
    killed = groups.job_that_dies(STUCK)
    groups.goes_on(STUCK, killed, STANDING / 1e6 - (time.time() - standing) + PATIENCE)
    groups.is_sent_once(BEYOND, STUCK)
    for name, seconds in (("collector", 20.0), ("job", 10.0), ("exporter", 0.0), ("exporter", GONE_SECONDS)):
        it.kill(name)
        time.sleep(seconds)
        began = time.time()
        it.start(name)
        it.wait_fresh(began)
        groups.is_sent_once(BEYOND, STUCK)
    it.sandbox.kill(1)
    time.sleep(30)  # the coordinator is gone for so long
    it.sandbox.start(1)
    it.wait_fresh(time.time())
    groups.is_sent_once(BEYOND, STUCK)

    clients.commit("stands", 20, partitions=(2,))
    clients.commit("ahead", 20, partitions=(1,))
    over = {alert: [f"firing {GROUP_OF[alert]}", f"resolved {GROUP_OF[alert]}"] for alert in GROUP_OF}
    wait_until(lambda: all(len(groups.sent(alert)) > 1 for alert in over), seconds=PATIENCE, what="both are over")
    time.sleep(20)  # nothing is to be sent meanwhile
    assert {alert: groups.sent(alert) for alert in over} == over
    assert {alert: groups.spells(alert) for alert in over} == {
        alert: [(GROUP_OF[alert], PART_OF[alert], False)] for alert in over
    }
