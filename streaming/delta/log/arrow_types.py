"""Plain types of the contracts as Arrow types. Knows pyarrow alone: Spark's workers load it without delta-rs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from streaming.contracts.columns import Column

# Names repeat a million times, so memory holds each once, and numbers refer to it.
NAME: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "int[]": pa.list_(pa.int32()),
    "string[]": pa.list_(pa.string()),
}


def arrow_type(plain: str | tuple[Column, ...] | list[tuple[Column, ...]]) -> pa.DataType:
    """Return a column's type in Arrow."""
    if isinstance(plain, str):
        return _TYPES[plain]
    if isinstance(plain, list):
        return pa.list_(arrow_type(plain[0]))
    return pa.struct([pa.field(column.name, arrow_type(column.type)) for column in plain])
