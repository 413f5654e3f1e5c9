"""In which order the observations of a batch are folded: merged by time, and each source keeps its own order.

Sources are read side by side, so no order between them is given; the fold gives the same for every one (see ``fold``).
Times order them nearly as they happened. A time that runs back within a source counts as the newest one before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def merged(items: Iterable[tuple[str, int, T]]) -> list[T]:
    """Merge what several sources reported.

    Args:
        items: source, time in microseconds, and what it reported then; those of a source are in its order.
    """
    newest: dict[str, int] = {}
    timed: list[tuple[int, T]] = []
    for source, moment, item in items:
        newest[source] = max(newest.get(source, 0), moment)
        timed.append((newest[source], item))
    return [item for _, item in sorted(timed, key=lambda each: each[0])]  # stable: a source's own order stays
