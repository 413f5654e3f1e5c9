"""A play for a person to read: what was done, what the model did, and what isrwatch said, in the order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.judge.matching import reported_incidents
from tests.judge.play import Play
from tests.judge.steps import steps_of


class _Shape(NamedTuple):
    """What steps of one moment have in common."""

    cause: str
    removed: tuple[int, ...]
    joined: tuple[int, ...]
    leader: tuple[int, int]
    size: int
    given: str


def timeline(play: Play) -> Iterator[str]:
    scenario, constants = play.scenario, play.scenario.constants
    yield f"seed {play.seed}, {play.preset}: brokers {list(scenario.brokers)}, racks {scenario.racks or 'none'}"
    yield (
        f"replica.lag.time.max.ms {constants.replica_lag_time_max_ms}, "
        f"broker.session.timeout.ms {constants.broker_session_timeout_ms}, ELR {constants.elr_enabled}"
    )
    for plan in scenario.topics:
        yield (
            f"topic {plan.name}: {plan.partitions} partitions, replication factor {plan.replication_factor}, "
            f"min ISR {plan.min_insync_replicas or 'of the leader'}, {plan.records_per_second} records/s each"
        )
    lines = [(act.at, f"DO {act.sentence()} ({one.kind})") for one in play.troubles for act in one.acts]
    lines += [(moved.at, f"controller {moved.before} -> {moved.after}") for moved in play.controllers]
    lines += _steps(play)
    for reported in reported_incidents(play.incidents):
        lines.append(
            (
                reported.begin,
                f"REPORTED {reported.kind} {sorted(reported.suspects)} until {reported.end:.1f}: {reported.summary}",
            )
        )
    for at, line in sorted(lines, key=lambda each: each[0]):
        yield f"{at:9.3f}  {line}"


def _steps(play: Play) -> list[tuple[float, str]]:
    counts: Counter[tuple[float, _Shape]] = Counter()
    for step in steps_of(play):
        given = play.causes.get((step.key.topic_id, step.key.partition, step.after.partition_epoch))
        joined = tuple(broker for broker in step.after.isr if broker not in step.before.isr)
        said = "nothing" if given is None else f"{given.cause} ({given.evidence})"
        leader = (step.before.leader, step.after.leader)
        shape = _Shape(str(step.cause), step.removed, joined, leader, len(step.after.isr), said)
        counts[step.at, shape] += 1
    return [(at, _line(shape, count)) for (at, shape), count in counts.items()]


def _line(shape: _Shape, count: int) -> str:
    words = [f"{count} x {shape.cause}, said {shape.given}:"]
    words += [f"-{list(shape.removed)}"] * bool(shape.removed) + [f"+{list(shape.joined)}"] * bool(shape.joined)
    before, after = shape.leader
    words.append(f"leader {before}" if before == after else f"leader {before} -> {after}")
    return " ".join([*words, f"ISR of {shape.size}"])
