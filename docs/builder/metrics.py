"""Every metric of the exporter, as ``isrwatch export --list-metrics`` lists them, by subject; labels once for each."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from docs.builder.markdown import code, plain, table
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporters.metrics.metric import Metric

_HEAD: Final = """# Metrics

Every metric of `isrwatch export`; `isrwatch export --list-metrics` prints the same. Names that end with `_total` are
counters, all others gauges; those that end with `_info` are always 1. Times are seconds since 1970. A value that is
unknown is absent. [How it compares](../how-it-compares.md) says which metrics other exporters have. Those of partitions
and replicas exist while a partition is not healthy, and for an hour after its last change; counts and counters always
exist, from 0. In OpenMetrics, counters of a whole cluster or of the exporter have a sample `_created`, too: when they
were 0.
"""
_SAID: Final = re.compile(
    r"; always 1(?:, for joins)?(?=[.;])|; absent while unknown(?=[.;])|, in seconds since 1970(?=[.;])"
)
"""Ends of meanings that the head says of every metric."""
_DROP_IN: Final = "Names of kafka_exporter"
MARKS: Final = "†‡§"
_SAVED: Final = 12  # words of repeated ends of meanings from which they are said once


def metrics_page() -> str:
    """Render the catalogue, one table per subject, and the names of MBeans."""
    lines = [_HEAD]
    for subject, metrics in groupby(sorted(CATALOGUE, key=_subject), key=_subject):
        lines += _section(subject, [(metric, "") for metric in metrics])
    beans = [(metric, f" `{mbean}`") for mbean, metric, _ in JMX_METRICS]
    return "\n".join([*lines, *_section("Names of MBeans, at /metrics/jmx", beans)])


def _section(title: str, metrics: Sequence[tuple[Metric, str]]) -> Iterator[str]:
    """Render a table; labels that all of its metrics have stand above it, and what many of them end with."""
    every = [label for label in metrics[0][0].labels if all(label in metric.labels for metric, _ in metrics)]
    ends = Counter(_end(said_of(metric)) for metric, _ in metrics)
    saved = {end: (count - 1) * len(end.split()) for end, count in ends.items()}
    often = {end: mark for end, mark in zip(sorted(saved, key=saved.__getitem__, reverse=True), MARKS, strict=False)
             if saved[end] >= _SAVED}  # fmt: skip
    yield from (f"## {title}", "")
    if every:
        yield from (f"Labels of {'all' if len(metrics) > 1 else 'it'}: {code(every)}.", "")
    yield from (f"{mark} {plain(end[:1].upper() + end[1:])}\n" for end, mark in often.items())
    rows = (
        (f"`{metric.name}`", f"{_meaning(metric, often)}{_labels(metric, every)}{more}") for metric, more in metrics
    )
    yield from (*table(("metric", "meaning, MBean" if metrics[0][1] else "meaning"), rows), "")


def _end(text: str) -> str:
    """Give the last part of a meaning, after its last semicolon or its first comma."""
    return text.rpartition("; ")[2] if "; " in text else text.partition(", ")[2]


def said_of(metric: Metric) -> str:
    """Return the help of a metric without what the head of the page says of every metric."""
    return _SAID.sub("", metric.help)


def _meaning(metric: Metric, often: dict[str, str]) -> str:
    text = said_of(metric)
    end = _end(text)
    if end not in often:
        return plain(text)
    return f"{plain(text.removesuffix(end).rstrip(' ;,'))}.{often[end]}"


def _labels(metric: Metric, every: list[str]) -> str:
    own = [label for label in metric.labels if label not in every]
    return f" By {code(own)}." if own else ""


def _subject(metric: Metric) -> str:
    """Give the first word of a metric of our own: it names what is measured."""
    if metric.is_drop_in:
        return _DROP_IN
    own = re.match(r"kafka_replication_([a-z]+)_", metric.name)
    return f"kafka_replication_{own[1]}" if own else metric.name.split("_")[0]
