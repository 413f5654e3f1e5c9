"""What stopping brokers costs one partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts import health
from streaming.contracts.state import PartitionState
from streaming.contracts.stop_effects import (
    WOULD_GO_OFFLINE,
    WOULD_GO_UNDER_MIN_ISR,
    condition,
    effects_of_stop,
    loss_by_stops,
)

BROKERS = frozenset(range(1, 6))


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.permutations(sorted(BROKERS)))[: draw(st.integers(1, 4))])
    isr = replicas[: draw(st.integers(0, len(replicas)))]
    elr = tuple(broker for broker in replicas if broker not in isr and draw(st.booleans()))
    minimum = health.effective_min_isr(draw(st.sampled_from([None, 1, 2, 3])), replicas)
    leader = isr[0] if isr else -1
    state = PartitionState("c", "c", "t", "t", 0, replicas=replicas, isr=isr, elr=elr, leader=leader)  # type: ignore[arg-type]
    return state._replace(
        min_isr_effective=minimum,
        is_offline=health.is_offline(leader),  # type: ignore[arg-type]
        is_under_min_isr=health.is_under_min_isr(minimum, isr),
    )


@given(partitions(), st.sets(st.sampled_from(sorted(BROKERS)), min_size=1))
def test_of_one_broker_it_is_what_the_advice_counts(partition: PartitionState, up: set[int]) -> None:
    for broker in partition.isr:
        names = effects_of_stop(partition)
        needs = [each.brokers for each in map(condition, names) if each is not None and each.is_offline]
        goes_offline = WOULD_GO_OFFLINE in names or any(not brokers & (up - {broker}) for brokers in needs)
        expected = WOULD_GO_OFFLINE if goes_offline else WOULD_GO_UNDER_MIN_ISR
        has_loss = goes_offline or WOULD_GO_UNDER_MIN_ISR in names
        assert loss_by_stops(partition, {broker}, up) == (expected if has_loss else None)


@given(partitions(), st.sets(st.sampled_from(sorted(BROKERS))), st.sets(st.sampled_from(sorted(BROKERS))))
def test_more_stops_never_cost_less(partition: PartitionState, some: set[int], others: set[int]) -> None:
    cost = [None, WOULD_GO_UNDER_MIN_ISR, WOULD_GO_OFFLINE]
    few, many = (cost.index(loss_by_stops(partition, brokers, BROKERS)) for brokers in (some, some | others))
    assert few <= many


def test_two_replicas_of_three_are_one_too_few_for_a_minimum_of_two() -> None:
    partition = PartitionState(
        "c", "c", "t", "t", 0, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, min_isr_effective=2, is_under_min_isr=False  # type: ignore[arg-type]
    )  # fmt: skip
    assert [loss_by_stops(partition, stops, BROKERS) for stops in ({1}, {1, 2}, {1, 2, 3}, {4, 5})] == [
        None, WOULD_GO_UNDER_MIN_ISR, WOULD_GO_OFFLINE, None,
    ]  # fmt: skip
