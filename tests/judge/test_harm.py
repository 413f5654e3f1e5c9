"""The judge's own rule of harm: its arithmetic, and what it finds in plays of which the harm is known."""

from __future__ import annotations

import pytest

from tests.judge.expected import ExpectedIncident
from tests.judge.first_message import read
from tests.judge.harm import BRIEF, MAY, MUST, MUST_NOT, WAKE_WITHIN, WINDOW, Harm, Judged, Span, judged_harm
from tests.judge.play import Play, played


def judged(
    *spans: tuple[float, float], disputed: tuple[float, float] | None = None, unclean: float | None = None
) -> Judged:
    return Judged(
        harm=tuple(Harm("refused", "orders", Span(*span)) for span in spans),
        disputed=() if disputed is None else (Harm("ordered", "scratch", Span(*disputed)),),
        unclean=() if unclean is None else (unclean,),
        lost={},
        end=10_000.0,
    )


def test_harm_that_lasts_must_wake_within_its_time() -> None:
    assert judged((50, 50 + WAKE_WITHIN)).due == 50 + WAKE_WITHIN
    assert judged((50, 50 + WAKE_WITHIN - 1)).due is None


def test_harm_adds_up_within_the_window_and_not_beyond_it() -> None:
    assert judged((0, 200), (400, 600)).due == 500
    assert judged((0, 200), (WINDOW - 100, WINDOW + 100)).due == WINDOW
    assert judged((0, 200), (WINDOW + 100, WINDOW + 300)).due is None


def test_an_unclean_election_must_wake_and_a_dispute_only_may() -> None:
    assert judged(unclean=70).due == 70 + WAKE_WITHIN
    assert judged(disputed=(0, 900)).call == MAY


def test_what_is_over_before_the_message_comes_must_not_wake() -> None:
    assert judged((0, BRIEF - 1)).call == MUST_NOT
    assert judged((0, BRIEF)).call == MAY
    assert judged((0, 900)).call == MUST


def test_to_be_woken_is_justified_by_harm_that_has_begun_and_is_not_long_over() -> None:
    one = judged((100, 400))
    assert not one.is_justified(99)
    assert one.is_justified(110)
    assert one.is_justified(400 + WINDOW)
    assert not one.is_justified(401 + WINDOW)


def test_time_without_a_leader_or_the_minimum_is_that_of_the_model() -> None:
    found = next(found for seed in range(5) if (found := harm_in(played(seed, ("several",)))))
    assert all(each.kind in {"offline", "refused"} for each in found)
    assert all(each.span.begin < each.span.end for each in found)


def harm_in(play: Play) -> tuple[Harm, ...]:
    found = judged_harm(play).harm
    assert all(play.begin <= each.span.begin and each.span.end <= play.seconds for each in found)
    return found


LOSS = ExpectedIncident(
    kinds=("broker_loss",),
    must=frozenset({2}),  # type: ignore[arg-type]
    may=frozenset({2, 3}),  # type: ignore[arg-type]
    begin=0,
    first=0,
    end=100,
    harm=frozenset({"refused"}),
    trouble="",
)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Writes are refused: broker 2 was lost. Start broker 2 again, and stop no other broker meanwhile.", (1, 1, 1)),
        ("Broker 5 of c is lost. Run: isrwatch state", (1, 0, 0)),
        ("Partitions of c refuse writes. Check the network between brokers 2 and 3.", (0, 1, 0)),
        ("KafkaIncident of class broker_loss", (1, 0, 0)),
    ],
)
def test_a_message_is_read_as_a_person_reads_it(text: str, right: tuple[int, int, int]) -> None:
    assert tuple(map(int, read(text, [LOSS]))) == right


def test_while_no_broker_is_missing_it_is_left_to_find_out_why() -> None:
    text = "Broker 2 was lost. First: find out why, before it comes again"
    readings = [read(text, [LOSS], missing) for missing in (None, frozenset({2, 5}), frozenset({5}))]  # type: ignore[arg-type]
    assert [each.step for each in readings] == [False, False, True]
