"""Where replicas went with ZooKeeper: turns, a shift that grows, and racks that alternate."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from streaming.contracts.identifiers import BrokerId
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.placement import UsableBroker, assign_replicas

SIX_IN_THREE_RACKS = [UsableBroker(BrokerId(broker), f"rack{rack}") for broker, rack in enumerate((1, 3, 3, 2, 2, 1))]


def brokers(*ids: int) -> list[UsableBroker]:
    return [UsableBroker(BrokerId(broker)) for broker in ids]


def test_racks_alternate() -> None:
    assigned = assign_replicas(SIX_IN_THREE_RACKS, 7, 3)
    assert " ".join("".join(map(str, replicas)) for replicas in assigned) == "031 315 154 542 420 203 042"


@pytest.mark.parametrize(("start", "shift"), list(product(range(6), repeat=2)))
def test_every_rack_gets_a_replica_and_every_broker_its_share(start: int, shift: int) -> None:
    assigned = assign_replicas(SIX_IN_THREE_RACKS, 12, 3, start=start, shift=shift)
    rack_of = {it.broker: it.rack for it in SIX_IN_THREE_RACKS}
    assert all(len({rack_of[broker] for broker in replicas}) == 3 for replicas in assigned)
    assert set(Counter(replicas[0] for replicas in assigned).values()) == {2}


def test_with_more_replicas_than_racks_no_broker_has_two() -> None:
    assert all(len(set(replicas)) == 5 for replicas in assign_replicas(SIX_IN_THREE_RACKS, 12, 5))


def test_racks_do_not_count_unless_every_broker_has_one() -> None:
    partly = [SIX_IN_THREE_RACKS[0]._replace(rack=None), *SIX_IN_THREE_RACKS[1:]]
    assert assign_replicas(partly, 12, 3) == assign_replicas(brokers(*range(6)), 12, 3)


def test_one_broker_leads_everything() -> None:
    assert assign_replicas(brokers(7), 3, 1) == ((7,), (7,), (7,))


@pytest.mark.parametrize("replication_factor", [0, 2])
def test_statement_03_a_single_broker_has_one_replica(replication_factor: int) -> None:
    with pytest.raises(RefusedRequest) as refused:
        assign_replicas(brokers(1), 1, replication_factor)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
