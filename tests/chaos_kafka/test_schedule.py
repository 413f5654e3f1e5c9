"""What is drawn from a seed, and which seeds are drawn again. Pure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.chaos_kafka.__main__ import verdicts_in
from tests.chaos_kafka.harms import HARMS
from tests.chaos_kafka.schedule import ACTIVE, FULL, SMALL, drawn

NAMES = tuple(HARMS)


def test_a_seed_is_a_schedule_and_another_seed_another_one() -> None:
    schedules = [drawn(seed, 30, NAMES) for seed in range(50)]
    assert schedules == [drawn(seed, 30, NAMES) for seed in range(50)]
    assert len({str(schedule).partition(",")[2] for schedule in schedules}) == 50


def test_thirty_faults_have_every_harm_and_none_more_than_twice() -> None:
    for seed in range(20):
        count = Counter(act.harm for act in drawn(seed, 30, NAMES).acts)
        assert set(count) == set(HARMS)
        assert set(count.values()) <= {1, 2}


def test_every_one_of_our_programs_dies_and_every_node_is_chosen() -> None:
    acts = [act for seed in range(20) for act in drawn(seed, 30, NAMES).acts]
    assert {(act.own.side, act.own.program) for act in acts if act.own} == {
        ("log", "collector"),
        ("log", "job"),
        ("poll", "collector"),
        ("poll", "job"),
    }
    assert {act.brokers[0] for act in acts} == set(FULL.broker_ids())
    assert {act.controller for act in acts} == {ACTIVE, *FULL.controller_ids()}
    assert {act.topic for act in acts} == set(FULL.topics())


def test_faults_are_shorter_and_longer_than_the_session_of_a_broker() -> None:
    seconds = [act.seconds for act in drawn(1, 100, NAMES, longest=10.0).acts]
    assert min(seconds) < 2.0
    assert 8.0 < max(seconds) <= 10.0


def test_a_small_cluster_has_only_nodes_of_its_own() -> None:
    acts = drawn(1, 30, ("kill", "kill_controller"), SMALL).acts
    assert {act.harm for act in acts} == {"kill", "kill_controller"}
    assert {act.controller for act in acts} <= {ACTIVE, 101}
    assert {tuple(sorted(act.brokers)) for act in acts} == {(1, 2, 3)}


def test_only_runs_of_the_same_kind_are_left_out_by_their_last_verdict(tmp_path: Path) -> None:
    results = tmp_path / "results.txt"
    results.write_text(
        "DIFFERS seed 7, 30 faults (612 s): kept in /tmp/x\n"
        "equal seed 7, 30 faults (598 s): 12 steps (3 shrunk) of 2 partitions\n"
        "equal seed 8, 30 faults (598 s): 12 steps\n"
        "BROKEN seed 8, 30 faults (9 s): kept in /tmp/y\n"
        "equal seed 9, 30 faults without Spark (300 s): 12 steps\n"
    )
    assert verdicts_in(results, "30 faults") == {7: "equal", 8: "BROKEN"}
    assert verdicts_in(results, "30 faults without Spark") == {9: "equal"}
    assert verdicts_in(tmp_path / "none.txt", "30 faults") == {}
