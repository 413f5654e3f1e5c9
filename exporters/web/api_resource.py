"""Resources of the JSON API: rows of one kind, their filters and order, and the contents of a row."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from exporters.read_model.cluster_names import SelectedThen, clusters_by_name, selected_clusters, selected_then
from exporters.web.parameters import AT, Parameter, RequestRefused, number, text
from streaming.contracts.columns import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from exporters.answers.subject import Tables
    from exporters.read_model.conditions import Raised
    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
    from exporters.web.parameters import Query
    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import ClusterId

Row = dict[str, Any]
DEFAULT_LIMIT: Final = 1000
LARGEST_LIMIT: Final = 10_000
CLUSTER: Final = text("cluster", "Name or id of a cluster, or a pattern; 404 if none has it.", is_repeatable=True)
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
        tables: what is read beyond the snapshot: events, every incident.
        raised: the conditions that are raised.
        url: address of the exporter as others reach it; "" while that is not known.
        at: the moment of the past that is shown; None is the present.
        not_yet: names by id of the clusters that the request selects and that had not been observed by then.
    """

    snapshot: ReplicationSnapshot
    now: int
    stale_after_seconds: float
    clusters: Mapping[str, ClusterSnapshot]
    unreadable: dict[str, str] = field(default_factory=dict)
    tables: Tables | None = None
    raised: Callable[[View], Iterable[Raised]] = lambda _: ()
    url: str = ""
    at: int | None = None
    not_yet: Mapping[ClusterId, str] = field(default_factory=dict)

    def note_unreadable(self, table: str, sentences: Sequence[str]) -> None:
        """Take over why a table could not be read for this request."""
        if sentences:
            self.unreadable.setdefault(table, "; ".join(sentences))

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
    _refuse_unknown(unknown, clusters_by_name(snapshot))
    return selected


def clusters_then(
    read: Callable[[frozenset[str] | None], ReplicationSnapshot], present: ReplicationSnapshot, names: Sequence[str]
) -> tuple[ReplicationSnapshot, SelectedThen]:
    """Return a state of the past, and the clusters of it that a request selects; without names all.

    ``read`` reads the state of the clusters with some ids; of all with None, which takes longer.

    Raises:
        RequestRefused: there is no such cluster, then or now.
    """
    now = {each.cluster.cluster_id: name for name, each in clusters_by_name(present).items()}
    ids = {each.cluster.cluster_id for each in selected_clusters(present, names)[0].values()}
    if names and {*now, *now.values()}.issuperset(names):
        then = read(frozenset(ids))
        if ids.issubset(then.clusters):
            return then, selected_then(then, now, ids)
    then = read(None)
    selected = selected_then(then, now, names)
    _refuse_unknown(selected.unknown, {*clusters_by_name(then), *selected.not_yet.values()})
    return then, selected


def _refuse_unknown(unknown: Sequence[str], names: Iterable[str]) -> None:
    if unknown:
        raise RequestRefused(404, f"unknown cluster {unknown[0]}; known: {', '.join(sorted(names)) or 'none yet'}")


class Item(NamedTuple):
    """Input of a row: a value, and the snapshot of its cluster; None of what is not of one that is there now."""

    cluster: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Filter:
    """A parameter that selects rows; ``fits`` compares an item with what is given of it."""

    parameter: Parameter
    fits: Callable[[Item, Any], bool]


def one_of(name: str, help_text: str, value: Callable[[Item], Any], declare: Callable[..., Parameter] = text) -> Filter:
    """Filter by a value of the row: one of the given ones."""
    return Filter(declare(name, help_text, is_repeatable=True), lambda item, allowed: value(item) in allowed)


def any_of(
    name: str, help_text: str, values: Callable[[Item], Iterable[Any]], declare: Callable[..., Parameter] = text
) -> Filter:
    """Filter by several values of the row: at least one is a given one."""
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
        remarks: what else a response says, by the name of its column.
        remark_columns: their columns.
        no_history: why it cannot be shown as of a moment of the past; None where it can.
        page: makes a page, where not all items are at hand; ``items`` is not called then.
        path: below ``/api/v1``; by default the name.
        of_path: the parameters in the path.
    """

    name: str
    summary: str
    help: str
    columns: tuple[Column, ...]
    filters: tuple[Filter, ...] = ()
    items: Callable[[View, Query], Iterable[Item]] = lambda _view, _query: ()
    key: Callable[[Item], Key]
    key_types: tuple[type[str | int], ...]
    row: Callable[[View, Item], Row]
    available: Mapping[str, Callable[[ClusterSnapshot], bool]] = field(default_factory=dict)
    remarks: Callable[[View, Query], Row] = lambda _view, _query: {}
    remark_columns: tuple[Column, ...] = ()
    no_history: str | None = None
    page: Callable[[View, Query, Key | None], Page[Item]] | None = None
    path: str = ""
    of_path: tuple[Parameter, ...] = ()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Everything that a request may give."""
        filters = (each.parameter for each in self.filters)
        is_of_one = bool(self.of_path)
        at = () if is_of_one or self.no_history is not None else (AT,)
        return (*(() if is_of_one else (CLUSTER,)), *filters, *at, LIMIT, CURSOR)

    def matching(self, view: View, query: Query) -> Iterable[Item]:
        """Return the items that a request selects, in order."""
        given = [(each.fits, query[each.parameter.name]) for each in self.filters]
        tests = [(fits, allowed) for fits, allowed in given if allowed is not None and allowed != ()]
        return (item for item in self.items(view, query) if all(fits(item, allowed) for fits, allowed in tests))

    def full_row(self, view: View, item: Item) -> Row:
        """Return a row with every column, under the name that its cluster is shown under."""
        values = {**self.row(view, item), **({} if item.cluster is None else {"cluster": item.cluster.name})}
        return {column.name: values.get(column.name) for column in self.columns}


