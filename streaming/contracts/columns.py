"""The columns of the Delta tables, in groups that several tables share. Here and in ``tables`` a name is spelled once.

A column type is one of: string, int, long, double, boolean, timestamp, date, ``int[]``, ``string[]``, or a tuple of
columns (a struct), or a list of one such tuple (an array of structs).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, NewType, Union, get_args, get_origin, get_type_hints

from streaming.contracts.identifiers import Micros, Offset

if TYPE_CHECKING:
    from collections.abc import Mapping

_BITS: Final = 64
Long = Annotated[int, _BITS]
"""An int of 64 bits; any other has 32."""
SIGNED: Final = object()
"""Notes a number of a sample that may be negative."""
_PLAIN: Final[dict[Any, str]] = {
    str: "string", int: "int", float: "double", bool: "boolean", Micros: "timestamp", Offset: "long",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its plain type, and what it means."""

    name: str
    type: str | tuple[Column, ...] | list[tuple[Column, ...]]
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns in order, the key that identifies a row, and how its files are laid out.

    ``layout`` grows with every change of the columns but a new one that may be null: see
    ``streaming.delta.log.definitions``. ``reporter`` is the column of who reports a sample, if each of its answers
    has all its samples, of one moment: what its newest answer leaves out is gone. A sample that is
    ``forgotten_after`` seconds older than the newest one of its cluster goes as well; so long must be longer than a
    round. ``sampled_by`` is a column that every sample has; a row without stands for an answer without samples or, with
    a value of ``kept_by``, for samples about which an answer says nothing: they stay, and ``kept_at`` has its time.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partitioned_by: tuple[str, ...] = ()
    append_only: bool = False
    layout: int = 1
    reporter: str = ""
    forgotten_after: int = 60
    sampled_by: str = ""
    kept_by: str = ""

    def __post_init__(self) -> None:
        """Let the end of the key be what every sample has, unless something else is."""
        object.__setattr__(self, "sampled_by", self.sampled_by or self.key[-1])

    def column_names(self) -> tuple[str, ...]:
        """Name the columns, in order."""
        return tuple(column.name for column in self.columns)


def required(name: str, plain: str, comment: str) -> Column:
    """Make a column that every row has."""
    return Column(name, plain, comment, nullable=False)


def plain_type(hint: Any) -> str:  # noqa: ANN401 - any annotation
    """Return the plain type of a field: of a value, of one that may be None, or of a tuple of them.

    >>> plain_type(Offset), plain_type(Long), plain_type(tuple[tuple[int, ...], ...]), plain_type(float | None)
    ('long', 'long', 'int[][]', 'double')
    """
    if get_origin(hint) is Annotated:
        value, *notes = get_args(hint)
        return "long" if _BITS in notes else plain_type(value)
    if get_origin(hint) is tuple:
        return f"{plain_type(get_args(hint)[0])}[]"
    if may_be_none(hint):
        return plain_type(next(each for each in get_args(hint) if each is not NoneType))
    if isinstance(hint, NewType):
        return _PLAIN.get(hint) or plain_type(hint.__supertype__)
    return "string" if issubclass(hint, StrEnum) else _PLAIN[hint]


def may_be_none(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    """Return whether a field may be None."""
    if get_origin(hint) is Annotated:
        return may_be_none(get_args(hint)[0])
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def columns_of(
    kind: type[Any],
    *,
    first: tuple[str, ...] = (),
    after: Mapping[str, tuple[Column, ...]] | None = None,
    nullable: tuple[str, ...] = (),
) -> tuple[Column, ...]:
    """Return the columns that the fields of a class declare: those with a comment, ``Annotated[type, comment]``.

    Args:
        kind: a NamedTuple, or the dataclass of a sample.
        first: fields whose columns come first; the others follow as the fields are ordered.
        after: columns of what follows from the fields, by the field whose column they stand behind.
        nullable: columns that may be null although their fields may not be None.
    """
    hints = {name: hint for name, hint in get_type_hints(kind, include_extras=True).items() if _comment(hint)}
    columns: list[Column] = []
    for name in dict.fromkeys((*first, *hints)):
        hint = hints[name]
        columns.append(Column(name, plain_type(hint), _comment(hint), name in nullable or may_be_none(hint)))
        columns += (after or {}).get(name, ())
    return tuple(columns)


def _comment(hint: Any) -> str:  # noqa: ANN401 - any annotation
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, str)), "")


CLUSTER: Final = (
    required("cluster_id", "string", "Kafka's cluster id"),
    required("cluster", "string", "display name of the cluster"),
)

