"""Slow brokers, from the newest samples, for ``isrwatch state --brokers``. Unknown stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.times import SECOND, span
from exporters.terminal.sample_rows import samples_of
from streaming.contracts.sample_tables import BROKER_SPEED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.delta.store.place import Place

    Row = dict[str, Any]

SPEED_COLUMNS: Final = ("is_slow", "is_overloaded", "slow_since", "slow_reasons", "response_micros")
MOST_AGE: Final = 120_000_000
"""Conclusions from samples older than this, in microseconds, are unknown now."""


def speeds_by_broker(folder: Place, now: int) -> dict[tuple[str, int], Row]:
    """Return the newest of ``SPEED_COLUMNS`` by cluster id and broker.

    Args:
        folder: of the tables; this one need not exist.
        now: UTC microseconds; samples that are much older are left out.
    """
    return {
        (row["cluster_id"], row["broker"]): {name: row[name] for name in SPEED_COLUMNS}
        for row in samples_of(folder, BROKER_SPEED, now)
        if now - row["collected_at"] <= MOST_AGE
    }


def said_of_speeds(rows: Sequence[Mapping[str, Any]], now: int, *, names_clusters: bool) -> Iterator[str]:
    """Say which brokers are slow, since when and why, and which clusters are overloaded.

    Args:
        rows: of brokers, with ``SPEED_COLUMNS``.
        now: UTC microseconds.
        names_clusters: whether there is more than one cluster.
    """
    for row in rows:
        where = f" of {row['cluster']}" if names_clusters else ""
        if row.get("is_slow"):
            since = span(max(0, now - row["slow_since"]) / SECOND)
            yield f"broker {row['broker']}{where} is slow for {since}: {'; '.join(row['slow_reasons'])}"
    for cluster in dict.fromkeys(row["cluster"] for row in rows if row.get("is_overloaded")):
        yield f"cluster {cluster} is overloaded: more brokers are slower than usual than one of them could cause"
