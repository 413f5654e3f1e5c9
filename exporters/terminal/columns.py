"""The columns of each subject for people: what a cell shows of a row, and the colour of the row.

An unknown value is ``?``, never 0. A table has room for few columns: of some it leaves out what is 0, or unknown, of
every row; ``-o wide`` has more, ``-o json`` all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.answers.brokers import announced_work
from exporters.answers.groups import NAMELESS, is_in_trouble
from exporters.answers.partitions import missing_brokers, name_of
from exporters.read_model.times import SECOND, span
from exporters.terminal.output import UNKNOWN
from exporters.terminal.table_layout import SENTENCE, WORDS, Field
from streaming.contracts.conditions import Condition
from streaming.contracts.health import AT_MIN_ISR, OFFLINE, PARTITIONS, UNDER_MIN_ISR, UNDER_REPLICATED
from streaming.contracts.identifiers import UNSEEN_LEADER

if TYPE_CHECKING:
    from exporters.read_model.times import Clock

Row = Mapping[str, Any]
Rows = Sequence[Row]
Text = Callable[[Row], str]
STATE_STYLES: Final = {UNDER_REPLICATED: "yellow", AT_MIN_ISR: "yellow", UNDER_MIN_ISR: "red", OFFLINE: "bold red"}
BROKER_STYLES: Final = {"fenced": "red", "shutting down": "yellow", "active": "green"}
_ENDINGS: Final = ("_partitions", "_seconds")
_MOST_PARTITIONS: Final = 3
_UNIT: Final = 1024


class SubjectColumns(NamedTuple):
    """Look of a subject: its columns, which may depend on the rows, and the colour of a row."""

    fields: Callable[[Rows, Clock], tuple[Field, ...]]
    style: Callable[[Row], str]


# Formats.


def text(name: str) -> Text:
    """Return a function that formats a column of a row for a terminal."""

    def formatted(row: Row) -> str:
        value = row.get(name)
        if value is None:
            return UNKNOWN
        if isinstance(value, bool):
            return "yes" if value else "no"
        if name.endswith("_seconds") and isinstance(value, int | float):
            return span(value)
        if isinstance(value, float):
            return f"{value:.2f}"
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        return f"{value:,}" if isinstance(value, int) else str(value)

    return formatted


def column(name: str, title: str | None = None, *, below: int = 0, is_wide: bool = False) -> Field:
    """Return a column of words, titled by its name."""
    return Field(_title(name) if title is None else title, text(name), below=below, is_wide=is_wide)


def numbers(*names: str, below: int = 0, is_wide: bool = False) -> tuple[Field, ...]:
    """Return columns titled by their names, without the endings that name the unit."""
    return tuple(Field(_title(name), text(name), is_number=True, below=below, is_wide=is_wide) for name in names)


def _title(name: str) -> str:
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name.replace("_", " ").replace("isr", "ISR")


def size(name: str) -> Text:
    """Return a function that formats bytes in the largest unit of which there is one."""

    def formatted(row: Row) -> str:
        if row[name] is None:
            return UNKNOWN
        size, units = float(row[name]), ["PiB", "TiB", "GiB", "MiB", "KiB"]
        unit = ""
        while size >= _UNIT and units:
            size, unit = size / _UNIT, units.pop()
        return f"{size:.1f} {unit}" if unit else f"{size:.0f} B"

    return formatted


def _first(names: Iterable[str] | None) -> str:
    """Return the first of many names, and how many more there are."""
    listed = list(names or ())
    more = len(listed) - _MOST_PARTITIONS
    return ",".join(listed[:_MOST_PARTITIONS]) + (f" and {more} more" if more > 0 else "")


def _always(*fields: Field) -> Callable[[Rows, Clock], tuple[Field, ...]]:
    return lambda _rows, _clock: fields


def _age(name: str = "sample_age_seconds") -> Field:
    return Field("sample age", text(name), is_number=True, below=3)


def _plain(_: Row) -> str:
    return ""


def _stale(row: Row) -> str:
    return "dim" if row["is_stale"] else ""


# Clusters, topics and partitions.


def _cluster_style(row: Row) -> str:
    if row["is_stale"]:
        return "dim"
    states = (state for state in (OFFLINE, UNDER_MIN_ISR, AT_MIN_ISR, UNDER_REPLICATED) if row[f"{state}_partitions"])
    return next((STATE_STYLES[state] for state in states), "")


_CLUSTERS: Final = SubjectColumns(
    _always(
        column("cluster"),
        Field("data age", text("data_age_seconds"), is_number=True),
        Field("offline", text("offline_partitions"), is_number=True),
        *numbers("under_min_isr_partitions", "at_min_isr_partitions", "under_replicated_partitions"),
        *numbers(PARTITIONS, below=2),
        *numbers("open_incidents", "fenced_brokers", below=1),
        *numbers("brokers", "controller", below=3),
        column("primary_source", "source", below=4),
        *numbers("diskless_partitions", "isr_shrinks", "leader_changes", "unclean_elections", is_wide=True),
    ),
    _cluster_style,
)
_TOPICS: Final = SubjectColumns(
    _always(
        column("topic"),
        *numbers("partitions", "offline_partitions", "under_min_isr_partitions", "under_replicated_partitions"),
        *numbers("isr_shrinks", "leader_changes", "unclean_elections", below=2),
        *(
            Field(f"partition time {field.title}", field.text, is_number=True, is_wide=True)
            for field in numbers("offline_seconds", "under_min_isr_seconds", "under_replicated_seconds")
        ),
    ),
    _stale,
)


def _partition(row: Row) -> str:
    return name_of(row["topic"], row["partition"])


def _health(row: Row) -> str:
    """Name the state, and whether one loss more makes an under-replicated one refuse acks=all writes."""
    state = str(row["health"]).replace("_", " ").replace("isr", "ISR")
    is_at_minimum = row["health"] == UNDER_REPLICATED and row["is_at_min_isr"]
    return f"{state}, at min ISR" if is_at_minimum else state


def _leader(row: Row) -> str:
    return UNKNOWN if row["leader"] == UNSEEN_LEADER else "none" if row["leader"] < 0 else str(row["leader"])


def _cause(row: Row) -> str:
    evidence = f" ({row['last_evidence']})" if row["last_evidence"] else ""
    return f"{row['last_cause']}{evidence}" if row["last_cause"] else ""


def _partitions(_rows: Rows, _clock: Clock) -> tuple[Field, ...]:
    return (
        Field("partition", _partition),
        Field("health", _health, wraps=WORDS),
        Field("for", lambda row: _lasting(row["health_seconds"]), is_number=True),
        Field("leader", _leader, is_number=True),
        Field("ISR", lambda row: text("isr")(row) or "empty"),
        Field("missing", lambda row: ",".join(map(str, missing_brokers(row)))),
        Field("min ISR", text("min_isr_effective"), is_number=True, below=2),
        Field("last cause", _cause, wraps=WORDS, below=1),
        column("replicas", is_wide=True),
        *numbers("leader_epoch", "partition_epoch", "isr_shrinks", "leader_changes", "unclean_elections", is_wide=True),
    )


def _lasting(seconds: float | None) -> str:
    """Return how long something lasts; nothing where it has no end, or none that is known."""
    return "" if seconds is None else span(seconds)


# Conditions.


def _is_over(row: Row) -> bool:
    """Return whether it does not last any more; an election is a moment, which is not over while it is raised."""
    return row["ended_at"] is not None and row["condition"] != Condition.UNCLEAN_ELECTION


def _conditions(_rows: Rows, clock: Clock) -> tuple[Field, ...]:
    def lasting(row: Row) -> str:
        until = row["ended_at"] if _is_over(row) else clock.now
        return f"{span((until - row['since']) / SECOND)}{', over' if _is_over(row) else ''}"

    return (
        column("condition"),
        Field("with", lambda row: row["subject"] or ("the cluster" if row["cluster"] else "isrwatch"), wraps=WORDS),
        column("severity"),
        Field(f"since ({clock.zone})", lambda row: clock.short(row["since"]).partition(".")[0]),
        Field("for", lasting, is_number=True),
        Field("incident", lambda row: row["incident"] or ""),
    )


# Brokers.

_SELDOM: Final = ("under_min_isr_partitions", "offline_partitions", "unknown_min_isr_partitions", "missed_changes")
_RANKED: Final = ("restart_order", "suspect_score")
_LOSSES: Final = {"would_go_offline": "offline", "would_go_under_min_isr": "under min ISR"}


def _brokers(rows: Rows, clock: Clock) -> tuple[Field, ...]:
    """Return the columns of brokers; those that are empty of every broker only ``-o wide`` has."""

    def work(row: Row) -> str:
        return announced_work(dict(row), clock.now)

    def is_empty(name: str) -> bool:
        return not any(row[name] for row in rows)

    rejoins = (
        Field("to rejoin", text("replicas_to_rejoin"), is_number=True),
        Field(
            "caught up in", lambda row: text("rejoin_seconds")(row) if row["replicas_to_rejoin"] else "", is_number=True
        ),
    )
    return (
        Field("broker", text("broker"), is_number=True),
        column("broker_state", "state"),
        Field("maintenance", work, wraps=WORDS, below=1, is_wide=not any(map(work, rows))),
        *(rejoins if any(row["replicas_to_rejoin"] for row in rows) else ()),
        Field("leads", text("led_partitions"), is_number=True),
        Field("in sync", lambda row: f"{row['in_sync_partitions']:,} of {row['hosted_partitions']:,}", is_number=True),
        *(each for name in _SELDOM for each in numbers(name, is_wide=is_empty(name))),
        column("is_safe_to_stop", "safe to stop", is_wide=all(row["is_safe_to_stop"] is None for row in rows)),
        Field("a stop costs", _costs, wraps=WORDS, below=1, is_wide=not any(map(_costs, rows))),
        *(each for name in _RANKED for each in numbers(name, below=2, is_wide=is_empty(name))),
        column("rack", is_wide=True),
        Field("address", _address, is_wide=True),
        *numbers("broker_epoch", "logs_to_recover", "rejoin_lag", is_wide=True),
        Field("response", lambda row: _milliseconds(row["response_micros"], 1e6), is_number=True, is_wide=True),
    )


def _address(row: Row) -> str:
    return UNKNOWN if row["host"] is None else f"{row['host']}:{row['port']}"


def _costs(row: Row) -> str:
    """Return how many partitions would be worse off, by the state that they would be in; nothing for none."""
    if all(row[name] is None for name in _LOSSES):
        return ""
    counts = {state: row[name] for name, state in _LOSSES.items()}
    return ", ".join(
        f"{UNKNOWN if count is None else f'{count:,}'} {state}" for state, count in counts.items() if count != 0
    )


# Groups and transactions.


def _groups(_: Rows, clock: Clock) -> tuple[Field, ...]:
    return (
        Field("group", lambda row: row["group"] or NAMELESS),
        Field("state", _group_state, wraps=WORDS),
        *numbers("members", PARTITIONS),
        Field("lag", _lag, is_number=True, wraps=WORDS),
        Field("behind", _behind, is_number=True),
        Field("lost", text("records_lost"), is_number=True, below=2),
        Field("worst", text("worst_partition"), below=1),
        _age(),
        Field(
            f"last commit ({clock.zone})",
            lambda row: UNKNOWN if row["committed_at"] is None else clock.short(row["committed_at"]),
            below=4,
        ),
        column("group_protocol", "protocol", is_wide=True),
        column("assignor", is_wide=True),
        *numbers("coordinator", is_wide=True),
    )


def _group_state(row: Row) -> str:
    """Return the state, and for how long a query of Spark may have stopped."""
    idle, state = row["idle_seconds"], text("group_state")(row)
    return state if idle is None else f"{state}, last batch {span(idle)} ago"


def _lag(row: Row) -> str:
    """Return the lag, or of how many partitions it is unknown: the sum of the others would be too low."""
    unknown = row["partitions_of_unknown_lag"]
    if not unknown:
        return text("lag")(row)
    return f"unknown of {unknown:,} partition{'' if unknown == 1 else 's'}"


def _behind(row: Row) -> str:
    """Return for how long the group is behind, or, while that is unknown of a partition, for how long at least."""
    at_least = row["lag_seconds_at_least"]
    return f">= {span(at_least)}" if row["lag_seconds"] is None and at_least else text("lag_seconds")(row)


def _transaction_state(row: Row) -> str:
    """Return the state, and what is wrong with it: none of Kafka's states says so."""
    wrong = "hanging" if row["is_hanging"] else "late" if row["is_late"] else ""
    state = "" if row["coordinator"] is None else str(row["transaction_state"])
    return ", ".join(filter(None, (wrong, state)))