# Pages of ordered rows. A cursor names the last row of a page by its key, so the next page starts behind that row.
#
# Rows that come or go between two pages therefore shift no others: each row that stays is returned once. A row whose
# own key changes (a renamed cluster) may come twice or not at all; the response says that the tables have changed
# meanwhile.


T = TypeVar("T")
Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position at which the next page begins: the version of the tables, and the key of the last row returned."""

    version: int
    key: Key

    def encoded(self, selection: str) -> str:
        """Return the cursor for a client, bound to what the request selected."""
        document = json.dumps([selection, self.version, *self.key], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the rows.

    Attributes:
        rows: in order.
        count: how many rows there are on all pages; None where they are not counted.
        has_more: whether more rows follow.
        last: key of the last row, if more rows follow it.
    """

    rows: list[T]
    count: int | None
    has_more: bool
    last: Key | None


def selection_of(name: str, values: Mapping[str, Any]) -> str:
    """Identify what a request selects, however large its pages are."""
    filters = {key: value for key, value in values.items() if key not in {"limit", "cursor"}}
    text = json.dumps([name, filters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cursor_of(text: str, selection: str, types: tuple[type[str | int], ...]) -> Cursor:
    """Decode a cursor, whose key has parts of some types; one of another selection is refused.

    Raises:
        RequestRefused: it is not one that a response of this selection had.
    """
    try:
        document = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        given, version, *key = document
        is_ours = given == selection and type(version) is int and [type(part) for part in key] == list(types)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        is_ours = False
    if not is_ours:
        sentence = "the cursor is not one of this request; take next_cursor of a response, and leave the filters as is"
        raise RequestRefused(400, sentence)
    return Cursor(version, tuple(key))


def page_of(rows: Iterable[T], key: Callable[[T], Key], limit: int, after: Key | None) -> Page[T]:
    """Take the rows behind a key, up to a limit, and count all of them; no two rows have the same key."""
    taken: list[T] = []
    count, has_more = 0, False
    for row in rows:
        count += 1
        if has_more or (after is not None and key(row) <= after):
            continue
        if len(taken) < limit:
            taken.append(row)
        else:
            has_more = True
    return Page(taken, count, has_more, key(taken[-1]) if taken and has_more else None)


# JSON Schema (2020-12, as OpenAPI 3.1 uses it) of rows, from the columns that the tables define.


Schema = dict[str, Any]
COUNTS: Final = "counts"
"""Type of a column that maps names to numbers."""
_INT32: Final = {"type": "integer", "format": "int32"}
_INT64: Final = {"type": "integer", "format": "int64"}
_PLAIN: Final[Mapping[str, Schema]] = {
    "string": {"type": "string"},
    "int": _INT32,
    "long": _INT64,
    "timestamp": _INT64,
    "double": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "int[]": {"type": "array", "items": _INT32},
    "string[]": {"type": "array", "items": {"type": "string"}},
    COUNTS: {"type": "object", "additionalProperties": _INT64},
}


def columns_of(table: Table, names: Iterable[str]) -> tuple[Column, ...]:
    """Return columns of a table, in the order of their names."""
    by_name = {column.name: column for column in table.columns}
    return tuple(by_name[name] for name in names)


def row_schema(columns: Iterable[Column]) -> Schema:
    """Return the schema of an object that has every column, unknown ones as null, and nothing else."""
    properties = {column.name: _schema(column) for column in columns}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _schema(column: Column) -> Schema:
    described = column.comment + ("; UTC microseconds" if column.type == "timestamp" else "")
    schema = _type(column)
    if column.nullable:
        schema = {**schema, "type": [schema["type"], "null"]}
    return {**schema, "description": described}


def _type(column: Column) -> Schema:
    if isinstance(column.type, str):
        return dict(_PLAIN[column.type])
    if isinstance(column.type, list):
        return {"type": "array", "items": row_schema(column.type[0])}
    return row_schema(column.type)
