"""Tables read as Arrow through DataFusion, the only engine without a JVM that supports every feature of our tables."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import QueryBuilder

from streaming.delta.log.definitions import arrow_schema, check_layout
from streaming.delta.log.storage import open_table, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place


def open_ours(directory: Place, definition: Table) -> DeltaTable | None:
    """Open a table below a directory to read it, None if there is none; ``TableRefused`` if its layout is another."""
    table = open_table(directory / definition.name)
    if table is not None:
        check_layout(table, definition)
    return table


def query(table: DeltaTable, sql: str) -> pa.Table:
    """Run SQL over one table, called ``rows``; the result has the types of our schemas.

    Raises:
        TableUnreadable: a data file is damaged or missing.
    """
    with reading(table.table_uri):
        return ours(pa.table(QueryBuilder().register("rows", table).execute(sql)))


ALL: Final = "true"
"""SQL that is true for every row."""


def where_in(clusters: Iterable[str]) -> str:
    """Return SQL that is true for the rows of these clusters."""
    names = ", ".join("'{}'".format(cluster_id.replace("'", "''")) for cluster_id in sorted(clusters))
    return f"cluster_id IN ({names})" if names else "false"


def select(table: DeltaTable | None, definition: Table, where: str = ALL) -> pa.Table:
    """Read rows of a table in the types and the order of its definition; none if there is no table."""
    schema = arrow_schema(definition)
    if table is None:
        return schema.empty_table()
    return query(table, f"SELECT {quoted(schema.names)} FROM rows WHERE {where}").cast(schema)  # noqa: S608 - our own columns


def read_all(table: DeltaTable) -> pa.Table:
    """Read a whole table, timestamps as microseconds."""
    return plain(query(table, "SELECT * FROM rows"))


def quoted(columns: Iterable[str]) -> str:
    """Return names of columns as SQL, each once."""
    return ", ".join(f'"{name}"' for name in dict.fromkeys(columns))


def ours(rows: pa.Table) -> pa.Table:
    """Cast views and large types, which DataFusion returns, to the types of our schemas."""
    return _with_types(rows, _small)


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind) else kind


def _with_types(rows: pa.Table, of_value: Callable[[pa.DataType], pa.DataType]) -> pa.Table:
    return rows.cast(pa.schema([pa.field(item.name, _mapped(item.type, of_value)) for item in rows.schema]))


def _mapped(kind: pa.DataType, of_value: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the same type with other types of values, also within structs and lists."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _mapped(item.type, of_value)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_mapped(kind.value_type, of_value))
    return of_value(kind)


# Arrow columns as Python values: times as UTC microseconds, lists as tuples, equal values shared. And the last row of
# each key.
#
# The fields of a row class (a NamedTuple) name the columns to read. Knows pyarrow, no table.


R = TypeVar("R", bound=tuple[Any, ...])
Columns = dict[str, list[Any]]
_ROW: Final = "row"
# With fewer values, finding equal ones costs more than it saves.
_WORTH_SHARING: Final = 1024


def numbered(rows: pa.Table, key: list[str]) -> pa.Table:
    """Return the key of each row, and its number in the column ``row``."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    return rows.select(key).append_column(_ROW, pc.subtract(pc.cumulative_sum(ones), 1))


def last_of_each(rows: pa.Table, key: list[str]) -> pa.Table:
    """Return each key once, in any order, and the number of its last row in the column ``row``."""
    last = numbered(rows, key).group_by(key).aggregate([(_ROW, "max")])
    return last.rename_columns([*key, _ROW])


def columns_of(rows: pa.Table, names: Iterable[str]) -> Columns:
    """Read some columns of a table, without those that it lacks."""
    present = set(rows.column_names)
    return {name: values_of(rows.column(name).combine_chunks()) for name in names if name in present}


def struct_columns(rows: pa.Table, column: str, names: Iterable[str]) -> Columns:
    """Read some fields of a struct column; None where the struct is null."""
    structs = rows.column(column).combine_chunks()
    selected = set(names)
    fields = zip(structs.type, structs.flatten(), strict=True)
    return {field.name: values_of(values) for field, values in fields if field.name in selected}


def rows_as(cls: type[R], columns: Mapping[str, list[Any]], count: int) -> list[R]:
    """Make one row per index; fields without a column are None."""
    nothing = [None] * count
    row: Any = cls
    values = (columns.get(name, nothing) for name in row._fields)
    return list(map(row._make, zip(*values, strict=True)))


def values_of(array: Any) -> list[Any]:  # noqa: ANN401 - pyarrow ships no types
    """Read one column. Equal values of a million rows share one Python object, which halves the memory of a state."""
    kind = array.type
    if array.null_count == len(array):
        return [None] * len(array)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    elif pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return _tuples(array)
    elif pa.types.is_string_view(kind):
        array = array.cast(pa.string())
    elif pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind):
        return list(array.to_pylist())
    if len(array) < _WORTH_SHARING:
        return list(array.to_pylist())
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    if len(distinct) == 1 and not array.null_count:
        return [*distinct] * len(array)
    return [None if index is None else distinct[index] for index in encoded.indices.to_pylist()]


def _tuples(lists: Any) -> list[tuple[Any, ...] | None]:  # noqa: ANN401 - pyarrow ships no types
    if not lists.null_count and lists.offsets[0].equals(lists.offsets[-1]):
        return [()] * len(lists)
    values = lists.values.to_pylist()
    tuples = [tuple(values[begin:end]) for begin, end in pairwise(lists.offsets.to_pylist())]
    if len(tuples) >= _WORTH_SHARING:
        shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        tuples = [shared.setdefault(each, each) for each in tuples]
    if not lists.null_count:
        return list(tuples)
    return [each if valid else None for each, valid in zip(tuples, lists.is_valid().to_pylist(), strict=True)]


def plain(rows: pa.Table) -> pa.Table:
    """Convert timestamps to microseconds, including those within structs."""
    return _with_types(rows, _micros)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the same type with integers for timestamps."""
    return _mapped(kind, _micros)


def _micros(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind
