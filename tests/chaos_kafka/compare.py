"""What Kafka's own tool reads in the controller's log, against what the tables say. Pure.

The truth is ``kafka-dump-log --cluster-metadata-decoder``, applied here by hand (``PartitionRegistration.merge``). That
this application is right, epochs included, which no record of a change carries, is compared with the KRaft snapshots
that Kafka has written of the same log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from deploy.sandbox.dump import DumpedRecord

Key = tuple[str, int]
"""Topic id and partition."""
Row = dict[str, Any]
MIN_ISR: Final = "min.insync.replicas"
_TOPIC: Final = 2
_BROKER: Final = 4
_SHOWN: Final = 5  # of many differences


class Facts(NamedTuple):
    """What a controller has decided of a partition."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader_recovering: bool


class Step(NamedTuple):
    """One step of a partition; without facts its topic was deleted."""

    offset: int
    facts: Facts | None


History = dict[Key, list[Step]]


class Truth(NamedTuple):
    """What a dumped log says: every step of each partition, the names of the topics, and their min ISR at the end."""

    history: History
    names: dict[str, str]
    min_isr: dict[str, int]

    def at_end(self) -> dict[Key, Facts]:
        """Return the partitions that exist at the end of the log."""
        return image_at(self.history, None)

    def last_offset(self) -> int:
        return max((steps[-1].offset for steps in self.history.values()), default=-1)


# ---------------------------------------------------------------- the truth


def truth_of(dump: Iterable[DumpedRecord]) -> Truth:
    """Apply the records of a log, as Kafka's tool decodes them, in their order."""
    history: History = defaultdict(list)
    names: dict[str, str] = {}
    configured: dict[str, int] = {"": 1}
    for record in dump:
        data = record.data
        match record.kind:
            case "TOPIC_RECORD":
                names[data["topicId"]] = data["name"]
            case "CONFIG_RECORD" if data["name"] == MIN_ISR and data["resourceType"] in (_TOPIC, _BROKER):
                _configure(configured, data)
            case "PARTITION_RECORD":
                history[_key(data)].append(Step(record.offset, created(data)))
            case "PARTITION_CHANGE_RECORD":
                steps = history[_key(data)]
                steps.append(Step(record.offset, merged(_newest(steps), data)))
            case "CLEAR_ELR_RECORD":
                _clear_elr(history, names, record)
            case "REMOVE_TOPIC_RECORD":
                configured.pop(names[data["topicId"]], None)
                for key, steps in history.items():
                    if key[0] == data["topicId"]:
                        steps.append(Step(record.offset, None))
    live = {key[0] for key in image_at(history, None)}
    min_isr = {names[topic]: configured.get(names[topic], configured[""]) for topic in live}
    return Truth(dict(history), names, min_isr)


def created(data: Mapping[str, Any]) -> Facts:
    """Read a PARTITION_RECORD."""
    return Facts(
        leader=data["leader"],
        isr=tuple(data["isr"]),
        leader_epoch=data["leaderEpoch"],
        partition_epoch=data["partitionEpoch"],
        replicas=tuple(data["replicas"]),
        adding_replicas=tuple(data.get("addingReplicas") or ()),
        removing_replicas=tuple(data.get("removingReplicas") or ()),
        elr=tuple(data.get("eligibleLeaderReplicas") or ()),
        last_known_elr=tuple(data.get("lastKnownElr") or ()),
        leader_recovering=data.get("leaderRecoveryState", 0) == 1,
    )


def merged(before: Facts, data: Mapping[str, Any]) -> Facts:
    """Apply a PARTITION_CHANGE_RECORD: the tool leaves out the fields that it does not change."""
    fields = {
        "isr": "isr",
        "replicas": "replicas",
        "addingReplicas": "adding_replicas",
        "removingReplicas": "removing_replicas",
        "eligibleLeaderReplicas": "elr",
        "lastKnownElr": "last_known_elr",
    }
    changed: dict[str, Any] = {ours: tuple(data[theirs]) for theirs, ours in fields.items() if theirs in data}
    if "leader" in data:  # set means elected, also where the leader stays the same
        changed |= {"leader": data["leader"], "leader_epoch": before.leader_epoch + 1}
    if "leaderRecoveryState" in data:
        changed["leader_recovering"] = data["leaderRecoveryState"] == 1
    return before._replace(**changed, partition_epoch=before.partition_epoch + 1)


