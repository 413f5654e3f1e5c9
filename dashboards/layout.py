"""Rows of a board: a question and the panels that answer it, with sizes in Grafana's 24 columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import attr
from grafanalib import core

from dashboards import style

if TYPE_CHECKING:
    from collections.abc import Iterator

GRID_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A heading and its panels: each line is a height, and panels with their widths from left to right."""

    title: str
    lines: tuple[tuple[int, tuple[tuple[style.Panel, int], ...]], ...]


def line(height: int, *panels: style.Panel) -> tuple[int, tuple[tuple[style.Panel, int], ...]]:
    """Return a line of panels of equal widths, the last one as wide as is left."""
    width = GRID_WIDTH // len(panels)
    widths = [*[width] * (len(panels) - 1), GRID_WIDTH - width * (len(panels) - 1)]
    return height, tuple(zip(panels, widths, strict=True))


def placed(rows: tuple[PanelRow, ...]) -> list[style.Panel]:
    """Return every panel with its grid position, top-down, headings included."""
    result: list[style.Panel] = []
    top = 0
    for row in rows:
        result.append(_at(style.row(row.title), 0, top, GRID_WIDTH, 1))
        top += 1
        for height, line in row.lines:
            result.extend(_line(line, top, height))
            top += height
    return result


def _line(line: tuple[tuple[style.Panel, int], ...], top: int, height: int) -> Iterator[style.Panel]:
    left = 0
    for panel, width in line:
        yield _at(panel, left, top, width, height)
        left += width


def _at(panel: style.Panel, left: int, top: int, width: int, height: int) -> style.Panel:
    return attr.evolve(panel, gridPos=core.GridPos(h=height, w=width, x=left, y=top))
