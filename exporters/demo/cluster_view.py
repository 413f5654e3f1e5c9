"""A snapshot as text for a terminal. Pure: no files, no clock, no processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from exporters.answers.brokers import state_name
from exporters.read_model.times import span
from exporters.terminal.columns import STATE_STYLES, broker_style
from streaming.contracts.health import AT_MIN_ISR, DISKLESS, OFFLINE, PARTITIONS, UNDER_MIN_ISR, UNDER_REPLICATED

if TYPE_CHECKING:
    from exporters.read_model.snapshot import ClusterSnapshot

STATES: Final = {
    PARTITIONS: "partitions",
    UNDER_REPLICATED: "under-replicated",
    AT_MIN_ISR: "at min ISR",
    UNDER_MIN_ISR: "under min ISR",
    OFFLINE: "offline",
    DISKLESS: "diskless",
}
_SELDOM: Final = frozenset({AT_MIN_ISR, DISKLESS})
"""Said only where there are any."""


def heading(cluster: ClusterSnapshot, now: int) -> Text:
    """Render how many partitions of a cluster are in each state, the worst first, and how old that is.

    A line of a terminal with 100 columns has room for it: what counts most must not stand alone on a second one.
    """
    age = cluster.age_seconds(now)
    text = Text.assemble(("cluster ", "dim"), (cluster.name, "bold"))
    text.append("  no data yet" if age is None else f"  {span(age)} ago", style="dim")
    for state in (OFFLINE, UNDER_MIN_ISR, AT_MIN_ISR, UNDER_REPLICATED, DISKLESS):
        count = cluster.counts.in_state(state)
        if state in _SELDOM and count == 0:
            continue
        text.append(f"  {STATES[state]} ")
        if count is None:
            text.append("?", style="yellow")
            continue
        text.append(f"{count:,}", style=STATE_STYLES.get(state, "bold") if count else "green")
    partitions = cluster.counts.in_state(PARTITIONS)
    return text.append(" of ").append("?" if partitions is None else f"{partitions:,}", style="bold")


def totals(cluster: ClusterSnapshot) -> Text:
    """Render how many changes a cluster ever counted."""
    counted = cluster.totals
    counts = {
        "ISR shrinks": counted.isr_shrinks,
        "ISR expands": counted.isr_expands,
        "leader changes": counted.leader_changes,
        "unclean elections": counted.unclean_elections,
    }
    return Text("totals  " + "  ".join(f"{label} {count:,}" for label, count in counts.items()), style="dim")


def brokers_of(cluster: ClusterSnapshot) -> Table:
    """Render the brokers of a cluster: state, what each leads and hosts."""
    table = Table("broker", "state", "leads", "in sync", box=None, header_style="dim", pad_edge=False)
    counts = cluster.counts
    for number in cluster.known_brokers():
        state = state_name(cluster, number)
        in_sync, hosted = counts.in_sync.get(number, 0), counts.hosted.get(number, 0)
        table.add_row(
            str(number),
            Text(state, style=broker_style(state)),
            f"{counts.led.get(number, 0):,}",
            Text(f"{in_sync:,} of {hosted:,}", style="yellow" if in_sync < hosted else ""),
        )
    return table
