"""Each permission taken away from a real cluster with the StandardAuthorizer: what is missing, and the cure."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.sandbox.waiting import wait_until
from streaming.commands import doctor_log
from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import (
    MIN_ISR,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Observation,
    PartitionObserved,
    SourceKind,
)
from streaming.contracts.samples import (
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.contracts.settings import BrokerSettingsObserved, TopicSettingsObserved
from streaming.runtime.jars import SANDBOX, jar_paths
from streaming.runtime.java import find_java
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from streaming.sources.collector import opening
from streaming.sources.evidence import EPOCH_ENDS, POLLED_EVIDENCE
from streaming.sources.metadata_log import opening as log_opening
from streaming.sources.permissions import (
    CLUSTER_ACTION,
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TOPICS,
    DESCRIBE_TRANSACTIONAL_IDS,
    PERMISSIONS,
    READ_TOPICS,
    Permission,
    grantee_of,
)
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met
from streaming.sources.polling.watching.watch import Watch
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.samples import source as samples_opening
from streaming.sources.samples.transactions import TransactionsKind
from streaming.sources.services import SERVICES, Service
from tests.blocks import singly
from tests.plugins.real_collector import READER, Rules, Tables
from tests.sources.evidence_requests import answered_evidence
from tests.sources.samples.late_producer import leave_hanging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deploy.sandbox import Sandbox
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Dialer
    from tests.plugins.real_collector import Collecting

pytestmark = [pytest.mark.kafka]
pytest_plugins = ["tests.plugins.real_collector"]

ADMIN = (
    'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a";'
)
CHECKED = ("brokers", "metadata log", "polling", "samples", "reassignments")

GIVEN = {
    "the log": lambda one: one.source_kind == SourceKind.METADATA_LOG,
    "voters": lambda one: isinstance(one, ControllerObserved) and one.source.startswith("quorum:") and one.caught_up,
    "times": lambda one: isinstance(one, ConfigObserved) and one.topic == "" and one.origin == ConfigOrigin.DESCRIBE,
    "polled partitions": lambda one: isinstance(one, PartitionObserved) and one.source == "admin:poller",
    "offsets": lambda one: isinstance(one, ReplicaOffsetsObserved) and one.topic == "orders",
    "directories": lambda one: isinstance(one, LogDirectoryObserved) and one.hosted_replicas,
    "topic settings": lambda one: isinstance(one, TopicSettingsObserved),
    "broker settings": lambda one: isinstance(one, BrokerSettingsObserved),
    "groups": lambda one: isinstance(one, GroupOffsetsObserved) and one.committed_offset == 7,
    "quorum": lambda one: isinstance(one, QuorumMemberObserved),
    "transactions": lambda one: isinstance(one, TransactionObserved) and one.transactional_id == "open",
    "min ISR": lambda one: (
        isinstance(one, ConfigObserved) and (one.key, one.origin, one.brokers) == (MIN_ISR, ConfigOrigin.DESCRIBE, None)
    ),
}
"""How it shows on the bus that something is learned."""
MISSING: dict[Permission, tuple[set[str], set[str]]] = {
    CLUSTER_ACTION: ({"the log"}, {"metadata log"}),
    DESCRIBE_CLUSTER: ({"the log", "voters", "directories", "quorum"}, {"metadata log", "samples", "reassignments"}),
    DESCRIBE_BROKER_CONFIGS: ({"times", "broker settings"}, {"polling", "samples"}),
    DESCRIBE_TOPICS: ({"polled partitions", "offsets", "groups", "min ISR", "topic settings"}, {"polling"}),
    DESCRIBE_TOPIC_CONFIGS: ({"min ISR", "topic settings"}, {"polling", "samples"}),
    DESCRIBE_GROUPS: ({"groups"}, {"samples"}),
    DESCRIBE_TRANSACTIONAL_IDS: ({"transactions"}, {"samples"}),
}
"""What is missing on the bus without a permission, and which checks of ``isrwatch doctor`` are not all ok."""

KNOWN_BEFORE = {DESCRIBE_CLUSTER: {"the log"}, DESCRIBE_TOPICS: {"min ISR"}}
"""What is learned all the same by who has had the permission: it knows the controllers, or the topics."""


class Bus(Tables):
    """Keeps what is learned, too."""

    def __init__(self) -> None:
        super().__init__()
        self.given: set[str] = set()
        self.hanging: set[int] = set()

    def publish(self, observations: Sequence[Observation]) -> None:
        super().publish(observations)
        self.given |= {name for one in singly(observations) for name, shows in GIVEN.items() if shows(one)}
        self.hanging |= {
            one.producer_id for one in observations if isinstance(one, TransactionObserved) and one.is_hanging
        }


@pytest.fixture
def cluster(kafka_secured: Sandbox) -> Sandbox:
    """Two brokers that create topics when they are asked for them: nothing may ask for it."""
    if ("orders", 0) not in kafka_secured.admin.describe():
        fill(kafka_secured)
    return kafka_secured


def fill(sandbox: Sandbox) -> None:
    """Create a topic, and let a group and a producer use it."""
    sandbox.admin.create_topic("orders", partitions=2, replication_factor=2)
    committed = ConsumerGroupTopicPartitions("readers", [TopicPartition("orders", 0, 7)])
    client = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})

    def has_committed() -> bool:
        """The coordinator of a new cluster refuses for a moment."""
        (answer,) = client.alter_consumer_group_offsets([committed], request_timeout=10).values()
        return not answer.exception(30) and not any(one.error for one in answer.result().topic_partitions)

    wait_until(has_committed, "a group to have an offset")
    writer(sandbox)


def writer(cluster: Sandbox) -> Producer:
    """A producer with transactions; for the first one Kafka creates ``__transaction_state``, with 3 partitions."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "open",
            "log_level": 2,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(60)
    return producer


