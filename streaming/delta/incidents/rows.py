"""Rows of ``partition_changes`` as incidents need them, and incidents as rows of their table.

Arrow extracts the nested columns, because one batch may contain a storm of a hundred thousand changes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import accumulate, islice, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.incidents.context import BASELINE, STATES_OF, ChangeRow, DegradedState, Lacking
from streaming.changes.incidents.document import encode_incident
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.changes.incidents.rules import class_of, is_rolling, suspects_of
from streaming.changes.incidents.words import is_mended, text_of
from streaming.changes.state import ConfiguredTimes
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SourceKind
from streaming.contracts.tables import INCIDENTS
from streaming.delta.log.definitions import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.changes.incidents.incident import Incident

TOPICS_NAMED: Final = 20
SCHEMA: Final = arrow_schema(INCIDENTS)
KAFKAS_TIMES: Final = ConfiguredTimes()
USUAL_GAPS: Final = IncidentGaps()
_MICROS: Final = 1e6
_BEYOND_BROKERS: Final = 1 << 32
_FLAGS: Final = ("is_under_replicated", "is_under_min_isr", "is_offline", "is_deleted")


def rows_of(changes: pa.Table, version: int) -> Iterator[ChangeRow]:
    """Read the rows that one version added, in order; consecutive first states of partitions become one per cluster."""
    is_source = pc.equal(changes["subject"], Subject.SOURCE)
    is_bystander = pc.and_(is_source, pc.equal(changes["source_kind"], SourceKind.NONE))
    is_baseline = pc.and_(pc.fill_null(changes["is_baseline"], False), pc.equal(changes["subject"], Subject.PARTITION))
    is_first = pc.and_(is_baseline, pc.is_null(changes["before"]))
    is_left_out = pc.or_(pc.or_(is_bystander, _is_of_diskless(changes)), _is_harmless_minimum(changes, is_baseline))
    is_single = pc.invert(pc.or_(is_first, is_left_out)).combine_chunks()
    single = changes.filter(is_single).combine_chunks()
    columns = {"version": [version] * single.num_rows, **_columns(single)}
    columns |= {name: repeat((), single.num_rows) for name in ("in_sync", "in_states", "all_lacking")}
    rows = map(ChangeRow._make, zip(*(columns[name] for name in ChangeRow._fields), strict=True))
    read = 0
    for place, baseline in _baselines(changes, is_first.combine_chunks(), is_single, version):
        yield from islice(rows, place - read)
        read = place
        yield baseline
    yield from rows


def _is_harmless_minimum(changes: pa.Table, is_baseline: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return, per row, whether it only sets the first min ISR of a partition that is not under it nor lacks any."""
    after = _struct(changes["after"])
    is_harmed = pc.fill_null(pc.or_kleene(after("is_under_min_isr"), after("is_under_replicated")), False)
    return pc.and_(pc.and_(is_baseline, pc.is_valid(changes["before"])), pc.invert(is_harmed))


def _is_of_diskless(changes: pa.Table) -> pa.Array:
    """Return, per row, whether its partition was and is diskless, so that its ISR and leader mean nothing."""
    before, after = (_struct(changes[name])("is_diskless") for name in ("before", "after"))
    return pc.and_(pc.fill_null(before, True), pc.fill_null(after, False))


def _baselines(
    changes: pa.Table, is_first: pa.Array, is_single: pa.Array, version: int
) -> Iterator[tuple[int, ChangeRow]]:
    """Yield one row per run of first states of a cluster, with the number of single rows before it."""
    firsts = changes.filter(is_first).combine_chunks()
    if not firsts.num_rows:
        return
    places = pc.cumulative_sum(is_single.cast(pa.int64())).filter(is_first)
    cluster_ids, after = firsts["cluster_id"].combine_chunks(), _struct(firsts["after"])
    times = firsts["occurred_not_after"].cast(pa.int64()).combine_chunks()
    steps = (pc.pairwise_diff(column) for column in (places, cluster_ids.dictionary_encode().indices, times))
    is_begin = reduce(pc.or_, (pc.fill_null(pc.not_equal(step, 0), True) for step in steps))
    begins, runs = pc.indices_nonzero(is_begin), pc.cumulative_sum(is_begin.cast(pa.int64()))
    in_sync = in_sync_of(runs, after("leader"), _isr(after))
    in_states, lacking = in_states_of(runs, states_of(after)), lacking_of(runs, after)
    for run, begin in enumerate(begins.to_pylist(), start=1):
        key, name, time = (column[begin].as_py() for column in (cluster_ids, firsts["cluster"], times))
        row = ChangeRow(version, key, name, BASELINE, time, time, in_sync=in_sync.get(run, ()))
        yield places[begin].as_py(), row._replace(in_states=in_states[run], all_lacking=lacking.get(run, ()))


