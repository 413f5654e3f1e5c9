"""One run: faults played on a real cluster, and what Kafka's own tool and the tables say afterwards."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from streaming.errors import IsrwatchError
from tests.chaos_kafka import compare
from tests.chaos_kafka.answers import Answers
from tests.chaos_kafka.compare import Row, Truth
from tests.chaos_kafka.harms import HARMS
from tests.chaos_kafka.kept import kept_night
from tests.chaos_kafka.samples import Unequal, at, lacks_hanging, sample_differences
from tests.chaos_kafka.schedule import LOG, POLL, KafkaAct, KafkaSchedule
from tests.chaos_kafka.stage import Impossible, KafkaStage

SECONDS_TO_SETTLE = {True: 180.0, False: 60.0}
"""With Spark, and without."""
SECONDS_BETWEEN_LOOKS = 3.0
SECONDS_TO_SAMPLE = {True: 180.0, False: 45.0}
"""The same of samples: a job or a collector may just have been started again."""
SECONDS_OF_A_ROUND = 9.0
"""The longest interval of samples, behind a view of the cluster that is one of its own old; and an answer."""
SECONDS_TO_HANG = 180.0
SECONDS_BETWEEN_SAMPLES = 1.0
SECONDS_BETWEEN_LINES = 10.0
SHOWN = 8


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
    schedule: KafkaSchedule,
    directory: Path,
    *,
    spark: bool = True,
    say: Callable[[str], None] = print,
    keep: Path | None = None,
) -> Outcome:
    """Play a schedule in an empty folder, which stays; the tables and Kafka's log are kept in another one."""
    try:
        with KafkaStage(directory, schedule.shape, spark=spark, say=say) as stage:
            began = time.monotonic()
            for number, act in enumerate(schedule.acts, start=1):
                say(f"  {time.monotonic() - began:6.1f} s  {number}. {act}")
                play(stage, act, say)
                if act.recovers and (wrong := sampled(stage, say, SECONDS_TO_SAMPLE[spark])):
                    return Outcome(Verdict.DIFFERS, "\n".join((f"after fault {number}:", *wrong)))
            say(f"  {time.monotonic() - began:6.1f} s  quiet")
            found, numbers = settled(stage, SECONDS_TO_SETTLE[spark])
            found += sampled(stage, say, SECONDS_TO_SAMPLE[spark], is_last=True)
            found += stage.faults_of_ours
            records = stage.sandbox.dump_metadata_log(stage.active_controller()) if keep else []
        if keep:
            kept_night(stage.sides[LOG].pipeline.tables, records, keep)
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


def sampled(stage: KafkaStage, say: Callable[[str], None], seconds: float, *, is_last: bool = False) -> list[str]:
    """Compare the samples while nobody writes, until nothing differs, a row of a later round does, or time is over.

    At last a transaction that hangs has to be recognised, too, which takes a minute.
    """
    with stage.at_rest():
        began, since, said = time.monotonic(), time.time(), 0.0
        answers: Answers | None = None
        while True:
            before, answers = answers, stage.answers()
            if answers is None or answers != before:
                since = time.time()
            found, lacking = [Unequal("Kafka does not answer, or another way each time")], list[str]()
            if answers is not None:
                tables, hanging = stage.sampled(), stage.clients.hanging
                found = [*sample_differences(answers, tables, at(since), hanging)]
                lacking = [*lacks_hanging(tables["transactions"], hanging)] if is_last else []
                if not found and not lacking:
                    say(f"    samples are equal after {time.monotonic() - began:.1f} s: {counted(tables)}")
                    return []
            if time.monotonic() - began > said + SECONDS_BETWEEN_LINES:
                said = time.monotonic() - began
                say(f"    {said:.1f} s: {len(found)} differ: {[each.text for each in found[:1]] + lacking}")
            late = at(since + SECONDS_OF_A_ROUND)
            wrong = [each for each in found if each.collected_at is not None and each.collected_at > late]
            took, limit = time.monotonic() - began, (seconds if found else SECONDS_TO_HANG)
            if took > 4 * limit or ((took > limit or wrong) and stage.answers() == answers):
                return [*[each.text for each in wrong or found][:SHOWN], *lacking]
            time.sleep(SECONDS_BETWEEN_SAMPLES)


def counted(tables: Mapping[str, Sequence[Row]]) -> str:
    return ", ".join(f"{len(rows)} {name}" for name, rows in tables.items())


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
