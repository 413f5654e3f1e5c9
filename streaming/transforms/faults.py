"""What is wrong with a payload, in the words and the order of ``contracts.codec``. Knows its rules as data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.fields import KINDS, REQUIRED, plain_types
from streaming.contracts.observations import (
    SCHEMA_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

# As strict as Python's parser, which takes NaN and Infinity, too.
JSON_OPTIONS: Final = {"allowSingleQuotes": "false"}
_LAST: Final = '{"v":0}'
_RULES: Final = "map<string,array<struct<name:string,type:string,required:boolean>>>"


def within_array(text: Column) -> Column:
    """Put a payload into a JSON array, with an end behind it.

    Spark's parser stops behind the first value and does not see what trails; here that breaks the array, or its size.
    """
    return F.concat(F.lit("["), text, F.lit(f",{_LAST}]"))


def fault(text: Column) -> Column:
    """Give the first thing that is wrong with a payload, null when nothing is."""
    records = F.from_json(within_array(text), "array<map<string,variant>>", JSON_OPTIONS)
    values = F.from_json(within_array(text), "array<variant>", JSON_OPTIONS)
    is_json = F.coalesce(F.size(values) == F.lit(2), F.lit(False))

    def judged(found: Column) -> Column:
        is_record = F.coalesce((F.size(found) == F.lit(2)) & F.get(found, F.lit(0)).isNotNull(), F.lit(False))
        return F.when(is_record, _fault_of_record(F.get(found, F.lit(0)))).otherwise(
            F.when(is_json, F.lit("not a JSON object")).otherwise(F.lit("not JSON"))
        )

    return F.when(~F.is_valid_utf8(text), F.lit("not JSON")).otherwise(_let(records, judged))


def rules() -> str:
    """Spell the codec's rules as JSON: kind to name, plain type and "is required" of each field, in its order."""
    return json.dumps({
        kind: [
            {"name": name, "type": plain, "required": name in REQUIRED[kind]}
            for name, plain in plain_types(cls).items()
        ]
        for kind, cls in KINDS.items()
    })  # fmt: skip


def _fault_of_record(record: Column) -> Column:
    version, kind = record["v"], _text(record["kind"])
    its_rules = F.from_json(F.lit(rules()), _RULES)[kind]
    wrong_version = F.concat(F.lit("schema version "), _shown(version), F.lit(f", this program reads {SCHEMA_VERSION}"))
    return (
        F.when(~_is_version(version), wrong_version)
        .when(its_rules.isNull(), F.concat(F.lit("unknown kind "), _shown(record["kind"])))
        .otherwise(F.concat(kind, F.lit(": "), _first_fault(record, its_rules)))
    )


def _is_version(value: Column) -> Column:
    is_ours = F.try_variant_get(value, "$", "long") == SCHEMA_VERSION
    return F.coalesce((F.schema_of_variant(value) == "BIGINT") & is_ours, F.lit(False))


def _first_fault(record: Column, its_rules: Column) -> Column:
    """Give the first field that is missing or of another type; null when there is none."""
    fields = F.transform(
        its_rules,
        lambda rule: F.struct(
            rule.alias("rule"),
            record[rule["name"]].alias("value"),
            F.coalesce(F.schema_of_variant(record[rule["name"]]), F.lit("VOID")).alias("actual"),
        ),
    )
    faults = F.transform(fields, _fault_of_field)
    return F.get(F.filter(faults, lambda found: found.isNotNull()), F.lit(0))


def _fault_of_field(field: Column) -> Column:
    rule = field["rule"]
    missing = F.when(rule["required"], F.concat(rule["name"], F.lit(" is missing")))
    wrong = F.concat(rule["name"], F.lit(" is not "), rule["type"])
    return F.when(field["actual"] == "VOID", missing).when(~_has_type(field, rule["type"]), wrong)


def _has_type(field: Column, plain: Column) -> Column:
    value, actual = field["value"], field["actual"]
    return (
        F.when(plain == "string", actual == "STRING")
        .when(plain == "int", (actual == "BIGINT") & F.try_variant_get(value, "$", "int").isNotNull())
        .when(plain == "long", actual == "BIGINT")
        .when(plain == "double", actual.rlike("^(?:BIGINT|DOUBLE|FLOAT|DECIMAL)"))
        .when(plain == "boolean", actual == "BOOLEAN")
        .when(plain == "int[]", _is_array(field, "int", "BIGINT"))
        .when(plain == "string[]", _is_array(field, "string", "STRING"))
    )


def _is_array(field: Column, element: str, spelled: str) -> Column:
    """Tell whether this is an array of such elements: none of another type, none null, none too large."""
    elements = F.try_variant_get(field["value"], "$", f"array<{element}>")
    has_null = F.coalesce(F.exists(elements, lambda item: item.isNull()), F.lit(True))
    return field["actual"].isin(f"ARRAY<{spelled}>", "ARRAY<VOID>") & ~has_null


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Compute a value once and use it several times: Spark would repeat it at each use within a CASE."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _text(value: Column) -> Column:
    return F.when(F.schema_of_variant(value) == "STRING", F.try_variant_get(value, "$", "string"))


def _shown(value: Column) -> Column:
    return F.coalesce(F.left(F.to_json(value), F.lit(100)), F.lit("null"))
