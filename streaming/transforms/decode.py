"""Payloads of the bus to typed columns and a reason: ``contracts.codec.decode`` for whole DataFrames.

Knows the schemas and the rules of ``contracts.observations``, no session. A row is valid here exactly when the codec
understands it: JSON, version, kind, required fields, types. What the values mean (closed sets such as ``authority``,
an empty ``replicas``, a window that ends before it begins) is left to the constructors of the observations. A record
that names a field twice is refused here, while the codec takes the last; no encoder writes such a thing.

Almost every record looks as our encoder writes it. One regular expression over the types of its fields tells so, in
8 microseconds a row; only what does not match is looked at field by field, which costs ten times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.fields import KINDS, REQUIRED, plain_types
from streaming.contracts.observations import (
    SCHEMA_VERSION,
)
from streaming.schemas import observation_schema
from streaming.transforms.faults import JSON_OPTIONS, fault, within_array

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Plain type to how ``schema_of_variant`` spells the values that fit, as a regular expression.
_SPELLED: Final = {
    "string": "STRING",
    "int": "BIGINT",
    "long": "BIGINT",
    "double": r"(?:DOUBLE|FLOAT|BIGINT|DECIMAL\(\d+,\d+\))",
    "boolean": "BOOLEAN",
    "int[]": "ARRAY<(?:BIGINT|VOID)>",
    "string[]": "ARRAY<(?:STRING|VOID)>",
}


def decode(bus: DataFrame) -> DataFrame:
    """Decode what came from the bus.

    Args:
        bus: as in ``schemas.bus_schema``.

    Returns:
        source, position: where it stands on the bus.
        reason: why it is no observation, null for a valid one.
        raw: the bytes of what is not valid, null otherwise.
        observation: a struct as in ``schemas.observation_schema``, null for what is not valid.
    """
    text = F.col("payload").cast("string")
    schema = f"struct<records:array<{observation_schema().simpleString()}>,misfit:string>"
    wrapped = F.concat(F.lit('{"records":'), within_array(text), F.lit("}"))
    parsed = F.from_json(wrapped, schema, {**JSON_OPTIONS, "columnNameOfCorruptRecord": "misfit"})
    refused = F.col("reason").isNotNull()
    return (
        bus.withColumn("parsed", parsed)
        .withColumn("observation", F.get("parsed.records", F.lit(0)))
        .withColumn("reason", F.when(~_is_ordinary(text), F.coalesce("damage", fault(text))))
        .select(
            "source",
            "position",
            "reason",
            F.when(refused, F.col("payload")).alias("raw"),
            F.when(~refused, F.col("observation")).alias("observation"),
        )
    )


def _is_ordinary(text: Column) -> Column:
    """Tell whether this is certainly valid: nothing unknown, nothing null, every value of its type. Never null."""
    types = F.schema_of_variant(F.try_parse_json(text))
    tests = (
        F.col("damage").isNull(),
        F.is_valid_utf8(text),
        F.size("parsed.records") == F.lit(2),  # the record and the end behind it: nothing trails
        F.col("parsed.misfit").isNull(),  # every number fits its column
        ~F.contains(text, F.lit("null")),  # the types do not tell of a null among numbers
        F.col("observation.v") == SCHEMA_VERSION,
        F.concat("observation.kind", F.lit(" "), types).rlike(ordinary_pattern()),
    )
    together = tests[0]
    for test in tests[1:]:
        together &= test
    return F.coalesce(together, F.lit(False))


def ordinary_pattern() -> str:
    """Spell, for every kind, the types of the fields as ``schema_of_variant`` does: in the order of their names."""
    return "^(?:" + "|".join(f"{kind} OBJECT<{_fields_pattern(kind)}" for kind in KINDS) + ")(?<=>)$"


def _fields_pattern(kind: str) -> str:
    types = {"kind": "string", "v": "long", **plain_types(KINDS[kind])}
    required = {"kind", "v", *REQUIRED[kind]}
    fields = (f"(?:{name}: {_SPELLED[types[name]]}[,>] ?)" for name in sorted(types))
    return "".join(
        field if name in required else f"{field}?" for name, field in zip(sorted(types), fields, strict=True)
    )