def image_at(history: History, offset: int | None) -> dict[Key, Facts]:
    """Return the partitions that exist at an offset; None is the end."""
    newest = {
        key: next((step for step in reversed(steps) if offset is None or step.offset <= offset), None)
        for key, steps in history.items()
    }
    return {key: step.facts for key, step in newest.items() if step is not None and step.facts is not None}


def kinds(history: History) -> Counter[str]:
    """Count what the steps of a log were, to see that the faults have led to it: a step may be several things."""
    return Counter(
        kind
        for steps in history.values()
        for before, after in pairwise([None, *steps])
        for kind in _kinds(before, after)
    )


def _kinds(before: Step | None, after: Step) -> Iterator[str]:
    old, new = (None if before is None else before.facts), after.facts
    if old is None or new is None:
        yield "created" if new is not None else "deleted"
        return
    was_moving, is_moving = (facts.adding_replicas or facts.removing_replicas for facts in (old, new))
    is_moved = set(new.replicas).isdisjoint(old.removing_replicas) and set(old.adding_replicas) <= set(new.replicas)
    happened = {
        "shrunk": bool(set(old.isr) - set(new.isr)),
        "expanded": bool(set(new.isr) - set(old.isr)),
        "elected": new.leader_epoch > old.leader_epoch and new.leader >= 0,
        "offline": old.leader >= 0 > new.leader,
        "unclean": new.leader_recovering and not old.leader_recovering,
        "eligible outside the ISR": bool(set(new.elr) - set(old.elr)),
        "reassignment begun": bool(is_moving and not was_moving),
        "reassignment completed": bool(was_moving and not is_moving and is_moved),
        "reassignment cancelled": bool(was_moving and not is_moving and not is_moved),
    }
    yield from (kind for kind, is_so in happened.items() if is_so)


def _key(data: Mapping[str, Any]) -> Key:
    return data["topicId"], data["partitionId"]


def _newest(steps: Sequence[Step]) -> Facts:
    facts = steps[-1].facts
    assert facts is not None, "a change of a partition that was deleted"
    return facts


def _configure(configured: dict[str, int], data: Mapping[str, Any]) -> None:
    """Set or unset a minimum; that of all brokers has the name "", one of a single broker says nothing of topics."""
    name = data["resourceName"]
    if data["resourceType"] == _BROKER and name:
        return
    if data.get("value") is None:
        configured.pop(name, None)
    else:
        configured[name] = int(data["value"])


def _clear_elr(history: History, names: Mapping[str, str], record: DumpedRecord) -> None:
    """Kafka clears the ELR of the partitions that have one, each by a change of its own (``TopicDelta.replay``)."""
    for (topic, _), steps in history.items():
        facts = steps[-1].facts
        is_meant = record.data["topicName"] in ("", names[topic])
        if is_meant and facts is not None and (facts.elr or facts.last_known_elr):
            steps.append(Step(record.offset, merged(facts, {"eligibleLeaderReplicas": (), "lastKnownElr": ()})))


def snapshot_differences(truth: Truth, end_offset: int, snapshot: Iterable[DumpedRecord]) -> Iterator[str]:
    """Compare with a KRaft snapshot, which has everything below ``end_offset``, epochs as Kafka has counted them."""
    kafkas = {_key(record.data): created(record.data) for record in snapshot if record.kind == "PARTITION_RECORD"}
    yield from _of_images(f"the KRaft snapshot at {end_offset}", kafkas, image_at(truth.history, end_offset - 1), truth)


# ---------------------------------------------------------------- the table of the log


def recorded(rows: Iterable[Row]) -> tuple[History, dict[Key, Step]]:
    """Read partition_changes in its own order: the steps, and the state that the first report of a cluster gave.

    Rows that change nothing of what a controller decides, such as those of configurations and of revised causes, are
    no steps.
    """
    history: History = defaultdict(list)
    baseline: dict[Key, Step] = {}
    for row in sorted(rows, key=lambda row: (row["version"], row["ordinal"])):
        if row["subject"] != "partition":
            continue
        key = row["topic_id"], row["partition"]
        before, after = facts_in(row["before"]), facts_in(row["after"])
        if row["before"] is None and row["is_baseline"]:
            baseline[key] = Step(row["offset"], after)
        elif row["before"] is None or before != after:
            history[key].append(Step(row["offset"], after))
    return dict(history), baseline


