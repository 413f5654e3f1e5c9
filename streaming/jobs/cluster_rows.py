"""What travels between the steps of the cluster form, in Arrow. Runs on executors; knows the codec and the fold.

- ``read_rows``    bytes of the bus -> envelopes, with the bytes or the reason why they were refused
- ``route_rows``   the envelopes of one cluster -> who sees what, in the order of the fold
- ``fold_rows``    what one bucket sees and knows -> rows of ``partition_changes``
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.buckets import THE_CLUSTERS, Audience, Router, Seen, own_drops, told_by
from streaming.changes.change import Subject
from streaming.changes.confirmed import Confirmed
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Authority, Channel, Heartbeat
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import arrow_schema, arrow_type
from streaming.delta.rows import changes_to_arrow, replay
from streaming.errors import Quarantined
from streaming.jobs.understood import observation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streaming.changes.fold import Folded
    from streaming.contracts.observations import Observation

ORDER: Final = "order"
NTH: Final = "nth"
DROPS: Final = "drops"
AT_THE_END: Final = 2**62

_ENVELOPE: Final = {
    "source": "string", "position": "long", "cluster_id": "string", "cluster": "string", "topic": "string",
    "audience": "string", "authority": "string", "sequence": "long", "occurred_not_before": "long",
    "occurred_not_after": "long", "collected_at": "long", "metadata_offset": "long", "begins_snapshot": "boolean",
    "in_snapshot": "boolean", "concerns_all": "boolean",
}  # fmt: skip
# What was read: an envelope with its payload, or a payload with the reason of its refusal.
READ: Final = {**_ENVELOPE, "payload": "binary", "reason": "string"}
# What orders a batch: envelopes without payloads, each with the bucket of its topic.
SEEN: Final = {**_ENVELOPE, "bucket": "int"}
# Who sees what: the observation at a position, or in its place (position is null) a run or a bare envelope.
ROUTED: Final = {
    "cluster_id": "string", "bucket": "int", ORDER: "long", NTH: "int", "source": "string", "position": "long",
    "cluster": "string", "authority": "string", "first_sequence": "long", "sequence": "long",
    "occurred_not_before": "long", "occurred_not_after": "long", "collected_at": "long", "metadata_offset": "long",
}  # fmt: skip


def schema_of(plain: Mapping[str, str]) -> pa.Schema:
    """Spell such columns in Arrow."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in plain.items()])


def folded_schema() -> pa.Schema:
    """Spell what a fold gives: ordered rows of ``partition_changes``; on rows of their own what was dropped."""
    columns = [field.with_nullable(True) for field in arrow_schema(PARTITION_CHANGES)]
    return pa.schema([*columns, pa.field(ORDER, pa.int64()), pa.field(NTH, pa.int32()), pa.field(DROPS, pa.int64())])


