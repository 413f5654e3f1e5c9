"""When the answers and listeners of brokers show a fault. Pure."""

from __future__ import annotations

from typing import Any

from streaming.contracts.events import IncidentClass
from tests.drill.timing import Reported, Shown, first_shown
from tests.listeners.probes import Seen

BROKER = frozenset({3})


def met(at: int, node: int, how: str = "answered", **content: Any) -> Seen:
    return Seen(at, node, "Metadata", how, content, {})


def partition(*isr: int, replicas: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    return {"leader": 1, "isr": list(isr), "replicas": list(replicas)}


def test_a_broker_that_leaves_an_isr_is_shown_by_the_first_answer_without_it() -> None:
    seen = [
        met(10, 1, listed=[1, 2, 3], **{"orders-0": partition(1, 2, 3)}),
        met(20, 1, listed=[1, 2, 3], **{"orders-0": partition(1, 2)}),
        met(30, 1, listed=[1, 2], **{"orders-0": partition(1, 2)}),
    ]
    assert first_shown(seen, BROKER, 0) == Shown(20, None)
    assert first_shown(seen, frozenset({2}), 0) == Shown(None, None)


def test_a_listener_of_the_broker_shows_it_before_any_answer() -> None:
    seen = [
        met(10, 1, listed=[1, 2, 3]),
        met(15, 2, how="refused"),
        met(20, 3, how="silent"),
        met(30, 1, listed=[1, 2]),
    ]
    assert first_shown(seen, BROKER, 0) == Shown(30, 20)


def test_what_was_before_the_fault_does_not_count() -> None:
    seen = [met(10, 3, how="refused"), met(20, 1, listed=[1, 2, 3]), met(30, 1, listed=[1, 2, 3])]
    assert first_shown(seen, BROKER, 15) == Shown(None, None)


def test_of_no_broker_any_change_of_a_partition_counts() -> None:
    seen = [
        met(10, 1, **{"orders-0": partition(1, 2, 3)}),
        met(20, 1, **{"orders-0": partition(1, 2, 3, replicas=(1, 2, 3, 4))}),
    ]
    assert first_shown(seen, frozenset(), 0) == Shown(20, None)
    assert first_shown(seen, BROKER, 0) == Shown(None, None)


def test_a_report_is_late_ten_seconds_after_the_first_answer_that_shows_it_or_after_the_listener() -> None:
    told = IncidentClass.BROKER_LOSS, BROKER
    soon, late = Reported(told, 30_000_000, Shown(21_000_000, 1)), Reported(told, 32_000_000, Shown(21_000_000, 1))
    assert (soon.is_late, late.is_late) == (False, True)
    assert Reported(told, 32_000_000, Shown(None, 21_000_000)).is_late
    assert str(late) == (
        "broker_loss of [3] was reported 11.0 s after the first answer that shows it and 32.0 s after a listener failed"
    )
    restarted = Reported(told, 30_000_000, Shown(28_000_000, 40_000_000))
    assert str(restarted) == "broker_loss of [3] was reported 2.0 s after the first answer that shows it"
    assert str(Reported(told, None, Shown(1, 1))) == "broker_loss of [3] was not reported"
