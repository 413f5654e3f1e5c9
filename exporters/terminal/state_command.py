"""``isrwatch state``: the present state, or the state as of a version or a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from exporters.metrics.sample_ages import oldest_ages
from exporters.read_model.reader import TablesReader
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from exporters.read_model.state_as_of import state_as_of
from exporters.read_model.times import Clock, span
from exporters.read_model.unreadable import UnreadableTables
from exporters.read_model.versions import as_of as version_as_of
from exporters.terminal import live_view
from exporters.terminal.broker_columns import further, further_columns
from exporters.terminal.broker_fields import broker_fields, broker_line_fields, said_of_work
from exporters.terminal.broker_speeds import SPEED_COLUMNS, said_of_speeds, speeds_by_broker
from exporters.terminal.consequences import Consequences
from exporters.terminal.options import (
    AsOfOption,
    ClusterOption,
    ConfigOption,
    FormatOption,
    LocalOption,
    TablesOption,
    TopicOption,
    folder_of,
    refuse_unknown,
)
from exporters.terminal.output import RowFormat, RowOutput, output_of, until_closed
from exporters.terminal.polled import said_of_polling
from exporters.terminal.reassignments import show_reassignments
from exporters.terminal.recovery import with_recovery
from exporters.terminal.state_samples import (
    show_directories,
    show_groups,
    show_metrics,
    show_missed,
    show_quorum,
    show_replicas,
    show_settings,
    show_transactions,
)
from exporters.terminal.state_selection import StateSelection, columns_of_rows, print_rows
from exporters.terminal.state_view import (
    broker_rows,
    cluster_row,
    columns_as_fields,
    counted_until,
    freshness_columns,
    partition_fields,
    partition_rows,
    partition_style,
    text,
    topic_rows,
)
from exporters.terminal.table_layout import SENTENCE, Field
from streaming.cluster_settings import each_cluster
from streaming.contracts.health import DISKLESS, PARTITIONS
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_STATE_TABLE, SOURCE_PROGRESS
from streaming.errors import ConfigurationError, TableUnreadable
from streaming.name_patterns import patterns_of
from streaming.settings import load
from streaming.terminal import print_wrapped

if TYPE_CHECKING:
    from streaming.delta.store.place import Place

Row = dict[str, Any]
Show = Callable[[RowOutput, StateSelection], None]
Tables = tuple[tuple[bool, Show], ...]
TABLE_OPTIONS: Final = (
    "--clusters, --brokers, --topics, --groups, --reassignments, --replicas, --directories, --quorum, --transactions, "
    "--settings, --metrics and --missed"
)
SHOW_SAMPLES: Final = (
    show_groups,
    show_reassignments,
    show_replicas,
    show_directories,
    show_quorum,
    show_transactions,
    show_settings,
    show_metrics,
    show_missed,
)
STATE_TABLES: Final = frozenset(
    table.name for table in (PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)
)


def state(  # noqa: PLR0913 - one parameter per option
    *,
    clusters: Annotated[bool, typer.Option("--clusters", help="One row per cluster.")] = False,
    brokers: Annotated[bool, typer.Option("--brokers", help="One row per broker.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="One row per topic: totals of its partitions.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="One row per group: its state and its lag.")] = False,
    reassignments: Annotated[bool, typer.Option("--reassignments", help="One row per partition on the move.")] = False,
    replicas: Annotated[bool, typer.Option("--replicas", help="One row per replica that is behind: its lag.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Show unsafe settings and how to fix them.")] = False,
    directories: Annotated[bool, typer.Option("--directories", help="One row per log directory: how full.")] = False,
    quorum: Annotated[bool, typer.Option("--quorum", help="One row per member of the metadata quorum.")] = False,
    transactions: Annotated[bool, typer.Option("--transactions", help="One row per open transaction.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="One row per metric that an agent exports.")] = False,
    missed: Annotated[bool, typer.Option("--missed", help="Compare ISR changes of brokers and of tables.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Include what is healthy.")] = False,
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    as_of: AsOfOption = None,
    row_format: FormatOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show the unhealthy partitions, worst first; or another table.

    Stale data is marked STALE with its age; an unknown value is "?".

    Example: isrwatch state --topic 'orders-*' --as-of 15m
    """
    of_state = ((clusters, _clusters), (brokers, _brokers), (topics, _topics))
    selected = (groups, reassignments, replicas, directories, quorum, transactions, settings, metrics, missed)
    of_samples = tuple(zip(selected, SHOW_SAMPLES, strict=True))
    show = _chosen(of_state, of_samples, as_of)
    now = time.time_ns() // 1_000
    output = output_of(row_format, Clock(now, local))
    folder = folder_of(tables, config_file)
    version = None if as_of is None else version_as_of(folder, as_of, output.clock)
    unreadable = UnreadableTables()
    snapshot = _present(folder, unreadable) if version is None else state_as_of(folder, version, unreadable)
    stale_after, ages, polls = _configured(config_file)
    then = now if version is None else snapshot.read_at
    rows = [(each, cluster_row(each, then, stale_after)) for each in _selected(snapshot, cluster, topic)]
    selection = StateSelection(rows, tuple(topic or ()), folder, version is None, everything, unreadable, ages, polls)
    with until_closed():
        if version is not None:
            output.say(f"as of version {version}, committed {output.clock.iso(snapshot.read_at)}")
        _headings(output, selection, then)
        show(output, selection)
    unreadable.raise_if_any()


