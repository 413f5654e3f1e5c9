"""The primary source of a real cluster, while the permission to read its log is given, taken away and given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.events import EventKind
from streaming.contracts.observations import SourceKind
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from streaming.sources.permissions import CLUSTER_ACTION
from tests.plugins.real_collector import READER, Rules, Tables, facts, of_the_log
from tests.plugins.sandbox import SECURED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.sandbox import Sandbox
    from tests.plugins.real_collector import Collecting

pytestmark = [pytest.mark.kafka, pytest.mark.long]
pytest_plugins = ["tests.plugins.real_collector"]


@pytest.mark.usefixtures("hurried")
def test_the_brokers_are_polled_while_the_log_is_not_permitted_and_nothing_is_lost_or_invented(
    kafka_cluster: Callable[..., Sandbox], collecting: Collecting, tmp_path: Path
) -> None:
    cluster = kafka_cluster(brokers=2, node_properties=dict.fromkeys((1, 2, 101), SECURED))
    rules, tables = Rules(cluster), Tables()
    servers = ClusterSettings(
        bootstrap_servers=cluster.bootstrap_servers, controllers=ControllersSettings(client=READER)
    )
    collect = CollectSettings(heartbeat_interval=1, poll_interval=0.5, config_interval=2)
    settings = Settings(cluster=servers, collect=collect)
    assert of_doctor(settings) == {"brokers": Status.OK, "metadata log": Status.WARNING, "polling": Status.OK}
    collecting.start(settings, tmp_path, tables)
    cluster.admin.create_topic("orders", partitions=3, replication_factor=2)
    collecting.until(lambda: len(tables.partitions()) == 3, "the poller reports")
    assert tables.primary() == SourceKind.POLL
    assert any("lacks ClusterAction" in line for line in collecting.lines)

    rules.allow(CLUSTER_ACTION)
    collecting.until(lambda: tables.primary() == SourceKind.METADATA_LOG, "the log takes over")
    assert of_doctor(settings) == dict.fromkeys(("brokers", "metadata log", "polling"), Status.OK)
    cluster.stop(2)
    collecting.until(lambda: all(each.isr == (1,) for each in tables.partitions().values()), "broker 2 left")

    rules.take(CLUSTER_ACTION)
    collecting.until(lambda: tables.primary() == SourceKind.POLL, "the poller takes over")
    cluster.start(2)
    collecting.until(lambda: all(len(each.isr) == 2 for each in tables.partitions().values()), "broker 2 came back")

    rules.allow(CLUSTER_ACTION)
    collecting.until(lambda: tables.primary() == SourceKind.METADATA_LOG, "the log takes over again")
    cluster.admin.create_topic("late", partitions=1, replication_factor=2)
    collecting.until(lambda: ("late", 0) in tables.partitions(), "a topic that is created later")
    collecting.stop()

    assert tables.events(EventKind.ISR_SHRINK, EventKind.ISR_EXPAND) == {
        (kind, "orders", number): 1 for kind in (EventKind.ISR_SHRINK, EventKind.ISR_EXPAND) for number in range(3)
    }
    assert not tables.events(EventKind.TOPIC_DELETED)
    assert facts(tables) == facts(of_the_log(cluster, tmp_path, READER))


def of_doctor(settings: Settings) -> dict[str, Status]:
    """What ``isrwatch doctor`` says of each way to read the cluster."""
    checks = ("brokers", "metadata log", "polling")
    return {check: status for check in checks for status, _ in CHECKS[check](settings) if status is not Status.SKIPPED}
