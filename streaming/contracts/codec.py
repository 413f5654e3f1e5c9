"""Observation to bytes and back: one JSON object, with a schema version.

The version is raised when a reader of the old one would misunderstand; new optional fields do not raise it.
Fields that are None are left out. A reader ignores fields it does not know, and quarantines what it cannot parse, kinds
it does not know included. A record of a newer version is no such thing: its reader stops until it is upgraded.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import partial
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from streaming.contracts.blocks import PartitionsChanged, PartitionsObserved
from streaming.contracts.columns import may_be_none, plain_type
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import (
    SCHEMA_VERSION,
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Heartbeat,
    MaintenanceObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.contracts.sample_blocks import (
    BrokerGroupOffsetsObserved,
    BrokerGroupsObserved,
    BrokerMetricsObserved,
    BrokerOffsetsObserved,
    BrokerSpeedsObserved,
    SamplesBlock,
    TopicsSettingsObserved,
    TransactionsReported,
    arrays_of,
)
from streaming.contracts.samples import (
    BrokerMetricObserved,
    BrokerSpeedObserved,
    GroupObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.contracts.settings import BrokerFeatureObserved, BrokerSettingsObserved, TopicSettingsObserved
from streaming.errors import InvalidObservation, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Every field of every observation, with its plain type: the codec and the Spark schema are projections of it.


KINDS: Final[dict[str, type[Observation]]] = {
    cls.kind: cls
    for cls in (
        PartitionObserved,
        PartitionsObserved,
        PartitionsChanged,
        CauseRevised,
        TopicRemoved,
        BrokerObserved,
        ControllerObserved,
        ConfigObserved,
        Heartbeat,
        SnapshotBegin,
        SnapshotEnd,
        ReplicaOffsetsObserved,
        GroupObserved,
        GroupOffsetsObserved,
        TransactionObserved,
        LogDirectoryObserved,
        QuorumMemberObserved,
        BrokerMetricObserved,
        BrokerOffsetsObserved,
        BrokerMetricsObserved,
        BrokerGroupsObserved,
        BrokerGroupOffsetsObserved,
        TopicSettingsObserved,
        TopicsSettingsObserved,
        BrokerSettingsObserved,
        BrokerFeatureObserved,
        TransactionsReported,
        BrokerSpeedObserved,
        BrokerSpeedsObserved,
        MaintenanceObserved,
    )
}


_HINTS: Final = {cls: get_type_hints(cls, include_extras=True) for cls in KINDS.values()}
# The fields of each kind but the arrays of a block of samples, which follow from the samples.
_OWN: Final = {cls: tuple(item for item in fields(cls) if item.name != "arrays") for cls in KINDS.values()}
_ARRAYS: Final = {cls: arrays_of(cls) if issubclass(cls, SamplesBlock) else {} for cls in KINDS.values()}


def plain_types(cls: type[Observation]) -> dict[str, str]:
    """Return the plain type of each field of one kind, ordered as in the class; then of the arrays of its samples.

    Returns:
        field name to one of string, int, long, double, boolean, int[], long[], double[], int[][], string[], boolean[].
    """
    hints = _HINTS[cls]
    own = {item.name: plain_type(hints[item.name]).replace("timestamp", "long") for item in _OWN[cls]}
    return own | {array.name: array.plain for array in _ARRAYS[cls].values()}


def optional_fields(cls: type[Observation]) -> frozenset[str]:
    """Return the fields of one kind that may be None, and the arrays that may have None in them."""
    hints = _HINTS[cls]
    own = (item.name for item in _OWN[cls] if may_be_none(hints[item.name]))
    return frozenset({*own, *(array.name for array in _ARRAYS[cls].values() if array.is_optional)})


# Every field of every kind, once: kinds that share a name share its type.
FIELDS: Final[dict[str, str]] = {name: plain for cls in KINDS.values() for name, plain in plain_types(cls).items()}
# The fields that an encoded observation must carry: those without a default that cannot be None.
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(item.name for item in _OWN[cls] if item.default is MISSING and item.name not in optional_fields(cls))
    for kind, cls in KINDS.items()
}


# A record that its source could not decode travels whole, to be quarantined with the source's reason.
UNDECODABLE: Final = "undecodable"

_ENUMS: Final[dict[str, type[StrEnum]]] = {
    "source_kind": SourceKind,
    "origin": ConfigOrigin,
    "reason": SnapshotReason,
    "cause": Cause,
    "evidence": Evidence,
}


def _is_text(value: Any) -> bool:  # noqa: ANN401 - any value of a JSON object
    """Return whether this is text that can be written as UTF-8: JSON can escape half a character."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


def _is_integer(value: Any, bits: int) -> bool:  # noqa: ANN401 - any value of a JSON object
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _are_integers(values: Sequence[Any], bits: int = 32) -> bool:
    """Return whether these are integers of so many bits; those of a block at once, because it has thousands."""
    limit = 1 << bits - 1
    return not values or (set(map(type, values)) == {int} and min(values) >= -limit and max(values) < limit)


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": _is_text,
    "int": lambda value: _is_integer(value, 32),
    "long": lambda value: _is_integer(value, 64),
    "double": lambda value: (isinstance(value, float) and isfinite(value)) or _is_integer(value, 1024),
    "boolean": lambda value: isinstance(value, bool),
    "boolean[]": lambda value: isinstance(value, (list, tuple)) and set(map(type, value)) <= {bool},
    "int[]": lambda value: isinstance(value, (list, tuple)) and _are_integers(value),
    "long[]": lambda value: isinstance(value, (list, tuple)) and _are_integers(value, 64),
    "double[]": lambda value: (
        isinstance(value, (list, tuple))
        and (all(map(isfinite, value)) if set(map(type, value)) == {float} else all(map(_CHECKS["double"], value)))
    ),
    "int[][]": lambda value: (
        isinstance(value, (list, tuple))
        and set(map(type, value)) <= {list, tuple}
        and _are_integers([*chain.from_iterable(value)])
    ),
    "string[]": lambda value: isinstance(value, (list, tuple)) and all(map(_is_text, value)),
}