@pytest.fixture
def asked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders are asked who holds a partition after less than a second."""
    monkeypatch.setattr(samples_opening, "TransactionsKind", partial(TransactionsKind, held_micros=Micros(300_000)))


@pytest.fixture
def told_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported every half minute if nothing changes is reported again and again."""
    monkeypatch.setattr(opening, "POLL_SNAPSHOT_SECONDS", 0.3)
    for name in ("ASKED_EVERY", "REPORTED_EVERY"):
        monkeypatch.setattr(log_opening, name, Micros(300_000))


@pytest.fixture
def transaction(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A transaction that is open as long as the test runs, however long that is: nobody asks who writes it."""
    patient = partial(TransactionsKind, held_micros=Micros(3_600_000_000))
    monkeypatch.setattr(samples_opening, "TransactionsKind", patient)
    producer = writer(cluster)
    producer.begin_transaction()
    producer.produce("orders", b"v", partition=0)
    producer.flush(60)
    yield
    producer.abort_transaction(60)


@pytest.fixture
def rules(cluster: Sandbox) -> Rules:
    """All permissions of the table are given; nothing else is."""
    rules = Rules(cluster)
    rules.allow(*PERMISSIONS)
    return rules


@pytest.fixture
def settings(cluster: Sandbox) -> Settings:
    servers = f"127.0.0.1:{cluster.plan.brokers[1].replication}"
    return Settings(
        cluster=ClusterSettings(bootstrap_servers=servers, client=READER),
        collect=CollectSettings(
            heartbeat_interval=1,
            poll_interval=0.3,
            offsets_interval=0.3,
            groups_interval=0.3,
            config_interval=0.5,
            quorum_interval=0.3,
            transactions_interval=0.3,
            directories_interval=0.5,
        ),
    )


def polling(settings: Settings) -> Settings:
    """Poll, and sample seldom."""
    often = {"heartbeat_interval": 1, "poll_interval": 0.3, "config_interval": 0.5}
    return replace(settings, collect=CollectSettings(collector="poller", primary_source="poll", **often))


def cures(sentences: Iterable[str]) -> set[str]:
    """The commands that sentences print."""
    return {found for sentence in sentences for found in re.findall(r"kafka-acls [^;]*", sentence)}


def complaints(settings: Settings) -> dict[str, list[str]]:
    """What ``isrwatch doctor`` does not find in order, by check; it asks once."""
    patient = replace(settings, collect=CollectSettings(primary_source=settings.collect.primary_source))
    found = {check: [say for status, say in CHECKS[check](patient) if status is not Status.OK] for check in CHECKED}
    return {check: sentences for check, sentences in found.items() if sentences}


def run(printed: str, folder: Path) -> str:
    """Run a command as it is printed, where the administrator's login is; return what it prints."""
    (folder / "admin.properties").write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{ADMIN}\n")
    program, *arguments = shlex.split(printed)
    assert program == "kafka-acls"
    classes = ":".join(map(str, jar_paths(SANDBOX)))
    java = [find_java().executable, "-XX:TieredStopAtLevel=1", "-cp", classes, "org.apache.kafka.tools.AclCommand"]
    return subprocess.run([*java, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


AS_PRINTED = [{CLUSTER_ACTION, DESCRIBE_GROUPS}, pytest.param({*PERMISSIONS}, marks=pytest.mark.long)]
"""Of which permissions the command is run as it is printed: Kafka's tool takes seconds each time."""


@pytest.mark.parametrize("as_printed", AS_PRINTED, ids=["some", "all"])
@pytest.mark.usefixtures("transaction", "told_often")
def test_without_one_permission_the_rest_works_and_one_command_as_printed_cures_it(
    rules: Rules, settings: Settings, collecting: Collecting, tmp_path: Path, as_printed: set[Permission]
) -> None:
    """One pair of collectors lives through all of it; it begins without what only those that begin miss in full."""
    bus, lines = Bus(), collecting.lines
    command = grantee_of(settings.cluster.bootstrap_servers, settings.cluster.client).command
    at_first = (DESCRIBE_CLUSTER, DESCRIBE_TOPICS)
    for permission in at_first:
        rules.take(permission)
    for each in (settings, polling(settings)):
        collecting.start(each, tmp_path, bus)
    missing = MISSING[DESCRIBE_CLUSTER][0] | MISSING[DESCRIBE_TOPICS][0]
    collecting.until(lambda: cures(lines) >= {*map(command, at_first)}, "both are said")
    collecting.until(lambda: bus.given >= GIVEN.keys() - missing, f"all but {missing}")
    time.sleep(0.7)  # two rounds of each question
    assert bus.given == GIVEN.keys() - missing
    assert cures(lines) == {*map(command, at_first)}
    rules.allow(*at_first)

    for permission in PERMISSIONS:
        collecting.until(lambda: bus.given == GIVEN.keys(), "everything")
        lines.clear()
        rules.take(permission)
        is_missed(permission, command(permission), bus, collecting)
        complained = complaints(settings)
        assert complained.keys() == MISSING[permission][1], permission
        sentences = [*itertools.chain(*complained.values())]
        assert all(cures([sentence]) == {command(permission)} for sentence in sentences), sentences
        assert not [line for line in (*lines, *sentences) if "hunter2" in line]
        if permission in as_printed:
            run(command(permission), tmp_path)
        else:
            rules.allow(permission)
    collecting.until(lambda: bus.given == GIVEN.keys(), "everything")
    assert complaints(settings) == {}


def is_missed(permission: Permission, cure: str, bus: Bus, collecting: Collecting) -> None:
    """Wait until a permission that was taken is missed, and nothing else is."""
    collecting.until(lambda: cures(collecting.lines) == {cure}, f"it is said: {cure}")
    given = GIVEN.keys() - MISSING[permission][0] | KNOWN_BEFORE.get(permission, set())

    def is_only_the_rest_given() -> bool:
        """Not at once: answers may be on their way."""
        bus.given.clear()
        collecting.until(lambda: bus.given >= given, f"{given} without {permission}")
        time.sleep(0.7)  # two rounds of each question
        return bus.given == given

    collecting.until(is_only_the_rest_given, f"{given} alone, without {permission}")
    assert cures(collecting.lines) == {cure}


@pytest.mark.long
def test_the_page_of_services_takes_back_every_permission(rules: Rules, settings: Settings, tmp_path: Path) -> None:
    rules.allow(*PERMISSIONS, READ_TOPICS)
    servers = settings.cluster.bootstrap_servers
    (principal,) = re.findall(
        r"--allow-principal (\S+)", grantee_of(servers, settings.cluster.client).command(READ_TOPICS)
    )
    page = (Path(__file__).parents[2] / "docs" / "services.md").read_text(encoding="utf-8")
    commands = re.findall(r"^kafka-acls .*", page, re.MULTILINE)
    *_, listing = commands = [
        each.replace("broker-1:9092", servers).replace("User:isrwatch", principal) for each in commands
    ]
    assert run(listing, tmp_path).count("operation=") >= len(PERMISSIONS) + 1
    for each in commands[:-1]:
        run(each, tmp_path)
    assert "operation=" not in run(listing, tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("asked_soon")
def test_with_one_more_permission_a_transaction_that_hangs_is_found(
    cluster: Sandbox, rules: Rules, settings: Settings, collecting: Collecting, tmp_path: Path
) -> None:
    bus, lines = Bus(), collecting.lines
    cure = grantee_of(settings.cluster.bootstrap_servers, settings.cluster.client).command(READ_TOPICS)
    left = leave_hanging(cluster.bootstrap_servers, "hanging", "orders", 1)

    collecting.start(settings, tmp_path, bus)
    collecting.until(lambda: cures(lines) == {cure}, "it is said")
    assert not bus.hanging

    run(cure, tmp_path)
    collecting.until(lambda: left.producer_id in bus.hanging, "it is found")
    rules.take(READ_TOPICS)
    cluster.run_tool(
        *("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", cluster.bootstrap_servers, "abort"),
        *("--topic", "orders", "--partition", "1", "--start-offset", str(left.start_offset)),
    )


def test_the_log_of_controllers_at_written_addresses_is_read_without_describe_on_the_cluster(
    cluster: Sandbox, rules: Rules, settings: Settings
) -> None:
    rules.take(DESCRIBE_CLUSTER)
    addresses = cluster.controller_addresses
    written = replace(settings, cluster=replace(settings.cluster, controllers=ControllersSettings(addresses=addresses)))
    assert complaints(settings).keys() == {"metadata log", "samples", "reassignments"}
    assert complaints(written).keys() == {"samples", "reassignments"}


def test_the_doctor_says_how_many_topics_there_are_and_how_many_of_them_are_visible(
    cluster: Sandbox, rules: Rules, settings: Settings
) -> None:
    rules.take(DESCRIBE_TOPICS)
    count = len({topic for topic, _ in cluster.admin.describe()})  # internal ones appear with who uses them
    ((_, log),) = CHECKS["metadata log"](settings)
    (_, visible), (_, hidden) = (finding for finding in CHECKS["polling"](settings) if ".ms of the" not in finding[1])
    assert log == f"the metadata log can be read with {count} topics: every change is recorded with its cause"
    assert visible == "visible: 2 brokers and 0 topics"
    assert hidden.startswith("this user lacks Describe on the topics: Kafka leaves them out")


@pytest.mark.long
def test_topics_that_are_polled_and_hidden_later_stay_as_they_were(
    cluster: Sandbox, rules: Rules, settings: Settings, collecting: Collecting, tmp_path: Path
) -> None:
    bus, lines = Bus(), collecting.lines
    collecting.start(polling(settings), tmp_path, bus)
    collecting.until(lambda: len(bus.partitions()) == 2 + 3 + 3, "the poller reports")
    before = bus.partitions().keys()

    rules.take(DESCRIBE_TOPICS)
    collecting.until(lambda: any("lacks Describe on topic " in line for line in lines), "it is said")
    time.sleep(2)

    assert bus.partitions().keys() == before
    assert not bus.events(EventKind.TOPIC_DELETED)
    assert {topic for topic, _ in cluster.admin.describe()} == {
        "orders",
        "__consumer_offsets",
        "__transaction_state",
    }, "no question creates a topic"


def test_each_permission_alone_gives_the_evidence_of_polling_that_its_rows_name(cluster: Sandbox, rules: Rules) -> None:
    """Kafka has answered OffsetForLeaderEpoch to those with ClusterAction from the beginning (KIP-320)."""
    for permission in PERMISSIONS:
        rules.take(permission)
    for permission in (None, *PERMISSIONS):
        if permission is not None:
            rules.allow(permission)
        given = {each.name for each in POLLED_EVIDENCE if each.needs in {None, permission}}
        given |= {EPOCH_ENDS.name} if permission is CLUSTER_ACTION else set()
        until = time.monotonic() + 10
        while (answered := answered_evidence(cluster, READER, "orders")) != given and time.monotonic() < until:
            time.sleep(0.05)  # rules reach the brokers by the metadata log
        assert answered == given, permission
        if permission is not None:
            rules.take(permission)


@pytest.mark.parametrize("service", SERVICES, ids=lambda one: one.name)
def test_the_doctor_says_what_is_lost_with_the_permissions_that_a_service_grants(
    rules: Rules, settings: Settings, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controllers are out of reach, as with all of them."""
    monkeypatch.setattr(doctor_log, "SECONDS", 0.3)
    for permission in PERMISSIONS:
        if permission not in service.grants:
            rules.take(permission)
    unreachable = ControllersSettings(addresses={"101": "127.0.0.1:1"})
    settings = replace(settings, cluster=replace(settings.cluster, controllers=unreachable))
    settings = replace(settings, collect=CollectSettings())
    lost = [
        f"polling lacks {each.name} ({each.request}) without {each.needs.operation} on {each.needs.on}: {each.without}"
        f"; grant it by: {grantee_of(settings.cluster.bootstrap_servers, READER).command(each.needs)}"
        for each in POLLED_EVIDENCE
        if each.needs is not None and each.needs not in service.grants
    ]

    mode, *rest = CHECKS["profile"](settings)

    polled = "the metadata log cannot be read, so the brokers are polled, every 5 s: causes are inferred, not proven"
    assert mode == (Status.OK, polled)
    assert [sentence for status, sentence in rest if status is Status.WARNING] == lost
    total = len(POLLED_EVIDENCE)
    assert rest[-1] == (Status.OK, f"of what polling can learn, {total - len(lost)} things of {total} can be asked for")
    ((status, sentence),) = CHECKS["metadata log"](settings)
    assert (status, sentence.endswith("; the brokers are polled meanwhile")) == (Status.WARNING, True)


def test_the_doctor_says_that_the_log_is_read_where_it_can_be(rules: Rules, settings: Settings) -> None:
    del rules
    assert list(CHECKS["profile"](settings)) == [
        (
            Status.OK,
            "the metadata log is read, so no permission and no version of polling costs anything: causes are proven",
        )
    ]


OF_WATCH: dict[Permission | None, dict[Ask, int]] = {
    None: {},
    DESCRIBE_CLUSTER: {Ask.QUORUM: 31},
    DESCRIBE_TOPICS: dict.fromkeys((Ask.PARTITIONS, Ask.LOG_ENDS, Ask.EPOCH_ENDS), 29),
    DESCRIBE_BROKER_CONFIGS: {},
}
"""The errors with which a broker answers questions without a permission; who is there needs none."""


def test_the_permissions_that_questions_to_brokers_need(rules: Rules, settings: Settings) -> None:
    """The broker proves its id by the partitions that it leads, without DescribeConfigs on the cluster."""
    rules.take(CLUSTER_ACTION)  # with it alone the ends of epochs are answered, too
    dial = dialer(from_client(settings.cluster.client))
    with closing(dial(parse_servers(settings.cluster.bootstrap_servers)[0], response_seconds=5)) as connection:
        view = ConnectedBrokers(dial, cluster="c", seconds=5).view(connection)
    for permission, errors in OF_WATCH.items():
        if permission is not None:
            rules.take(permission)
        wait_until(lambda: _errors(dial, view) == errors, f"{errors} without {permission}")  # noqa: B023 - at once
        if permission is not None:
            rules.allow(permission)


def _errors(dial: Dialer, view: ClusterView) -> dict[Ask, int]:
    some = {ask: (("orders", 0, 0 if ask is Ask.EPOCH_ENDS else -1),) for ask in (*Ask,) if ask not in NO_PARTITIONS}
    leader = view.topics["orders"][0].leader
    questions = [BrokerQuestion(ask, leader, some.get(ask, ())) for ask in Ask]
    mets: list[Met] = []
    with closing(Watch(dial, name="test")) as watch:
        watch.look_at(view)
        watch.ask(questions)
        while len(mets) < len(questions):
            watch.pending()[0].result(10)
            mets += watch.take()
    assert {met.how for met in mets} == {Meeting.ANSWERED}
    return {met.question.ask: met.error for met in mets if met.error}


NO_PARTITIONS = {Ask.PRESENCE, Ask.QUORUM}
