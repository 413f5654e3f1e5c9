from __future__ import annotations

from itertools import product

import pytest

from streaming.changes.cluster_steps import broker_events
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import BrokerId, ClusterId
from streaming.contracts.state import BrokerState

BROKER = BrokerState(cluster_id=ClusterId("cluster-1"), cluster="orders-eu", broker=BrokerId(3), broker_epoch=5)


@pytest.mark.parametrize(("was", "now"), list(product([None, False, True], repeat=2)))
def test_fencing_is_told_when_it_changes_and_never_when_it_was_unknown(*, was: bool | None, now: bool | None) -> None:
    before, after = BROKER._replace(is_fenced=was), BROKER._replace(is_fenced=now, is_shutting_down=True)
    kinds = [kind for kind, _, _ in broker_events(before, after)]
    fencing = {(False, True): [EventKind.FENCED], (True, False): [EventKind.UNFENCED]}.get((was, now), [])  # type: ignore[arg-type]
    assert kinds == [*fencing, EventKind.SHUTTING_DOWN]


@pytest.mark.parametrize(
    ("was", "now", "lost"),
    [
        (("d1", "d2"), ("d2",), "d1"),
        (("d1", "d2"), (), "d1, d2"),
        (("d1",), ("d1", "d2"), None),
        (None, ("d1",), None),
        (("d1",), None, None),
    ],
)
def test_a_directory_is_lost_if_the_same_process_had_it_or_if_it_restarts_with_the_others_only(
    was: tuple[str, ...] | None, now: tuple[str, ...] | None, lost: str | None
) -> None:
    before, after = BROKER._replace(log_dirs=was), BROKER._replace(log_dirs=now)
    assert list(broker_events(before, after)) == ([] if lost is None else [(EventKind.LOG_DIR_OFFLINE, 3, lost)])
    restarted = list(broker_events(before, after._replace(broker_epoch=6)))
    is_subset = bool(was and now) and set(now or ()) < set(was or ())
    failed = [EventKind.LOG_DIR_OFFLINE] if is_subset else []
    assert [kind for kind, _, _ in restarted] == [EventKind.REGISTERED, *failed]


def test_another_disk_or_another_machine_under_the_same_id_is_no_lost_directory() -> None:
    before = BROKER._replace(log_dirs=("d1", "d2"))
    replaced = before._replace(log_dirs=("d1", "d3"), broker_epoch=6)
    other_machine = before._replace(log_dirs=("d1",), broker_epoch=6)
    assert [kind for kind, _, _ in broker_events(before, replaced)] == [EventKind.REGISTERED]
    removed = before._replace(is_registered=False)
    assert [kind for kind, _, _ in broker_events(removed, other_machine)] == [EventKind.REGISTERED]


def test_a_broker_that_is_gone_is_unregistered_once_and_comes_back_with_a_new_epoch() -> None:
    gone = BROKER._replace(is_registered=False, is_fenced=True)
    assert [kind for kind, _, _ in broker_events(BROKER, gone)] == [EventKind.UNREGISTERED]
    assert list(broker_events(gone, gone._replace(rack="b"))) == []
    assert [kind for kind, _, _ in broker_events(gone, BROKER)] == [EventKind.REGISTERED]
    assert [kind for kind, _, _ in broker_events(None, BROKER)] == [EventKind.REGISTERED]
