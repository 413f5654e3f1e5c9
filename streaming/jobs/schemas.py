"""Contracts as Spark schemas. Knows contracts and ``pyspark.sql.types``; needs no session and no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streaming.contracts.codec import FIELDS
from streaming.contracts.tables import TABLES

if TYPE_CHECKING:
    from streaming.contracts.columns import Column

PLAIN: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "int[]": ArrayType(IntegerType()),
    "int[][]": ArrayType(ArrayType(IntegerType())),
    "boolean[]": ArrayType(BooleanType()),
    "long[]": ArrayType(LongType()),
    "double[]": ArrayType(DoubleType()),
    "string[]": ArrayType(StringType()),
}


def observation_schema() -> StructType:
    """Return every field of every kind of observation, once: version, kind, then the fields; times are microseconds.

    A row has the fields of its own kind, the others are null.
    """
    names = {"v": "int", "kind": "string", **FIELDS}
    return StructType([StructField(name, PLAIN[plain]) for name, plain in names.items()])


def bus_schema() -> StructType:
    """Return the columns of the bus: a record of ``source`` at ``position``, or damaged bytes and the damage.

    Two kinds of rows stand for records without having them: with ``left_out`` for consecutive blocks that repeat the
    state (``streams.left_out_blocks.LeftOutBlocks``), with ``samples`` for a block
    (``streams.sample_columns.BlockColumns``).
    ``log_id`` says of which log the position is; null if that has none.
    """
    return StructType([
        StructField("source", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),
        StructField("payload", BinaryType(), nullable=False),
        StructField("damage", StringType()),
        StructField("left_out", StructType([
            StructField("start", LongType()),
            StructField("end", LongType()),
            StructField("generation", LongType()),
            StructField("places", BinaryType()),
        ])),
        StructField("samples", BinaryType()),
        StructField("log_id", LongType()),
    ])  # fmt: skip


def table_schema(name: str) -> StructType:
    """Return the schema of one Delta table, in the order of its columns."""
    return _struct(TABLES[name].columns)


def _struct(columns: tuple[Column, ...]) -> StructType:
    return StructType([StructField(column.name, _spark_type(column.type), column.nullable) for column in columns])


def _spark_type(plain: str | tuple[Column, ...] | list[tuple[Column, ...]]) -> DataType:
    if isinstance(plain, str):
        return PLAIN[plain]
    return ArrayType(_struct(plain[0])) if isinstance(plain, list) else _struct(plain)
