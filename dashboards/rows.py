"""Rows of the overview: a question and the panels that answer it, with sizes in Grafana's 24 columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import attr
from grafanalib import core

from dashboards import panels, style

if TYPE_CHECKING:
    from collections.abc import Iterator

GRID_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A heading and its panels: each line is a height, and panels with their widths from left to right."""

    title: str
    lines: tuple[tuple[int, tuple[tuple[style.Panel, int], ...]], ...]


ROWS: Final = (
    PanelRow(
        "Is data at risk now?",
        (
            (
                4,
                (
                    (panels.OFFLINE, 4),
                    (panels.UNDER_MIN_ISR, 4),
                    (panels.AT_MIN_ISR, 4),
                    (panels.UNDER_REPLICATED, 4),
                    (panels.FENCED_BROKERS, 4),
                    (panels.DATA_AGE, 4),
                ),
            ),
            (7, ((panels.AT_RISK, 24),)),
        ),
    ),
    PanelRow(
        "Which incidents are open, and which brokers are safe to stop?",
        ((8, ((panels.INCIDENTS, 9), (panels.RESTART_SAFETY, 15))),),
    ),
    PanelRow(
        "Which brokers left in-sync replicas, why, since when?",
        (
            (8, ((panels.SUSPECTS, 8), (panels.ISR_REMOVALS, 16))),
            (8, ((panels.CAUSES, 8), (panels.IN_SYNC_SHARE, 16))),
        ),
    ),
    PanelRow("Which topics?", ((8, ((panels.TOPICS, 11), (panels.PARTITIONS, 13))),)),
    PanelRow(
        "What changed?",
        ((7, ((panels.ISR_CHANGES, 10), (panels.LEADER_CHANGES, 10), (panels.UNCLEAN_ELECTIONS, 4))),),
    ),
    PanelRow(
        "The brokers",
        (
            (4, ((panels.REGISTERED_BROKERS, 8), (panels.CONTROLLER, 8), (panels.OFF_PREFERRED_LEADER, 8))),
            (8, ((panels.BROKERS, 24),)),
        ),
    ),
    PanelRow(
        "Can this dashboard be trusted?",
        (
            (
                7,
                (
                    (panels.SOURCE_AGE, 12),
                    (panels.MISSED_CHANGES, 4),
                    (panels.QUARANTINED, 4),
                    (panels.UNKNOWN_MIN_ISR, 4),
                ),
            ),
            (7, ((panels.QUERIES, 10), (panels.BEHIND, 10), (panels.REPORT_AGE, 4))),
        ),
    ),
)


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