def _configured(config_file: Path | None) -> tuple[float, Mapping[str, float], Mapping[str, float]]:
    """Return in seconds up to which age state counts, the samples of each table, and how often clusters are polled."""
    configured = load(config_file)
    stale_after = configured.export.stale_after
    polls = {each.cluster.name: each.collect.poll_interval for each in each_cluster(config_file)}
    return stale_after, oldest_ages(stale_after, configured.collect), polls


def _chosen(of_state: Tables, of_samples: Tables, as_of: str | None) -> Show:
    """Return what prints the table that is selected; of samples there is no earlier state."""
    chosen = [show for is_selected, show in (*of_state, *of_samples) if is_selected]
    if len(chosen) > 1:
        raise ConfigurationError(f"{TABLE_OPTIONS} are different tables; give one of them")
    if as_of is not None and any(is_selected for is_selected, _ in of_samples):
        raise ConfigurationError("of samples only the newest are kept: leave --as-of out")
    return chosen[0] if chosen else _partitions


def _present(folder: Place, unreadable: UnreadableTables) -> ReplicationSnapshot:
    """Read the present state from the tables that can be read."""
    reader = TablesReader(folder)
    try:
        snapshot = reader.refresh()
    except TableUnreadable as error:
        with suppress(TableUnreadable):
            unreadable.add(str(error))
            return reader.state_alone()
        raise
    for status in reader.statuses:
        if status.table in STATE_TABLES and status.error is not None:
            unreadable.add(status.error)
    return snapshot


def _selected(
    snapshot: ReplicationSnapshot, clusters: list[str] | None, topics: list[str] | None
) -> list[ClusterSnapshot]:
    """Return the clusters that are asked for, by name, or all; refuse names that none of them has."""
    by_name = sorted(snapshot.clusters.values(), key=lambda each: each.name)
    refuse_unknown(clusters, (name for each in by_name for name in (each.name, each.cluster.cluster_id)), "cluster")
    refuse_unknown(topics, (topic.topic for each in by_name for topic in each.topics.values()), "topic")
    chosen = patterns_of(*(clusters or ()))
    return [each for each in by_name if chosen(each.name, each.cluster.cluster_id)]


def _headings(output: RowOutput, selection: StateSelection, now: int) -> None:
    for cluster, row in selection.clusters:
        if output.is_for_people and output.console.is_terminal:
            print_wrapped(output.console, live_view.heading(cluster, now))
        if row["is_stale"]:
            age = row["data_age_seconds"]
            then = "ago; its state is" if selection.is_now else "earlier; its state was"
            last = "never observed" if age is None else f"last observed {span(age)} {then} that old"
            output.say(f"STALE: cluster {cluster.name} was {last}", style="bold red")