def facts_in(state: Row | None) -> Facts | None:
    """Read a state of a partition in a table; None where there is none, and of a deleted topic."""
    if state is None or state["is_deleted"]:
        return None
    lists = ("isr", "replicas", "adding_replicas", "removing_replicas", "elr", "last_known_elr")
    return Facts(**{name: tuple(state[name] or ()) if name in lists else state[name] for name in Facts._fields})


def log_differences(truth: Truth, rows: Sequence[Row], states: Iterable[Row]) -> Iterator[str]:
    """Compare the tables of a collector that reads the log: event for event, the last state, and nothing beside it."""
    history, baseline = recorded(rows)
    began = min((step.offset for step in baseline.values()), default=-1)
    expected = {
        key: kept for key, steps in truth.history.items() if (kept := [step for step in steps if step.offset > began])
    }
    first = {key: step.facts for key, step in baseline.items() if step.facts is not None}
    yield from _of_images("the first report", first, image_at(truth.history, began) if baseline else {}, truth)
    yield from _some(
        difference
        for key in sorted(expected.keys() | history.keys())
        for difference in _of_steps(_name(key, truth), expected.get(key, []), history.get(key, []))
    )
    yield from _of_images("the states of the log's tables", _existing(states), truth.at_end(), truth)
    missed = sum(row["missed"] or 0 for row in rows)
    if missed:
        yield f"the log's tables say that {missed} changes were missed, and none was"
    yield from _some(
        f"the log's tables say of {_name((row['topic_id'], row['partition']), truth)}: {event['detail']}"
        for row in rows
        for event in row["events"] or ()
        if event["event"] == "protocol_violation"
    )


def _of_steps(name: str, expected: Sequence[Step], actual: Sequence[Step]) -> Iterator[str]:
    """Yield the first difference of a partition."""
    for number, (wanted, found) in enumerate(zip(expected, actual, strict=False)):
        if wanted != found:
            yield f"{name}, step {number + 1} of {len(expected)}:\n  log:   {_text(wanted)}\n  table: {_text(found)}"
            return
    if len(expected) != len(actual):
        side, more = ("log", expected) if len(expected) > len(actual) else ("table", actual)
        number = min(len(expected), len(actual))
        yield f"{name}: {len(expected)} steps in the log, {len(actual)} in the table; only in the {side}: " + _text(
            more[number]
        )


def _text(step: Step) -> str:
    if step.facts is None:
        return f"offset {step.offset}: deleted"
    return f"offset {step.offset}: " + ", ".join(f"{name} {value}" for name, value in step.facts._asdict().items())


# ---------------------------------------------------------------- the tables of a poller


def polled_differences(truth: Truth, states: Sequence[Row]) -> Iterator[str]:
    """Compare the last view of a poller: what polls show, and the leader epoch where they have it."""
    existing = {(row["topic_id"], row["partition"]): row for row in states if not row["is_deleted"]}
    end = truth.at_end()
    yield from _of_keys("the poller's tables", existing.keys(), end.keys(), truth)
    yield from _some(
        f"the poller's tables say of {_name(key, truth)} {ours}\n  log: {theirs}"
        for key in sorted(existing.keys() & end.keys())
        if (ours := _polled_in(existing[key])) != (theirs := _seen_by(existing[key], end[key]))
    )


def _seen_by(row: Row, facts: Facts) -> Row:
    """Project the facts on what the poller of a row can see."""
    return _polled_in({**facts._asdict(), "leader_epoch": None if row["leader_epoch"] is None else facts.leader_epoch})


def _polled_in(row: Row) -> Row:
    """Read what a poll shows: sets, but for the replicas, no partition epoch, and no ELR where it has no epochs."""
    has_epochs = row["leader_epoch"] is not None
    names = ("leader", *(("leader_epoch",) if has_epochs else ()))
    sets = ("isr", "adding_replicas", "removing_replicas", *(("elr", "last_known_elr") if has_epochs else ()))
    of_sets = {name: sorted(row[name] or ()) for name in sets}
    return {**{name: row[name] for name in names}, "replicas": list(row["replicas"]), **of_sets}