# The order of partition_changes. Rows of one commit share its version, which is known before it is written: a commit is
# made at exactly the version after the last one, or not at all.
COMMIT_ORDER: Final = (
    required("version", "long", "version of partition_changes that added the change"),
    required("ordinal", "long", "order within that version"),
)

PARTITION_IDENTITY: Final = (
    Column("topic_id", "string", "topic id, as Kafka's tools print it"),
    Column("topic", "string", "topic name"),
    Column("partition", "int", "partition number"),
)

# Sums over the partitions of one broker.
BROKER_COUNTS: Final = (
    Column("led_partitions", "long", "partitions it leads; none of these counts has diskless ones"),
    Column("hosted_partitions", "long", "partitions it has a replica of"),
    Column("in_sync_partitions", "long", "partitions whose ISR has it"),
    Column("under_min_isr_partitions", "long", "partitions it has a replica of that are under min ISR"),
    Column("offline_partitions", "long", "partitions it has a replica of that have no leader"),
    Column("would_go_under_min_isr", "long", "partitions that would go under min ISR if it stopped; null: unknown"),
    Column("would_go_offline", "long", "partitions that no replica could lead if it stopped now"),
    Column("unknown_min_isr_partitions", "long", "partitions of which it has a replica and whose minimum is unknown"),
)

# Why and in which order brokers may be stopped: advice for one broker at a time.
BROKER_ADVICE: Final = (
    Column(
        "is_safe_to_stop",
        "boolean",
        "no partition is or would be offline or under min ISR, and the controller quorum "
        "keeps its majority; null while unknown, or if it is not up",
    ),
    Column(
        "restart_order",
        "int",
        "place in the recommended order, from 1; null where every order loses what could be avoided, or it is not up",
    ),
    Column("suspect_score", "double", "how much it explains of every ISR that is shrunk now, 0 to 1"),
    Column(
        "unavoidable_offline", "long", "partitions that its restart takes offline in any order: they have one replica"
    ),
    Column(
        "unavoidable_under_min_isr",
        "long",
        "partitions that its restart takes under min ISR in any order: they have no more replicas than that",
    ),
    Column("is_quorum_voter", "boolean", "it has a vote in the controller quorum; null while unknown"),
    Column("restart_reason", "string", "why it may or may not be restarted, in words"),
)

# Sums over the partitions of one cluster now.
CLUSTER_COUNTS: Final = (
    Column("topics", "long", "topics"),
    Column("partitions", "long", "partitions of all topics"),
    Column("under_replicated_partitions", "long", "partitions with fewer replicas in sync than assigned"),
    Column("under_min_isr_partitions", "long", "partitions that refuse acks=all; null while no minimum is known"),
    Column("at_min_isr_partitions", "long", "lacking partitions at their minimum; null while no minimum is known"),
    Column("unknown_min_isr_partitions", "long", "partitions whose minimum is unknown"),
    Column("offline_partitions", "long", "partitions without a leader"),
    Column("off_preferred_leader_partitions", "long", "partitions that their first replica does not lead"),
    Column("reassigning_partitions", "long", "partitions whose replicas are being moved"),
    Column("diskless_partitions", "long", "partitions whose ISR means nothing (KIP-1150)"),
)

# Totals of all partitions of a cluster, deleted topics included. Seconds are counted up to the watermark of the
# primary source, open episodes included.
CLUSTER_TOTALS: Final = (
    Column("isr_shrinks", "long", "changes in which a broker left an ISR, in all"),
    Column("isr_expands", "long", "changes in which a broker joined an ISR, in all"),
    Column("leader_changes", "long", "changes of a leader, in all"),
    Column("unclean_elections", "long", "leaders elected from outside ISR and ELR, in all"),
    Column("missed_changes", "long", "changes inferred from epoch gaps but never observed, in all"),
    Column("offline_seconds", "double", "offline time of all partitions, up to primary_watermark"),
    Column("under_replicated_seconds", "double", "under-replicated time of all partitions, up to primary_watermark"),
    Column("under_min_isr_seconds", "double", "time under min ISR of all partitions, up to primary_watermark"),
    Column("unknown_seconds", "double", "time during which partitions were not observed, of all partitions"),
)

EVENT: Final = (
    Column("event_id", "string", "deterministic: the same change gives the same id"),
    Column("event", "string", "kind of the event"),
    Column("event_broker", "int", "broker it is about"),
    Column("detail", "string", "one short sentence, where the kind does not say all"),
)

OCCURRENCE: Final = (
    required("occurred_not_before", "timestamp", "earliest time at which it can have occurred"),
    required(
        "occurred_not_after",
        "timestamp",
        "latest such time; equal to occurred_not_before where the metadata log gives the time",
    ),
    required("collected_at", "timestamp", "when the source read it"),
    required("source", "string", "name of the source, <kind>:<collector>"),
)

