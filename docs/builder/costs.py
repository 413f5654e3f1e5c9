"""The table of README.md of what ``isrwatch run`` costs, as ``python -m tests.benchmarks.cost`` has measured it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOT: Final = Path(__file__).parents[2]
README: Final = _ROOT / "README.md"
RESULTS: Final = _ROOT / "tests" / "benchmarks" / "cost.json"
PARTS: Final = {"collect": "collector", "job": "job", "export": "exporter", "run": "supervisor"}
"""The processes of ``isrwatch run``: names of the results, and of the table."""
_BETWEEN: Final = re.compile(r"(<!-- cost: [^>]*-->\n).*?(<!-- end of the cost -->)", re.DOTALL)
NOTE: Final = (
    "Memory (PSS) and CPU of `isrwatch run` at rest, scraped each 15 s; partitions are those of all clusters together. "
    "Measured by `python -m tests.benchmarks.cost`: the brokers are stand-ins that speak Kafka's protocol, and the "
    "clusters are polled at the default intervals. [Sizing](docs/sizing.md) says what grows with what."
)

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


def rows(measured: Mapping[tuple[int, int], Cell]) -> Iterator[str]:
    """Yield the lines of the table: one for each number of clusters and partitions."""
    shown = {key: name for key, name in PARTS.items() if key != "run"}
    yield f"| clusters | partitions | {' | '.join(shown.values())} | all together |"
    yield "| --- | --- | " + "--- | " * len(shown) + "--- |"
    for (clusters, partitions), cell in sorted(measured.items()):
        parts = [_said(*cell[name]) for name in shown]
        together = _said(*(sum(values) for values in zip(*cell.values(), strict=True)))
        yield f"| {clusters} | {partitions:,} | {' | '.join(parts)} | {together} |"


def _said(megabytes: float, cores: float) -> str:
    size = f"{megabytes / _MB_OF_A_GB:.1f} GB" if megabytes >= _MB_OF_A_GB else f"{megabytes:.0f} MB"
    return f"{size}, {cores:.2f} cores"


def with_costs(text: str) -> str:
    """Return README.md with the table as it was measured; without its marks, the same text."""
    table = "\n".join([*rows(cells()), "", NOTE])
    return _BETWEEN.sub(lambda marks: f"{marks[1]}\n{table}\n\n{marks[2]}", text)
