"""Spells of conditions that samples show: a disk, a voter, a transaction, a group; and by which rules a row does.

The job writes the table ``sampled_conditions`` from samples alone, next to the newest rows that they follow from. What
depends on anything else (moves that fill a disk, announced work, topics that do not count) is left to the reader.
"""

# Theory of operation
#
# - A *finding* is what the newest row of a thing says of one key: cluster, condition, subject and part. It is in
#   trouble, it is not, or the row says nothing about it: a directory that is offline has no size, and a voter that a
#   new leader has not heard of is neither behind nor not.
# - A spell begins with the first row that shows trouble, and its ``since`` is fixed then. It ends only with a newer row
#   that shows it is over, at the time of that row, or when an answer of its reporter leaves it out, at the
#   time of that answer. The samples of an answer come one by one, so that is believed at the next answer, whatever that
#   has: until then ``left_out_at`` keeps the time. If another reporter has the thing by then, it has moved.
# - A group that moves is in no answer while its new coordinator loads, and one that is late in none of a round. So of
#   groups that is believed at the first answer after ``MOVING``, for which their positions are remembered, too. A
#   position that had to begin again does not say that the group moved on: nothing ends by it. A group that its
#   coordinator says is gone, or a partition of which it says that the offset was deleted, ends at once.
# - A reporter that is silent neither begins nor ends anything; after ``GIVEN_UP`` it is gone on purpose.
# - So the rows that the newest tables forget after a minute count here for longer: a spell remembers its reporter, and
#   when it was shown last.
# - Every step compares times: a row that is not newer than the begin of the newest spell of its key, or than its end,
#   changes nothing. So the fold of any samples over spells that already hold them gives the same spells, and spells are
#   committed before the tables of the rows (``jobs.shards.samples``). Killed between the two, the samples come again.
# - The spells of a key depend on the answers in the order of their log, and not on how these are cut into batches: what
#   one batch has of several rounds is folded round by round (``delta.samples.sampled_spells``).
# - That there are no samples any more, or no data, or no controller, is no spell: it is judged by a clock, at each
#   scrape, by the exporter (``exporters.read_model.conditions``).
#
# Invariant: any cut of a log into batches, repeats of them after a kill and late samples give the same spells.
# tests/delta/test_sampled_spells.py, tests/delta/test_sampled_conditions.py.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from streaming.contracts.columns import columns_of
from streaming.contracts.conditions import HOUR, Condition, Rule
from streaming.contracts.events import Severity
from streaming.contracts.group_readers import (
    GroupOffsetsRow,
    is_beyond,
    is_losing,
    is_losing_still,
    is_stuck,
    is_stuck_still,
)
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.quorum_members import QUORUM_BEHIND, Member, by_node, replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]
    """A row of a table of samples, times in microseconds."""

GIVEN_UP: Final = 24 * HOUR
"""After so long without an answer, while others of its cluster answered, a reporter was given up on purpose."""
PACE: Final = "pace"
"""Part of a volume that is short of space because of how fast it fills: moves of partitions may explain that."""

SAMPLED_RULES: Final = {
    condition: Rule(severity, 0, kept=0)
    for condition, severity in {
        Condition.DISK_FILLS_UP: Severity.CRITICAL,
        Condition.LOG_DIRECTORY_OFFLINE: Severity.WARNING,
        Condition.DISK_NEARLY_FULL: Severity.WARNING,
        Condition.QUORUM_VOTER_BEHIND: Severity.WARNING,
        Condition.HANGING_TRANSACTION: Severity.WARNING,
        Condition.GROUP_STUCK: Severity.WARNING,
        Condition.GROUP_LOSING: Severity.WARNING,
        Condition.GROUP_BEYOND_END: Severity.WARNING,
    }.items()
}
"""Rules of what samples show. It is raised at once; ``for`` of an alert lets it last."""


