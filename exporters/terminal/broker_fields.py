"""The columns of brokers on a terminal, where a table has room for few, and in a line."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.conditions import announced_brokers
from exporters.terminal.broker_columns import HOLDS, IN_WORDS, LESSER
from exporters.terminal.output import UNKNOWN
from exporters.terminal.recovery import recovery_fields
from exporters.terminal.state_view import columns_as_fields, missing_brokers, text
from exporters.terminal.table_layout import SENTENCE, WORDS, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporters.read_model.times import Clock
    from exporters.terminal.output import Row
    from exporters.terminal.state_selection import StateSelection

_SELDOM: Final = ("under_min_isr_partitions", "offline_partitions", "unknown_min_isr_partitions")
_LOSSES: Final = {"would_go_offline": "offline", "would_go_under_min_isr": "under min ISR"}


def broker_fields(rows: list[dict[str, Any]], clock: Clock) -> tuple[Field, ...]:
    """Return the columns of a table: without what is 0, or is unknown, of every broker; the tables have all of it."""
    has_advice = any(row.get("is_safe_to_stop") is not None for row in rows)
    ranked = [name for name in ("restart_order", "suspect_score") if any(row.get(name) for row in rows)]
    return (
        *_who(rows, partial(_to_the_second, clock)),
        *recovery_fields(rows),
        Field("leads", text("led_partitions"), is_number=True),
        Field("in sync", _in_sync, is_number=True),
        *columns_as_fields(name for name in _SELDOM if any(row.get(name) for row in rows)),
        *((Field("safe to stop", text("is_safe_to_stop")),) if has_advice else ()),
        *((Field("a stop costs", _costs, wraps=WORDS, below=1),) if any(map(_costs, rows)) else ()),
        *columns_as_fields(ranked, below=2),
    )


def broker_line_fields(rows: list[dict[str, Any]], clock: Clock, names: Iterable[str]) -> tuple[Field, ...]:
    """Return the parts of a line: every column that the job derives, and why a broker may be stopped or not."""
    derived = tuple(name for name in names if name not in IN_WORDS)
    return (
        *_who(rows, clock.iso),
        *recovery_fields(rows),
        *columns_as_fields((*HOLDS, *(name for name in derived if name not in LESSER))),
        *columns_as_fields(name for name in derived if name in LESSER),
        *((Field("restart", text("restart_reason"), wraps=SENTENCE),) if derived else ()),
    )


def said_of_work(rows: Iterable[Row], selection: StateSelection, clock: Clock) -> Iterator[str]:
    """Name the announced work on each broker that an ISR lacks; nothing while the state is stale."""
    missing: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        missing[row["cluster_id"]].update(missing_brokers(row))
    for cluster, cluster_row in selection.clusters:
        announced = frozenset() if cluster_row["is_stale"] else announced_brokers(cluster, clock.now)
        of_cluster = f" of cluster {cluster.name}" if len(selection.clusters) > 1 else ""
        for number in sorted(announced & missing[cluster.cluster.cluster_id]):
            said = _maintenance(partial(_to_the_second, clock), cluster.brokers[number]._asdict())
            yield f"work on broker {number}{of_cluster} is announced {said}"


def _to_the_second(clock: Clock, micros: int) -> str:
    return clock.short(micros).partition(".")[0]


def _who(rows: list[dict[str, Any]], as_text: Callable[[int], str]) -> tuple[Field, ...]:
    has_work = any(_maintenance(as_text, row) for row in rows)
    return (
        Field("broker", text("broker"), is_number=True),
        Field("state", text("broker_state")),
        *((Field("maintenance", partial(_maintenance, as_text), wraps=WORDS, below=1),) if has_work else ()),
    )


def _maintenance(as_text: Callable[[int], str], row: Row) -> str:
    """Return until when planned work on a broker is announced, and why; or when it overran."""
    if row.get("maintenance_until") is not None:
        return f"until {as_text(row['maintenance_until'])}: {row['maintenance_why']}"
    overran = row.get("maintenance_overran_at")
    return "" if overran is None else f"overran at {as_text(overran)}"


def _in_sync(row: Row) -> str:
    return f"{row['in_sync_partitions']:,} of {row['hosted_partitions']:,}"


def _costs(row: Row) -> str:
    """Return how many partitions would be worse off, by the state that they would be in; nothing for none."""
    if all(row.get(name) is None for name in _LOSSES):
        return ""
    counts = {state: row.get(name) for name, state in _LOSSES.items()}
    return ", ".join(
        f"{UNKNOWN if count is None else f'{count:,}'} {state}" for state, count in counts.items() if count != 0
    )
