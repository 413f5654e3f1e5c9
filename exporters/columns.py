"""Arrow columns as Python values, column by column: times as microseconds, lists as tuples, texts shared.

A row class (a NamedTuple) names the columns it wants by its fields. Knows pyarrow, no table and no metric.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

R = TypeVar("R", bound=tuple[Any, ...])
Columns = dict[str, list[Any]]


def columns_of(rows: pa.Table, names: Iterable[str]) -> Columns:
    """Read some columns of a table; one that it does not have is left out."""
    known = set(rows.column_names)
    return {name: _values(rows.column(name).combine_chunks()) for name in names if name in known}


def struct_columns(rows: pa.Table, column: str, names: Iterable[str]) -> Columns:
    """Read some fields of a struct column; null where the struct is null."""
    structs = rows.column(column).combine_chunks()
    wanted = set(names)
    fields = zip(structs.type, structs.flatten(), strict=True)
    return {field.name: _values(values) for field, values in fields if field.name in wanted}


def rows_as(cls: type[R], columns: Mapping[str, list[Any]], count: int) -> list[R]:
    """Make one row an index; fields without a column are null."""
    nothing = [None] * count
    values = (columns.get(name, nothing) for name in fields_of(cls))
    row: Any = cls
    return list(map(row._make, zip(*values, strict=True)))


def fields_of(cls: Any) -> tuple[str, ...]:  # noqa: ANN401 - no type says "some NamedTuple class"
    """Name the columns that a row class wants."""
    return tuple(cls._fields)


def _values(array: Any) -> list[Any]:  # noqa: ANN401 - pyarrow ships no types
    kind = array.type
    if pa.types.is_timestamp(kind):
        return list(array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()).to_pylist())
    if pa.types.is_list(kind) and pa.types.is_integer(kind.value_type):
        return _tuples(array)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return _shared(array.cast(pa.string()))
    return list(array.to_pylist())


def _tuples(array: Any) -> list[tuple[int, ...] | None]:  # noqa: ANN401 - pyarrow ships no types
    values = array.values.to_pylist()
    tuples = [tuple(values[begin:end]) for begin, end in pairwise(array.offsets.to_pylist())]
    if not array.null_count:
        return list(tuples)
    return [value if valid else None for value, valid in zip(tuples, array.is_valid().to_pylist(), strict=True)]


def _shared(array: Any) -> list[str | None]:  # noqa: ANN401 - pyarrow ships no types
    """Read texts so that equal ones are one object: a topic's name stands in each of its partitions."""
    encoded = array.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [None if index is None else texts[index] for index in encoded.indices.to_pylist()]