class SampledSpell(NamedTuple):
    """One row of ``sampled_conditions``. Times are UTC microseconds of the samples."""

    spell_id: Annotated[str, "deterministic: the same samples give the same id"]
    cluster_id: Annotated[ClusterId, "Kafka's cluster id"]
    cluster: Annotated[str, "display name of the cluster"]
    condition: Annotated[Condition, "what is wrong"]
    subject: Annotated[str, "subject: broker and log directory, node of the quorum, topic, or group"]
    part: Annotated[
        str,
        "what of the subject: a transaction, by producer id and epoch; a partition, of a group; pace, of a volume; "
        "empty: all of it",
    ]
    since: Annotated[Micros, "since when it has been so, as far as the first sample says"]
    began_at: Annotated[Micros, "first sample that shows it"]
    ended_at: Annotated[Micros | None, "first sample that shows it is over; null while it lasts"]
    reporter: Annotated[str | None, "broker whose answers show it; empty: any answer does; null: none says it is over"]
    shown_at: Annotated[
        Micros, "newest sample that shows it, if its row is forgotten; until then at least the begin of its hour"
    ]
    left_out_at: Annotated[Micros | None, "the newest answer of its reporter, if it says nothing about it any more"]

    @property
    def key(self) -> Key:
        """Thing that it is a spell of."""
        return Key(self.cluster_id, self.condition, self.subject, self.part)


SAMPLED_SPELL: Final = columns_of(SampledSpell)


class Key(NamedTuple):
    """Thing of which spells follow each other."""

    cluster_id: str
    condition: Condition
    subject: str
    part: str = ""


class SampledFinding(NamedTuple):
    """Statement of the newest row about a key.

    Attributes:
        key: what it is about.
        cluster: display name.
        reporter: whose answers have the row; "": any answer of the cluster; None: no answer is about all it has.
        at: time of the row.
        since: since when it is so as far as the row says.
        is_wrong: None if the row does not say.
    """

    key: Key
    cluster: str
    reporter: str | None
    at: int
    since: int
    is_wrong: bool | None


# Volumes.


class DiskLimit(NamedTuple):
    """A volume is short of space below a share that is free, or below twice that if it is full within some time."""

    free_share: float
    seconds_until_full: float


DISK_LIMITS: Final = {
    Condition.DISK_FILLS_UP: DiskLimit(0.05, 2 * 3600),
    Condition.DISK_NEARLY_FULL: DiskLimit(0.15, 24 * 3600),
}


def of_directories(rows: Sequence[Row], _lasting: Collection[Key] = ()) -> Iterator[SampledFinding]:
    """Yield what rows of ``log_directories`` show."""
    for row in rows:
        subject = f"{row['broker']}:{row['log_dir']}"
        offline = Key(row["cluster_id"], Condition.LOG_DIRECTORY_OFFLINE, subject)
        yield _of_broker(row, offline, is_wrong=not row["is_online"])
        for condition, limit in DISK_LIMITS.items():
            total, usable, left = row["total_bytes"], row["usable_bytes"], row["seconds_until_full"]
            share = usable / total if total and usable is not None else None
            is_full = None if share is None else share < limit.free_share
            is_filling = left is not None and left < limit.seconds_until_full
            fills = None if share is None else is_filling and share < 2 * limit.free_share
            yield _of_broker(row, Key(row["cluster_id"], condition, subject), is_wrong=is_full)
            yield _of_broker(row, Key(row["cluster_id"], condition, subject, PACE), is_wrong=fills)


def _of_broker(row: Row, key: Key, *, is_wrong: bool | None) -> SampledFinding:
    at = row["collected_at"]
    return SampledFinding(key, row["cluster"], str(row["broker"]), at, at, is_wrong)


# Voters of the metadata quorum.


