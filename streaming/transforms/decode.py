"""Payloads of the bus to typed columns and a reason: ``contracts.codec.decode`` for whole DataFrames.

Knows the schemas and the rules of ``contracts.observations``, no session. A row is valid here exactly when the codec
understands it: JSON, version, kind, required fields, types. What the values mean (closed sets such as ``authority``,
an empty ``replicas``, a window that ends before it begins) is left to the constructors of the observations. Of a field
that is there twice the codec takes the last, while here the first is checked and the last is shown; no encoder writes
such a thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.schemas import observation_schema
from streaming.transforms.faults import JSON_OPTIONS, fault, within_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    typed = F.from_json(within_array(text), f"array<{observation_schema().simpleString()}>", JSON_OPTIONS)
    is_valid = F.col("reason").isNull()
    return bus.withColumn("reason", F.coalesce("damage", fault(text))).select(
        "source",
        "position",
        "reason",
        F.when(~is_valid, F.col("payload")).alias("raw"),
        F.when(is_valid, F.get(typed, F.lit(0))).alias("observation"),
    )
