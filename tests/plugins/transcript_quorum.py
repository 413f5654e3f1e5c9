"""The command that looks at the quorum of controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugins.transcript import Script, command

if TYPE_CHECKING:
    from collections.abc import Iterator


@command
def quorum(it: Script) -> Iterator[str]:
    """``quorum``: what the active controller tells of its voters (DescribeQuorum)."""
    told = it.lab.cluster.controllers.describe(it.lab.cluster.now)
    if told is None:
        yield "no controller is active"
        return
    yield f"leader {told.leader}  epoch {told.epoch}  high watermark {told.high_watermark}"
    for member in told.members:
        if member.is_voter:
            behind = "never" if member.last_caught_up_ms is None else f"{it.lab.cluster.now - member.last_caught_up_ms}"
            yield f"voter {member.node}  log end {member.log_end_offset}  caught up {behind} ms ago"