def read_rows(applied: Mapping[str, int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make what decodes the rows of the replication channel that were not applied yet.

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
    place = {"source": row["source"], "position": row["position"], "payload": row["payload"]}
    try:
        observed = observation_of(row["payload"], row["damage"], Channel.REPLICATION)
    except Quarantined as reason:
        return {**place, "reason": str(reason)}
    seen = Seen.of(observed, THE_CLUSTERS)
    envelope = {item.name: getattr(seen, item.name) for item in fields(seen) if item.name in READ}
    return {
        **envelope,
        **place,
        "cluster_id": observed.cluster_id,
        "topic": getattr(observed, "topic", None),
        "concerns_all": seen.audience is Audience.EVERYBODY and not seen.begins_snapshot,
    }


def route_rows(buckets: int) -> Callable[[tuple[Any, ...], pa.Table, pa.Table], pa.Table]:
    """Make what orders one cluster's batch: known state and ``SEEN`` in, ``ROUTED`` out.

    Args:
        buckets: how many there are beside the cluster's own.
    """
    schema = schema_of(ROUTED)

    def route(_: tuple[Any, ...], known: pa.Table, seen: pa.Table) -> pa.Table:
        if not seen.num_rows:
            return schema.empty_table()
        merged = _merged(seen)
        cluster_id = ClusterId(merged[0]["cluster_id"])
        owners = {row["bucket"] for row in merged}
        active = set(range(buckets + 1)) if any(row["concerns_all"] for row in merged) else {THE_CLUSTERS, *owners}
        router = Router(state_of(known), cluster_id, sorted(active))
        found = router.route([_seen(row) for row in merged])
        rows = [_routed(nth, item, merged) for nth, item in enumerate(found)]
        return pa.Table.from_pylist(rows, schema=schema)

    return route


def _merged(seen: pa.Table) -> list[dict[str, Any]]:
    """Merge the sources by time; each keeps its own order."""
    latest: dict[str, int] = {}
    timed: list[tuple[int, dict[str, Any]]] = []
    for row in seen.sort_by([("source", "ascending"), ("position", "ascending")]).to_pylist():
        latest[row["source"]] = max(latest.get(row["source"], 0), row["occurred_not_after"])
        timed.append((latest[row["source"]], row))
    return [row for _, row in sorted(timed, key=lambda each: each[0])]


def _seen(row: Mapping[str, Any]) -> Seen:
    told = {item.name: row[item.name] for item in fields(Seen)}
    return Seen(**{**told, "audience": Audience(row["audience"]), "authority": Authority(row["authority"])})


def _routed(nth: int, item: Any, merged: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401 - a Routed
    place = {"bucket": item.bucket, ORDER: item.order, NTH: nth}
    whole = merged[item.order]
    if item.instead is None:
        return {**place, "cluster_id": whole["cluster_id"], "source": whole["source"], "position": whole["position"]}
    told = {name: getattr(item.instead, name, None) for name in ROUTED if name not in {*place, "position"}}
    return {**told, **place}


def fold_rows(key: tuple[Any, ...], known: pa.Table, told: pa.Table) -> pa.Table:
    """Fold what one bucket sees, ``ROUTED`` with payloads, over what it knows, rows of the state; give its changes."""
    if not told.num_rows:
        return folded_schema().empty_table()
    cluster_id, bucket = (value.as_py() if isinstance(value, pa.Scalar) else value for value in key)
    places: dict[tuple[str, int], int] = {}
    observations: list[Observation] = []
    for row in told.sort_by([(ORDER, "ascending"), (NTH, "ascending")]).to_pylist():
        observed = _told(row)
        places[observed.source, observed.sequence] = row[ORDER]
        observations.append(observed)
    folded = fold(state_of(known), observations)
    kept = told_by(bucket, folded)
    orders = [
        AT_THE_END if change.subject is Subject.SOURCE else
        places.get((change.observation.source, change.observation.sequence), AT_THE_END)
        for change in kept
    ]  # fmt: skip
    rows = changes_to_arrow(kept)
    rows = rows.append_column(ORDER, pa.array(orders, pa.int64()))
    rows = rows.append_column(NTH, pa.array(range(len(kept)), pa.int32()))
    rows = rows.append_column(DROPS, pa.nulls(len(kept), pa.int64())).cast(folded_schema())
    return pa.concat_tables([rows, _drops(cluster_id, folded)]) if bucket != THE_CLUSTERS else rows


def _told(row: Mapping[str, Any]) -> Observation:
    if row["payload"] is not None:
        return decode(row["payload"])
    names = [item.name for item in fields(Heartbeat)]
    envelope = {**{name: row[name] for name in names}, "authority": Authority(row["authority"])}
    if row["first_sequence"] is None:
        return Heartbeat(**envelope)
    return Confirmed(**envelope, first_sequence=row["first_sequence"])


def _drops(cluster_id: str, folded: Folded) -> pa.Table:
    """Count what an owner dropped, a row a source: the cluster's bucket tells it with the source."""
    counts = Counter(observed.source for observed in own_drops(folded.dropped))
    rows = [{"cluster_id": cluster_id, "source": source, DROPS: count} for source, count in counts.items()]
    return pa.Table.from_pylist(rows, schema=folded_schema())


def state_of(known: pa.Table) -> ReplicationState:
    """Read what is known; of each key the last row counts."""
    state = ReplicationState()
    replay(state, known.sort_by(ORDER))
    return state
