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

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.sandbox import Sandbox

PLANNED = frozenset(
    {"brokers", "controllers", "node_properties", "heap_megabytes", "jmx_config", "proxy", "version", "zookeeper"}
)
USERS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="a" user_admin="a" user_reader="hunter2";'
)
SECURED: Final = {
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": USERS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT",
}
"""Controllers require a login, and ACLs say what each user may do; brokers require no login."""
SECURED_THROUGHOUT: Final = {
    **SECURED,
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.replication.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.replication.plain.sasl.jaas.config": USERS,
}
"""isrwatch logs in to the brokers' replication listener and to the controllers; the tests' listener requires none."""
SHARED: Final[dict[str, dict[str, Any]]] = {
    "kafka_4_3": {"version": "4.3", "node_properties": {1: {"broker.rack": "a"}}, "broker_session_timeout_ms": 2000},
    "kafka_4_4": {"version": "4.4", "broker_session_timeout_ms": 2000},
    "kafka_secured": {
        "version": "4.4",
        "brokers": 2,
        "node_properties": dict.fromkeys((1, 2, 101), SECURED_THROUGHOUT),
        "auto_create_topics_enable": "true",  # nothing may ask a broker for a topic that is not there
        "transaction_partition_verification_enable": "false",
    },
    "kafka_single": {
        "brokers": 1,
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow_everyone_if_no_acl_found": "true",
    },
}
"""The clusters that many tests share, by the name of the fixture."""


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


class Shared:
    """Clusters that many tests use: each starts with the first of them and ends with the last."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        self._left = Counter(name for item in items for name in SHARED if name in getattr(item, "fixturenames", ()))
        self._running: dict[str, tuple[ExitStack, Sandbox]] = {}

    def take(self, name: str) -> Sandbox:
        """Return a cluster, whole."""
        if name not in self._running:
            stack = ExitStack()
            self._running[name] = stack, _factory(stack)(**SHARED[name])
        return self._running[name][1]

    def give_back(self, name: str, item: pytest.Item) -> None:
        """Heal a cluster for the next test; end it if there is none."""
        self._left[name] -= name in getattr(item, "fixturenames", ())  # not what asks for it as it runs
        if self._left[name] > 0:
            self._running[name][1].heal()
        else:
            self._running.pop(name)[0].close()

    def close(self) -> None:
        """End what still runs."""
        for stack, _ in self._running.values():
            stack.close()


@pytest.fixture(scope="session")
def _shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    shared = Shared(request.session.items)
    yield shared
    shared.close()


@pytest.fixture
def kafka_4_3(request: pytest.FixtureRequest, _shared: Shared) -> Iterator[Sandbox]:
    """Give the one cluster of Kafka 4.3.1 of all tests: a controller and three brokers, healed after each of them.

    Delete the topics of a test at its end; files with such a fixture run in one process. Mark the test ``kafka``.
    """
    yield _shared.take("kafka_4_3")
    _shared.give_back("kafka_4_3", request.node)


@pytest.fixture
def kafka_4_4(request: pytest.FixtureRequest, _shared: Shared) -> Iterator[Sandbox]:
    """Give the same of Kafka 4.4.0."""
    yield _shared.take("kafka_4_4")
    _shared.give_back("kafka_4_4", request.node)


@pytest.fixture
def kafka_secured(request: pytest.FixtureRequest, _shared: Shared) -> Iterator[Sandbox]:
    """Give that of Kafka 4.4.0 with two brokers whose controllers, and replication listeners, ask for a login."""
    yield _shared.take("kafka_secured")
    _shared.give_back("kafka_secured", request.node)


@pytest.fixture
def kafka_single(request: pytest.FixtureRequest, _shared: Shared) -> Iterator[Sandbox]:
    """Give that of Kafka 4.3.1 with one broker and an authorizer that allows what no rule is about."""
    yield _shared.take("kafka_single")
    _shared.give_back("kafka_single", request.node)


def _factory(stack: ExitStack) -> MakeSandbox:
    from deploy.sandbox import Sandbox, plan_cluster  # noqa: PLC0415 - see above

    def make(*, brokers: int = 3, controllers: int = 1, **settings: Any) -> Sandbox:
        planned = {key: value for key, value in settings.items() if key in PLANNED}
        properties = {key.replace("_", "."): str(value) for key, value in settings.items() if key not in PLANNED}
        plan = plan_cluster(brokers=brokers, controllers=controllers, properties=properties, **planned)
        return stack.enter_context(Sandbox(plan))

    return make
