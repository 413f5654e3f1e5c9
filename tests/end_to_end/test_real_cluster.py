"""A real Kafka cluster through every fault of the script: collector, job, exporter and Prometheus beside it.

The truth is the controller's own log, decoded by Kafka's own tool. The script runs once; the tests compare what the
tables, the exporter and Prometheus say of it. A second collector polls the brokers; on its bus the job's batches run
without Spark.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from deltalake import DeltaTable

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from deploy.sandbox.cluster import Sandbox
from deploy.sandbox.plan import plan_cluster
from streaming.alert_settings import AlertsSettings
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.state import as_of_version
from streaming.settings import Settings
from streaming.sources.metadata_log.decoding import decode_batches
from tests.conformance.actions import ActionName
from tests.conformance.checker import Checker
from tests.plugins.batches import Batches
from tests.plugins.local_http import collecting_webhook
from tests.plugins.pipeline import Pipeline
from tests.plugins.prometheus import Prometheus, running_alertmanager, running_prometheus
from tests.sources.samples.test_groups_real import Clients
from tests.topic_writer import TopicWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.sandbox.dump import DumpedRecord

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.prometheus]

# Kafka's default of controller.quorum.append.linger.ms, and the millisecond that timestamps are cut to.
LINGER_SECONDS = 0.026
BROKER_LAG_SECONDS = 2.0
"""So far a broker's metadata may be behind the controller's log while the machine is busy: what a poll saw is older."""
TOPIC, DOOMED, GROUP = "orders", "doomed", "stuck"
# The counter is there since the first change.
SCRAPED = {
    name: f'{metric}{{topic="{TOPIC}",partition="0"}}'
    for name, metric in (
        ("in_sync", "kafka_topic_partition_in_sync_replica"),
        ("under_replicated", "kafka_topic_partition_under_replicated_partition"),
        ("isr_shrinks", "kafka_replication_partition_isr_shrinks_total"),
    )
}
JMX = Path(__file__).parents[2] / "conf" / "jmx-exporter.yml"
PROPERTIES = {
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
}
# Every broker leads two partitions and follows on the others.
ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [3, 2, 1]]


# Series of samples, and the least value of each.
EXPECTED_SAMPLES = {
    **{
        f'kafka_topic_partition_{name}_offset{{topic="{TOPIC}",partition="{number}"}}': least
        for number in range(len(ASSIGNMENT))
        for name, least in (("current", 1), ("oldest", 0))
    },
    **{
        f'kafka_server_replicamanager_partitioncount{{cluster="sandbox",broker="{broker}"}}': len(ASSIGNMENT)
        for broker in (1, 2, 3)
    },
    f'kafka_consumergroup_lag_sum{{consumergroup="{GROUP}",topic="{TOPIC}"}}': 1,
    f'kafka_consumergroup_members{{consumergroup="{GROUP}"}}': 0,
    'kafka_replication_cluster_open_transactions{cluster="sandbox"}': 0,
    **{f'kafka_replication_quorum_member_voter{{cluster="sandbox",node="{node}"}}': 0 for node in (1, 2, 3)},
}


class Gate(NamedTuple):
    """What ``isrwatch health --wait`` said between two steps, and which partitions Kafka called out of sync then."""

    broker: int
    code: int
    said: str
    out_of_sync: list[int]


@dataclass
class Run:
    """What the script did, when, and what everybody said afterwards."""

    windows: dict[str, tuple[int, int]] = field(default_factory=dict)
    dump: list[DumpedRecord] = field(default_factory=list)
    log: bytes = b""
    rows: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    quarantined: list[dict[str, Any]] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    described: dict[Any, Any] = field(default_factory=dict)
    scraped: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    scrape_health: list[float] = field(default_factory=list)
    died: tuple[float, float] = (0.0, 0.0)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    polled_rows: list[dict[str, Any]] = field(default_factory=list)
    polled_states: list[dict[str, Any]] = field(default_factory=list)
    closed: list[Gate] = field(default_factory=list)
    opened: list[Gate] = field(default_factory=list)


def micros() -> int:
    return time.time_ns() // 1000


class Script:
    """The faults, one after the other; each waits until the cluster is whole again."""

    def __init__(self, sandbox: Sandbox, pipeline: Pipeline, run: Run) -> None:
        self._sandbox, self._pipeline, self._run = sandbox, pipeline, run

    def play(self) -> None:
        self._fault("kill", self._kill)
        self._fault("pause", self._pause)
        self._fault("stop", self._stop)
        self._fault("elect", self._elect)
        self._fault("delete", lambda: self._sandbox.admin.delete_topic(DOOMED))

    def _fault(self, name: str, act: Any) -> None:
        # The controller stamps a batch of records when it opens it, so a record of this fault may bear a moment up to
        # one linger before it: no window may begin in the linger of the fault before.
        time.sleep(2 * LINGER_SECONDS)
        began = micros() - int(LINGER_SECONDS * 1e6)
        act()
        self._run.windows[name] = (began, micros())

    def _kill(self) -> None:
        died = time.time()
        self._sandbox.kill(3)
        self._wait_isr({1, 2})
        self._run.closed.append(self._closed(3))
        self._run.died = (died, time.time())
        self._sandbox.start(3)
        self._run.opened.append(self._gate(3, "120s"))

    def _pause(self) -> None:
        self._sandbox.pause(2)
        time.sleep(4)  # longer than a replica may lag, shorter than a session
        self._sandbox.resume(2)
        self._wait_isr({1, 2, 3})

    def _stop(self) -> None:
        """The collector is killed in the middle of a clean stop, too, and must go on where it was."""
        self._pipeline.programs[0].kill()
        self._sandbox.stop(1)
        self._wait_isr({2, 3})
        collect(self._pipeline, self._sandbox)
        self._run.closed.append(self._closed(1))
        self._sandbox.start(1)
        self._run.opened.append(self._gate(1, "120s"))

    def _closed(self, broker: int) -> Gate:
        """Stand at the gate once the tables say that a broker is away."""
        states = partial(self._pipeline.rows, PARTITION_STATE_TABLE.name)
        self._pipeline.eventually(
            lambda: any(broker not in row["isr"] for row in states() if row["topic"] == TOPIC), "it has left"
        )
        return self._gate(broker, "3s")

    def _gate(self, broker: int, wait: str) -> Gate:
        """Wait at the gate, as a script does between two brokers."""
        command = [sys.executable, "-m", "streaming.commands", "health", "--tables", str(self._pipeline.tables)]
        done = subprocess.run([*command, "--wait", wait, "--settle", "1s"], capture_output=True, text=True, check=False)
        described = self._sandbox.admin.describe(TOPIC)
        out_of_sync = [number for (_, number), each in described.items() if set(each.isr) != set(each.replicas)]
        return Gate(broker, done.returncode, done.stdout + done.stderr, out_of_sync)

    def _elect(self) -> None:
        for number, replicas in enumerate(ASSIGNMENT):
            if self._sandbox.admin.describe(TOPIC)[TOPIC, number].leader != replicas[0]:
                self._sandbox.admin.elect_preferred(TOPIC, number)

    def _wait_isr(self, isr: set[int]) -> None:
        for number in range(len(ASSIGNMENT)):
            self._sandbox.admin.wait_isr(TOPIC, number, isr, seconds=90)


def collect(pipeline: Pipeline, sandbox: Sandbox) -> None:
    config = pipeline.directory / "isrwatch.toml"
    metrics = "".join(f'"{broker}" = "{sandbox.metrics_url(broker)}"\n' for broker in sandbox.broker_ids)
    config.write_text(
        f'[cluster]\nname = "sandbox"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n'
        '[collect]\noffsets_interval = "2s"\nbroker_metrics_interval = "2s"\n'
        'groups_interval = "4s"\nquorum_interval = "4s"\ntransactions_interval = "4s"\n'
        'heartbeat_interval = "1s"\n'  # a gate that opens waits for two of them
        f"[collect.broker_metrics]\n{metrics}"
    )
    program = pipeline.collect("--config", str(config))
    pipeline.programs.remove(program)
    pipeline.programs.insert(0, program)


@contextmanager
def polling(polled: Pipeline, sandbox: Sandbox) -> Iterator[None]:
    """Poll the brokers, because no controller may be read, and let the batches apply what is seen."""
    config = polled.directory / "isrwatch.toml"
    config.write_text(
        f'[cluster]\nname = "polled"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n'
        '[collect]\nprimary_source = "poll"\npoll_interval = "1s"\noffsets_interval = "2s"\n'
    )
    try:
        polled.collect("--config", str(config))
        polled.eventually(lambda: list(polled.bus.glob("replication/*")), "there are reports")
        batches = Batches(polled.bus, polled.tables)
        batches.start()
        try:
            yield
        finally:
            batches.end()
        assert batches.errors == []
    finally:
        polled.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    done = Run()
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(plan_cluster(properties=PROPERTIES, jmx_config=JMX)))
        pipeline = Pipeline(tmp_path_factory.mktemp("pipeline"))
        stack.callback(pipeline.close)
        collect(pipeline, sandbox)
        job = pipeline.job()
        pipeline.eventually(lambda: pipeline.rows("partition_changes"), "a first commit", job)
        sandbox.admin.create_topic(TOPIC, assignment=ASSIGNMENT, configs={"min.insync.replicas": "2"})
        sandbox.admin.create_topic(DOOMED, assignment=[[1, 2, 3]])
        polled = Pipeline(tmp_path_factory.mktemp("polled"))
        stack.enter_context(polling(polled, sandbox))
        pipeline.export()
        targets = {"isrwatch": f"127.0.0.1:{pipeline.port}"}
        hook = stack.enter_context(collecting_webhook())
        manager = stack.enter_context(running_alertmanager(tmp_path_factory.mktemp("alertmanager"), hook))
        events = as_yaml(rule_file(Settings(alerts=AlertsSettings(packs=("events",)))))
        rules = re.sub(r"interval: \w+", "interval: 1s", events).replace("[5m]", "[20s]")
        prometheus = stack.enter_context(
            running_prometheus(tmp_path_factory.mktemp("prometheus"), targets, [rules], manager)
        )
        stack.enter_context(TopicWriter(sandbox.bootstrap_servers, TOPIC))
        clients = Clients(sandbox.bootstrap_servers)
        stack.callback(clients.close)
        clients.commit(GROUP, 0, TOPIC)
        began = time.time()
        isr = SCRAPED["in_sync"]
        pipeline.eventually(
            lambda: prometheus.query(f"count_over_time({isr}[1m]) > 5"), "some scrapes before the faults"
        )
        Script(sandbox, pipeline, done).play()
        finish(sandbox, pipeline, done)
        remember_polled(polled, done)
        ask(prometheus, began, done)
        done.alerts = hook.alerts("IsrwatchIsrShrink")
        remember_samples(pipeline, done)
        yield done


def finish(sandbox: Sandbox, pipeline: Pipeline, done: Run) -> None:
    """Remember what the log, the tables and the cluster say, when all of them say it of the same moment."""
    for _ in range(5):
        time.sleep(2)
        done.dump, done.log = sandbox.dump_metadata_log(), sandbox.read_metadata_log()
        remember(last_change(done.dump), sandbox, pipeline, done)
        if last_change(sandbox.dump_metadata_log()) == last_change(done.dump):
            return
    raise AssertionError("the cluster does not come to rest: each time another change came before all had been read")


def last_change(dump: list[DumpedRecord]) -> int:
    return max(record.offset for record in dump if record.kind in EXPECTED_KINDS)


def remember(last: int, sandbox: Sandbox, pipeline: Pipeline, done: Run) -> None:
    """Wait until the tables have everything up to an offset of the log, and remember what they and the cluster say."""
    pipeline.eventually(
        lambda: any((row["offset"] or 0) >= last for row in pipeline.rows("partition_changes")), "the end of the log"
    )
    done.rows = pipeline.rows("partition_changes")
    version = max(row["version"] for row in done.rows if row["subject"] == "partition")
    states = str(pipeline.tables / PARTITION_STATE_TABLE.name)
    pipeline.eventually(lambda: as_of_version(DeltaTable(states)) >= version, "the derived tables")
    with suppress(AssertionError):  # the tests of incidents say what is there instead
        pipeline.eventually(lambda: len(standing(pipeline.rows("incidents"))) >= len(EXPECTED_INCIDENTS), "incidents")
    done.states = pipeline.rows("partition_state")
    done.quarantined = pipeline.rows("quarantine")
    done.described = sandbox.admin.describe()
    done.incidents = standing(pipeline.rows("incidents"))


def remember_polled(polled: Pipeline, done: Run) -> None:
    """Wait until the poller has seen the cluster whole again, and remember what the tables have of it."""
    described = {key: said.isr for key, said in done.described.items()}

    def is_whole() -> bool:
        done.polled_states = [row for row in polled.rows("partition_state") if not row["is_deleted"]]
        return described == {(row["topic"], row["partition"]): frozenset(row["isr"]) for row in done.polled_states}

    polled.eventually(is_whole, "the poller sees what the cluster says of itself")
    done.polled_rows = polled.rows("partition_changes")


def remember_samples(pipeline: Pipeline, done: Run) -> None:
    """Remember what is exposed once each leader, some of them just elected, has been asked for its offsets."""

    def is_complete() -> bool:
        done.metrics = pipeline.metrics() or {}
        return set(EXPECTED_SAMPLES) <= set(done.metrics)

    with suppress(AssertionError):  # the test says which of them are missing
        pipeline.eventually(is_complete, "samples of all leaders")


def ask(prometheus: Prometheus, began: float, done: Run) -> None:
    end = time.time()
    for name, series in SCRAPED.items():
        (answer,) = prometheus.query_range(series, began, end, 1)
        done.scraped[name] = [(float(at), float(value)) for at, value in answer["values"]]
    (up,) = prometheus.query_range('up{job="isrwatch"}', began, end, 1)
    done.scrape_health = [float(value) for _, value in up["values"]]


# A busy machine may notice a pause as a slow follower, as a stalled leader, or as the end of a session.
EXPECTED_INCIDENTS = {
    "kill": (3, {"broker_loss"}),
    "pause": (2, {"slow_follower", "leader_stall", "broker_loss"}),
    "stop": (1, {"controlled_shutdown", "rolling_restart", "unsafe_shutdown"}),
}


def standing(incidents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in incidents if row["merged_into"] is None]


EXPECTED_KINDS = ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "REMOVE_TOPIC_RECORD")


def expected_steps(dump: list[DumpedRecord]) -> list[tuple[Any, ...]]:
    """Apply Kafka's own decoding by hand: (offset, topic id, partition, epochs, leader, isr, replicas) of each step."""
    image: dict[tuple[str, int], dict[str, Any]] = {}
    steps = []
    for record in dump:
        data = record.data
        if record.kind == "REMOVE_TOPIC_RECORD":
            gone = [key for key in image if key[0] == data["topicId"]]
            steps += [(record.offset, *key, "deleted") for key in gone]
            for key in gone:
                del image[key]
        if record.kind not in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
            continue
        key = (data["topicId"], data["partitionId"])
        if record.kind == "PARTITION_RECORD":
            image[key] = {**data}
        else:
            _merge(image[key], data)
        now = image[key]
        steps.append((
            record.offset,
            *key,
            now["partitionEpoch"],
            now["leaderEpoch"],
            now["leader"],
            tuple(now["isr"]),
            tuple(now["replicas"]),
        ))  # fmt: skip
    return sorted(steps)


