"""What a resource of the JSON API is: rows of one kind, how they are filtered and ordered, and what a row contains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.cluster_names import clusters_by_name, selected_clusters
from exporters.web.parameters import Parameter, RequestRefused, number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
    from exporters.web.paging import Key
    from exporters.web.parameters import Query
    from streaming.contracts.columns import Column

Row = dict[str, Any]
DEFAULT_LIMIT: Final = 1000
LARGEST_LIMIT: Final = 10_000
CLUSTER: Final = text("cluster", "Name or id of a cluster; an unknown one is 404.", is_repeatable=True)
LIMIT: Final = number(
    "limit", "Rows of a page; more are reached by next_cursor.", at_most=LARGEST_LIMIT, default=DEFAULT_LIMIT
)
CURSOR: Final = text("cursor", "next_cursor of the page before, with the same filters.")


@dataclass(frozen=True, slots=True)
class View:
    """The snapshot as one request sees it.

    Attributes:
        snapshot: content of the tables.
        now: UTC microseconds; ages are measured from it.
        stale_after_seconds: data age beyond which a cluster is marked stale.
        clusters: those that the request selects, by the name that they are shown under.
        unreadable: the tables that cannot be read, each with the reason.
    """

    snapshot: ReplicationSnapshot
    now: int
    stale_after_seconds: float
    clusters: Mapping[str, ClusterSnapshot]
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def freshness(self, cluster: ClusterSnapshot) -> Row:
        """Return the data age of a cluster."""
        return {
            "age_seconds": cluster.age_seconds(self.now),
            "is_stale": cluster.is_stale(self.now, self.stale_after_seconds),
        }


def clusters_of(snapshot: ReplicationSnapshot, names: Iterable[str]) -> dict[str, ClusterSnapshot]:
    """Return the clusters that a request selects by name or id; without any, all of them.

    Raises:
        RequestRefused: there is no such cluster: an empty response would look like a healthy one.
    """
    selected, unknown = selected_clusters(snapshot, names)
    if unknown:
        there = ", ".join(clusters_by_name(snapshot)) or "none yet"
        raise RequestRefused(404, f"unknown cluster {unknown[0]}; known: {there}")
    return selected


class Item(NamedTuple):
    """What a row is made of: a value of the snapshot, and the cluster that it is of."""

    cluster: ClusterSnapshot
    value: Any


@dataclass(frozen=True, slots=True)
class Filter:
    """A parameter that selects rows; ``fits`` compares an item with what is given of it."""

    parameter: Parameter
    fits: Callable[[Item, Any], bool]


def one_of(name: str, help_text: str, value: Callable[[Item], Any], declare: Callable[..., Parameter] = text) -> Filter:
    """Filter by a value of the row; of several that are given, it has one."""
    return Filter(declare(name, help_text, is_repeatable=True), lambda item, allowed: value(item) in allowed)


def any_of(
    name: str, help_text: str, values: Callable[[Item], Iterable[Any]], declare: Callable[..., Parameter] = text
) -> Filter:
    """Filter by several values of the row; of those that are given, it has one at least."""
    parameter = declare(name, help_text, is_repeatable=True)
    return Filter(parameter, lambda item, allowed: not frozenset(allowed).isdisjoint(values(item)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """Rows of one kind.

    Attributes:
        name: in the path, and of the rows in the response.
        summary: one line.
        help: what the rows are, and what is not among them.
        columns: of a row, in order; each row has all of them.
        filters: besides ``cluster``.
        items: every item of the selected clusters, in the order of the keys; may leave out those that do not fit.
        key: identifies an item, and orders it.
        key_types: of the parts of a key.
        row: the columns of an item; one that is left out is null.
        available: the name of a flag, and whether what the rows of a cluster come from could be read.
        remarks: what a response says besides, by the name of its column.
        remark_columns: their columns.
    """

    name: str
    summary: str
    help: str
    columns: tuple[Column, ...]
    filters: tuple[Filter, ...] = ()
    items: Callable[[View, Query], Iterable[Item]]
    key: Callable[[Item], Key]
    key_types: tuple[type[str | int], ...]
    row: Callable[[View, Item], Row]
    available: Mapping[str, Callable[[ClusterSnapshot], bool]] = field(default_factory=dict)
    remarks: Callable[[View], Row] = lambda _: {}
    remark_columns: tuple[Column, ...] = ()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Everything that a request may give."""
        return (CLUSTER, *(each.parameter for each in self.filters), LIMIT, CURSOR)

    def matching(self, view: View, query: Query) -> Iterable[Item]:
        """Return the items that a request selects, in order."""
        given = [(each.fits, query[each.parameter.name]) for each in self.filters]
        tests = [(fits, allowed) for fits, allowed in given if allowed is not None and allowed != ()]
        return (item for item in self.items(view, query) if all(fits(item, allowed) for fits, allowed in tests))

    def full_row(self, view: View, item: Item) -> Row:
        """Return a row with every column, under the name that its cluster is shown under."""
        values = {**self.row(view, item), "cluster": item.cluster.name}
        return {column.name: values.get(column.name) for column in self.columns}
