"""``isrwatch state``: how it is now, or was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow as pa
import typer
from deltalake import DeltaTable, QueryBuilder

from exporters import terminal
from exporters.history.command import (
    AsOfOption,
    ClusterOption,
    ConfigOption,
    FormatOption,
    LocalOption,
    TablesOption,
    TopicOption,
    folder_of,
)
from exporters.history.groups import group_rows
from exporters.history.moments import Clock, span
from exporters.history.output import Field, Output, output_of, until_closed
from exporters.history.rebuilt import rebuilt
from exporters.history.state_view import (
    broker_rows,
    cluster_row,
    columns_as_fields,
    partition_fields,
    partition_rows,
    partition_style,
    sight_of,
    text,
    topic_rows,
)
from exporters.history.versions import as_of as version_as_of
from exporters.reader import Reader
from exporters.snapshot import Broker, ClusterSnapshot
from streaming.contracts.health import PARTITIONS
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.errors import ConfigurationError
from streaming.settings import load

Row = dict[str, Any]
# Of broker_state, what a snapshot tells newer, and what a screen has no room for.
_TOLD: Final = frozenset(
    {*Broker._fields, "led_partitions", "hosted_partitions", "in_sync_partitions", "isr_departures", "as_of_version"}
)

_SHORT: Final = ("int", "long", "double", "boolean")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is shown, and of what.

    Attributes:
        clusters: with the row of each.
        topics: globs.
        folder: of the tables.
        is_now: whether it is the present state.
        everything: healthy partitions, too.
    """

    clusters: list[tuple[ClusterSnapshot, Row]]
    topics: tuple[str, ...]
    folder: Path
    is_now: bool
    everything: bool


