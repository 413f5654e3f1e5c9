"""Lines of the Prometheus text format 0.0.4, and of OpenMetrics 1.0 where that differs."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from exporters.metrics.compression import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporters.metrics.metric import Metric, Number

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def metric_name(name: str) -> bool:
    """Return whether a text is a metric name without colons, which are reserved for recording rules."""
    return _NAME.fullmatch(name) is not None


def escaped(value: str) -> str:
    """Escape a label value."""
    return value.translate(_ESCAPES)


def number(value: Number) -> str:
    """Format a sample value."""
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def header(metric: Metric) -> str:
    """Format the HELP and TYPE lines of a metric."""
    return f"# HELP {metric.name} {metric.help.translate(_HELP_ESCAPES)}\n# TYPE {metric.name} {metric.kind}\n"


def openmetrics_header(metric: Metric) -> str:
    """Format the HELP, TYPE and UNIT lines of a metric."""
    name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
    unit = f"# UNIT {name} {metric.unit}\n" if metric.unit and name.endswith(f"_{metric.unit}") else ""
    return f"# HELP {name} {escaped(metric.help)}\n# TYPE {name} {metric.kind}\n{unit}"


def series(name: str, labels: Sequence[str], values: Sequence[str]) -> str:
    """Format a name with its labels."""
    pairs = ",".join(f'{label}="{escaped(text)}"' for label, text in zip(labels, values, strict=True))
    return f"{name}{{{pairs}}}" if pairs else name


def line(name: str, labels: Sequence[str], values: Sequence[str], value: Number) -> str:
    """Format one sample."""
    return f"{series(name, labels, values)} {number(value)}\n"


_formatted = lru_cache(maxsize=16_384)(series)
"""Cached series of clusters and brokers, which are formatted again at every change of theirs."""


def sample_lines(metric: Metric, values: tuple[str, ...], value: Number, created: float | None) -> str:
    """Format one sample, and when its counter was 0, in seconds since 1970: None leaves that out."""
    sample = f"{_formatted(metric.name, metric.labels, values)} {number(value)}\n"
    if created is None:
        return sample
    name = f"{metric.name.removesuffix('_total')}_created"
    return f"{sample}{_formatted(name, metric.labels, values)} {number(created)}\n"


# The lines above the samples of a metric, in the text format and in OpenMetrics: the samples are the same in both.
#
# OpenMetrics 1.0 names a counter without its ``_total``, has a line for the unit, and ends with ``# EOF``. Counters of
# a whole cluster or of the exporter say when they were 0, too; those with more labels do not.


TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_END: Final = Block((b"# EOF\n",), 0)


class Heading:
    """The lines above the samples of a metric, in both formats."""

    def __init__(self, metric: Metric) -> None:
        """Format them once."""
        self._text = Block((header(metric).encode(),), 0)
        self._openmetrics = Block((openmetrics_header(metric).encode(),), 0)

    def block(self, *, is_openmetrics: bool) -> Block:
        """Return the lines in a format."""
        return self._openmetrics if is_openmetrics else self._text


def end(*, is_openmetrics: bool) -> list[Block]:
    """Return what ends an exposition."""
    return [_END] if is_openmetrics else []
