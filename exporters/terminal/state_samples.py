"""Tables of ``isrwatch state`` from samples: groups, directories, quorum, transactions, settings, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.metrics.quorum import looked_at
from exporters.read_model.cluster_samples import member_of
from exporters.read_model.times import span
from exporters.terminal.groups import group_rows
from exporters.terminal.output import UNKNOWN
from exporters.terminal.quantities import first, lasting, milliseconds, percent, size
from exporters.terminal.sample_rows import (
    directory_rows,
    meter_rows,
    metric_rows,
    quorum_rows,
    replica_rows,
    transaction_rows,
)
from exporters.terminal.settings import SampledSettings, setting_rows, settings_by_cluster
from exporters.terminal.silent_brokers import (
    DIRECTORIES,
    REPLICAS,
    directories_asked_at,
    is_any_fresh,
    is_any_silent,
    replicas_asked_at,
    said_of_cordoned,
    said_of_silent,
)
from exporters.terminal.state_selection import print_rows
from exporters.terminal.state_view import columns_as_fields, text
from exporters.terminal.table_layout import SENTENCE, WORDS, Field
from streaming.contracts.health import PARTITIONS
from streaming.contracts.quorum_members import replaced, replaced_sentence
from streaming.contracts.sample_tables import LOG_DIRECTORIES, REPLICA_OFFSETS, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.terminal.output import RowOutput
    from exporters.terminal.silent_brokers import AskedAt
    from exporters.terminal.state_selection import StateSelection
    from streaming.contracts.columns import Table

    Row = dict[str, Any]

_EMPTY: Final = '""'
"""The group of those that commit without a name."""
_AGE: Final = columns_as_fields(("sample_age_seconds",), below=3)


def show_groups(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per group."""
    numbers = (
        *columns_as_fields(("members", PARTITIONS)),
        Field("lag", _lag, is_number=True, wraps=WORDS),
        Field("lost", text("records_lost"), is_number=True),
    )
    who = (
        Field("group", lambda row: row["group"] or _EMPTY),
        Field("protocol", text("group_protocol"), below=2),
        Field("state", _group_state, wraps=WORDS),
    )
    behind = Field("behind", _behind, is_number=True)

    def last_commit(row: Mapping[str, Any]) -> str:
        return UNKNOWN if row["committed_at"] is None else output.clock.short(row["committed_at"])

    _show(
        output,
        selection,
        lambda: group_rows(selection.folder, selection.topics, output.clock),
        (
            *(*who, *numbers, behind, *_AGE),
            Field("last commit", last_commit, below=4),
            Field("worst", text("worst_partition"), below=1),
            Field("what", text("reason"), wraps=SENTENCE, below=5),
        ),
        lambda row: "yellow" if row["losing_partitions"] or row["stuck_partitions"] or row["beyond"] else "",
        "no samples of groups",
    )


