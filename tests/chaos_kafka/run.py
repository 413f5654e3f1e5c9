"""One run: faults played on a real cluster, and what Kafka's own tool and the tables say afterwards."""

from __future__ import annotations

import time
import traceback
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from streaming.errors import IsrwatchError
from tests.chaos_kafka import compare
from tests.chaos_kafka.harms import HARMS
from tests.chaos_kafka.schedule import LOG, POLL
from tests.chaos_kafka.stage import Impossible, KafkaStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos_kafka.compare import Truth
    from tests.chaos_kafka.schedule import KafkaAct, KafkaSchedule

SECONDS_TO_SETTLE = {True: 180.0, False: 60.0}
"""With Spark, and without."""
SECONDS_BETWEEN_LOOKS = 3.0


class Verdict(StrEnum):
    """How a run ended; ``BROKEN`` if it could not be played to its end, which says nothing of the tables."""

    EQUAL = "equal"
    DIFFERS = "DIFFERS"
    BROKEN = "BROKEN"


class Outcome(NamedTuple):
    """What became of a run: a sentence with its numbers, or what differs."""

    verdict: Verdict
    text: str


def played(
    schedule: KafkaSchedule, directory: Path, *, spark: bool = True, say: Callable[[str], None] = print
) -> Outcome:
    """Play a schedule in an empty folder, which stays."""
    try:
        with KafkaStage(directory, schedule.shape, spark=spark, say=say) as stage:
            began = time.monotonic()
            for number, act in enumerate(schedule.acts, start=1):
                say(f"  {time.monotonic() - began:6.1f} s  {number}. {act}")
                play(stage, act, say)
            say(f"  {time.monotonic() - began:6.1f} s  quiet")
            found, numbers = settled(stage, SECONDS_TO_SETTLE[spark])
            found += stage.faults_of_ours
    except Exception:  # noqa: BLE001 - whatever it is, the run is kept with it, and the next one is played
        return Outcome(Verdict.BROKEN, traceback.format_exc())
    if found:
        return Outcome(Verdict.DIFFERS, "\n".join((numbers, *found)))
    return Outcome(Verdict.EQUAL, numbers)


def play(stage: KafkaStage, act: KafkaAct, say: Callable[[str], None]) -> None:
    """Play one fault, whatever becomes of it; afterwards every node that is not held runs."""
    time.sleep(act.pause)
    dying = stage.dying(act.own)
    try:
        HARMS[act.harm](stage, act)
    except (Impossible, TimeoutError, IsrwatchError) as reason:
        say(f"    not possible: {reason}")
    dying.result()
    stage.restore()
    stage.revive()
    if act.recovers:
        stage.recover_soon()


def settled(stage: KafkaStage, seconds: float) -> tuple[list[str], str]:
    """Let the cluster come to rest, and compare until nothing differs or the time is over; what was compared, too."""
    stage.held.clear()
    stage.restore()
    stage.recover()
    stage.stop_all_writing()
    deadline = time.monotonic() + seconds
    while True:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        stage.revive()
        controller = stage.active_controller()
        end_offset, snapshot = stage.sandbox.dump_newest_snapshot(controller)  # before the log, which then has it all
        truth = compare.truth_of(stage.sandbox.dump_metadata_log(controller))
        stage.fold()
        found = [*compare.snapshot_differences(truth, end_offset, snapshot), *differences(stage, truth)]
        if not found or time.monotonic() > deadline:
            return found, summary(stage, truth, end_offset)


def differences(stage: KafkaStage, truth: Truth) -> Iterator[str]:
    """Yield what differs, of both installations."""
    log, poll = stage.sides[LOG], stage.sides[POLL]
    states = {side.name: side.rows("partition_state") for side in (log, poll)}
    polled = poll.rows("partition_changes")
    yield from compare.log_differences(truth, log.rows("partition_changes"), states[LOG])
    yield from compare.polled_differences(truth, states[POLL])
    yield from compare.missed_differences(truth, polled)
    for side in (log, poll):
        yield from compare.min_isr_differences(truth, states[side.name], f"the {side.name}'s tables")
        if quarantined := side.rows("quarantine"):
            yield f"{len(quarantined)} rows in quarantine of the {side.name}: {quarantined[0]}"


def summary(stage: KafkaStage, truth: Truth, end_offset: int) -> str:
    """Say how much was compared: of the epochs, what is in a snapshot."""
    steps = sum(map(len, truth.history.values()))
    polled, _ = compare.recorded(stage.sides[POLL].rows("partition_changes"))
    missed = compare.missed_by_poller(truth, stage.sides[POLL].rows("partition_changes")).values()
    counted = [each.actual for each in missed if each.expected is not None]
    by_epochs = f"{sum(counted)} missed elections counted" if counted else "no epochs to count the missed ones by"
    kinds = ", ".join(f"{count} {kind}" for kind, count in compare.kinds(truth.history).most_common())
    return (
        f"{steps} steps of {len(truth.history)} partitions up to offset {truth.last_offset()} of the log ({kinds}); "
        f"{f'a KRaft snapshot before {end_offset}' if end_offset else 'no KRaft snapshot'}; "
        f"polls saw {sum(map(len, polled.values()))} changes, {by_epochs}"
    )
