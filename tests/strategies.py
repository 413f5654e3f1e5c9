"""Hypothesis strategies for the contracts: every observation that may exist, and payloads that are none.

from tests.strategies import observations
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from streaming.contracts.blocks import PartitionsBlock, PartitionsChanged, PartitionsObserved
from streaming.contracts.codec import FIELDS, KINDS, encode, optional_fields, plain_types
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import (
    DISKLESS,
    END_OF_TIME,
    LONGEST_LEASE,
    MIN_ISR,
    SCHEMA_VERSION,
    ConfigOrigin,
    Observation,
    SnapshotReason,
    SourceKind,
)
from streaming.contracts.sample_blocks import BlockArray, SamplesBlock, SamplesByTopic, arrays_of
from streaming.contracts.samples import GroupOffsetsObserved

T = TypeVar("T")

_INT = st.integers(-(2**31), 2**31 - 1)
_COUNT = st.integers(0, 2**31 - 1)
_LONG = st.integers(-(2**63), 2**63 - 1)
_NAME = st.text(min_size=1, max_size=8)
_BROKERS = st.lists(st.integers(0, 9), max_size=4).map(tuple)
_PLAIN: Mapping[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=8),
    "int": _INT,
    "long": _LONG,
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "int[]": st.lists(_INT, max_size=4).map(tuple),
    "int[][]": st.lists(st.lists(_INT, max_size=3).map(tuple), max_size=3).map(tuple),
    "boolean[]": st.lists(st.booleans(), max_size=4).map(tuple),
    "long[]": st.lists(_LONG, max_size=4).map(tuple),
    "double[]": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4).map(tuple),
    "string[]": st.lists(st.text(max_size=4), max_size=3).map(tuple),
}
_MOMENT = st.integers(0, END_OF_TIME - 1)
_OFFSET = st.integers(0, 2**63 - 1)
_NAMED: Mapping[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset"), _OFFSET),
    **dict.fromkeys(("leader_log_end_offset", "size_bytes", "committed_offset", "start_offset", "lag"), _OFFSET),
    **dict.fromkeys(("group", "cluster_id", "source", "lease", "topic_id"), _NAME),
    "lag_seconds": st.floats(0, 1e9),
    "readable_at": _MOMENT,
    "lease_until": st.integers(0, LONGEST_LEASE),
    "source_kind": st.sampled_from(SourceKind),
    "origin": st.sampled_from(ConfigOrigin),
    "candidates": st.lists(st.sampled_from(Cause), max_size=3).map(tuple),
    "replicas": st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple),
}


def observations() -> st.SearchStrategy[Observation]:
    """Any observation of any kind."""
    return st.one_of([observations_of(cls) for cls in KINDS.values()])


@st.composite
def observations_of(draw: st.DrawFn, cls: type[Observation]) -> Observation:
    """Any observation of one kind."""
    values = {
        item.name: draw(_field(cls, item.name))
        for item in fields(cls)
        if item.name not in {"cause", "evidence", "topic_ids", "partition_counts", "arrays"}
    }
    window = sorted([draw(_MOMENT), draw(_MOMENT)])
    values |= {"occurred_not_before": window[0], "occurred_not_after": window[1], "collected_at": draw(_MOMENT)}
    return cls(**{**values, **draw(_together(cls))})


def _field(cls: type[Observation], name: str) -> st.SearchStrategy[Any]:
    if name == "topic" and cls.kind in {"partition", "partitions", "partitions_changed"}:
        return _NAME
    if name == "partition":
        return _COUNT
    if cls is GroupOffsetsObserved and name == "members":
        return st.none() | _COUNT
    if name == "reason":
        return st.sampled_from(SnapshotReason)
    strategy = _NAMED.get(name, _PLAIN[plain_types(cls)[name]])
    return st.none() | strategy if name in optional_fields(cls) else strategy


def _together(cls: type[Observation]) -> st.SearchStrategy[dict[str, Any]]:
    """Fields that depend on each other."""
    if cls.kind == "partition":
        known = st.fixed_dictionaries({"cause": st.sampled_from(Cause), "evidence": st.sampled_from(Evidence)})
        return known | st.just({})
    if issubclass(cls, PartitionsBlock):
        same = {"metadata_offset": st.integers(10, 2**62), "cause": st.sampled_from(Cause)}
        why = st.fixed_dictionaries({**same, "evidence": st.sampled_from(Evidence)} if cls is PartitionsChanged else {})
        return st.tuples(_arrays(), why).map(lambda both: both[0] | both[1])
    if issubclass(cls, SamplesBlock):
        return _samples(cls)
    if cls.kind == "cause_revised":
        return st.fixed_dictionaries({
            "cause": st.sampled_from(Cause),
            "evidence": st.sampled_from(Evidence),
            "revised_offset": st.integers(0, 2**62 - 1),
            "metadata_offset": st.integers(2**62, 2**63 - 1),
        })  # fmt: skip
    return _paired(cls)


_PAIRED: Final = {
    "snapshot_end": ("topic_ids", "partition_counts", _NAME),
    "config": ("brokers", "values", st.integers(0, 100)),
    "controller": ("registered_controllers", "registered_levels", st.integers(0, 100)),
}
"""Two arrays of one length, and what is in the first, by the kind that has them; optional but of the end."""


def _paired(cls: type[Observation]) -> st.SearchStrategy[dict[str, Any]]:
    if cls.kind not in _PAIRED:
        return st.just({})
    first, second, of_first = _PAIRED[cls.kind]
    least = 0 if cls.kind == "snapshot_end" else -1
    pairs = st.lists(st.tuples(of_first, st.integers(least, 100)), max_size=3)
    arrays = pairs.map(lambda each: {first: tuple(one for one, _ in each), second: tuple(two for _, two in each)})
    return arrays if cls.kind == "snapshot_end" else arrays | st.just({first: None, second: None})


@st.composite
def _arrays(draw: st.DrawFn) -> dict[str, Any]:
    """The partitions of a block and its parallel arrays."""
    partitions = tuple(sorted(draw(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=4))))

    def array(of: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(of, min_size=len(partitions), max_size=len(partitions)).map(tuple))

    sometimes = [
        (name, _BROKERS if plain == "int[][]" else st.booleans() if plain == "boolean[]" else _INT)
        for name, plain in plain_types(PartitionsObserved).items()
        if name.endswith("_by_partition")
    ]
    return {
        "partitions": partitions,
        **{name: array(of) if draw(st.booleans()) else None for name, of in sometimes},
        "replicas_by_partition": array(_NAMED["replicas"]),
        "isr_by_partition": array(_BROKERS),
        "leader_by_partition": array(_INT),
    }


@st.composite
def _samples(draw: st.DrawFn, cls: type[SamplesBlock]) -> dict[str, Any]:
    """The parallel arrays of a block of samples, and how many are of each topic."""
    topics = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    count = sum(topics)

    def array(of: st.SearchStrategy[Any], like: BlockArray, size: int) -> tuple[Any, ...]:
        return tuple(draw(st.lists(st.none() | of if like.is_optional else of, min_size=size, max_size=size)))

    of_plain: dict[str, st.SearchStrategy[Any]] = {
        "int[]": _COUNT,
        "long[]": _OFFSET,
        "double[]": _PLAIN["double"],
        "string[]": _NAME,
        "boolean[]": st.booleans(),
    }
    arrays = {
        name: array(_NAMED.get(name, of_plain[each.plain]), each, len(topics) if name in cls.by_topic else count)
        for name, each in arrays_of(cls).items()
        if not each.is_optional or draw(st.booleans())
    }
    return {"arrays": arrays, **({"samples_by_topic": tuple(topics)} if issubclass(cls, SamplesByTopic) else {})}


@st.composite
def streams(draw: st.DrawFn) -> list[Observation]:
    """Two collectors of a log and a poller: steps, deletions, periodic snapshots, replays, lost observations."""
    from tests.changes.conftest import LAG, Story  # noqa: PLC0415 - for the few tests that need stories

    sources = [Story(), Story("metadata_log:b"), Story("admin:a", SourceKind.POLL)]
    isr, epoch = [(1, 2, 3)] * 3, [0] * 3
    mixed: list[Observation] = []
    for number in draw(st.lists(st.integers(0, 11), min_size=1, max_size=10)):
        story = sources[number % 3]
        story.later(draw(st.sampled_from([0, 1, 40, 70])))
        if number < 7:
            seen = [None if story.source_kind is SourceKind.POLL else value for value in epoch]
            there = 3 if number else draw(st.integers(0, 3))
            story.snapshot([{"isr": isr[n], "leader": isr[n][0], "partition_epoch": seen[n]} for n in range(there)])
        elif number == 10:
            story.removed()
        elif number == 11:
            is_log, key = story.source_kind is SourceKind.METADATA_LOG, draw(st.sampled_from([MIN_ISR, DISKLESS]))
            value = draw(st.sampled_from([None, "true" if key == DISKLESS else "2"]))
            story.config(value, ConfigOrigin.LOG if is_log else ConfigOrigin.DESCRIBE, key=key)
        else:
            which = draw(st.integers(0, 2))
            isr[which], epoch[which] = draw(st.sampled_from([(1, 2, 3), (1, 2), (2,)])), epoch[which] + 1
            story.partition(which, isr=isr[which], leader=isr[which][0], partition_epoch=epoch[which], **LAG)
        told, story.seen = story.seen, []
        mixed += told[draw(st.integers(0, 2)) :] if draw(st.booleans()) else told
        if draw(st.booleans()):
            mixed += told[: draw(st.integers(0, len(told)))]
    return mixed


def payloads() -> st.SearchStrategy[bytes]:
    """Payloads, most of them damaged in one way or another."""
    valid = observations().map(encode)
    anything = _json().map(lambda value: json.dumps(value).encode()).filter(is_not_newer)
    return st.one_of(valid, damaged_records(), damaged_bytes(), anything)


def is_not_newer(payload: bytes) -> bool:
    """Tell whether a payload is not of a newer format: such a one is nobody's damage, and stops its reader."""
    with suppress(ValueError, RecursionError):
        record = json.loads(payload)
        return not isinstance(record, dict) or type(record.get("v")) is not int or record["v"] <= SCHEMA_VERSION
    return True


