"""One job: submitted to a Spark cluster from another folder, killed half-way, finished by ``isrwatch job``.

The checkpoint of the killed job is lost: the next one goes on where the tables say.

On its bus is every scenario, as a cluster of its own, and a story whose log is damaged. The model is the oracle: what
it did, taken from its states, and what the tables say are equal, change for change; what went through the bus are
observations made from its records. What cannot be read is in quarantine with its reason, whole; nothing else is lost.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from dashboards.signals.brokers import PLANNED_CAUSES
from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import ClusterId
from tests.end_to_end.bad_input import DAMAGES, REASONS, publish_with_faults
from tests.end_to_end.model_trace import recorded, steps
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.plays import SCENARIOS, played
from tests.plugins.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.observations import Observation
    from tests.plays import Play
    from tests.plugins.spark_cluster import SparkCluster

pytest_plugins = ("tests.plugins.spark_cluster",)
pytestmark = pytest.mark.spark

MAIN = Path(__file__).parents[2] / "deploy" / "spark" / "main.py"
SECONDS = 80
Rows = list[dict[str, Any]]


class Finished(NamedTuple):
    """What was on the bus, and the tables of the job.

    Attributes:
        plays: of the scenarios, which are the names of their clusters.
        readable: what of the story can be read; the story's cluster is the first of them.
        changes: rows by cluster.
        states: rows by cluster.
        quarantined: rows of the quarantine, in the order of the bus.
    """

    plays: dict[str, Play]
    readable: list[Observation]
    changes: dict[str, Rows]
    states: dict[str, Rows]
    quarantined: Rows


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, spark_cluster: SparkCluster, package: Path
) -> Iterator[Finished]:
    pipeline = Pipeline(tmp_path_factory.mktemp("one-job"))
    plays = {name: played(name, SECONDS) for name in SCENARIOS}
    told = {name: of_cluster(play, name) for name, play in plays.items()}
    story = long_story(seed=4, steps=200)
    try:
        readable = publish_with_faults(pipeline.bus, story)
        with closing(DirectoryPublisher(pipeline.bus, segment_bytes=200_000)) as publisher:
            for observations in told.values():
                publisher.publish(observations[: len(observations) // 2])
            submit_and_kill(pipeline, spark_cluster, package)
            for observations in told.values():
                publisher.publish(observations[len(observations) // 2 :])
        finish(pipeline, sum(len(steps(play.trace)) for play in plays.values()), len(story))
        quarantined = sorted(pipeline.rows("quarantine"), key=lambda row: row["position"])
        changes, states = pipeline.rows("partition_changes"), pipeline.rows("partition_state")
        yield Finished(plays, readable, by_cluster(changes), by_cluster(states), quarantined)
    finally:
        pipeline.close()


def of_cluster(play: Play, name: str) -> list[Observation]:
    """Give what is told of a play as of a cluster of this name. Other clusters have topics of the same ids."""
    own = {"cluster_id": ClusterId(f"id-of-{name}"), "cluster": name, "source": f"metadata_log:{name}"}
    return [replace(each, **own) for each in play.observations]


def by_cluster(rows: Rows) -> dict[str, Rows]:
    return {name: [row for row in rows if row["cluster"] == name] for name in {row["cluster"] for row in rows}}


def submit_and_kill(pipeline: Pipeline, spark_cluster: SparkCluster, package: Path) -> None:
    """Submit as the documentation says, from a folder where nothing of ours is; kill once a batch is applied."""
    command = [*spark_cluster.submit_arguments(package), str(MAIN), *pipeline.job_arguments()]
    submitted = pipeline.run("submitted", command, cwd=Path("/"), **spark_cluster.environment())
    pipeline.eventually(lambda: recorded(pipeline.rows("partition_changes")), "the submitted job applies", submitted)
    submitted.kill()
    shutil.rmtree(pipeline.checkpoint)


def finish(pipeline: Pipeline, changes: int, story: int) -> None:
    """Let a plain job apply the rest, and end as an init system ends it."""
    job = pipeline.job()

    def is_finished() -> bool:
        rows = pipeline.rows("partition_changes")
        at = max((row["sequence"] or 0 for row in rows if row["cluster"] not in SCENARIOS), default=0)
        return at >= story and len(recorded(row for row in rows if row["cluster"] in SCENARIOS)) >= changes

    pipeline.eventually(is_finished, f"{changes} changes", job)
    assert job.stop_group() == 0, job.text()[-3000:]


def test_the_machines_of_the_cluster_have_no_isrwatch_of_their_own(spark_cluster: SparkCluster) -> None:
    assert "No module named 'streaming" in spark_cluster.imported("streaming.jobs")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_tables_say_what_the_model_did(finished: Finished, scenario: str) -> None:
    rows, expected = finished.changes[scenario], steps(finished.plays[scenario].trace)
    found = recorded(rows)
    assert [step[:-1] for step in found] == [step[:-1] for step in expected]
    ambiguous = {
        (row["topic_id"], row["partition"], row["after"]["partition_epoch"])
        for row in partition_changes(rows)
        if row["evidence"] == "ambiguous"
    }
    wrong = [
        (seen, true)
        for seen, true in zip(found, expected, strict=True)
        if seen[-1] != true[-1] and seen[:3] not in ambiguous
    ]
    assert wrong == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_state_is_the_models_state(finished: Finished, scenario: str) -> None:
    after = {step.topic_partition: step.after for each in finished.plays[scenario].commits for step in each.transitions}
    expected = {
        tuple(key): (true.leader, true.leader_epoch, true.partition_epoch, tuple(true.isr), tuple(true.replicas))
        for key, true in after.items()
        if true is not None
    }
    found = {
        (row["topic_id"], row["partition"]): (
            row["leader"],
            row["leader_epoch"],
            row["partition_epoch"],
            tuple(row["isr"]),
            tuple(row["replicas"]),
        )
        for row in finished.states[scenario]
        if not row["is_deleted"]
    }
    assert found == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_ambiguous_cause_names_the_true_one_among_its_candidates(finished: Finished, scenario: str) -> None:
    truth = {
        (entry.topic_id, entry.partition, entry.partition_epoch): str(entry.cause)
        for entry in finished.plays[scenario].trace
        if not entry.deleted
    }
    for row in partition_changes(finished.changes[scenario]):
        if row["evidence"] == "ambiguous":
            true = truth[row["topic_id"], row["partition"], row["after"]["partition_epoch"]]
            assert true in {row["cause"], *row["candidates"]}, row


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_isr_shrinks_where_the_scenario_calls_for_an_alert_and_only_there(finished: Finished, scenario: str) -> None:
    rows = partition_changes(finished.changes[scenario])
    unplanned = [row for row in rows if row["left_isr"] and row["cause"] not in PLANNED_CAUSES]
    assert bool(unplanned) == ("IsrwatchIsrShrink" in finished.plays[scenario].scenario.truth.alerts)


def test_everything_odd_is_in_quarantine_and_everything_else_is_applied(finished: Finished) -> None:
    reasons = [row["reason"] for row in finished.quarantined]
    assert {row["source"] for row in finished.quarantined} == {finished.readable[0].source}
    assert [sum(expected in reason for reason in reasons) for expected in REASONS] == [1] * len(REASONS), reasons
    assert sorted(reasons[: len(DAMAGES)]) == sorted(DAMAGES)
    assert len(reasons) == len(REASONS) + len(DAMAGES), reasons
    assert essence(finished.changes[finished.readable[0].cluster]) == expected_changes(finished.readable)


def partition_changes(rows: Rows) -> Rows:
    return [
        row
        for row in rows
        if row["subject"] == "partition" and not row["is_baseline"] and not row["after"]["is_deleted"]
    ]
