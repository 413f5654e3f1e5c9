"""``isrwatch state``: the present state, or the state as of a version or a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from exporters.read_model.reader import TablesReader
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from exporters.terminal import live_view
from exporters.terminal.broker_columns import IN_WORDS, further, further_columns
from exporters.terminal.consequences import Consequences
from exporters.terminal.groups import group_rows
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
from exporters.terminal.output import Field, RowOutput, output_of, until_closed
from exporters.terminal.settings import SampledSettings, setting_rows, settings_by_cluster
from exporters.terminal.state_as_of import state_as_of
from exporters.terminal.state_view import (
    broker_rows,
    cluster_row,
    columns_as_fields,
    freshness_columns,
    has_maintenance,
    maintenance,
    partition_fields,
    partition_rows,
    partition_style,
    text,
    topic_rows,
)
from exporters.terminal.time_parsing import Clock, span
from exporters.terminal.unreadable import Unreadable
from exporters.terminal.versions import as_of as version_as_of
from streaming.contracts.health import DISKLESS, PARTITIONS
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_STATE_TABLE, SOURCE_PROGRESS
from streaming.errors import ConfigurationError, TableUnreadable
from streaming.settings import load

Row = dict[str, Any]
STATE_TABLES: Final = frozenset(
    table.name for table in (PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)
)


@dataclass(frozen=True, slots=True)
class StateSelection:
    """What the options of ``isrwatch state`` select.

    Attributes:
        clusters: each with its row.
        topics: names or patterns.
        folder: of the tables.
        is_now: whether it is the present state, not one as of a version.
        everything: include healthy partitions.
        unreadable: takes the tables that cannot be read.
    """

    clusters: list[tuple[ClusterSnapshot, Row]]
    topics: tuple[str, ...]
    folder: Path
    is_now: bool
    everything: bool
    unreadable: Unreadable


def state(  # noqa: PLR0913 - one parameter per option
    *,
    clusters: Annotated[bool, typer.Option("--clusters", help="One row per cluster.")] = False,
    brokers: Annotated[bool, typer.Option("--brokers", help="One row per broker.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="One row per topic: totals of its partitions.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="One row per consumer group: its lag.")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Settings that are not safe, and what mends them.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Include healthy partitions.")] = False,
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    as_of: AsOfOption = None,
    row_format: FormatOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show the unhealthy partitions, worst first; or clusters, brokers, topics, consumer groups or unsafe settings.

    Stale data is marked STALE with its age; an unknown value is "?".

    Example: isrwatch state --topic 'orders-*' --as-of 15m
    """
    selected = (clusters, brokers, topics, groups, settings)
    chosen = [name for name, is_selected in zip(_SHOW, selected, strict=True) if is_selected]
    if len(chosen) > 1:
        *others, last = (f"--{name}" for name in _SHOW)
        raise ConfigurationError(f"{', '.join(others)} and {last} are different tables; give one of them")
    if chosen and chosen[0] in _SAMPLED and as_of is not None:
        raise ConfigurationError(f"--{chosen[0]} shows the newest samples only; leave --as-of out")
    now = time.time_ns() // 1_000
    output = output_of(row_format, Clock(now, local))
    folder = folder_of(tables, config_file)
    version = None if as_of is None else version_as_of(folder, as_of, output.clock)
    unreadable = Unreadable()
    snapshot = _present(folder, unreadable) if version is None else state_as_of(folder, version, unreadable)
    stale_after = load(config_file).export.stale_after_seconds
    then = now if version is None else snapshot.read_at
    rows = [(each, cluster_row(each, then, stale_after)) for each in _selected(snapshot, cluster, topic)]
    selection = StateSelection(rows, tuple(topic or ()), folder, version is None, everything, unreadable)
    with until_closed():
        if version is not None:
            output.say(f"as of version {version}, committed {output.clock.iso(snapshot.read_at)}")
        _headings(output, selection, then)
        (_SHOW[chosen[0]] if chosen else _partitions)(output, selection)
    unreadable.raise_if_any()


def _present(folder: Path, unreadable: Unreadable) -> ReplicationSnapshot:
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
    return [each for each in by_name if not clusters or not {each.name, each.cluster.cluster_id}.isdisjoint(clusters)]


def _headings(output: RowOutput, selection: StateSelection, now: int) -> None:
    for cluster, row in selection.clusters:
        if output.is_for_people and output.console.is_terminal:
            output.console.print(live_view.heading(cluster, now))
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
    watermarks: dict[str, int | None] = {
        cluster.cluster.cluster_id: cluster.watermark for cluster, _ in selection.clusters
    }
    fields = partition_fields(watermarks)
    if any(row["consequence"] for row in rows):
        fields = (*fields, Field("consequence", lambda row: row["consequence"] or ""))
    _print(output, selection, rows, fields, partition_style)
    if not rows and output.is_for_people:
        clusters = [row for _, row in selection.clusters]
        none = "no unhealthy partitions" if any(row["partitions"] for row in clusters) else "no partitions"
        output.say(f"{none} when they were last observed" if any(row["is_stale"] for row in clusters) else none)