def _milliseconds(value: float | None, per_second: float = 1e3) -> str:
    return UNKNOWN if value is None else span(value / per_second)


_TRANSACTIONS: Final = SubjectColumns(
    _always(
        column("transactional_id", "transaction"),
        Field("producer", lambda row: f"{row['producer_id']}/{row['producer_epoch']}", is_number=True),
        Field("state", _transaction_state),
        Field("open for", text("open_seconds"), is_number=True),
        Field("timeout", lambda row: _milliseconds(row["timeout_ms"]), is_number=True, below=2),
        Field("broker", text("coordinator"), is_number=True),
        Field("partitions", lambda row: _first(row["transaction_partitions"]), wraps=WORDS, below=1),
        _age(),
    ),
    lambda row: "red" if row["is_hanging"] else "yellow" if row["is_late"] else "",
)

# Replicas, reassignments, directories.

_REPLICAS: Final = SubjectColumns(
    _always(
        Field("replica", _partition),
        *numbers("broker", "lag"),
        Field("behind for", text("behind_seconds"), is_number=True),
        Field("size", size("size_bytes"), is_number=True),
        Field("log dir", lambda row: row["log_dir"] or UNKNOWN, below=1),
        _age(),
    ),
    lambda row: "yellow" if row["behind_seconds"] else "",
)
_REASSIGNMENTS: Final = SubjectColumns(
    _always(
        Field("partition", _partition),
        column("adding_replicas", "adding"),
        column("removing_replicas", "removing"),
        column("replicas_to_go", "waits for"),
        Field("to copy", size("bytes_to_go"), is_number=True),
        *numbers("records_to_go", below=1),
    ),
    _stale,
)