def in_states_of(keys: pa.Array, states: pa.Array) -> dict[Any, tuple[int, ...]]:
    """Count partitions by key, in each ``DegradedState``; ``states`` are the sums of each of them."""
    counted: dict[Any, list[int]] = {}
    sums = pa.table([keys, states], ["key", "states"]).group_by(["key", "states"]).aggregate([([], "count_all")])
    for row in sums.to_pylist():
        counts = counted.setdefault(row["key"], [0] * len(DegradedState))
        for state in STATES_OF[row["states"]]:
            counts[state] += row["count_all"]
    return {key: tuple(counts) for key, counts in counted.items()}


def lacking_of(keys: pa.Array, state: Callable[[str], pa.Array]) -> dict[Any, tuple[Lacking, ...]]:
    """Count the partitions that brokers do not serve, by key."""
    lists = lacking_in(state)
    columns = {
        "key": keys.take(pc.list_parent_indices(lists)),
        "broker": lists.flatten(),
        "leaderless": pc.is_in(_pairs(lists), _pairs(state("isr"))).cast(pa.int64()),
    }
    brokers = pa.table(columns).group_by(["key", "broker"]).aggregate([([], "count_all"), ("leaderless", "sum")])
    counted: dict[Any, list[Lacking]] = {}
    for row in brokers.to_pylist():
        lacking = Lacking(row["broker"], row["count_all"], row["leaderless_sum"])
        counted.setdefault(row["key"], []).append(lacking)
    return {key: tuple(sorted(counts)) for key, counts in counted.items()}


def states_of(state: Callable[[str], pa.Array]) -> pa.Array:
    """Return, per partition, the sum of 1 << ``DegradedState``; 0 of one that is deleted or diskless, or of none."""
    is_lacking = state("is_under_replicated")
    holds = {
        DegradedState.MINIMUM_UNKNOWN: pc.and_(is_lacking, pc.is_null(state("min_isr_effective"))),
        DegradedState.UNDER_MIN_ISR: state("is_under_min_isr"),
        DegradedState.OFFLINE: state("is_offline"),
        DegradedState.AT_MIN_ISR: state("is_at_min_isr"),
        DegradedState.MOVING: _is_moving(state),
    }
    each = (pc.multiply(pc.fill_null(held, False).cast(pa.int32()), 1 << number) for number, held in holds.items())
    return pc.if_else(_is_left_out(state), 0, reduce(pc.add, each))


def _is_moving(state: Callable[[str], pa.Array]) -> pa.Array:
    return pc.or_(*(pc.greater(_lengths(state(name)), 0) for name in ("adding_replicas", "removing_replicas")))


def _is_left_out(state: Callable[[str], pa.Array]) -> pa.Array:
    """Return, per partition, whether it is deleted or diskless, so that who serves it means nothing."""
    return pc.fill_null(pc.or_kleene(state("is_deleted"), state("is_diskless")), False)


def lacking_in(state: Callable[[str], pa.Array]) -> pa.ListArray:
    """Return the replicas of each partition that do not serve it: not in its ISR, or of a partition without a leader.

    Those that are being added do not count.
    """
    replicas = pc.if_else(_is_left_out(state), pa.scalar(None, state("replicas").type), state("replicas"))
    has_leader = pc.fill_null(pc.not_equal(state("leader"), NO_LEADER), False)
    serving = pc.if_else(has_leader, state("isr"), pa.scalar(None, state("isr").type))
    present = pa.concat_arrays([_pairs(serving), _pairs(state("adding_replicas"))])
    is_lacking = pc.invert(pc.is_in(_pairs(replicas), present))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(_lengths(replicas))])
    counts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(is_lacking.cast(pa.int32()))])
    return pa.ListArray.from_arrays(counts.take(ends), pc.list_flatten(replicas).filter(is_lacking))


def _pairs(lists: pa.Array) -> pa.Array:
    """Return a number for each place of the lists and value in them."""
    places = pc.multiply(pc.list_parent_indices(lists).cast(pa.int64()), _BEYOND_BROKERS)
    return pc.add(places, pc.list_flatten(lists).cast(pa.int64()))


def in_sync_of(keys: pa.Array, leaders: pa.Array, isrs: pa.Array) -> dict[Any, tuple[tuple[int, int, int], ...]]:
    """Count partitions by key, leader and follower in the ISR."""
    place = pc.list_parent_indices(isrs)
    columns = [keys.take(place), leaders.take(place), pc.list_flatten(isrs)]
    pairs = pa.table(columns, ["key", "leader", "follower"]).group_by(["key", "leader", "follower"])
    counted: dict[Any, list[tuple[int, int, int]]] = {}
    for row in pairs.aggregate([([], "count_all")]).to_pylist():
        counted.setdefault(row["key"], []).append((row["leader"], row["follower"], row["count_all"]))
    return {key: tuple(sorted(in_sync)) for key, in_sync in counted.items()}


