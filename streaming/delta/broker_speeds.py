"""Rows of ``broker_speed``: what ``changes.slow_brokers`` concludes, round by round, beside the newest round itself.

What it needs of earlier rounds is in the rows, so it goes on after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.advice.slow_brokers import UNKNOWN_SPEED, BrokerSpeed, SpeedSample, after_round

if TYPE_CHECKING:
    from collections.abc import Mapping

    Row = dict[str, Any]
    Rows = dict[int, Row]
    """The rows of one cluster, by broker."""

TAKES_OVER_AFTER: Final = 30_000_000
"""So long no other source adds rounds to those of one: from elsewhere other response times are usual. Microseconds."""
# Field of a conclusion -> column.
_COLUMN_OF: Final = {
    "is_slow": "is_slow",
    "is_overloaded": "is_overloaded",
    "scores": "signal_scores",
    "since": "slow_since",
    "reasons": "slow_reasons",
    "responses": "response_history",
    "behind": "behind_history",
    "appends": "append_history",
}


def with_rounds(current: pa.Table, reported: pa.Table, forgotten_after: int) -> pa.Table:
    """Apply rounds to rows; one that is not newer changes nothing.

    Args:
        current: one row per broker, times in microseconds.
        reported: samples of whole rounds, in the order of their log, in the same columns.
        forgotten_after: microseconds without a sample after which a broker begins anew.
    """
    clusters: dict[str, Rows] = {}
    for row in current.to_pylist():
        clusters.setdefault(row["cluster_id"], {})[row["broker"]] = row
    rounds: dict[tuple[str, str, int], Rows] = {}
    for row in reported.to_pylist():
        key = row["cluster_id"], row["source"], row["collected_at"]
        rounds.setdefault(key, {}).setdefault(row["broker"], row)  # the first of equals, as when they come one by one
    for (cluster_id, source, at), samples in rounds.items():
        rows = clusters.setdefault(cluster_id, {})
        last = max(rows.values(), key=lambda row: int(row["collected_at"]), default=None)
        if last is None or at > last["collected_at"] + (0 if source == last["source"] else TAKES_OVER_AFTER):
            remembered = {broker: row for broker, row in rows.items() if at - row["collected_at"] <= forgotten_after}
            clusters[cluster_id] = remembered | _concluded(remembered, samples, at)
    merged = [row for rows in clusters.values() for row in rows.values()]
    return pa.Table.from_pylist(merged, schema=current.schema)


def _concluded(rows: Rows, samples: Rows, at: Any) -> Rows:  # noqa: ANN401 - microseconds, out of Arrow
    before = {broker: _speed(row) for broker, row in rows.items()}
    measured = {
        broker: SpeedSample(**{name: row[name] for name in SpeedSample._fields}) for broker, row in samples.items()
    }
    speeds: Mapping[Any, BrokerSpeed] = after_round(before, measured, at)  # type: ignore[arg-type]
    return {
        broker: {
            **row,
            "slow_score": speeds[broker].score,
            **{column: getattr(speeds[broker], name) for name, column in _COLUMN_OF.items()},
        }
        for broker, row in samples.items()
    }


def _speed(row: Row) -> BrokerSpeed:
    stored = {name: row[column] for name, column in _COLUMN_OF.items()}
    for name, empty in UNKNOWN_SPEED._asdict().items():
        stored[name] = tuple(stored[name] or ()) if isinstance(empty, tuple) else stored[name]
    return BrokerSpeed(**stored)