def state(  # noqa: PLR0913 - one parameter an option
    *,
    clusters: Annotated[bool, typer.Option("--clusters", help="A row a cluster.")] = False,
    brokers: Annotated[bool, typer.Option("--brokers", help="A row a broker.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="A row a topic: its totals.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="A row a consumer group: its lag.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Healthy partitions, too.")] = False,
    cluster: ClusterOption = None,
    topic: TopicOption = None,
    as_of: AsOfOption = None,
    form: FormatOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Tell how it is: the partitions that are not healthy, worst first; or clusters, brokers, topics, groups.

    What was not seen for long is marked stale, with its age; what is unknown is "?".

    Example: isrwatch state --topic 'orders-*' --as-of 15m
    """
    chosen = [
        show
        for wanted, show in ((clusters, _clusters), (brokers, _brokers), (topics, _topics), (groups, _groups))
        if wanted
    ]
    if len(chosen) > 1:
        raise ConfigurationError("--clusters, --brokers, --topics and --groups are different tables; give one of them")
    if groups and as_of is not None:
        raise ConfigurationError("--groups tells the newest samples only; leave --as-of out")
    now = time.time_ns() // 1_000
    output = output_of(form, Clock(now, local))
    folder = folder_of(tables, config_file)
    version = None if as_of is None else version_as_of(folder, as_of, output.clock)
    snapshot = Reader(folder).refresh() if version is None else rebuilt(folder, version)
    stale_after = load(config_file).export.stale_after_seconds
    then = now if version is None else snapshot.read_at
    told = [
        (it, cluster_row(it, then, stale_after))
        for it in sorted(snapshot.clusters.values(), key=lambda it: it.name)
        if not cluster or it.name in cluster or it.cluster.cluster_id in cluster
    ]
    asked = Asked(told, tuple(topic or ()), folder, version is None, everything)
    with until_closed():
        if version is not None:
            output.say(f"as of version {version}, committed {output.clock.iso(snapshot.read_at)}")
        _headings(output, asked, then)
        (chosen[0] if chosen else _partitions)(output, asked)


def _headings(output: Output, asked: Asked, now: int) -> None:
    for cluster, row in asked.clusters:
        if output.is_for_people and output.console.is_terminal:
            output.console.print(terminal.heading(cluster, now))
        if row["is_stale"]:
            age = row["sight_age_seconds"]
            seen = "was never seen" if age is None else f"was last seen {span(age)} before; all this was true then"
            output.say(f"STALE: cluster {cluster.name} {seen}", style="bold red")


def _partitions(output: Output, asked: Asked) -> None:
    rows = [
        row
        for cluster, told in asked.clusters
        for row in partition_rows(cluster, sight_of(told), asked.topics, healthy=asked.everything)
    ]
    marks = {cluster.cluster.cluster_id: cluster.watermark for cluster, _ in asked.clusters}
    _print(output, asked, rows, partition_fields(marks), partition_style)
    if not rows and output.is_for_people:
        output.say(
            "no partition is unhealthy"
            if any(row["partitions"] for _, row in asked.clusters)
            else "no partition is known"
        )


def _clusters(output: Output, asked: Asked) -> None:
    rows = [row for _, row in asked.clusters]
    states = (f"{state}_partitions" for state in terminal.STATES if state != PARTITIONS)
    names = ("controller", "brokers", PARTITIONS, *states, "isr_shrinks", "leader_changes", "unclean_elections")
    seen = (Field("cluster", text("cluster")), Field("seen", text("sight_age_seconds"), is_number=True))
    output.print(rows, (*seen, *columns_as_fields(names)), _columns(rows), _stale)


def _brokers(output: Output, asked: Asked) -> None:
    more = _further_columns(asked.folder) if asked.is_now else {}
    rows = [
        row
        for cluster, told in asked.clusters
        for row in broker_rows(cluster, sight_of(told), more.get(cluster.cluster.cluster_id, {}))
    ]
    shown = ("led_partitions", "hosted_partitions", "in_sync_partitions", *(_further() if asked.is_now else ()))
    fields = (
        Field("broker", text("broker"), is_number=True),
        Field("state", text("broker_state")),
        *columns_as_fields(shown),
    )
    _print(output, asked, rows, fields, lambda row: terminal.broker_style(row["broker_state"]))


def _topics(output: Output, asked: Asked) -> None:
    rows = [row for cluster, told in asked.clusters for row in topic_rows(cluster, sight_of(told), asked.topics)]
    names = ("partitions", "offline_partitions", "under_min_isr_partitions", "under_replicated_partitions")
    spans = ("offline_seconds", "under_min_isr_seconds", "under_replicated_seconds")
    counts = columns_as_fields(("isr_shrinks", "leader_changes", "unclean_elections"))
    times = tuple(Field(f"{field.title} for", field.text, is_number=True) for field in columns_as_fields(spans))
    _print(output, asked, rows, (Field("topic", text("topic")), *columns_as_fields(names), *counts, *times), _stale)


def _groups(output: Output, asked: Asked) -> None:
    ids = {cluster.cluster.cluster_id for cluster, _ in asked.clusters}
    samples = group_rows(asked.folder / GROUP_OFFSETS.name, asked.topics, output.clock.now)
    rows = [row for row in samples if row["cluster_id"] in ids]
    numbers = columns_as_fields(("members", PARTITIONS, "lag", "records_lost", "sample_age_seconds"))
    who = (Field("group", text("group")), Field("state", text("group_state")))
    fields = (*who, *numbers, Field("worst", text("worst_partition")))
    _print(output, asked, rows, fields, lambda row: "yellow" if row["records_lost"] else "")


def _print(
    output: Output, asked: Asked, rows: list[Row], fields: tuple[Field, ...], style: Callable[[Mapping[str, Any]], str]
) -> None:
    """Print rows; people see the cluster where there is more than one."""
    named = (Field("cluster", text("cluster")),) if len(asked.clusters) > 1 else ()
    output.print(rows, (*named, *fields), _columns(rows), style)


def _columns(rows: list[Row]) -> Iterable[str]:
    return dict.fromkeys(name for row in rows for name in row)


def _stale(row: Mapping[str, Any]) -> str:
    return "dim" if row["is_stale"] else ""


def _further() -> Iterator[str]:
    """Name the columns of ``broker_state`` that derive from more than the broker: whatever the definition has."""
    known = {*(column.name for column in BROKER_STATE_TABLE.columns[:2]), *_TOLD}
    for column in BROKER_STATE_TABLE.columns:
        if (
            column.name not in known
            and column.type in {"int", "long", "double", "boolean"}
            and "offset" not in column.name
        ):
            yield column.name


def _further_columns(folder: Path) -> dict[str, dict[int, Mapping[str, Any]]]:
    path, names = folder / BROKER_STATE_TABLE.name, tuple(_further())
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    if names and DeltaTable.is_deltatable(str(path)):
        columns = ", ".join(("cluster_id", "broker", *names))
        query = f"SELECT {columns} FROM brokers"  # noqa: S608 - our own columns
        for row in pa.table(QueryBuilder().register("brokers", DeltaTable(str(path))).execute(query)).to_pylist():
            found.setdefault(row["cluster_id"], {})[row["broker"]] = {name: row[name] for name in names}
    return found
