"""Costs of ``isrwatch run``, as ``python -m tests.benchmarks.cost`` has measured them.

README.md has the sums, the page about sizes each process.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOT: Final = Path(__file__).parents[2]
README: Final = _ROOT / "README.md"
SIZES: Final = _ROOT / "docs" / "sizing.md"
RESULTS: Final = _ROOT / "tests" / "benchmarks" / "cost.json"
PARTS: Final = {"collect": "collector", "job": "job", "export": "exporter", "run": "supervisor"}
"""The processes of ``isrwatch run``: names of the results, and of the table."""
_BETWEEN: Final = re.compile(r"(<!-- (cost|cost of each process): [^>]*-->\n).*?(<!-- end of the cost -->)", re.DOTALL)

_MB_OF_A_GB: Final = 1_000

Cell = dict[str, tuple[float, float]]
"""MB and cores of each process."""


def cells() -> dict[tuple[int, int], Cell]:
    """Return what was measured, by clusters and partitions."""
    if not RESULTS.exists():
        return {}
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {
        tuple(map(int, key.split())): {name: tuple(values) for name, values in cell.items()}  # type: ignore[misc]
        for key, cell in stored.items()
    }


def sums(measured: Mapping[tuple[int, int], Cell]) -> Iterator[str]:
    """Yield the lines of the short table: a row for each number of clusters, a column for each of partitions."""
    sizes = sorted({partitions for _, partitions in measured})
    yield f"| | {' | '.join(f'{each:,} partitions' for each in sizes)} |"
    yield "| --- |" + " --- |" * len(sizes)
    for clusters in sorted({clusters for clusters, _ in measured}):
        together = [_together(measured[clusters, each]) if (clusters, each) in measured else "" for each in sizes]
        yield f"| {clusters} cluster{'s' * (clusters > 1)} | {' | '.join(together)} |"


def rows(measured: Mapping[tuple[int, int], Cell]) -> Iterator[str]:
    """Yield the lines of the long table: a row for each number of clusters and partitions."""
    yield f"| clusters | partitions | {' | '.join(PARTS.values())} | together |"
    yield "| --- | --- | " + "--- | " * len(PARTS) + "--- |"
    for (clusters, partitions), cell in sorted(measured.items()):
        parts = " | ".join(_said(*cell[name]) for name in PARTS)
        yield f"| {clusters} | {partitions:,} | {parts} | {_together(cell)} |"


def _together(cell: Cell) -> str:
    return _said(*(sum(values) for values in zip(*cell.values(), strict=True)))


def _said(megabytes: float, cores: float) -> str:
    size = f"{megabytes / _MB_OF_A_GB:.1f} GB" if megabytes >= _MB_OF_A_GB else f"{megabytes:.0f} MB"
    return f"{size}, {cores:.2f} cores"


def with_costs(text: str) -> str:
    """Return a page with the table as it was measured; without its marks, the same text."""
    tables = {"cost": sums, "cost of each process": rows}
    return _BETWEEN.sub(lambda marks: "\n".join([marks[1], *tables[marks[2]](cells()), "", marks[3]]), text)
