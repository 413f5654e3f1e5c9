"""Payloads of samples as Arrow columns: a million a round, so none of them may cost an object.

Two ways, one meaning. What stands exactly as ``codec.encode`` writes it, with values that no check of the contract
refuses, is read by Arrow, free of Python's lock. Everything else, odd or only another spelling of the same JSON, goes
through ``codec.decode``, which alone says what is refused and why. Knows Arrow and the contracts, no Spark.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from streaming.contracts.fields import plain_types
from streaming.contracts.observations import SCHEMA_VERSION, Authority
from streaming.delta.definitions import arrow_type
from streaming.delta.quarantine import Refused
from streaming.errors import Quarantined
from streaming.jobs.understood import observation_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.contracts.observations import Channel, Observation

_ROWS_PER_PIECE: Final = 1 << 15
_ROW: Final = "row"
_WINDOW: Final = ("occurred_not_before", "occurred_not_after")
_UNREAD: Final = frozenset({"authority", "sequence"})  # no table of samples has them

# One character of a JSON string that needs no escape, as bytes of valid UTF-8: no half surrogates, nothing overlong.
_CHARACTER: Final = (
    r"(?:[ !#-\[\]-~]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})"
)
_STRING: Final = f'"{_CHARACTER}*"'
# Values that pass whatever is checked: numbers are not negative and far from the end of their type, or of time.
_PATTERNS: Final[Mapping[str, str]] = {
    "string": _STRING,
    "int": "(?:0|[1-9][0-9]{0,8})",
    "long": "(?:0|[1-9][0-9]{0,16})",
    "double": r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,17})?(?:e[+-][0-9]{2})?",
    "boolean": "(?:true|false)",
    "string[]": rf"\[(?:{_STRING}(?:,{_STRING})*)?\]",
}
_NAME: Final = f'"{_CHARACTER}+"'
_VALUES: Final = {
    "cluster_id": _NAME, "source": _NAME, "group": _NAME, "authority": f'"(?:{"|".join(Authority)})"',
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by kind, with a column a field (times in microseconds), in no order; and what was refused."""

    columns: Mapping[type[Observation], pa.Table]
    refused: tuple[Refused, ...]


def read_samples(rows: pa.Table, kinds: Iterable[type[Observation]], channel: Channel) -> Samples:
    """Read every payload of a batch.

    Args:
        rows: as in ``schemas.bus_schema``.
        kinds: the kinds of the channel.
        channel: where they were read; what belongs elsewhere is refused.
    """
    forms = [_Form(kind) for kind in kinds]
    pieces = [rows.slice(start, _ROWS_PER_PIECE) for start in range(0, rows.num_rows, _ROWS_PER_PIECE)]
    with ThreadPoolExecutor() as threads:
        read = list(threads.map(partial(_read_piece, forms=forms, channel=channel), pieces))
    return Samples(
        {form.kind: pa.concat_tables([form.nothing, *(piece.columns[form.kind] for piece in read)]) for form in forms},
        tuple(refused for piece in read for refused in piece.refused),
    )


class _Form:
    """How the payloads of one kind look, and the columns they become."""

    def __init__(self, kind: type[Observation]) -> None:
        plain = {name: plain for name, plain in plain_types(kind).items() if name not in _UNREAD}
        self.kind = kind
        self.names = [name for name in plain if name not in _WINDOW]
        self._pattern = canonical_pattern(kind)
        self._read = pa.schema([(name, arrow_type(type_)) for name, type_ in plain.items()])
        self.nothing = self._read.empty_table().select(self.names)

    def holds(self, payloads: pa.Array) -> pa.Array:
        """Tell which payloads this way of reading is right for; what its window says is for ``parsed``."""
        return pc.match_substring_regex(payloads, pattern=self._pattern)

    def parsed(self, payloads: pa.Array, numbers: pa.Array) -> pa.Table:
        """Read payloads that are held, beside their numbers; those that end before they begin are left out."""
        if not len(payloads):
            return self.decoded(())
        line = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(payloads)], pa.int32()), payloads), b"\n")
        lines = line.buffers()[-1]
        found = json.read_json(
            pa.BufferReader(lines),
            read_options=json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=json.ParseOptions(explicit_schema=self._read, unexpected_field_behavior="ignore"),
        ).append_column(_ROW, numbers)
        begin, end = (found[name] for name in _WINDOW)
        return found.filter(pc.less_equal(begin, end)).select([*self.names, _ROW])

    def decoded(self, observations: Iterable[tuple[int, Observation]]) -> pa.Table:
        """Spell decoded observations in the same columns."""
        told = [{_ROW: number, **{name: getattr(it, name) for name in self.names}} for number, it in observations]
        return pa.Table.from_pylist(told, schema=self.nothing.schema.append(pa.field(_ROW, pa.uint64())))


def canonical_pattern(kind: type[Observation]) -> str:
    """Give the regular expression of what ``codec.encode`` writes of one kind, of plain values only; over bytes."""
    plain = plain_types(kind)
    parts = [rf'^\{{"v":{SCHEMA_VERSION},"kind":"{kind.kind}"']
    for item in fields(kind):
        value = _VALUES.get(item.name, _PATTERNS[plain[item.name]])
        pair = f',"{item.name}":{value}'
        parts.append(f"(?:{pair})?" if "None" in str(item.type) else pair)
    return "".join(parts) + r"\}$"


def _read_piece(piece: pa.Table, forms: Sequence[_Form], channel: Channel) -> Samples:
    payloads, is_whole = piece["payload"].combine_chunks(), pc.is_null(piece["damage"]).combine_chunks()
    columns: dict[type[Observation], pa.Table] = {}
    for form in forms:
        is_held = pc.and_(is_whole, form.holds(payloads))
        columns[form.kind] = form.parsed(payloads.filter(is_held), pc.indices_nonzero(is_held))
    read = pa.chunked_array([chunk for table in columns.values() for chunk in table[_ROW].chunks], pa.uint64())
    numbers = pa.array(range(piece.num_rows), pa.uint64())
    odd = numbers.filter(pc.invert(pc.is_in(numbers, value_set=read)))
    observations, refused = _decoded(piece.take(odd), odd, channel)
    for form in forms:
        told = [(number, it) for number, it in observations if type(it) is form.kind]
        if told:  # the order in which they came decides between samples of one moment
            columns[form.kind] = pa.concat_tables([columns[form.kind], form.decoded(told)]).sort_by(_ROW)
    return Samples({kind: table.drop_columns(_ROW) for kind, table in columns.items()}, refused)


def _decoded(
    rows: pa.Table, numbers: pa.Array, channel: Channel
) -> tuple[list[tuple[int, Observation]], tuple[Refused, ...]]:
    observations: list[tuple[int, Observation]] = []
    refused: list[Refused] = []
    for number, row in zip(numbers.to_pylist(), rows.to_pylist(), strict=True):
        try:
            observations.append((number, observation_of(row["payload"], row["damage"], channel)))
        except Quarantined as reason:
            refused.append(
                Refused(source=row["source"], position=row["position"], reason=str(reason), raw=row["payload"])
            )
    return observations, tuple(refused)
