"""The lines above the samples of a metric, in the text format and in OpenMetrics: the samples are the same in both.

OpenMetrics 1.0 names a counter without its ``_total``, has a line for the unit, and ends with ``# EOF``. Times of
creation are not exposed: counters go on over restarts of all our programs, and no table says when they were 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.compression import Block
from exporters.metrics.text import header, openmetrics_header

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporters.metrics.metric import Metric

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_END: Final = Block((b"# EOF\n",), 0)


class Heading(Block):
    """The lines above the samples of a metric; ``openmetrics`` has them in the other format."""

    __slots__ = ("openmetrics",)

    def __init__(self, metric: Metric) -> None:
        """Format them once."""
        super().__init__((header(metric).encode(),), 0)
        self.openmetrics = Block((openmetrics_header(metric).encode(),), 0)


def in_openmetrics(blocks: Iterable[Block]) -> list[Block]:
    """Return an exposition in the other format."""
    return [*(each.openmetrics if isinstance(each, Heading) else each for each in blocks), _END]