def _clusters(output: RowOutput, selection: StateSelection) -> None:
    rows = [row for _, row in selection.clusters]
    states = [f"{state}_partitions" for state in live_view.STATES if state not in {PARTITIONS, DISKLESS}]
    if any(row["diskless_partitions"] for row in rows):
        states.append("diskless_partitions")
    names = ("controller", "brokers", PARTITIONS, *states, "isr_shrinks", "leader_changes", "unclean_elections")
    leading = (Field("cluster", text("cluster")), Field("data age", text("data_age_seconds"), is_number=True))
    output.print(rows, (*leading, *columns_as_fields(names)), _columns(rows), _stale)


def _brokers(output: RowOutput, selection: StateSelection) -> None:
    names, more = tuple(further()) if selection.is_now else (), dict[str, dict[int, Mapping[str, Any]]]()
    with selection.unreadable.collected():
        more = further_columns(selection.folder, names) if names else {}
    rows = [
        row
        for cluster, cluster_columns in selection.clusters
        for row in broker_rows(
            cluster, freshness_columns(cluster_columns), names, more.get(cluster.cluster.cluster_id, {})
        )
    ]
    shown = ("led_partitions", "hosted_partitions", "in_sync_partitions", *names)
    fields = (
        Field("broker", text("broker"), is_number=True),
        Field("state", text("broker_state")),
        *([Field("maintenance", partial(maintenance, output.clock))] if any(map(has_maintenance, rows)) else []),
        *columns_as_fields(name for name in shown if name not in IN_WORDS),
        *((Field("restart", text("restart_reason")),) if selection.is_now else ()),
    )
    _print(output, selection, rows, fields, lambda row: live_view.broker_style(row["broker_state"]))


def _topics(output: RowOutput, selection: StateSelection) -> None:
    rows = [
        row
        for cluster, cluster_columns in selection.clusters
        for row in topic_rows(cluster, freshness_columns(cluster_columns), selection.topics)
    ]
    names = ("partitions", "offline_partitions", "under_min_isr_partitions", "under_replicated_partitions")
    spans = ("offline_seconds", "under_min_isr_seconds", "under_replicated_seconds")
    counts = columns_as_fields(("isr_shrinks", "leader_changes", "unclean_elections"))
    times = tuple(Field(f"{field.title} for", field.text, is_number=True) for field in columns_as_fields(spans))
    _print(output, selection, rows, (Field("topic", text("topic")), *columns_as_fields(names), *counts, *times), _stale)


def _groups(output: RowOutput, selection: StateSelection) -> None:
    ids = {cluster.cluster.cluster_id for cluster, _ in selection.clusters}
    rows: list[Row] = []
    with selection.unreadable.collected():
        samples = group_rows(selection.folder / GROUP_OFFSETS.name, selection.topics, output.clock.now)
        rows = [row for row in samples if row["cluster_id"] in ids]
    numbers = columns_as_fields(("members", PARTITIONS, "lag", "records_lost", "sample_age_seconds"))
    who = (Field("group", text("group")), Field("state", text("group_state")))
    fields = (*who, *numbers, Field("worst", text("worst_partition")))
    _print(output, selection, rows, fields, lambda row: "yellow" if row["records_lost"] else "")
    if not rows and output.is_for_people:
        output.say("no samples of consumer groups")


def _settings(output: RowOutput, selection: StateSelection) -> None:
    samples: dict[str, SampledSettings] = {}
    with selection.unreadable.collected():
        samples = settings_by_cluster(selection.folder)
    rows: list[Row] = []
    for cluster, _ in selection.clusters:
        if (of_cluster := samples.get(cluster.cluster.cluster_id)) is not None:
            rows += setting_rows(cluster, of_cluster, selection.topics, output.clock.now)
        elif output.is_for_people:
            output.say(f"no samples of settings of cluster {cluster.name}")
    _print(
        output, selection, rows, tuple(Field(name, text(name)) for name in ("subject", "reason", "fix")), lambda _: ""
    )
    if samples and not rows and output.is_for_people:
        output.say("nothing is wrong with the settings")


_SHOW: Final = {
    "clusters": _clusters,
    "brokers": _brokers,
    "topics": _topics,
    "groups": _groups,
    "settings": _settings,
}
_SAMPLED: Final = frozenset({"groups", "settings"})


def _print(
    output: RowOutput,
    selection: StateSelection,
    rows: list[Row],
    fields: tuple[Field, ...],
    style: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print rows, with a column for the cluster if there is more than one."""
    owner = (Field("cluster", text("cluster")),) if len(selection.clusters) > 1 else ()
    output.print(rows, (*owner, *fields), _columns(rows), style)


def _columns(rows: list[Row]) -> Iterable[str]:
    return dict.fromkeys(name for row in rows for name in row)


def _stale(row: Mapping[str, Any]) -> str:
    return "dim" if row["is_stale"] else ""
