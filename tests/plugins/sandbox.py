"""Real Kafka clusters for tests, by fixtures. Nothing is imported, and no Java asked for, until one is used.

::

    @pytest.mark.kafka
    def test_something(kafka_cluster):
        cluster = kafka_cluster(brokers=3, proxy=True, replica_lag_time_max_ms=3000)
        cluster.admin.create_topic("orders", assignment=[[1, 2, 3]], configs={"min.insync.replicas": "2"})
        with TopicWriter(cluster.bootstrap_servers, "orders", acks="all"):
            cluster.proxy.hold(leader=1, follower=3)
            cluster.admin.wait_isr("orders", 0, {1, 2})
            cluster.proxy.release(leader=1, follower=3)
        cluster.kill(2)
        records = cluster.dump_metadata_log()

When pytest dies, a watchdog kills the nodes and deletes their folder.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.sandbox import Sandbox

PLANNED = frozenset(
    {"brokers", "controllers", "node_properties", "heap_megabytes", "jmx_config", "proxy", "version", "zookeeper"}
)


class MakeSandbox(Protocol):
    """Start a cluster and wait until it is ready; any number of them.

    What is no word of ``plan_cluster`` is a property of all nodes: ``replica_lag_time_max_ms=2500``.
    """

    def __call__(self, *, brokers: int = ..., controllers: int = ..., **settings: Any) -> Sandbox: ...


@pytest.fixture
def kafka_cluster() -> Iterator[MakeSandbox]:
    """Give a factory of clusters that end with the test. Mark the test ``kafka``."""
    with ExitStack() as stack:
        yield _factory(stack)


@pytest.fixture(scope="module")
def kafka_module_cluster() -> Iterator[MakeSandbox]:
    """Give a factory of clusters that end with the module: starting one costs ten seconds."""
    with ExitStack() as stack:
        yield _factory(stack)


@pytest.fixture(scope="session")
def _kafka_4_4() -> Iterator[Sandbox]:
    with ExitStack() as stack:
        yield _factory(stack)(version="4.4", broker_session_timeout_ms=2000)


@pytest.fixture
def kafka_4_4(_kafka_4_4: Sandbox) -> Iterator[Sandbox]:
    """Give the one cluster of Kafka 4.4.0 of all tests: a controller and three brokers, healed after each of them.

    Delete the topics of a test at its end; files with this fixture run in one process. Mark the test ``kafka``.
    """
    yield _kafka_4_4
    _kafka_4_4.heal()


def _factory(stack: ExitStack) -> MakeSandbox:
    from deploy.sandbox import Sandbox, plan_cluster  # noqa: PLC0415 - see above

    def make(*, brokers: int = 3, controllers: int = 1, **settings: Any) -> Sandbox:
        planned = {key: value for key, value in settings.items() if key in PLANNED}
        properties = {key.replace("_", "."): str(value) for key, value in settings.items() if key not in PLANNED}
        plan = plan_cluster(brokers=brokers, controllers=controllers, properties=properties, **planned)
        return stack.enter_context(Sandbox(plan))

    return make