class Missed(NamedTuple):
    """The elections that a poller did not see: by the log's leader epochs, and by its own account.

    ``expected`` is None where it saw no epochs, so that it cannot count.
    """

    expected: int | None
    actual: int


def missed_by_poller(truth: Truth, rows: Iterable[Row]) -> dict[Key, Missed]:
    """Count, partition by partition, the elections between the first and the last leader epoch that nobody saw.

    The first row shows the creation, each further row of another leader epoch one election. What happened to a topic
    between its last poll and its deletion, or before a first report, left nothing to count it by.
    """
    of_partition: dict[Key, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["version"], row["ordinal"])):
        if row["subject"] == "partition" and row["after"] is not None:
            of_partition[row["topic_id"], row["partition"]].append(row)
    return {key: _missed(truth.history.get(key, []), rows) for key, rows in of_partition.items()}


def _missed(steps: Sequence[Step], rows: Sequence[Row]) -> Missed:
    actual = sum(row["missed"] or 0 for row in rows)
    seen = [row["after"]["leader_epoch"] for row in rows if not row["after"]["is_deleted"]]
    if not seen or None in seen:
        return Missed(None, actual)
    last = next((step.facts.leader_epoch for step in reversed(steps) if step.facts is not None), 0)
    is_deleted = bool(rows[-1]["after"]["is_deleted"])
    begin = seen[0] if rows[0]["is_baseline"] else 0
    shown = sum(epoch != before for before, epoch in pairwise(seen))
    return Missed((seen[-1] if is_deleted else last) - begin - shown, actual)


def missed_differences(truth: Truth, rows: Iterable[Row]) -> Iterator[str]:
    yield from _some(
        f"the poller missed {missed.expected} elections of {_name(key, truth)} and counts {missed.actual}"
        for key, missed in sorted(missed_by_poller(truth, rows).items())
        if missed.actual != (missed.expected or 0)
    )


# ---------------------------------------------------------------- both


def min_isr_differences(truth: Truth, states: Iterable[Row], whose: str) -> Iterator[str]:
    """Compare the effective min ISR of every partition with what was configured at the end of the log."""
    yield from _some(
        f"{whose} say that {row['topic']}-{row['partition']} has the min ISR {row['min_isr_effective']}, it is {least}"
        for row in states
        if not row["is_deleted"] and row["topic"] in truth.min_isr
        if row["min_isr_effective"] != (least := min(truth.min_isr[row["topic"]], len(row["replicas"])))
    )


def _existing(states: Iterable[Row]) -> dict[Key, Facts]:
    found = {(row["topic_id"], row["partition"]): facts_in(row) for row in states}
    return {key: facts for key, facts in found.items() if facts is not None}


def _of_images(what: str, actual: Mapping[Key, Facts], expected: Mapping[Key, Facts], truth: Truth) -> Iterator[str]:
    yield from _of_keys(what, actual.keys(), expected.keys(), truth)
    yield from _some(
        f"{what}, {_name(key, truth)}:\n  log: {expected[key]}\n  it:  {actual[key]}"
        for key in sorted(actual.keys() & expected.keys())
        if actual[key] != expected[key]
    )


def _of_keys(what: str, actual: Iterable[Key], expected: Iterable[Key], truth: Truth) -> Iterator[str]:
    more, fewer = sorted(set(actual) - set(expected)), sorted(set(expected) - set(actual))
    if more:
        yield f"{what} have partitions that do not exist: {', '.join(_name(key, truth) for key in more[:_SHOWN])}"
    if fewer:
        yield f"{what} lack partitions: {', '.join(_name(key, truth) for key in fewer[:_SHOWN])}"


def _some(differences: Iterable[str]) -> Iterator[str]:
    """Yield the first differences, and say how many there are beside them."""
    left = 0
    for number, difference in enumerate(differences):
        if number < _SHOWN:
            yield difference
        else:
            left += 1
    if left:
        yield f"  and {left} more like these"


def _name(key: Key, truth: Truth) -> str:
    return f"{truth.names.get(key[0], 'a topic')}-{key[1]} ({key[0]})"