def show_replicas(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per replica that is behind its leader; with ``--all`` one per replica."""
    fields = (
        Field("replica", lambda row: f"{row['topic']}-{row['partition']}"),
        Field("broker", text("broker"), is_number=True),
        Field("lag", text("lag"), is_number=True),
        Field("behind for", text("behind_seconds"), is_number=True),
        Field("size", size("size_bytes"), is_number=True),
        Field("log dir", lambda row: row["log_dir"] or UNKNOWN, below=1),
    )
    _show(
        output,
        selection,
        lambda: replica_rows(selection.folder, selection.topics, output.clock.now, with_caught_up=selection.everything),
        (*fields, *_AGE),
        lambda row: "yellow" if row["behind_seconds"] else "",
        _without_rows(output, selection, replicas_asked_at, REPLICA_OFFSETS, "no replica is behind", REPLICAS),
    )
    _say_silent(output, selection, replicas_asked_at, REPLICA_OFFSETS, REPLICAS)


def show_directories(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per log directory of each broker."""
    fields = (
        Field("broker", text("broker"), is_number=True),
        Field("log dir", text("log_dir"), below=1),
        Field("state", _directory_state),
        Field("replicas", text("hosted_replicas"), is_number=True),
        Field("size", size("replica_bytes"), is_number=True),
        Field("free", size("usable_bytes"), is_number=True),
        Field("of", size("total_bytes"), is_number=True),
        Field("used", lambda row: percent(row["used_percent"]), is_number=True),
        Field("full in", lambda row: lasting(row["seconds_until_full"]), is_number=True),
    )
    _show(
        output,
        selection,
        lambda: directory_rows(selection.folder, output.clock.now),
        (*fields, *_AGE),
        lambda row: "red" if not row["is_online"] else "yellow" if row["is_cordoned"] else "",
        "no samples of log directories",
    )
    for sentence in said_of_cordoned(selection) if output.is_for_people else ():
        output.say(sentence, style="yellow")
    _say_silent(output, selection, directories_asked_at, LOG_DIRECTORIES, DIRECTORIES)


def _directory_state(row: Mapping[str, Any]) -> str:
    state = "online" if row["is_online"] else "offline"
    return f"{state}, cordoned" if row["is_cordoned"] else state


def show_quorum(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per member of the metadata quorum."""
    names = ("controller_epoch", "log_end_offset", "lag", "behind_seconds", "high_watermark")
    twice = [replaced(each.samples.quorum_members or (), member_of) for each, _ in selection.clusters]
    directory = (Field("directory", text("directory_id")),) if any(twice) else ()
    who = (Field("node", text("node"), is_number=True), Field("role", text("role")), *directory)
    _show(
        output,
        selection,
        lambda: quorum_rows(selection.folder, output.clock.now),
        (*who, *columns_as_fields(names), *_AGE),
        lambda row: "yellow" if row["is_voter"] and row["lag"] is None else "",
        "no samples of the metadata quorum",
    )
    for node, (voter, observer) in (each for of_cluster in twice for each in of_cluster.items()):
        if output.is_for_people:
            output.say(replaced_sentence(node, voter.directory_id, observer.directory_id), style="yellow")


def show_transactions(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per transaction."""
    fields = (
        Field("transaction", text("transactional_id")),
        Field("producer", lambda row: f"{row['producer_id']}/{row['producer_epoch']}", is_number=True),
        Field("state", _transaction_state),
        *(Field(f"{field.title} for", field.text, is_number=True) for field in columns_as_fields(("open_seconds",))),
        Field("timeout", lambda row: milliseconds(row["timeout_ms"]), is_number=True),
        Field("broker", text("coordinator"), is_number=True),
        Field("partitions", lambda row: first(row["transaction_partitions"]), wraps=WORDS, below=1),
    )
    _show(
        output,
        selection,
        lambda: transaction_rows(selection.folder, selection.topics, output.clock.now),
        (*fields, *_AGE),
        lambda row: "red" if row["is_hanging"] else "yellow" if row["is_late"] else "",
        _without_rows(
            output, selection, _transactions_asked_at, TRANSACTIONS, "no transaction is open", "transactions"
        ),
    )


def show_settings(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per setting that is not safe."""
    samples: dict[str, SampledSettings] = {}
    with selection.unreadable.collected():
        samples = settings_by_cluster(selection.folder)
    rows: list[Row] = []
    for cluster, _ in selection.clusters:
        if (of_cluster := samples.get(cluster.cluster.cluster_id)) is not None:
            rows += setting_rows(cluster, of_cluster, selection.topics, output.clock.now)
        elif output.is_for_people:
            output.say(f"no samples of settings of cluster {cluster.name}")
    fields = tuple(
        Field(name, text(name), wraps=0 if name == "subject" else SENTENCE) for name in ("subject", "reason", "fix")
    )
    print_rows(output, selection, rows, fields, lambda _: "")
    if samples and not rows and output.is_for_people:
        output.say("nothing is wrong with the settings")


def show_metrics(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per metric of each broker."""
    fields = (
        Field("metric", text("metric")),
        Field("broker", text("broker"), is_number=True),
        Field("value", lambda row: f"{row['metric_value']:,.6g}", is_number=True),
    )
    _show(
        output,
        selection,
        lambda: metric_rows(selection.folder, output.clock.now),
        (*fields, *_AGE),
        lambda _: "",
        "no samples of broker metrics: they need an agent in collect.broker_metrics",
    )


def show_missed(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per broker and meter: the changes that it counted as leader, and those that were recorded."""
    fields = (
        Field("broker", text("broker"), is_number=True),
        Field("changes", lambda row: row["meter"].replace("_", " ")),
        *columns_as_fields(("counted", "recorded", "missed")),
        Field("since", lambda row: output.clock.iso(row["since"])),
    )
    _show(
        output,
        selection,
        lambda: meter_rows(selection.folder, output.clock.now),
        (*fields, *_AGE),
        lambda row: "yellow" if row["missed"] else "",
        "no samples of what brokers counted: it needs an agent in collect.broker_metrics",
    )


def _group_state(row: Mapping[str, Any]) -> str:
    """Return the state, and for how long a query of Spark may have stopped."""
    idle = row["idle_seconds"]
    return str(row["group_state"]) if idle is None else f"{row['group_state']}, last batch {span(idle)} ago"


def _lag(row: Mapping[str, Any]) -> str:
    """Return the lag, or of how many partitions it is unknown: the sum of the others would be too low."""
    unknown = row["partitions_of_unknown_lag"]
    if not unknown:
        return text("lag")(row)
    return f"unknown of {unknown:,} partition{'' if unknown == 1 else 's'}"


def _behind(row: Mapping[str, Any]) -> str:
    """Return for how long the group is behind, or, while that is unknown of a partition, for how long at least."""
    at_least = row["lag_seconds_at_least"]
    return f">= {span(at_least)}" if row["lag_seconds"] is None and at_least else text("lag_seconds")(row)


def _transaction_state(row: Mapping[str, Any]) -> str:
    """Return the state, and what is wrong with it: none of Kafka's states says so."""
    wrong = "hanging" if row["is_hanging"] else "late" if row["is_late"] else ""
    state = "" if row["coordinator"] is None else str(row["transaction_state"])
    return ", ".join(filter(None, (wrong, state)))


def _show(  # noqa: PLR0913, PLR0917 - what differs between the tables
    output: RowOutput,
    selection: StateSelection,
    samples: Callable[[], Iterable[Row]],
    fields: tuple[Field, ...],
    style: Callable[[Mapping[str, Any]], str],
    nothing: str,
) -> None:
    rows: list[Row] = []
    with selection.unreadable.collected():
        rows = [row for row in samples() if row["cluster_id"] in selection.cluster_ids]
    print_rows(output, selection, rows, fields, style)
    if not rows and nothing and output.is_for_people:
        output.say(nothing)


def _without_rows(  # noqa: PLR0913, PLR0917 - as above
    output: RowOutput, selection: StateSelection, asked_at: AskedAt, table: Table, none: str, subject: str
) -> str:
    """Return what a table without rows means: that there are none, by fresh samples, or that there are no samples."""
    asked = selection, asked_at, selection.oldest_ages[table.name], output.clock.now
    if not is_any_fresh(*asked):
        return f"no samples of {subject}"
    return f"of the brokers that answer, {none}" if is_any_silent(*asked) else none


def _say_silent(output: RowOutput, selection: StateSelection, asked_at: AskedAt, table: Table, subject: str) -> None:
    oldest = selection.oldest_ages[table.name]
    for sentence in said_of_silent(selection, asked_at, oldest, output.clock.now, subject=subject):
        output.say(sentence, style="yellow")


def _transactions_asked_at(cluster: ClusterSnapshot) -> dict[int, int]:
    """Return when transactions were last asked for, of no broker in particular."""
    at = looked_at(cluster)
    return {} if at is None else {-1: at}
