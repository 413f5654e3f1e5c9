"""Groups, from the newest samples: each with what its partitions add up to, and each of its partitions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_samples import GroupOffsetsRow, GroupRow
from exporters.read_model.group_sums import summed
from exporters.web.api_resource import ApiResource, Item, one_of
from exporters.web.parameters import number
from exporters.web.row_schemas import columns_of
from streaming.contracts.columns import Column, required
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.web.api_resource import Row, View

_SUMS: Final = (
    required("partitions", "long", "partitions for which it has committed something, or that its members read"),
    Column("lag", "long", "records that it has yet to read, of all partitions; null while unknown of one"),
    Column("lag_seconds", "double", "the largest lag of its partitions in seconds; null while unknown of one"),
    Column("lag_seconds_at_least", "double", "the same of those of which it is known; null while it is of none"),
    required("partitions_of_unknown_lag", "long", "partitions whose lag is unknown"),
    Column("records_lost", "long", "records that were deleted before it read them"),
    Column("worst_partition", "string", "the partition with the largest lag"),
    Column("worst_lag", "long", "the lag of that"),
)


def _groups(view: View) -> Iterator[Item]:
    """Return each group with its row, if its coordinator describes it, and the rows of its partitions."""
    for _, cluster in sorted(view.clusters.items()):
        described = {row.group: row for row in sorted(cluster.samples.groups or (), key=lambda row: row.collected_at)}
        offsets: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in cluster.samples.group_offsets or ():
            offsets[row.group].append(row._asdict())
        for group in sorted({*described, *offsets}):
            yield Item(cluster, (group, described.get(group), offsets[group]))


def _group_row(_: View, item: Item) -> Row:
    group, described, offsets = item.value
    newest = max((row["collected_at"] for row in offsets), default=None)
    return {
        "collected_at": newest,
        **({} if described is None else described._asdict()),
        **summed(offsets),
        "cluster_id": item.cluster.cluster.cluster_id,
        "group": group,
    }


def _described(item: Item, name: str) -> Any:  # noqa: ANN401 - of any column
    return getattr(item.value[1], name, None)


def _offsets(view: View) -> Iterator[Item]:
    for _, cluster in sorted(view.clusters.items()):
        rows = cluster.samples.group_offsets or ()
        newest = {(row.group, row.topic, row.partition): row for row in sorted(rows, key=lambda row: row.collected_at)}
        yield from (Item(cluster, newest[key]) for key in sorted(newest))


def _is_read(cluster: ClusterSnapshot) -> bool:
    return cluster.samples.groups is not None and cluster.samples.group_offsets is not None


GROUP_RESOURCES: Final = (
    ApiResource(
        name="groups",
        summary="Groups",
        help="Every group, as its coordinator describes it, and what its partitions add up to.",
        columns=(
            *columns_of(GROUPS, ("cluster_id", "cluster", "group")),
            *(Column(column.name, column.type, column.comment) for column in columns_of(GROUPS, GroupRow._fields[1:])),
            *_SUMS,
        ),
        filters=(
            one_of("group", "Group id.", lambda item: item.value[0]),
            one_of("state", "State, such as Stable, Empty or Dead.", lambda item: _described(item, "group_state")),
            one_of("broker", "Id of its coordinator.", lambda item: _described(item, "coordinator"), number),
        ),
        items=lambda view, _: _groups(view),
        key=lambda item: (item.cluster.name, item.value[0]),
        key_types=(str, str),
        row=_group_row,
        available={"groups_available": _is_read},
    ),
    ApiResource(
        name="group_offsets",
        summary="Offsets of groups",
        help="The committed offset and the lag of every partition that a group reads.",
        columns=columns_of(GROUP_OFFSETS, ("cluster_id", "cluster", *GroupOffsetsRow._fields)),
        filters=(
            one_of("group", "Group id.", lambda item: item.value.group),
            one_of("topic", "Topic name.", lambda item: item.value.topic),
            one_of("partition", "Partition number.", lambda item: item.value.partition, number),
        ),
        items=lambda view, _: _offsets(view),
        key=lambda item: (item.cluster.name, item.value.group, item.value.topic, item.value.partition),
        key_types=(str, str, str, int),
        row=lambda _, item: {"cluster_id": item.cluster.cluster.cluster_id, **item.value._asdict()},
        available={"groups_available": _is_read},
    ),
)