def _directory_state(row: Row) -> str:
    state = "online" if row["is_online"] else "offline"
    return f"{state}, cordoned" if row["is_cordoned"] else state


_DIRECTORIES: Final = SubjectColumns(
    _always(
        *numbers("broker"),
        column("log_dir"),
        Field("state", _directory_state),
        Field("replicas", text("hosted_replicas"), is_number=True, below=2),
        Field("size", size("replica_bytes"), is_number=True),
        Field("free", size("usable_bytes"), is_number=True),
        Field("of", size("total_bytes"), is_number=True, below=1),
        Field(
            "used",
            lambda row: UNKNOWN if row["used_percent"] is None else f"{row['used_percent']:.0f} %",
            is_number=True,
        ),
        Field("full in", lambda row: _lasting(row["seconds_until_full"]), is_number=True),
        _age(),
    ),
    lambda row: "red" if not row["is_online"] else "yellow" if row["is_cordoned"] else "",
)


# The quorum, settings, metrics.


def _quorum(rows: Rows, _: Clock) -> tuple[Field, ...]:
    nodes = [(row["cluster_id"], row["node"]) for row in rows]
    return (
        *numbers("node"),
        column("role"),
        column("directory_id", "directory", is_wide=len(nodes) == len(set(nodes))),
        *numbers("controller_epoch", "log_end_offset", "lag", "behind_seconds", "high_watermark"),
        _age(),
    )


