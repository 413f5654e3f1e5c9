"""A broker that was frozen, or is cut off, serves an old healthy view: no recovery is invented."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId
from streaming.contracts.observations import SourceKind
from streaming.sources.polling.broker import Answer
from streaming.sources.polling.metadata import MetadataRound, TimedView
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.addresses import Address
from tests.changes.conftest import Story
from tests.examples import examples
from tests.sources.conftest import unlisted

if TYPE_CHECKING:
    from collections.abc import Collection

    from streaming.contracts.identifiers import Micros

BROKERS = (1, 2, 3)
ISRS = [(1, 2, 3), (1, 2), (1, 3), (2, 3), (1,), (2,)]


class Moment(NamedTuple):
    """The true state of the cluster."""

    alive: tuple[int, ...]
    isr: tuple[int, ...]


class Brokers:
    """Three brokers that answer with what each of them knows."""

    def __init__(self, history: list[Moment], stale: int, learned: int) -> None:
        self.history, self.now = history, 0
        self.stale, self.knows, self.learns_after = stale, 0, learned

    def connect(self, address: Address) -> Asked:
        return Asked(self, address)

    def view(self, broker: int) -> ClusterView:
        at = self.now
        if broker == self.stale:
            at, self.learns_after = self.knows, self.learns_after - 1
            if self.learns_after < 0:
                self.knows = self.now
        alive, isr = self.history[at]
        orders = PartitionView(ids(*BROKERS), ids(*isr), BrokerId(isr[0]))
        listed = {BrokerId(n): ("h", n) for n in alive}
        return ClusterView(ClusterId("c1"), broker, listed, {"orders": {0: orders}}, {"orders": TopicId("x")})


class Asked:
    """One of them, asked on a connection; its port is its id."""

    def __init__(self, brokers: Brokers, address: Address) -> None:
        self.brokers, self.address = brokers, address

    def answer(self, listed_before: Collection[str], deadline: Micros) -> Answer:  # noqa: ARG002 - as a broker is asked
        return Answer(self.brokers.view(self.address.port))

    def close(self) -> None:
        """Hang up on nobody."""


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def answered(it: MetadataRound, before: ClusterView | None) -> TimedView | None:
    """Ask until something is believed, as often as a poll would."""
    for _ in range(10):
        it.ask(before)
        wait(it.pending())
        if (read := it.take(before)) is not None:
            return read
    return None


@st.composite
def fates(draw: st.DrawFn) -> tuple[int, list[Moment]]:
    """A broker that falls behind, and what happens meanwhile; the other two are alive and see it."""
    stale = draw(st.sampled_from(BROKERS))
    living = [BROKERS, tuple(n for n in BROKERS if n != stale)]
    moments = st.builds(Moment, st.sampled_from(living), st.sampled_from(ISRS))
    return stale, draw(st.lists(moments, min_size=2, max_size=6, unique=True))


@settings(max_examples=examples(20))
@given(fate=fates(), learned=st.integers(0, 3) | st.just(1_000), data=st.data())
def test_a_view_that_went_bad_is_never_made_good_by_a_broker_that_did_not_see_it(
    fate: tuple[int, list[Moment]], learned: int, data: st.DataObject
) -> None:
    """Whatever the stale broker knows at first, and whenever it catches up, or never: others are asked."""
    stale, history = fate
    cluster = Brokers(history, stale, learned)
    fresh = next(n for n in BROKERS if n != stale)
    servers = [Address("h", n) for n in BROKERS]
    polls = MetadataRound(cluster.connect, servers, unlisted(), name="t", seconds=5)
    polls._broker = cluster.connect(Address("h", fresh))
    before: ClusterView | None = None
    shown = 0
    try:
        for cluster.now in range(len(history)):
            if data.draw(st.booleans()):  # the connection was lost; another one goes to the resumed broker for instance
                polls._broker = cluster.connect(Address("h", data.draw(st.sampled_from(BROKERS)) if before else fresh))
            read = answered(polls, before)
            assert read is not None
            view = read.view
            at = next(n for n, it in enumerate(history) if shows(view, it))
            recovered = before is not None and at < shown and recovers(before, view)
            assert not recovered, f"{view} is older than {before}"
            shown, before = max(at, shown), view
    finally:
        polls.close()


def shows(view: ClusterView, moment: Moment) -> bool:
    return tuple(view.brokers) == moment.alive and view.topics["orders"][0].isr == moment.isr


def recovers(before: ClusterView, after: ClusterView) -> bool:
    was, now = before.topics["orders"][0], after.topics["orders"][0]
    return not set(now.isr) <= set(was.isr) or not after.brokers.keys() <= before.brokers.keys()


@settings(max_examples=examples(20))
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ISRS), st.booleans()), max_size=12))
def test_a_poll_with_a_lower_leader_epoch_is_stale_and_one_with_the_same_tells_another_isr(
    steps: list[tuple[int, tuple[int, ...], bool]],
) -> None:
    """Where a poll shows leader epochs: an old view is dropped for its epoch, however late it comes."""
    poll = Story("admin:a", SourceKind.POLL)
    poll.snapshot([{"partition_epoch": None}])
    expected, epoch = (1, 2, 3), 0
    for told, isr, in_snapshot in steps:
        fields = {"leader_epoch": told, "partition_epoch": None, "in_snapshot": in_snapshot}
        poll.later().partition(0, isr=isr, leader=isr[0], **fields)
        if told >= epoch:
            expected, epoch = isr, told
    state = ReplicationState()
    state.apply(fold(state, poll.seen).touched)

    (partition,) = state.partitions()
    assert (partition.isr, partition.leader_epoch) == (expected, epoch)
