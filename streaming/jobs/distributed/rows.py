"""The steps of the distributed mode, and the columns between them, in Arrow. Runs on executors; knows the fold.

- ``read_rows``    bytes of the bus -> envelopes with the bytes, or bytes with the reason why they were refused
- ``route_rows``   the envelopes of one Kafka cluster -> what each bucket gets, in the order of the fold
- ``fold_rows``    what one bucket gets, and its part of the state -> rows of ``partition_changes``
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.buckets import CLUSTER_BUCKET, Audience, Envelope, Router, owned_changes, owned_drops
from streaming.changes.fold import fold
from streaming.changes.merging import merged
from streaming.changes.state import ReplicationState
from streaming.changes.unchanged_run import UnchangedRun
from streaming.contracts.codec import decode
from streaming.contracts.columns import COMMIT_ORDER
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel, Heartbeat, SourceKind
from streaming.delta.arrow_types import arrow_type
from streaming.delta.change_rows import UNCOMMITTED, changes_to_arrow
from streaming.delta.state_reader import apply_changes
from streaming.errors import Quarantined
from streaming.jobs.driver.decoded_batch import decode_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming.changes.buckets import Routed
    from streaming.changes.change import Change, Folded
    from streaming.contracts.observations import Observation

ORDER: Final = "order"
NTH: Final = "nth"
DROPS: Final = "drops"
AT_THE_END: Final = 2**62

_ENVELOPE: Final = {
    "source": "string", "position": "long", "cluster_id": "string", "cluster": "string", "topic": "string",
    "audience": "string", "authority": "string", "sequence": "long", "occurred_not_before": "long",
    "occurred_not_after": "long", "collected_at": "long", "metadata_offset": "long", "begins_snapshot": "boolean",
    "begins_log": "boolean", "in_snapshot": "boolean", "concerns_all": "boolean",
}  # fmt: skip
# What was read: an envelope with its payload, or a payload with the reason why it was refused.
READ: Final = {**_ENVELOPE, "log_id": "long", "payload": "binary", "reason": "string"}
# What orders a batch: envelopes without payloads, each with the bucket of its topic.
ENVELOPES: Final = {**_ENVELOPE, "bucket": "int"}
# What a bucket gets: the observation at a position, or in its place (position is null) a run or a bare envelope.
ROUTED: Final = {
    "cluster_id": "string", "bucket": "int", ORDER: "long", NTH: "int", "source": "string", "position": "long",
    "cluster": "string", "authority": "string", "first_sequence": "long", "sequence": "long",
    "occurred_not_before": "long", "occurred_not_after": "long", "collected_at": "long", "metadata_offset": "long",
}  # fmt: skip


def schema_of(plain: Mapping[str, str]) -> pa.Schema:
    """Return such columns as an Arrow schema."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in plain.items()])


def folded_schema() -> pa.Schema:
    """Return the schema of a fold: ordered rows of ``partition_changes``; counts of drops are rows of their own."""
    columns = [field.with_nullable(True) for field in UNCOMMITTED]
    return pa.schema([*columns, pa.field(ORDER, pa.int64()), pa.field(NTH, pa.int32()), pa.field(DROPS, pa.int64())])