def _merge(known: dict[str, Any], data: dict[str, Any]) -> None:
    known["partitionEpoch"] += 1
    if "leader" in data:
        known["leader"] = data["leader"]
        known["leaderEpoch"] += 1
    for name in ("isr", "replicas"):
        if name in data:
            known[name] = data[name]


def recorded_steps(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    steps = []
    for row in rows:
        if row["subject"] != "partition" or row["cause"] == "config":
            continue
        after, key = row["after"], (row["offset"], row["topic_id"], row["partition"])
        if after["is_deleted"]:
            steps.append((*key, "deleted"))
            continue
        epochs = (after["partition_epoch"], after["leader_epoch"])
        steps.append((*key, *epochs, after["leader"], tuple(after["isr"]), tuple(after["replicas"])))
    return sorted(steps)


def test_every_change_of_the_controllers_log_is_in_the_table_once_and_none_is_extra(run: Run) -> None:
    assert recorded_steps(run.rows) == expected_steps(run.dump)
    assert run.quarantined == []


@pytest.mark.parametrize(
    ("fault", "broker", "causes"),
    [("kill", 3, {"fenced"}), ("pause", 2, {"lag"}), ("stop", 1, {"controlled_shutdown"})],
)
def test_each_fault_produced_a_shrink_with_its_own_cause(run: Run, fault: str, broker: int, causes: set[str]) -> None:
    began, ended = run.windows[fault]
    found = {
        row["cause"]
        for row in run.rows
        if broker in (row["left_isr"] or ()) and began <= row["occurred_not_after"].timestamp() * 1e6 <= ended
    }
    assert causes <= found, found
    assert found <= {"fenced", "lag", "controlled_shutdown", "leader_stall"}, found


def test_every_record_of_the_log_is_an_action_of_the_models_controller(run: Run) -> None:
    """The whole script of what operators and fate can do is long: ``tests/conformance/test_real_cluster.py``."""
    checker = Checker(min_insync_replicas=1, unclean_leader_election=False)
    explanations = [checker.explain(batch) for batch in decode_batches(run.log)]
    assert "\n".join(str(deviation) for each in explanations for deviation in each.deviations) == ""
    names = {action.name for each in explanations for action in each.actions}
    assert names >= {
        ActionName.CREATE_PARTITION, ActionName.ALTER_PARTITION, ActionName.FENCE_BROKER, ActionName.UNFENCE_BROKER,
        ActionName.BEGIN_CONTROLLED_SHUTDOWN, ActionName.ELECT_PREFERRED, ActionName.DELETE_TOPIC,
    }  # fmt: skip


def test_every_shrink_has_a_cause(run: Run) -> None:
    shrinks = [row for row in run.rows if row["left_isr"] and not row["after"]["is_deleted"]]
    assert shrinks
    assert {row["cause"] for row in shrinks} <= {"fenced", "lag", "controlled_shutdown", "leader_stall", "restart"}


def test_the_preferred_election_and_the_deletion_are_called_so(run: Run) -> None:
    def causes(window: str) -> set[str]:
        began, ended = run.windows[window]
        return {
            row["cause"]
            for row in run.rows
            if row["subject"] == "partition" and began <= row["occurred_not_after"].timestamp() * 1e6 <= ended
        }

    assert "preferred_election" in causes("elect")
    assert "deleted" in causes("delete")


def test_the_state_is_what_the_cluster_says_of_itself(run: Run) -> None:
    ours = {
        (row["topic"], row["partition"]): (row["leader"], tuple(row["replicas"]), frozenset(row["isr"]))
        for row in run.states
        if not row["is_deleted"]
    }
    assert ours == {key: (said.leader, said.replicas, said.isr) for key, said in run.described.items()}


def test_prometheus_stored_the_cluster_before_during_and_after_the_death_of_a_broker(run: Run) -> None:
    died, returned = run.died

    def values(name: str, start: float, end: float) -> set[float]:
        return {value for at, value in run.scraped[name] if start <= at <= end}

    assert values("in_sync", died - 3, died - 1) == {3.0}
    assert values("in_sync", returned - 1, returned) == {2.0}
    assert values("under_replicated", died - 3, died - 1) == {0.0}
    assert values("under_replicated", returned - 1, returned) == {1.0}
    assert run.scraped["in_sync"][-1][1] == 3.0
    assert run.scraped["under_replicated"][-1][1] == 0.0
    counted = [row["after"]["isr_shrinks"] for row in run.rows if row["topic"] == TOPIC and row["partition"] == 0]
    assert run.scraped["isr_shrinks"][-1][1] == max(counted)


def test_no_scrape_failed_while_the_broker_was_dead(run: Run) -> None:
    assert set(run.scrape_health) == {1.0}


def test_the_death_of_a_broker_reached_a_receiver_with_broker_and_cause(run: Run) -> None:
    told = {(alert["labels"]["broker"], alert["labels"]["cause"]) for alert in run.alerts}
    assert ("3", "fenced") in told, told


def test_samples_of_every_kind_and_the_brokers_own_metrics_came_out_at_the_other_end(run: Run) -> None:
    """All that a user of other exporters looks at: ``test_samples_real.py``."""
    assert {name for name in EXPECTED_SAMPLES if name not in run.metrics} == set()
    assert {name for name, least in EXPECTED_SAMPLES.items() if run.metrics[name] < least} == set()
    assert {run.metrics[name] for name in EXPECTED_SAMPLES if name.startswith("kafka_topic_partition_oldest")} == {0.0}


def test_the_effective_minimum_is_that_of_the_topic(run: Run) -> None:
    assert {row["min_isr_effective"] for row in run.states if row["topic"] == TOPIC} == {2}


def test_the_gate_of_a_restart_opens_only_when_kafka_says_that_all_replicas_are_in_sync(run: Run) -> None:
    """Killed and stopped one after the other, with the rest that both need: ``test_rolling_gate.py``."""
    assert [gate.broker for gate in run.closed] == [gate.broker for gate in run.opened] == [3, 1]
    for gate in run.closed:
        assert gate.code in {1, 3}, gate  # unhealthy, or unknown while no data has come since
        assert f"broker {gate.broker}" in gate.said
    for gate in run.opened:
        assert (gate.code, gate.out_of_sync) == (0, []), gate


@pytest.mark.parametrize("fault", EXPECTED_INCIDENTS)
def test_each_fault_is_an_incident_of_its_class_that_suspects_the_right_broker(run: Run, fault: str) -> None:
    (began, ended), (broker, classes) = run.windows[fault], EXPECTED_INCIDENTS[fault]
    found = [
        (row["incident_class"], [suspect["broker"] for suspect in row["suspects"]])
        for row in run.incidents
        if began <= row["updated_at"].timestamp() * 1e6 and row["opened_at"].timestamp() * 1e6 <= ended
    ]
    assert any(kind in classes and broker in suspects for kind, suspects in found), found


def test_an_incident_names_how_many_partitions_it_touched_and_the_events_that_say_so(run: Run) -> None:
    known = {event["event_id"] for row in run.rows for event in row["events"] or ()}
    assert all(row["event_ids"] and set(row["event_ids"]) <= known for row in run.incidents)
    (lost,) = [row for row in run.incidents if row["incident_class"] == "broker_loss" and 3 in row["brokers"]]
    assert lost["partitions"] >= len(ASSIGNMENT)
    assert lost["summary"].startswith("broker 3 was lost: ")


def test_where_no_controller_may_be_read_polling_tells_the_removals_with_inferred_causes(run: Run) -> None:
    def removals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row["left_isr"] and row["topic"] == TOPIC]

    seen, true = removals(run.polled_rows), removals(run.rows)
    assert {3, 1} <= {broker for row in seen for broker in row["left_isr"]}, "they were away for seconds"
    assert {row["evidence"] for row in seen} == {"inferred"}
    lag, slack = timedelta(seconds=BROKER_LAG_SECONDS), timedelta(seconds=LINGER_SECONDS)
    for row in seen:
        begin, end = row["occurred_not_before"] - lag, row["occurred_not_after"] + slack
        assert row["occurred_not_before"] < row["occurred_not_after"]
        times = [
            each["occurred_not_after"]
            for each in true
            if each["partition"] == row["partition"] and set(each["left_isr"]) & set(row["left_isr"])
        ]
        assert any(begin <= at <= end for at in times), (
            f"{row['left_isr']} of {row['partition']}, {row['cause']}, {begin} to {end}: {[*map(str, times)]}"
        )


def test_polling_tells_the_state_without_the_epochs_that_brokers_do_not_tell(run: Run) -> None:
    states = [row for row in run.polled_states if row["topic"] == TOPIC]
    assert len(states) == len(ASSIGNMENT)
    assert {(row["min_isr_effective"], row["partition_epoch"]) for row in states} == {(2, None)}