def _columns(changes: pa.Table) -> dict[str, Iterable[Any]]:
    """Extract the fields of ``ChangeRow`` from the nested columns."""
    names = ("after", "before", "broker_after", "cluster_after")
    after, before, broker, cluster = (_struct(changes[name]) for name in names)
    is_up, events = _is_up(broker), changes["events"].combine_chunks()
    meant = pc.subtract(_lengths(after("replicas")), _lengths(after("adding_replicas")))
    needs_all = pc.or_kleene(pc.equal(meant, 1), pc.greater_equal(after("min_isr_effective"), meant))
    return {
        **{name: changes[name].to_pylist() for name in ("cluster_id", "cluster", "subject", "cause", "evidence")},
        "since": changes["occurred_not_before"].cast(pa.int64()).to_pylist(),
        "time": changes["occurred_not_after"].cast(pa.int64()).to_pylist(),
        "event_ids": tuples(_within(events, "event_id")),
        "events": tuples(_within(events, "event")),
        "proven": _proven(events),
        "unobserved": _filled(pc.coalesce(after("unobserved_micros"), cluster("unobserved_micros")), 0),
        "blind_since": _filled(cluster("sight_until").cast(pa.int64()), 0),
        "watermark": _filled(cluster("primary_watermark").cast(pa.int64()), 0),
        "gap": _filled(_gaps(before, after), 0),
        "topic_id": _filled(changes["topic_id"], ""),
        "topic": _filled(changes["topic"], ""),
        "partition": _filled(changes["partition"], -1),
        "left": tuples(changes["left_isr"]),
        "joined": tuples(changes["joined_isr"]),
        "leader_before": _filled(before("leader"), NO_LEADER),
        "leader": _filled(after("leader"), NO_LEADER),
        "replicas": tuples(after("replicas")),
        "isr": tuples(_isr(after)),
        "is_moving": _is_moving(after).to_pylist(),
        "states_before": states_of(before).to_pylist(),
        "states": states_of(after).to_pylist(),
        "lacking_before": tuples(lacking_in(before)),
        "lacking": tuples(lacking_in(after)),
        "needs_all": _filled(needs_all, value=False),
        **{name: _filled(after(name), value=False) for name in _FLAGS},
        "is_minimum_unknown": pc.is_null(after("is_under_min_isr")).to_pylist(),
        "broker": _filled(changes["broker"], -1),
        "is_shutting_down": _filled(broker("is_shutting_down"), value=False),
        "isr_before": tuples(_isr(before)),
        "rack": _filled(broker("rack"), ""),
        "is_up": _filled(is_up, value=False),
        "controller": _filled(cluster("controller"), NO_LEADER),
        "leases": _filled(broker("maintenance_leases"), ""),
        "lag_millis": _filled(cluster("replica_lag_time_max_ms"), 0),
        "session_millis": _filled(cluster("broker_session_timeout_ms"), 0),
        "silent_since": _filled(cluster("controller_silent_since").cast(pa.int64()), 0),
        "silent_until": _filled(cluster("controller_silent_until").cast(pa.int64()), 0),
        "source_kind": changes["source_kind"].to_pylist(),
        "primary": _filled(cluster("primary_source"), SourceKind.NONE.value),
        "because": _because(events, changes["source_kind"]),
    }


def _is_up(broker: Callable[[str], pa.Array]) -> pa.Array:
    return pc.invert(pc.or_kleene(broker("is_fenced"), pc.invert(broker("is_registered"))))


def _struct(column: pa.ChunkedArray) -> Callable[[str], pa.Array]:
    whole = column.combine_chunks()
    return lambda name: pc.struct_field(whole, name)


def _isr(state: Callable[[str], pa.Array]) -> pa.Array:
    """Return ISRs; null for diskless partitions."""
    isr = state("isr")
    return pc.if_else(pc.fill_null(state("is_diskless"), False), pa.scalar(None, isr.type), isr)


def _lengths(lists: pa.Array) -> pa.Array:
    return pc.fill_null(pc.list_value_length(lists), 0)


def _filled(column: pa.Array, value: object) -> list[Any]:
    values: list[Any] = pc.fill_null(column, value).to_pylist()
    return values


def _within(events: pa.ListArray, name: str) -> pa.ListArray:
    """Take one field out of lists of structs."""
    return pa.ListArray.from_arrays(events.offsets, pc.struct_field(events.values, name))