def read_rows(applied: Mapping[str, int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that decodes the rows of the replication channel that were not applied yet.

    Args:
        applied: position of the last applied record of each source.
    """
    schema = schema_of(READ)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fresh = [row for row in batch.to_pylist() if row["position"] > applied.get(row["source"], -1)]
            yield pa.RecordBatch.from_pylist([_read(row) for row in fresh], schema=schema)

    return read


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    place = {name: row[name] for name in ("source", "position", "log_id", "payload")}
    try:
        observed = decode_row(row["payload"], row["damage"], Channel.REPLICATION)
    except Quarantined as reason:
        return {**place, "reason": str(reason)}
    envelope = Envelope.of(observed, CLUSTER_BUCKET)  # the bucket is added by Spark, from the topic
    return {
        **{item.name: getattr(envelope, item.name) for item in fields(envelope) if item.name in READ},
        **place,
        "cluster_id": observed.cluster_id,
        "topic": getattr(observed, "topic", None),
        "concerns_all": envelope.audience is Audience.EVERY_BUCKET and not envelope.begins_snapshot,
    }


def route_rows(buckets: int) -> Callable[[tuple[Any, ...], pa.Table, pa.Table], pa.Table]:
    """Return the function that orders the batch of one Kafka cluster: state and ``ENVELOPES`` in, ``ROUTED`` out.

    Args:
        buckets: how many there are beside the bucket of the cluster itself.
    """
    schema = schema_of(ROUTED)

    def route(_: tuple[Any, ...], state_rows: pa.Table, envelopes: pa.Table) -> pa.Table:
        if not envelopes.num_rows:
            return schema.empty_table()
        in_order = _in_order(envelopes)
        cluster_id = ClusterId(in_order[0]["cluster_id"])
        owners = {row["bucket"] for row in in_order}
        active = set(range(buckets + 1)) if any(row["concerns_all"] for row in in_order) else {CLUSTER_BUCKET, *owners}
        router = Router(state_of(state_rows), cluster_id, sorted(active))
        routed = router.route([_envelope(row) for row in in_order])
        rows = [_routed_row(nth, item, in_order) for nth, item in enumerate(routed)]
        return pa.Table.from_pylist(rows, schema=schema)

    return route


def _in_order(envelopes: pa.Table) -> list[dict[str, Any]]:
    rows = envelopes.sort_by([("source", "ascending"), ("position", "ascending")]).to_pylist()
    return merged((row["source"], row["occurred_not_after"], row) for row in rows)


def _envelope(row: Mapping[str, Any]) -> Envelope:
    columns = {item.name: row[item.name] for item in fields(Envelope)}
    return Envelope(**{**columns, "audience": Audience(row["audience"]), "authority": SourceKind(row["authority"])})


def _routed_row(nth: int, item: Routed, in_order: list[dict[str, Any]]) -> dict[str, Any]:
    place = {"bucket": item.bucket, ORDER: item.order, NTH: nth}
    whole = in_order[item.order]
    if item.instead is None:
        return {**place, "cluster_id": whole["cluster_id"], "source": whole["source"], "position": whole["position"]}
    stand_in = {name: getattr(item.instead, name, None) for name in ROUTED if name not in {*place, "position"}}
    return {**stand_in, **place}


def fold_rows(key: tuple[Any, ...], state_rows: pa.Table, routed: pa.Table) -> pa.Table:
    """Fold what one bucket gets, ``ROUTED`` with payloads, over its part of the state; return its changes."""
    if not routed.num_rows:
        return folded_schema().empty_table()
    cluster_id, bucket = (value.as_py() if isinstance(value, pa.Scalar) else value for value in key)
    places: dict[tuple[str, int], int] = {}
    observations: list[Observation] = []
    for row in routed.sort_by([(ORDER, "ascending"), (NTH, "ascending")]).to_pylist():
        observed = _observation(row)
        places[observed.source, observed.sequence] = row[ORDER]
        observations.append(observed)
    folded = fold(state_of(state_rows), observations)
    changes = [single for change in owned_changes(bucket, folded) for single in change.singly()]
    rows = changes_to_arrow(changes)
    rows = rows.append_column(ORDER, pa.array(_orders(changes, places), pa.int64()))
    rows = rows.append_column(NTH, pa.array(range(len(changes)), pa.int32()))
    rows = rows.append_column(DROPS, pa.nulls(len(changes), pa.int64())).cast(folded_schema())
    return pa.concat_tables([rows, _drops(cluster_id, folded)]) if bucket != CLUSTER_BUCKET else rows


def _orders(changes: Sequence[Change], places: Mapping[tuple[str, int], int]) -> Iterator[int]:
    """Yield where each change stands in the order of the batch: at the observation that led to it; sources at the end.

    What led to a change that has no place of its own is part of a run, directly behind the change before it.
    """
    order = 0
    for change in changes:
        observed = change.led_by or change.observation
        order = (
            AT_THE_END if change.subject is Subject.SOURCE else places.get((observed.source, observed.sequence), order)
        )
        yield order


def _observation(row: Mapping[str, Any]) -> Observation:
    if row["payload"] is not None:
        return decode(row["payload"])
    names = [item.name for item in fields(Heartbeat)]
    envelope = {**{name: row[name] for name in names}, "authority": SourceKind(row["authority"])}
    if row["first_sequence"] is None:
        return Heartbeat(**envelope)
    return UnchangedRun(**envelope, first_sequence=row["first_sequence"])


def _drops(cluster_id: str, folded: Folded) -> pa.Table:
    """Count what an owner dropped, one row per source: the bucket of the cluster adds it to the source's state."""
    counts = Counter(observed.source for observed in owned_drops(folded.dropped))
    rows = [{"cluster_id": cluster_id, "source": source, DROPS: count} for source, count in counts.items()]
    return pa.Table.from_pylist(rows, schema=folded_schema())


def state_of(rows: pa.Table) -> ReplicationState:
    """Return the state that rows of changes lead to; of each key the last row counts."""
    state = ReplicationState()
    apply_changes(state, rows.sort_by([(column.name, "ascending") for column in COMMIT_ORDER]))
    return state