_SHOWN: Final[Mapping[str, SubjectColumns]] = {
    "clusters": _CLUSTERS,
    "conditions": SubjectColumns(_conditions, lambda row: "dim" if _is_over(row) else ""),
    "topics": _TOPICS,
    "partitions": SubjectColumns(_partitions, lambda row: STATE_STYLES.get(row["health"], "")),
    "brokers": SubjectColumns(_brokers, lambda row: broker_style(row["broker_state"])),
    "groups": SubjectColumns(_groups, lambda row: "yellow" if is_in_trouble(dict(row)) else ""),
    "transactions": _TRANSACTIONS,
    "replicas": _REPLICAS,
    "reassignments": _REASSIGNMENTS,
    "directories": _DIRECTORIES,
    "quorum": SubjectColumns(_quorum, lambda row: "yellow" if row["is_voter"] and row["lag"] is None else ""),
    "settings": SubjectColumns(
        _always(column("subject"), *(Field(name, text(name), wraps=SENTENCE) for name in ("reason", "fix"))), _plain
    ),
    "metrics": SubjectColumns(
        _always(
            column("metric"),
            *numbers("broker"),
            Field("value", lambda row: f"{row['metric_value']:,.6g}", is_number=True),
            _age(),
        ),
        _plain,
    ),
}


def shown_of(subject: str) -> SubjectColumns:
    """Return how a subject is shown."""
    return _SHOWN[subject]


def broker_style(state: str) -> str:
    """Return the colour of a broker's state."""
    return BROKER_STYLES.get(state, "dim")
