"""No play changes a label of an alert that fires, and none fires a second time before it was resolved for long."""

from __future__ import annotations

import pytest

from tests.judge.alerts import Scrapes, play_of
from tests.judge.constancy import NAME, Constancy, fired_again


def line(severity: str, short_id: str, since: int = 1_700_000_000) -> str:
    labels = f'cluster="c",condition="offline_partitions",subject="",severity="{severity}",short_id="{short_id}"'
    return f"{NAME}{{{labels}}} {since}\n"


def broken(*scrapes: str) -> list[str]:
    constancy = Constancy()
    for each in scrapes:
        constancy.add(each)
    return constancy.broken()


def test_another_label_of_one_condition_is_noticed() -> None:
    (said,) = broken("", line("critical", "c-1"), line("critical", "c-2"))
    assert "severity=critical short_id=c-1 subject= became " in said
    assert said.endswith("severity=critical short_id=c-2 subject=")
    assert len(broken(line("critical", ""), line("critical", "c-1"))) == 1


def test_a_condition_that_comes_back_is_noticed() -> None:
    assert broken(line("critical", "c-1"), "", line("critical", "c-1")) == [
        "condition=offline_partitions severity=critical short_id=c-1 subject= ended and came back"
    ]


def test_what_begins_later_or_next_to_another_one_is_another_condition() -> None:
    one, other = line("critical", "c-1"), line("critical", "c-2", 1_700_000_060)
    assert broken(one, one + other, other, "", line("critical", "c-1", 1_700_000_900)) == []
    assert broken(line("warning", "c-1"), line("warning", "c-1") + one, "") == []


def test_a_second_firing_is_noticed_unless_it_is_long_after_the_first() -> None:
    first = {"alert": "A", "labels": {"subject": "1"}, "began": 0.0, "last": 60.0}
    soon, late = first | {"began": 300.0, "last": 400.0}, first | {"began": 2_000.0, "last": 2_100.0}
    assert list(fired_again([first, late])) == []
    assert list(fired_again([soon, first])) == ["A subject=1 fired again"]
    assert list(fired_again([first, soon | {"labels": {"subject": "2"}}])) == []


@pytest.mark.long  # one play is looked at in test_alerts
@pytest.mark.parametrize(("seed", "kinds"), [(11, ("cascade", "several")), (12, ("unclean", "crash"))])
def test_no_play_changes_a_label_of_a_condition(seed: int, kinds: tuple[str, ...]) -> None:
    scrapes = Scrapes(frozenset({NAME}))
    play_of(seed, kinds, scrapes)
    assert scrapes.constancy.broken() == []
