"""Quiet days: a cluster that is written to a file between two pieces lives on, and what fires belongs to a trouble."""

from __future__ import annotations

from pathlib import Path
from random import Random

from exporters.backtest.evaluation import Firing
from tests.judge.alerts import EveryRule
from tests.judge.play import SECOND, START
from tests.judge.quiet import AFTER, DAY, Life, belongs, errors, quiet_rendered, quiet_rules, read_life, written_life
from tests.judge.quiet_days import WORK, Day, Planted

SHORT = 300
NAMES = EveryRule([quiet_rules()]).metrics
CRASH = Planted("crash", 1_000, 2_000)


def test_a_cluster_that_was_written_and_read_lives_as_one_that_was_not(tmp_path: Path) -> None:
    life = Life("one", NAMES)
    life.live(SHORT)
    written_life(tmp_path / "state", life)
    again = read_life(tmp_path / "state")
    for each in (life, again):
        each.live(SHORT)
    assert (again.piece, again.scrapes) == (2, life.scrapes)
    assert len(life.scrapes) == 2 * SHORT // 30


def test_every_kind_of_work_is_done_on_some_day() -> None:
    source = Life("three", NAMES).source
    days = [Day(Random(number), source, number * DAY) for number in range(12)]
    assert {what for day in days for what in day.done} >= set(WORK)
    assert any(day.planted for day in days)
    assert all(day.begin <= at < day.begin + DAY for day in days for at, _ in day.leases)


def firing(second: float) -> Firing:
    at = round(START + second * SECOND)
    return Firing("IsrwatchBrokerDown", (("severity", "warning"),), at, at)


def test_an_alert_belongs_to_a_trouble_until_an_hour_after_its_end() -> None:
    moments = (999, 1_000, 2_000 + AFTER, 2_001 + AFTER)
    assert [belongs(firing(second), [CRASH]) for second in moments] == ["", "crash", "crash", ""]


def test_what_belongs_to_nothing_and_what_is_critical_is_wrong() -> None:
    told = {"alert": "A", "severity": "warning", "labels": {}, "began": 5, "last": 65, "belongs": "crash"}
    fine = {"piece": 0, "planted": [CRASH._asdict()], "done": ["crash", "moves"], "firings": [told]}
    stray, critical = told | {"belongs": ""}, told | {"severity": "critical", "alert": "B"}
    assert [errors(fine), errors(fine | {"firings": [stray]}), errors(fine | {"firings": [critical]})] == [
        False, True, True,
    ]  # fmt: skip
    page = quiet_rendered([fine | {"firings": [told, stray, critical]}], "# Heading")
    assert "| alerts that belong to nothing that was planted | 0 | 1 |" in page
    assert "| critical ones | 0 | 1 |" in page
    assert "| A | warning | 1 | 1 |" in page
    assert "| 0 | 5 | A |  | 60 |" in page