def _gaps(before: Callable[[str], pa.Array], after: Callable[[str], pa.Array]) -> pa.Array:
    """Return how long a partition was not observed while its cluster was, in microseconds."""
    unknown = pc.multiply(pc.subtract(after("unknown_seconds"), before("unknown_seconds")), 1e6)
    of_all = pc.subtract(after("unobserved_micros"), before("unobserved_micros"))
    return pc.subtract(pc.cast(pc.round(unknown), pa.int64()), of_all)


def _proven(events: pa.ListArray) -> list[int | None]:
    """Return, per row, the broker of the event that revises a cause."""
    brokers, place = pc.struct_field(events.values, "event_broker"), pc.list_parent_indices(events)
    is_revised = pc.equal(pc.struct_field(events.values, "event"), EventKind.CAUSE_REVISED)
    of_row = dict(zip(place.filter(is_revised).to_pylist(), brokers.filter(is_revised).to_pylist(), strict=True))
    return [of_row.get(row) for row in range(len(events))]


def _because(events: pa.ListArray, source_kinds: pa.ChunkedArray) -> Iterable[str]:
    """Return, per row, the evidence in words of what a poll infers: the detail of what it explains."""
    if not pc.any(pc.equal(source_kinds, SourceKind.POLL)).as_py():
        return repeat("", len(events))
    details, place = pc.struct_field(events.values, "detail"), pc.list_parent_indices(events)
    is_of_isr = pc.is_in(pc.struct_field(events.values, "event"), pa.array(_EXPLAINED))
    said = pc.and_(is_of_isr, pc.is_valid(details))
    of_row = dict(zip(place.filter(said).to_pylist(), details.filter(said).to_pylist(), strict=True))
    return [of_row.get(row, "") for row in range(len(events))]


_EXPLAINED: Final = (EventKind.ISR_SHRINK.value, EventKind.LEADER_CHANGE.value)


def tuples(lists: pa.Array) -> list[tuple[Any, ...]]:
    """Convert lists to tuples; null becomes an empty tuple."""
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    values = pc.list_flatten(lists).to_pylist()
    ends = accumulate(_lengths(lists).to_pylist())
    return [tuple(values[begin:end]) for begin, end in pairwise([0, *ends])]


def incident_row(
    incident: Incident,
    version: int,
    times: ConfiguredTimes = KAFKAS_TIMES,
    gaps: IncidentGaps = USUAL_GAPS,
    *,
    may_go_on: bool,
) -> dict[str, Any]:
    """Write one incident as a row of its table, without its short id, which the writer of the table adds."""
    kind = class_of(incident, times)
    suspects = suspects_of(incident, kind, times)
    names = sorted(set(incident.topics.values()))
    is_recovered = incident.merged_into is None and is_mended(incident, kind)
    return {
        "incident_id": incident.incident_id,
        "cluster_id": incident.cluster_id,
        "cluster": incident.cluster,
        "incident_class": kind,
        "opened_at": incident.opened_at,
        "updated_at": incident.updated_at,
        "closed_at": incident.closed_at,
        "recovered_at": incident.updated_at if is_recovered else None,
        "closes_at": gaps.end(incident),
        "is_rolling": is_rolling(incident),
        "merged_into": incident.merged_into,
        **text_of(incident, kind, tuple(suspects))._asdict(),
        "suspects": [{"broker": broker, "score": score} for broker, score in suspects.items()],
        "brokers": sorted({broker for _, broker in incident.departures} | set(incident.blamed)),
        "partitions": sum(len(numbers) for numbers in incident.touched.values()),
        "topic_count": len(incident.touched),
        "topics": names[:TOPICS_NAMED],
        "causes": [{"cause": cause, "changes": count} for cause, count in sorted(incident.causes.items())],
        **_tallied(incident),
        **{name: incident.counts[name] for name in _TOTALS},
        "evidence_events": incident.evidence_count,
        "event_ids": incident.evidence,
        "carried": encode_incident(incident) if may_go_on else None,
        "short_id": None,
        "as_of_version": version,
    }


_TOTALS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections")


def _tallied(incident: Incident) -> dict[str, Any]:
    fields_read: dict[str, Any] = {}
    for name, live in zip(("under_replicated", "under_min_isr", "offline"), incident.tallies, strict=True):
        tally = replace(live)  # advance a copy: the fold continues with the original
        tally.advance(incident.updated_at)
        fields_read[f"{name}_now"] = tally.now
        fields_read[f"{name}_peak"] = tally.peak
        fields_read[f"{name}_seconds"] = tally.wall_micros / _MICROS
        fields_read[f"{name}_partition_seconds"] = tally.partition_micros / _MICROS
    return fields_read
