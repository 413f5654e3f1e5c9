"""Planned work: what the records of a lease and the time make of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.maintenance import is_planned, leases_of
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.events import EventKind
from streaming.contracts.observations import LONGEST_LEASE, MaintenanceObserved, Observation, SourceKind
from streaming.contracts.state import BrokerState
from streaming.errors import InvalidObservation
from tests.changes.conftest import SECOND, START, Story, folded

MINUTE = 60


class Announcer(Story):
    """The source of one machine that announces planned work; ``at`` and ``until`` are seconds after the start."""

    def __init__(self, source: str = "maintenance:host-1") -> None:
        super().__init__(source, SourceKind.NONE)

    def lease(self, at: float, until: float, lease: str = "one", broker: int = 3, **fields: Any) -> MaintenanceObserved:
        self.now = START + int(at * SECOND)
        until_micros = START + int(until * SECOND)
        envelope = self.envelope()
        told = {"why": "new disk", **fields}
        observed = MaintenanceObserved(**envelope, broker=broker, lease=lease, lease_until=until_micros, **told)
        self.add(observed)
        return observed

    def end(self, at: float, lease: str = "one", **fields: Any) -> MaintenanceObserved:
        return self.lease(at, at, lease, **fields)


@pytest.fixture
def desk() -> Announcer:
    return Announcer()


def beats(story: Story, *seconds: float) -> list[Observation]:
    for at in seconds:
        story.now = START + int(at * SECOND)
        story.offset += 1
        story.heartbeat()
    return story.seen


def merged(*seen: Iterable[Observation]) -> list[Observation]:
    return sorted((item for source in seen for item in source), key=lambda item: item.occurred_not_after)


def broker_of(state: ReplicationState, broker: int = 3) -> BrokerState:
    return state.brokers["cluster-1", broker]  # type: ignore[index]


def period_of(state: ReplicationState) -> tuple[float, ...]:
    """From when until when its work is planned, in seconds."""
    broker = broker_of(state)
    return tuple(((at or 0) - START) / SECOND for at in (broker.maintenance_since, broker.maintenance_until))


def events(changes: Iterable[Change]) -> list[tuple[str, int | None]]:
    names = {kind for kind in EventKind if kind.startswith("maintenance")}
    return [(event.event, event.event_broker) for change in changes for event in change.events if event.event in names]


def kinds(changes: Iterable[Change]) -> list[str]:
    return [event.removeprefix("maintenance_") for event, _ in events(changes)]


def test_an_announcement_is_an_event_and_a_state_until_its_end(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 10 + 30 * MINUTE, announced_by="ann@host-1")
    state, changes = folded(merged(beats(story, 20, 30), desk.seen))
    broker = broker_of(state)
    assert period_of(state) == (10, 10 + 30 * MINUTE)
    assert broker.maintenance_why == "new disk"
    (began,) = [event for change in changes for event in change.events]
    assert (began.event, began.event_broker) == (EventKind.MAINTENANCE_BEGAN, 3)
    assert began.detail == "new disk; until 2023-11-14 22:43:30Z (ann@host-1)"
    assert broker_of(state, 2).maintenance_until is None
    over, more = folded(merged(beats(story, 3 * MINUTE * 60), desk.seen))
    assert kinds(more) == ["began", "lapsed"]
    assert [getattr(broker_of(over), f"maintenance_{name}") for name in ("since", "until", "why", "overran_at")] == [
        None
    ] * 4


def test_the_lapse_is_dated_to_the_end_of_the_lease_whatever_moved_the_watermark(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 60)
    (lapsed,) = [
        change
        for change in folded(merged(beats(story, 20, 500), desk.seen))[1]
        if any(event.event == EventKind.MAINTENANCE_LAPSED for event in change.events)
    ]
    assert lapsed.observation.occurred_not_after == START + 60 * SECOND
    assert lapsed.events[0].event_id == f"cluster-1/broker/3/maintenance/lapse/{START + 60 * SECOND}/maintenance_lapsed"


def test_a_lease_lapses_at_its_place_in_a_batch_before_what_came_after_it(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 70)
    beats(story, 80)
    story.later(20).broker(3, fenced=True)
    state, changes = folded(merged(story.seen, desk.seen))
    told = [event.event for change in changes for event in change.events if event.event_broker == 3]
    assert told == [EventKind.MAINTENANCE_BEGAN, EventKind.MAINTENANCE_LAPSED, EventKind.FENCED]
    assert broker_of(state).is_fenced


@pytest.mark.parametrize("down", [{"fenced": True}, {"in_controlled_shutdown": True}, {"registered": False}])
def test_work_that_runs_out_while_the_broker_is_down_overran_until_the_broker_is_back(
    story: Story, desk: Announcer, down: dict[str, bool]
) -> None:
    story.snapshot()
    desk.lease(10, 60)
    story.later(20).broker(3, **down)
    beats(story, 61)
    state, changes = folded(merged(story.seen, desk.seen))
    assert kinds(changes) == ["began", "overran"]
    assert broker_of(state).maintenance_overran_at == START + 60 * SECOND
    assert broker_of(state).maintenance_until is None
    story.later(20).broker(3, broker_epoch=9)
    assert broker_of(folded(merged(story.seen, desk.seen))[0]).maintenance_overran_at is None


def test_work_that_overran_and_is_announced_again_is_planned_again(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 60)
    story.later(20).broker(3, fenced=True)
    beats(story, 61)
    desk.end(70)
    assert broker_of(folded(merged(story.seen, desk.seen))[0]).maintenance_overran_at == START + 60 * SECOND
    desk.lease(80, 200, lease="two")
    assert broker_of(folded(merged(story.seen, desk.seen))[0]).maintenance_overran_at is None


def test_a_lease_whose_end_arrives_before_its_begin_never_holds(story: Story, desk: Announcer) -> None:
    story.snapshot()
    begin, end = desk.lease(10, 60), Announcer("maintenance:host-2").end(10)
    state, changes = folded([*story.seen, end, begin])
    assert (kinds(changes), broker_of(state).maintenance_until) == ([], None)


def test_a_lease_is_ended_early_for_good_also_while_a_command_still_renews_it(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 70)
    other = Announcer("maintenance:host-2")
    other.end(40)
    desk.lease(50, 110, is_renewal=True)
    state, changes = folded(merged(beats(story, 20, 60, 200), desk.seen, other.seen))
    assert kinds(changes) == ["began", "ended"]
    assert broker_of(state).maintenance_until is None
    assert [is_planned(broker_of(state), START + at * SECOND) for at in (9, 10, 40, 41)] == [False, True, True, False]


def test_a_renewal_is_no_event_an_extension_is_one_and_both_move_the_end(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 70)
    desk.lease(30, 90, is_renewal=True)
    desk.lease(40, 300)
    state, changes = folded(merged(beats(story, 20, 100), desk.seen))
    assert kinds(changes) == ["began", "extended"]
    assert period_of(state) == (10, 300)


def test_a_command_that_ends_shortens_its_lease_to_a_tail(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 130)
    desk.lease(20, 50, is_renewal=True)
    state, changes = folded(merged(beats(story, 45, 51), desk.seen))
    assert kinds(changes) == ["began", "lapsed"]
    assert broker_of(state).maintenance_until is None


def test_a_renewal_after_the_lapse_begins_anew_and_covers_nothing_between(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 60)
    desk.lease(200, 260, is_renewal=True)
    state, changes = folded(merged(beats(story, 100, 210), desk.seen))
    assert kinds(changes) == ["began", "lapsed", "began"]
    assert broker_of(state).maintenance_since == START + 200 * SECOND
    assert not is_planned(broker_of(state), START + 150 * SECOND)


def test_a_lease_announced_late_does_not_reach_back(story: Story, desk: Announcer) -> None:
    story.snapshot()
    story.later(20).broker(3, fenced=True)
    desk.lease(60, 600)
    state, _ = folded(merged(beats(story, 100), desk.seen))
    assert not is_planned(broker_of(state), START + 20 * SECOND)
    assert is_planned(broker_of(state), START + 60 * SECOND)


def test_two_leases_of_one_broker_hold_until_the_later_end_each_for_itself(story: Story, desk: Announcer) -> None:
    story.snapshot()
    other = Announcer("maintenance:host-2")
    desk.lease(10, 100)
    other.lease(20, 60, lease="two", why="new cable")
    both, _ = folded(merged(beats(story, 30), desk.seen, other.seen))
    assert broker_of(both).maintenance_why == "new disk; new cable"
    assert broker_of(both).maintenance_until == START + 100 * SECOND
    desk.end(40)
    one, changes = folded(merged(beats(story, 50), desk.seen, other.seen))
    assert (broker_of(one).maintenance_until, broker_of(one).maintenance_why) == (START + 60 * SECOND, "new cable")
    assert kinds(changes) == ["began", "began", "ended"]


@pytest.mark.parametrize("order", ["as it happened", "announcements first", "all in one look"])
@pytest.mark.parametrize(
    ("second", "overran"),
    [((80, 1_000), []), ((150, 1_000), ["one"]), ((80, 200), ["two"]), ((80, 100), ["one", "two"])],
)
def test_whether_work_overran_depends_on_the_leases_of_that_time_and_on_no_order_of_the_sources(
    story: Story, desk: Announcer, order: str, second: tuple[int, int], overran: list[str]
) -> None:
    story.snapshot([{}])
    story.later(20).broker(3, fenced=True)
    fenced = len(story.seen)
    beats(story, *((900,) if order == "all in one look" else range(60, 901, 5)))
    desk.lease(10, 100, "one", why="one")
    desk.lease(*second, "two", why="two")
    if second[1] > 400:
        desk.end(400, "two", why="two")
    ahead = [*story.seen[:fenced], *desk.seen, *story.seen[fenced:]]

    state, changes = folded(merged(story.seen, desk.seen) if order == "as it happened" else ahead)
    said = [event for change in changes for event in change.events if event.event is EventKind.MAINTENANCE_OVERRAN]
    assert [(event.detail or "").split(";")[0] for event in said] == overran
    assert (broker_of(state).maintenance_overran_at is not None) == ("two" in overran), "the second is the last one"


def test_the_end_of_a_lease_that_nobody_has_seen_begin_takes_no_overrun_back(story: Story, desk: Announcer) -> None:
    story.snapshot([{}])
    story.later(20).broker(3, fenced=True)
    fenced = len(story.seen)
    beats(story, 150)
    desk.lease(10, 100)
    desk.end(120, "unseen")
    state, _ = folded([*story.seen[:fenced], *desk.seen, *story.seen[fenced:]])
    assert broker_of(state).maintenance_overran_at == START + 100 * SECOND


def test_a_lease_of_a_broker_that_nobody_reported_is_dropped(story: Story, desk: Announcer) -> None:
    story.snapshot()
    dropped = desk.lease(10, 60, broker=9)
    found = fold(ReplicationState(), merged(story.seen, desk.seen))
    assert found.dropped == (dropped,)
    assert not [change for change in found.changes if change.events]


def test_another_registration_of_the_broker_keeps_its_lease(story: Story, desk: Announcer) -> None:
    story.snapshot()
    desk.lease(10, 600)
    story.later(20).broker(3, broker_epoch=9)
    state, _ = folded(merged(story.seen, desk.seen))
    assert broker_of(state).maintenance_until == START + 600 * SECOND


def test_what_is_over_is_forgotten_after_a_day(story: Story, desk: Announcer) -> None:
    day = 24 * 60 * MINUTE
    story.snapshot()
    desk.lease(10, 60)
    beats(story, 100, 2 * day)
    desk.lease(2 * day + 5, 2 * day + 60, lease="two")
    state, _ = folded(merged(story.seen, desk.seen))
    assert [lease.lease for lease in leases_of(broker_of(state))] == ["two"]


def test_a_lease_without_an_id_or_too_long_is_refused(desk: Announcer) -> None:
    with pytest.raises(InvalidObservation, match="at most 7 days"):
        desk.lease(10, 11 + LONGEST_LEASE / SECOND)
    with pytest.raises(InvalidObservation, match="lease is empty"):
        desk.lease(10, 11, lease="")


# ------------------------------------------------------------------ any history of leases


@st.composite
def announcements(draw: st.DrawFn) -> list[list[Observation]]:
    """What up to three machines say: leases begun, renewed, extended and ended, each in its own order."""
    said: list[list[Observation]] = []
    for number in range(draw(st.integers(1, 3))):
        desk, now = Announcer(f"maintenance:host-{number}"), 1.0
        for _ in range(draw(st.integers(1, 8))):
            now += draw(st.sampled_from([1, 5, 30, 90]))
            lasts = draw(st.sampled_from([0, 0, 10, 60, 300]))
            lease = draw(st.sampled_from(["one", "two", f"own-{number}"]))
            desk.lease(now, now + lasts, lease, draw(st.integers(2, 3)), is_renewal=draw(st.booleans()))
        said.append(desk.seen)
    return said


def log() -> list[Observation]:
    story = Story()
    story.snapshot()
    return beats(story, *range(5, 1_200, 5))


@given(announcements(), st.randoms(use_true_random=False))
def test_any_interleaving_of_the_machines_leads_to_the_same_leases(said: list[list[Observation]], dice: Any) -> None:
    """Each keeps its own order. The log is applied before or after; it only decides when what is over is closed."""
    queues = [[*each] for each in said]
    mixed: list[Observation] = []
    while any(queues):
        queue = dice.choice([each for each in queues if each])
        mixed.append(queue.pop(0))
        if dice.random() < 0.2:
            mixed.append(dice.choice(mixed))
    in_time = merged(*said)
    first, rest = log()[:6], log()[6:]
    expected, _ = folded([*first, *in_time, *rest])
    found, changes = folded([*first, *mixed, *rest])
    for broker in (2, 3):
        assert over(broker_of(found, broker)) == over(broker_of(expected, broker))
    ids = [event.event_id for change in changes for event in change.events]
    assert len(ids) == len(set(ids))


def over(broker: BrokerState) -> tuple[Any, ...]:
    """What does not depend on the order in which records of one moment arrived."""
    until = {lease.lease: (lease.end, lease.ended_at) for lease in leases_of(broker)}
    return (broker.maintenance_until, until)


@given(announcements(), st.lists(st.integers(0, 300), max_size=4))
def test_cut_into_batches_and_restored_between_it_is_the_same(said: list[list[Observation]], cuts: list[int]) -> None:
    history = merged(log(), *said)
    whole, changes = folded(history)
    state, pieces = ReplicationState(), list[Any]()
    bounds = sorted({0, len(history), *(cut for cut in cuts if cut < len(history))})
    for lower, upper in pairwise(bounds):
        pieces += folded(history[lower:upper], state)[1]
    assert state.brokers == whole.brokers
    assert events(pieces) == events(changes)


@given(announcements())
def test_planned_is_exactly_what_lies_within_a_record_and_the_end_that_it_gave(said: list[list[Observation]]) -> None:
    """Against an account of its own: the newest record of a lease decides, of several at one moment the longest."""
    records = [item for item in merged(*said) if isinstance(item, MaintenanceObserved)]
    state, _ = folded([*log()[:6], *records])
    broker = broker_of(state)
    for item in records:
        if item.broker == 3:
            assert not is_planned(broker, records[0].occurred_not_after - 1)
            own = [each for each in records if each.lease == item.lease and each.broker == 3]
            end = next((each.occurred_not_after for each in own if each.is_end), None)
            last = next(lease for lease in leases_of(broker) if lease.lease == item.lease)
            assert last.ended_at == end
            newest = max((each.occurred_not_after, each.lease_until) for each in own)
            assert end is not None or last.until == newest[1]
