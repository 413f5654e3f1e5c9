"""Words about clusters that are polled: how often, and that causes are inferred. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exporters.read_model.times import span
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot

_SURENESS = "so causes are inferred from what brokers answer, not proven"


def said_of_polling(clusters: Iterable[ClusterSnapshot], intervals: Mapping[str, float]) -> list[str]:
    """Say of each cluster that is polled that it is, and how often.

    Args:
        clusters: whose brokers are shown.
        intervals: ``collect.poll_interval`` by the name of the cluster, in seconds; it is left out of others.
    """
    return [
        f"{each.name} is polled{_every(intervals.get(each.name))}, {_SURENESS}"
        for each in clusters
        if each.cluster.primary_source is SourceKind.POLL
    ]


def _every(seconds: float | None) -> str:
    return "" if seconds is None else f" every {span(seconds)}"
