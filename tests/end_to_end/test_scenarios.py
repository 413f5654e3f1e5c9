"""The model is the oracle: what it did and what the tables say is equal, change for change, in every scenario.

The trace is taken from the model's states; what went through the bus are observations made from its records. All
scenarios go through one job, as four clusters on one bus.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dashboards.alerts import PLANNED_CAUSES
from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.end_to_end.model_trace import recorded, steps
from tests.plugins.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
SECONDS_PLAYED = 120
SEED = 7
SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "scenarios").glob("*.toml"))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, SimulatedSource], Pipeline]]:
    """Every scenario, played twice as fast as it can be written, half of it while the job runs."""
    pipeline = Pipeline(tmp_path_factory.mktemp("scenarios"))
    sources = {
        name: SimulatedSource(
            load_scenario(name),
            seed=SEED + number,  # else they would share their topic ids
            cluster_id=ClusterId(f"id-of-{name}"),
            cluster=name,
            name=f"metadata_log:{name}",
            epoch=Micros(START),
        )
        for number, name in enumerate(SCENARIOS)
    }
    try:
        with closing(DirectoryPublisher(pipeline.bus, segment_bytes=200_000)) as publisher:
            play(sources, publisher, 0, SECONDS_PLAYED // 2)
            job = pipeline.job()
            play(sources, publisher, SECONDS_PLAYED // 2, SECONDS_PLAYED)
        expected = sum(len(steps(source)) for source in sources.values())
        pipeline.eventually(
            lambda: len(recorded(pipeline.rows("partition_changes"))) >= expected, f"{expected} changes", job
        )
        assert job.stop() == 0, job.text()[-3000:]
        yield sources, pipeline
    finally:
        pipeline.close()


def play(sources: dict[str, SimulatedSource], publisher: DirectoryPublisher, start: int, end: int) -> None:
    for second in range(start, end):
        for source in sources.values():
            publisher.publish(source.poll(Micros(START + second * SECOND)))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_tables_say_what_the_model_did(played: tuple[dict[str, SimulatedSource], Pipeline], scenario: str) -> None:
    sources, pipeline = played
    expected = steps(sources[scenario])

    found = recorded(pipeline.rows("partition_changes"), scenario)

    assert [step[:-1] for step in found] == [step[:-1] for step in expected]
    told = {(row["topic_id"], row["partition"], row["after"]["change_number"]): row for row in _changes(pipeline)}
    ambiguous = {
        (row["topic_id"], row["partition"], row["after"]["partition_epoch"])
        for row in told.values()
        if row["evidence"] == "ambiguous"
    }
    wrong = [
        (seen, true)
        for seen, true in zip(found, expected, strict=True)
        if seen[-1] != true[-1] and seen[:3] not in ambiguous
    ]
    assert wrong == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_state_is_the_models_state(played: tuple[dict[str, SimulatedSource], Pipeline], scenario: str) -> None:
    sources, pipeline = played
    expected = {
        tuple(key): (true.leader, true.leader_epoch, true.partition_epoch, tuple(true.isr), tuple(true.replicas))
        for key, true in sources[scenario].partitions().items()
    }

    found = {
        (row["topic_id"], row["partition"]): (
            row["leader"],
            row["leader_epoch"],
            row["partition_epoch"],
            tuple(row["isr"]),
            tuple(row["replicas"]),
        )
        for row in pipeline.rows("partition_state")
        if row["cluster"] == scenario and not row["is_deleted"]
    }

    assert found == expected


def test_an_ambiguous_cause_names_the_true_one_among_its_candidates(
    played: tuple[dict[str, SimulatedSource], Pipeline],
) -> None:
    sources, pipeline = played
    truth = {
        (entry.topic_id, entry.partition, entry.partition_epoch): str(entry.cause)
        for source in sources.values()
        for entry in source.trace()
        if not entry.deleted
    }

    for row in _changes(pipeline):
        if row["evidence"] == "ambiguous":
            true = truth[row["topic_id"], row["partition"], row["after"]["partition_epoch"]]
            assert true in {row["cause"], *row["candidates"]}, row


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_isr_shrinks_where_the_scenario_calls_for_an_alert_and_only_there(
    played: tuple[dict[str, SimulatedSource], Pipeline], scenario: str
) -> None:
    _, pipeline = played
    unplanned = [
        row
        for row in _changes(pipeline)
        if row["cluster"] == scenario and row["left_isr"] and row["cause"] not in PLANNED_CAUSES
    ]

    assert bool(unplanned) == ("KafkaIsrShrink" in load_scenario(scenario).truth.alerts)


def _changes(pipeline: Pipeline) -> list[dict[str, Any]]:
    return [
        row
        for row in pipeline.rows("partition_changes")
        if row["subject"] == "partition" and not row["is_baseline"] and not row["after"]["is_deleted"]
    ]
