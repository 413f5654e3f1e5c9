"""Two processes with the id of one broker: both place its replicas, each in a directory of its own."""

from __future__ import annotations

from collections.abc import Callable

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.records import LeaderChange, RecordBatch
from tests.changes.conftest import rows_from
from tests.changes.test_controller_stalls import seen_of
from tests.changes.test_incidents import standing

RecordedLog = Callable[[str], list[RecordBatch]]


def test_real_flaps_of_two_processes_are_neither_lag_nor_the_loss_of_a_broker(recorded_log: RecordedLog) -> None:
    batches = recorded_log("stalls_and_two_processes")
    restarted = [place for place, batch in enumerate(batches) if isinstance(batch.records[0], LeaderChange)][1]
    seen = seen_of(batches)
    changes = fold(ReplicationState(), seen).changes
    begin = batches[restarted].base_offset
    steps = [(change, change.after) for change in changes if change.left_isr and change.after is not None]
    last = [change for change, after in steps if (after.metadata_offset or 0) > begin]
    assert len(last) > 20
    assert {(change.cause, change.evidence, change.left_isr) for change in last} == {
        (Cause.TWO_PROCESSES, Evidence.PROVEN, (3,))
    }
    row = standing(rows_from(seen))[-1]
    assert (row["incident_class"], row["suspects"]) == ("two_processes", [{"broker": 3, "score": 1.0}])
    assert row["summary"].startswith("two processes run as broker 3, which leaves and joins ISRs by turns: ")
    assert row["next_step"].startswith("find both processes that run as broker 3")
