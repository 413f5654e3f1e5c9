"""What a batch of the distributed mode holds, as the driver needs it: one row per source, nothing that grows."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.log_position import LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from streaming.contracts.state import SourceState


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """What a batch holds.

    Attributes:
        positions: newest position of each source.
        log_ids: of the logs that have one, where those positions are.
        refused: refused records per source.
        observations: how many records were decoded.
        whole_clusters: Kafka clusters of which every partition is needed: an observation concerns all of their topics.
    """

    positions: Mapping[str, int]
    log_ids: Mapping[str, int | None]
    refused: Mapping[str, int]
    observations: int
    whole_clusters: tuple[str, ...]


def summarise(read: DataFrame) -> BatchSummary:
    """Collect one row per source of a batch."""
    rows = (
        read.groupBy("source")
        .agg(
            F.max("position").alias("position"),
            F.max_by("log_id", "position").alias("log_id"),
            F.count_if(F.col("reason").isNotNull()).alias("refused"),
            F.count_if(F.col("reason").isNull()).alias("decoded"),
            F.collect_set(F.when(F.col("concerns_all"), F.col("cluster_id"))).alias("whole"),
        )
        .collect()
    )
    return BatchSummary(
        positions={row["source"]: row["position"] for row in rows},
        log_ids={row["source"]: row["log_id"] for row in rows},
        refused={row["source"]: row["refused"] for row in rows if row["refused"]},
        observations=sum(row["decoded"] for row in rows),
        whole_clusters=tuple(sorted({cluster_id for row in rows for cluster_id in row["whole"]})),
    )


def furthest(sources: Iterable[SourceState]) -> dict[str, LogPosition]:
    """Return where the last applied record of each log stands: one that holds two clusters has a state for each."""
    in_order = sorted(sources, key=attrgetter("position"))
    return {state.source: LogPosition(state.position, state.log_id) for state in in_order}