def _or_none(are_right: Callable[[Any], bool], values: Any) -> bool:  # noqa: ANN401 - any value of a JSON object
    """Return whether this is an array of right values and None, as one of a block where a sample may have None."""
    return are_right(values) or (
        isinstance(values, (list, tuple))
        and None in values
        and are_right([each for each in values if each is not None])
    )


def encode(observation: Observation) -> bytes:
    """Write one observation as compact JSON in UTF-8."""
    payload: dict[str, Any] = {"v": observation.format, "kind": observation.kind}
    for item in _OWN[type(observation)]:
        value = getattr(observation, item.name)
        if value is not None:
            payload[item.name] = value
    if isinstance(observation, SamplesBlock):
        arrays = arrays_of(type(observation))
        payload |= {arrays[name].name: values for name, values in observation.arrays.items()}
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()


def envelope_of(head: bytes) -> Heartbeat | None:
    """Read the envelope of a block (:func:`blocks.cut_block`) as an observation without content; None if it is none."""
    try:
        values = json.loads(head + b"}")
        return Heartbeat(**_arguments(Heartbeat, values)) if values.keys() <= _OF_ENVELOPE else None
    except (AttributeError, ValueError, RecursionError, InvalidObservation):
        return None


def decode(value: bytes) -> Observation:
    """Read one observation.

    Raises:
        InvalidObservation: with the reason, for bytes that are not a valid observation of a known version.
        NewerFormat: a newer program wrote them. They are not for quarantine: that program will read them as they are.
    """
    try:
        payload = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidObservation(f"not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise InvalidObservation("not a JSON object")
    version = payload.get("v")
    if type(version) is int and version > SCHEMA_VERSION:
        raise NewerFormat(
            f"the bus holds records of format {version}, this program reads {SCHEMA_VERSION}; "
            "upgrade isrwatch job before the collector"
        )
    if type(version) is not int or version < 1:  # true and 1.0 equal 1 in Python only
        raise InvalidObservation(f"schema version {version!r}, this program reads up to {SCHEMA_VERSION}")
    return from_fields(payload)


def from_fields(values: Mapping[str, Any]) -> Observation:
    """Build one observation from decoded fields (a JSON object, or a row of the Spark schema).

    Raises:
        InvalidObservation: an unknown kind, a missing field, a value of the wrong type, or an impossible observation.
    """
    kind = values.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if kind == UNDECODABLE:
        raise InvalidObservation(f"undecodable at its source: {values.get('reason')}")
    if cls is None:
        raise InvalidObservation(f"unknown kind {kind!r}")
    arguments = _arguments(cls, values)
    if arrays := _ARRAYS[cls]:
        present = {name: array.name for name, array in arrays.items() if array.name in arguments}
        arguments["arrays"] = {name: arguments.pop(spelled) for name, spelled in present.items()}
    return cls(**arguments)


def _arguments(cls: type[Observation], values: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, plain, required, is_right, typed in _SIGNATURES[cls.kind]:
        value = values.get(name)
        if value is None:
            if required:
                raise InvalidObservation(f"{cls.kind}: {name} is missing")
            continue
        if not is_right(value):
            raise InvalidObservation(f"{cls.kind}: {name} is not {plain}: {value!r}"[:200])
        arguments[name] = value if typed is None else typed(value)
    return arguments


def _check(cls: type[Observation], name: str, plain: str) -> Callable[[Any], bool]:
    """Return the check of the values of a field, or of an array, that are not None."""
    has_none = any(array.is_optional for array in _ARRAYS[cls].values() if array.name == name)
    return partial(_or_none, _CHECKS[plain]) if has_none else _CHECKS[plain]


def _typed(name: str, plain: str) -> Callable[[Any], Any] | None:
    """Return the function that converts a JSON value to a field; None where they are the same."""
    if name == "candidates":
        return lambda value: tuple(_member(Cause, name, item) for item in value)
    if name in _ENUMS:
        return partial(_member, _ENUMS[name], name)
    if plain.endswith("[][]"):
        return lambda value: tuple(map(tuple, value))
    if plain == "double[]":
        return lambda value: tuple([each if each is None else float(each) for each in value])
    return tuple if plain.endswith("[]") else float if plain == "double" else None


def _member(enum: type[StrEnum], name: str, value: str) -> StrEnum:
    try:
        return enum(value)
    except ValueError:
        raise InvalidObservation(f"{name} has an unknown value {value!r}") from None


# Name, plain type, whether it is required, check and conversion of each field, ordered as in its class.
_SIGNATURES: Final = {
    kind: tuple(
        (name, plain, name in REQUIRED[kind], _check(cls, name, plain), _typed(name, plain))
        for name, plain in plain_types(cls).items()
    )
    for kind, cls in KINDS.items()
}
_OF_ENVELOPE: Final = {"v", "kind", *(name for name, *_ in _SIGNATURES[Heartbeat.kind])}
