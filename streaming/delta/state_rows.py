"""States as rows, and rows as states: the one encoder and the one decoder of ``contracts.state``.

What is written and read of a state is what its class names, so no field can be forgotten on the way: a column that the
rows lack is an error, never a silent null. A null reads as the default of its field; without a default the row is
damaged.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints

import pyarrow as pa

from streaming.contracts.columns import DISKLESS_TOPICS, TOPIC_MIN_ISR
from streaming.contracts.observations import DISKLESS, MIN_ISR, ConfigOrigin, SourceKind
from streaming.contracts.state import ConfigKey, ConfigValue
from streaming.delta.arrow_values import columns_of, struct_columns
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import ClusterId

S = TypeVar("S", bound=tuple[Any, ...])


def states_to_arrow(states: Sequence[Any], kind: pa.StructType, **others: Sequence[Any]) -> pa.Array:
    """Write states as structs, null where there is none.

    Args:
        states: of one class, or None.
        kind: the struct; its fields are fields of that class, or named in ``others``.
        others: a value per state that is there, of fields that its class does not have.
    """
    present = [state for state in states if state is not None]
    names = present[0]._fields if present else [field.name for field in kind]
    columns = {**dict(zip(names, zip(*present, strict=True), strict=False)), **others}
    arrays = [pa.array(columns[field.name] if present else [], field.type) for field in kind]
    numbers = count()
    places = [None if state is None else next(numbers) for state in states]
    return pa.StructArray.from_arrays(arrays, fields=list(kind)).take(pa.array(places, pa.int64()))


def states_of(cls: type[S], rows: pa.Table) -> Iterator[S]:
    """Read each row as a state; its columns are the fields of the class.

    Raises:
        KeyError: the rows lack a column.
        TableUnreadable: a row has null where a state must have a value.
    """
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    columns = columns_of(rows, names)
    _check_required(cls, columns)
    return _made(cls, columns)


def structs_of(cls: type[S], rows: pa.Table, column: str) -> Iterator[S | None]:
    """Read a struct column as states, None where it is null; the identity of a state stands beside the struct.

    Raises:
        KeyError: neither the struct nor the rows have a field of the class.
        TableUnreadable: a struct that is there has null where a state must have a value.
    """
    structs = rows.column(column).combine_chunks()
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    within = {field.name for field in structs.type} & set(names)
    columns = {**columns_of(rows, set(names) - within), **struct_columns(rows, column, within)}
    states = _made(cls, columns)
    if not structs.null_count:
        _check_required(cls, columns)
        return states
    return (state if valid else None for state, valid in zip(states, structs.is_valid().to_pylist(), strict=True))


def fields_of(cls: type[S], rows: pa.Table, names: Iterable[str]) -> dict[str, list[Any]]:
    """Read some fields of the states that rows would be, field by field.

    Raises:
        KeyError: the rows lack a column.
    """
    readers, columns = _readers(cls), columns_of(rows, names)
    return {name: readers[name](columns[name]) for name in names}


def _check_required(cls: Any, columns: Mapping[str, list[Any]]) -> None:  # noqa: ANN401 - any of the state classes
    hints = get_type_hints(cls)
    for name in cls._fields:
        if name not in cls._field_defaults and NoneType not in get_args(hints[name]) and None in columns[name]:
            raise TableUnreadable(
                f"cannot read a row: it has no {name}, which every {cls.__name__} has; bring back the whole folder of "
                "the tables from one copy"
            )


def _made(cls: Any, columns: Mapping[str, list[Any]]) -> Iterator[Any]:  # noqa: ANN401 - any of the state classes
    readers = _readers(cls)
    return map(cls._make, zip(*(readers[name](columns[name]) for name in cls._fields), strict=True))


@cache
def _readers(cls: Any) -> dict[str, Callable[[list[Any]], list[Any]]]:  # noqa: ANN401 - any of the state classes
    """Give, per field, what turns the values of its column into those of the field."""
    hints = get_type_hints(cls)
    defaults = cls._field_defaults
    return {name: _reader(_enum_of(hints[name]), defaults.get(name)) for name in cls._fields}


def _enum_of(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    return next((kind for kind in (hint, *get_args(hint)) if kind in {SourceKind, ConfigOrigin}), None)


def _reader(enum: Any, default: Any) -> Callable[[list[Any]], list[Any]]:  # noqa: ANN401 - a default of any type
    if enum is not None:
        return lambda values: [default if value is None else enum(value) for value in values]
    if default is None:
        return lambda values: values
    return lambda values: [default if value is None else value for value in values] if None in values else values


# The columns of a cluster with the values of one configuration each: which, and the field with the value.
CONFIG_COLUMNS: Final = {TOPIC_MIN_ISR.name: (MIN_ISR, "min_isr"), DISKLESS_TOPICS.name: (DISKLESS, "is_diskless")}


def config_columns(configs: Iterable[tuple[ConfigKey, ConfigValue]]) -> dict[str, list[dict[str, Any]]]:
    """Write configured values as the structs of each of ``CONFIG_COLUMNS``."""
    rows = list(configs)
    return {
        column: [
            {"topic": key.topic, "origin": key.origin, field: config.value, "offset": config.offset}
            for key, config in rows
            if key.key == configuration
        ]
        for column, (configuration, field) in CONFIG_COLUMNS.items()
    }


def configs_of(
    cluster_id: ClusterId, columns: Mapping[str, Iterable[Mapping[str, Any]] | None]
) -> Iterator[tuple[ConfigKey, ConfigValue]]:
    """Read the structs of ``CONFIG_COLUMNS`` of one cluster."""
    for column, (configuration, field) in CONFIG_COLUMNS.items():
        for row in columns[column] or ():
            key = ConfigKey(cluster_id, row["topic"], ConfigOrigin(row["origin"]), configuration)
            yield key, ConfigValue(row[field], row["offset"])