def _partitions(output: RowOutput, selection: StateSelection) -> None:
    consequences = Consequences(selection.folder if selection.is_now else None, selection.unreadable)
    rows: list[Row] = []
    for cluster, cluster_columns in selection.clusters:
        of_cluster = partition_rows(
            cluster, freshness_columns(cluster_columns), selection.topics, healthy=selection.everything
        )
        rows += [row | {"consequence": consequences.of(cluster, row)} for row in of_cluster]
    now = output.clock.now
    until: dict[str, int | None] = {
        cluster.cluster.cluster_id: counted_until(cluster, now if selection.is_now and not row["is_stale"] else None)
        for cluster, row in selection.clusters
    }
    fields = partition_fields(until)
    if any(row["consequence"] for row in rows):
        fields = (*fields, Field("consequence", lambda row: row["consequence"] or "", wraps=SENTENCE, below=1))
    print_rows(output, selection, rows, fields, partition_style)
    if not rows and output.is_for_people:
        clusters = [row for _, row in selection.clusters]
        none = "no unhealthy partitions" if any(row["partitions"] for row in clusters) else "no partitions"
        output.say(f"{none} when they were last observed" if any(row["is_stale"] for row in clusters) else none)
    if selection.is_now and output.is_for_people:
        for sentence in said_of_work(rows, selection, output.clock):
            output.say(sentence)


def _clusters(output: RowOutput, selection: StateSelection) -> None:
    rows = [row for _, row in selection.clusters]
    states = [f"{state}_partitions" for state in live_view.STATES if state not in {PARTITIONS, DISKLESS}]
    if any(row["diskless_partitions"] for row in rows):
        states.append("diskless_partitions")
    totals = columns_as_fields(("isr_shrinks", "leader_changes", "unclean_elections"), below=1)
    leading = (Field("cluster", text("cluster")), Field("data age", text("data_age_seconds"), is_number=True))
    fields = (*leading, *columns_as_fields(("controller", "brokers", PARTITIONS, *states)), *totals)
    output.print(rows, fields, columns_of_rows(rows), _stale)


def _brokers(output: RowOutput, selection: StateSelection) -> None:
    names, more = tuple(further()) if selection.is_now else (), dict[str, dict[int, Mapping[str, Any]]]()
    with selection.unreadable.collected():
        more = further_columns(selection.folder, names) if names else {}
    speeds = dict[tuple[str, int], Row]()
    with selection.unreadable.collected():
        speeds = speeds_by_broker(selection.folder, output.clock.now) if selection.is_now else {}
    nothing: Row = dict.fromkeys(SPEED_COLUMNS) if selection.is_now else {}
    rows = [
        {**row, **speeds.get((cluster.cluster.cluster_id, row["broker"]), nothing)}
        for cluster, cluster_columns in selection.clusters
        for row in broker_rows(
            cluster, freshness_columns(cluster_columns), names, more.get(cluster.cluster.cluster_id, {})
        )
    ]
    with_recovery(rows, selection, output.clock.now)
    is_table = output.format is RowFormat.TABLE
    fields = broker_fields(rows, output.clock) if is_table else broker_line_fields(rows, output.clock, names)
    print_rows(output, selection, rows, fields, lambda row: live_view.broker_style(row["broker_state"]))
    if output.is_for_people:
        for sentence in said_of_polling((cluster for cluster, _ in selection.clusters), selection.poll_intervals):
            output.say(sentence)
    if not is_table:
        return
    is_one_of_many = len(selection.clusters) > 1
    for row in rows:  # a sentence has no room next to so many columns
        who = f"broker {row['broker']}" + (f" of {row['cluster']}" if is_one_of_many else "")
        if row.get("liveness_advice") is not None:
            state_in_words, *_ = row["broker_liveness"].split(":")  # that it is unknown which is in the advice
            output.say(f"{who} is {state_in_words}: {row['liveness_advice']}", style="")
        elif row.get("restart_reason") is not None:
            output.say(f"restart of {who}: {row['restart_reason']}", style="")
    for sentence in said_of_speeds(rows, output.clock.now, names_clusters=is_one_of_many):
        output.say(sentence, style="yellow")


def _topics(output: RowOutput, selection: StateSelection) -> None:
    rows = [
        row
        for cluster, cluster_columns in selection.clusters
        for row in topic_rows(cluster, freshness_columns(cluster_columns), selection.topics)
    ]
    names = ("partitions", "offline_partitions", "under_min_isr_partitions", "under_replicated_partitions")
    spans = ("offline_seconds", "under_min_isr_seconds", "under_replicated_seconds")
    counts = columns_as_fields(("isr_shrinks", "leader_changes", "unclean_elections"), below=2)
    times = tuple(
        Field(f"partition time {field.title}", field.text, is_number=True, below=1)
        for field in columns_as_fields(spans)
    )
    print_rows(
        output, selection, rows, (Field("topic", text("topic")), *columns_as_fields(names), *counts, *times), _stale
    )


def _stale(row: Mapping[str, Any]) -> str:
    return "dim" if row["is_stale"] else ""
