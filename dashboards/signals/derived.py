"""Signals that are metrics of the exporter: what its catalogue says of a metric is said here no more."""

from __future__ import annotations

from typing import Final

from dashboards.promql import PREFIX, Signal, SignalType, Unit
from exporters.metrics.catalogue import CATALOGUE

_METRICS: Final = {metric.name: metric for metric in CATALOGUE}
_UNITS: Final = {"seconds": Unit.SECONDS, "bytes": Unit.BYTES, "ratio": Unit.SHARE}


def signal(metric: str, name: str = "", meaning: str = "", *, unit: Unit | None = None, copies: str = "max") -> Signal:
    """Return the signal of a metric of the exporter: its labels, type, unit and help are those of the catalogue.

    Args:
        metric: full name of the metric.
        name: title on a panel; without one a panel has its own.
        meaning: what a panel says of it, if that is more than its help.
        unit: another one than that of the catalogue, such as none of a number that is an id.
        copies: aggregation over exporters that expose the same series: max, or min for ages.

    Raises:
        KeyError: the catalogue has no such metric.
    """
    described = _METRICS[metric]
    return Signal(
        name=name,
        metric=metric.removeprefix(PREFIX),
        meaning=meaning or described.help,
        labels=described.labels,
        kind=SignalType(described.kind.value),
        unit=unit or _UNITS.get(described.unit, Unit.COUNT),
        copies=copies,
    )


# The labels that identify one series, by what it is about: for sums of a board or a rule that no signal makes.


CLUSTER: Final = ("cluster",)
BROKER: Final = ("cluster", "broker")
TOPIC: Final = ("cluster", "topic")
INCIDENT: Final = ("cluster", "class")
SOURCE: Final = ("cluster", "channel", "source")
GROUP: Final = ("cluster", "group")
