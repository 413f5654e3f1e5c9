"""The table fault → class, ``truth.toml``, as values: which incident a fault ought to be reported as."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PATH: Final = Path(__file__).parent / "truth.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row: what a fault is, where the model shows ``when``.

    Attributes:
        kind: the class; None for no incident.
        also: classes that are right, too, where ``only_if`` holds.
        suspects: the rule that names the brokers to blame.
    """

    fault: str
    when: str
    why: str
    kind: str | None = None
    also: tuple[str, ...] = ()
    only_if: str = ""
    suspects: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What two faults on different brokers are where they make one incident of another class."""

    of: tuple[str, str]
    when: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The whole table. ``outcomes`` in order: of a fault the first whose ``when`` holds counts. Times in seconds.

    ``unplayed`` are the classes that no fault is, each with the reason.
    """

    outcomes: tuple[Outcome, ...]
    pairs: tuple[Pair, ...]
    planned: frozenset[str]
    neutral: frozenset[str]
    divisible: frozenset[str]
    pieces: dict[str, tuple[str, ...]]
    unproven: frozenset[str]
    unplayed: dict[str, str]
    away_seconds: float
    turn_seconds: float

    def of(self, fault: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.fault == fault]


def _table() -> Table:
    read = tomllib.loads(_PATH.read_text(encoding="utf-8"))
    outcomes = [
        Outcome(kind=row.pop("class", None), also=tuple(row.pop("also", ())), **row) for row in read["outcomes"]
    ]
    pairs = [
        Pair(of=(row["of"][0], row["of"][1]), when=row["when"], kind=row["class"], why=row["why"])
        for row in read["pairs"]
    ]
    return Table(
        outcomes=tuple(outcomes),
        pairs=tuple(pairs),
        planned=frozenset(read["planned"]),
        neutral=frozenset(read["neutral"]),
        divisible=frozenset(read["divisible"]),
        unproven=frozenset(read["unproven"]),
        unplayed=read["unplayed"],
        pieces={whole: tuple(kinds) for whole, kinds in read["pieces"].items()},
        away_seconds=read["away_seconds"],
        turn_seconds=read["turn_seconds"],
    )


TABLE: Final = _table()