def damaged_records() -> st.SearchStrategy[bytes]:
    """An encoded observation with a field that was dropped, replaced, or added."""
    return _damaged_records().filter(is_not_newer)


@st.composite
def _damaged_records(draw: st.DrawFn) -> bytes:
    record = json.loads(encode(draw(observations())))
    name = draw(st.sampled_from(["v", "kind", *FIELDS]))
    if draw(st.booleans()) and name in record:
        del record[name]
    else:
        record[draw(st.sampled_from([name, name, "unknown", "a: STRING, b"]))] = draw(_json())
    spaces = draw(st.sampled_from([None, 1]))
    return json.dumps(record, indent=spaces, ensure_ascii=draw(st.booleans())).encode()


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """An encoded observation that was cut, flipped at one place, or has something behind or before it."""
    payload = encode(draw(observations()))
    at = draw(st.integers(0, len(payload) - 1))
    extra = draw(st.sampled_from([b"", b" ", b"x", b"{}", b",1", b"]", b'],"k":[1', b"\xff", b"\x00", b"null"]))
    return draw(st.sampled_from([
        payload[:at],
        payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :],
        payload[:at] + extra + payload[at:],
        payload + extra,
        extra + payload,
    ]))  # fmt: skip


def _json() -> st.SearchStrategy[Any]:
    numbers = st.integers() | st.integers(-3, 3) | st.floats() | st.sampled_from([1.0, 1e16, -0.0, 2**31, 2**63])
    scalars = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.sampled_from(["NaN", "1", "null", *KINDS])
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )


def generated(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Give many different values, to be looked at together: one DataFrame instead of one job a value.

    The seed is printed; ``pytest --hypothesis-seed`` does not reach here.
    """
    number = random.SystemRandom().getrandbits(32)
    print(f"generated with seed {number}")
    found: list[T] = []

    @seed(number)
    @settings(max_examples=count, phases=[Phase.generate], database=None, deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found