def of_quorum(rows: Sequence[Row], _lasting: Collection[Key] = ()) -> Iterator[SampledFinding]:
    """Yield what rows of ``quorum_members`` show: who is behind, by the clock of the leader of its cluster.

    A voter whose directory is gone never catches up, whatever the leader knows of it.
    """
    members, gone = by_node(rows, _member), replaced(rows, _member)
    for (cluster_id, node), row in members.items():
        caught_up, at = row["last_caught_up_at"], row["collected_at"]
        now = members.get((cluster_id, row["controller"]), {}).get("last_caught_up_at")
        behind = None if now is None or caught_up is None else max(0, now - caught_up)
        is_behind = None if behind is None else behind > QUORUM_BEHIND
        key = Key(cluster_id, Condition.QUORUM_VOTER_BEHIND, str(node))
        is_wrong = (True if (cluster_id, node) in gone else is_behind) if row["is_voter"] else False
        yield SampledFinding(key, row["cluster"], "", at, at - (behind or 0), is_wrong)


def _member(row: Row) -> Member:
    node = row["cluster_id"], row["node"]
    return Member(node, row.get("directory_id"), row["is_voter"], row["collected_at"], row["last_caught_up_at"])


# Transactions.


def of_transactions(rows: Sequence[Row], lasting: Collection[Key] = ()) -> Iterator[SampledFinding]:
    """Yield in which topics rows of ``transactions`` hang, and of which of those that lasted they say otherwise."""
    topics: dict[tuple[str, str], set[str]] = {}
    for key in lasting:
        topics.setdefault((key.cluster_id, key.part), set()).add(key.subject)
    for row in rows:
        part, at, reporter = f"{row['producer_id']}/{row['producer_epoch']}", row["collected_at"], row["reporter"]
        partitions = (row["transaction_partitions"] or ()) if row["is_hanging"] else ()
        hanging = {each.rpartition("-")[0] for each in partitions}
        for topic in sorted(hanging | topics.get((row["cluster_id"], part), set())):
            key = Key(row["cluster_id"], Condition.HANGING_TRANSACTION, topic, part)
            since = min(at, row["started_at"] or at)
            yield SampledFinding(
                key, row["cluster"], None if reporter is None else str(reporter), at, since, topic in hanging
            )


# Consumer groups.


def topic_of(part: str) -> str:
    """Return the topic of the partition that a spell of a group is about.

    >>> topic_of("orders-eu-12")
    'orders-eu'
    """
    return part.rpartition("-")[0]


def of_group_offsets(rows: Sequence[Row], lasting: Collection[Key] = ()) -> Iterator[SampledFinding]:
    """Yield in which partitions groups of rows of ``group_offsets`` are in trouble, and what of those that were.

    A topic that was created again has two rows of a partition for a while: the newer one counts.
    """
    newest: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        place = row["cluster_id"], row["group"], f"{row['topic']}-{row['partition']}"
        before = newest.get(place)
        if before is None or row["collected_at"] > before["collected_at"]:
            newest[place] = row
    for (cluster_id, group, part), row in newest.items():
        position, reporter = GroupOffsetsRow.of(row), row["coordinator"]
        for condition, judged in _OF_GROUPS.items():
            key = Key(cluster_id, condition, group, part)
            is_wrong = judged.lasts(position) if key in lasting else judged.begins(position)
            if is_wrong or key in lasting:
                at = position.collected_at
                since = judged.since(position)
                yield SampledFinding(
                    key,
                    row["cluster"],
                    None if reporter is None else str(reporter),
                    at,
                    at if since is None else min(at, since),
                    is_wrong,
                )


class _OfGroup(NamedTuple):
    """A condition of groups: whether a row shows that it begins, and that it lasts, and since when."""

    begins: Callable[[GroupOffsetsRow], bool | None]
    lasts: Callable[[GroupOffsetsRow], bool | None]
    since: Callable[[GroupOffsetsRow], int | None]


_OF_GROUPS: Final = {
    Condition.GROUP_STUCK: _OfGroup(is_stuck, is_stuck_still, lambda row: row.standing_since),
    Condition.GROUP_LOSING: _OfGroup(is_losing, is_losing_still, lambda row: row.lost_at),
    Condition.GROUP_BEYOND_END: _OfGroup(is_beyond, is_beyond, lambda _: None),
}
OF_GROUPS: Final = tuple(_OF_GROUPS)
"""Conditions whose subject is a group, and whose part is a partition."""
