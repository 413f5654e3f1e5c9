"""What incidents know of a cluster beside its changes."""

from __future__ import annotations

from collections import Counter

from streaming.changes.incidents.context import ClusterContext
from streaming.contracts.identifiers import NO_LEADER


def test_a_broker_follows_others_if_a_leader_beside_itself_and_the_one_that_reports_it_has_it_in_sync() -> None:
    def follows(*in_sync: tuple[int, int], none: tuple[tuple[int, int], ...] = ()) -> bool:
        pairs = Counter({**dict.fromkeys(in_sync, 1), **dict.fromkeys(none, 0)})
        return ClusterContext(in_sync=pairs).follows_others(2, leader=1)

    assert follows((3, 2))
    assert not follows((1, 2), (2, 2), (NO_LEADER, 2)), "only the leader that reports, itself, and nobody"
    assert not follows((3, 4), (3, 3)), "others follow"
    assert not follows(none=((3, 2),)), "of no partition any more"