WHY: Final = (
    Column("cause", "string", "why it changed; the likeliest cause if ambiguous"),
    Column("evidence", "string", "proven, ambiguous or inferred"),
    Column("candidates", "string[]", "all possible causes if ambiguous, the likeliest first"),
)

INCIDENT: Final = (
    required("incident_id", "string", "kind of its first evidence, whatever class it became later, and its id"),
    required("incident_class", "string", "class; it may become more severe while the incident is open"),
    required("opened_at", "timestamp", "when the first change happened, at the earliest"),
    required("updated_at", "timestamp", "newest change of it; counts and seconds are up to here"),
    Column("closed_at", "timestamp", "its last change; null while it is open"),
    Column("merged_into", "string", "the incident that this one turned out to be part of"),
    required("summary", "string", "one sentence: what happened, which brokers and partitions, how severe"),
    Column("suspects", [(
        Column("broker", "int", "broker id"),
        Column("score", "double", "how much it explains alone, 0 to 1"),
    )], "brokers that explain it"),
    Column("brokers", "int[]", "brokers that left an ISR or went away in it"),
    Column("partitions", "long", "partitions it affected"),
    Column("topic_count", "long", "topics it affected"),
    Column("topics", "string[]", "their names, the first twenty in order"),
    Column("causes", [(
        Column("cause", "string", "cause of changes"),
        Column("changes", "long", "number of changes"),
    )], "why partitions changed"),
    Column("under_replicated_now", "long", "partitions that are under-replicated because of it, as of updated_at"),
    Column("under_min_isr_now", "long", "partitions that are under min ISR because of it, as of updated_at"),
    Column("offline_now", "long", "partitions that are offline because of it, as of updated_at"),
    Column("under_replicated_peak", "long", "largest under_replicated_now"),
    Column("under_min_isr_peak", "long", "largest under_min_isr_now"),
    Column("offline_peak", "long", "largest offline_now"),
    Column("under_replicated_seconds", "double", "time with at least one such partition, as of updated_at"),
    Column("under_min_isr_seconds", "double", "time with at least one such partition, as of updated_at"),
    Column("offline_seconds", "double", "time with at least one such partition, as of updated_at"),
    Column("under_replicated_partition_seconds", "double", "sum of this time over the partitions, as of updated_at"),
    Column("under_min_isr_partition_seconds", "double", "sum of this time over the partitions, as of updated_at"),
    Column("offline_partition_seconds", "double", "sum of this time over the partitions, as of updated_at"),
    Column("isr_shrinks", "long", "changes in which a broker left the ISR"),
    Column("isr_expands", "long", "changes in which a broker joined the ISR"),
    Column("leader_changes", "long", "changes of the leader"),
    Column("unclean_elections", "long", "leaders elected from outside ISR and ELR"),
    Column("evidence_events", "long", "number of events that are its evidence"),
    Column("event_ids", "string[]", "ids of the first twenty of these events, in replication_events"),
    Column("carried", "string", "state that the job needs to continue it; null once it can no longer change"),
    Column("severity", "string", "info, warning or critical: no harm; fewer copies; writes refused or records lost"),
    Column("consequence", "string", "what it means for clients, or meant"),
    Column("next_step", "string", "what to do first"),
    Column("recovered_at", "timestamp", "its last change, if nothing is left to fix; it may last until it is closed"),
    Column("closes_at", "timestamp", "when it closes if nothing more happens; null while ongoing and once closed"),
    Column("is_rolling", "boolean", "brokers went down in turn: it closes after job.incident_rolling_gap"),
    Column("short_id", "string", "name of the cluster when it was opened, and a number that is unique under that name"),
)  # fmt: skip

# Configured minima, as rows of a cluster carry them.
TOPIC_MIN_ISR: Final = Column("topic_min_isr", [(
    Column("topic", "string", "topic name"),
    Column("origin", "string", "log or describe"),
    Column("min_isr", "int", "min.insync.replicas"),
    Column("offset", "long", "metadata log offset that set it"),
)], 'configured minima per topic; the topic "" is the default of the cluster')  # fmt: skip

DISKLESS_TOPICS: Final = Column("diskless_topics", [(
    Column("topic", "string", "topic name"),
    Column("origin", "string", "log or describe"),
    Column("is_diskless", "boolean", "diskless.enable; null: not set any more"),
    Column("offset", "long", "metadata log offset that set it"),
)], "topics for which diskless.enable is or was set (KIP-1150)")  # fmt: skip
