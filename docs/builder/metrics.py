"""Every metric of the exporter, as ``isrwatch export --list-metrics`` lists them, by subject."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Final

from docs.builder.markdown import plain, table
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS

if TYPE_CHECKING:
    from exporters.metrics.metric import Metric

_HEAD: Final = """# Metrics

Every metric of `isrwatch export`; `isrwatch export --list-metrics` prints the same. [How it
compares](../how-it-compares.md) says which of them other exporters have. Those of partitions and replicas exist while a
partition is not healthy, and for an hour after its last change; counts and counters always exist, from 0. In
OpenMetrics, counters of a whole cluster or of the exporter have a sample `_created`, too: when they were 0.
"""
_DROP_IN: Final = "Names of kafka_exporter"


def metrics_page() -> str:
    """Render the catalogue, one table per subject, and the names of MBeans."""
    lines = [_HEAD]
    for subject, metrics in groupby(sorted(CATALOGUE, key=_subject), key=_subject):
        rows = ((f"`{metric.name}`", f"{plain(metric.help)} {_kind(metric)}") for metric in metrics)
        lines += [f"## {subject}", "", *table(("metric", "meaning"), rows), ""]
    beans = (
        (f"`{metric.name}`", f"{plain(metric.help)} {_kind(metric)} `{mbean}`") for mbean, metric, _ in JMX_METRICS
    )
    lines += ["## Names of MBeans, at /metrics/jmx", "", *table(("metric", "meaning, MBean"), beans), ""]
    return "\n".join(lines)


def _kind(metric: Metric) -> str:
    """Say in a few words what a scrape shows of it; a table with a column for each would not fit a screen."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    stability = "" if metric.stability == "stable" else f", {metric.stability}"
    return f"*{metric.kind}{stability}{f'; labels {labels}' if labels else ''}*"


def _subject(metric: Metric) -> str:
    """Give the first word of a metric of our own: it names what is measured."""
    if metric.is_drop_in:
        return _DROP_IN
    own = re.match(r"kafka_replication_([a-z]+)_", metric.name)
    return f"kafka_replication_{own[1]}" if own else metric.name.split("_")[0]
