"""Who votes in the controller quorum, and who has caught up: asked of a broker, reported when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved, SourceKind
from streaming.sources.metadata_log.opening import ASKED_EVERY, REPORTED_EVERY, VotersSource
from streaming.sources.metadata_log.quorum import Bootstrap
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client

if TYPE_CHECKING:
    from collections.abc import Callable


NOW = 1_795_000_000_000


@pytest.fixture
def voters(quorum: Any) -> Callable[[], VotersSource]:
    quorum.voters = {1: NOW, 2: NOW - 600, 3: NOW - 200}
    quorum.versions = {55: 1}  # Kafka before 3.9 gives no addresses of controllers, which nothing of this needs
    servers = tuple(Address("127.0.0.1", node.port) for node in quorum.nodes.values())
    bootstrap = Bootstrap(servers, dialer(from_client({})))
    return lambda: VotersSource(bootstrap, cluster="main", name="quorum:a", clock=lambda: Micros(clock[0]))


clock = [0]


def told(source: VotersSource, now: int) -> list[Any]:
    clock[0] = now
    reported = source.poll(Micros(NOW * 1_000 - now))  # the wall clock runs backwards, which delays nothing
    assert all(isinstance(it, ControllerObserved) and it.authority is SourceKind.NONE for it in reported)
    return [(it.voters, it.caught_up) for it in reported if isinstance(it, ControllerObserved)]


def test_voters_are_reported_when_one_falls_behind_and_every_half_minute(quorum: Any, voters: Any) -> None:
    source, now = voters(), 0
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]
    assert told(source, now := now + ASKED_EVERY) == []
    assert told(source, now + 1) == []
    quorum.voters[3] = NOW - 60_000
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2))]
    quorum.voters[2] = -1  # the leader has not heard of it
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1,))]
    assert told(source, now + REPORTED_EVERY) == [((1, 2, 3), (1,))]


def test_it_is_unknown_who_has_caught_up_without_a_leader_that_gives_its_time(quorum: Any, voters: Any) -> None:
    source, now = voters(), 0
    assert told(source, now := now + ASKED_EVERY)
    quorum.quorum_error = 14
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), None)]
    quorum.quorum_error, quorum.voters[1] = 0, -1
    assert told(source, now := now + ASKED_EVERY) == []
    quorum.voters[1] = NOW
    assert told(source, now := now + ASKED_EVERY) == [((1, 2, 3), (1, 2, 3))]


def test_voters_are_those_of_the_cluster_that_was_rebuilt_at_the_same_addresses(quorum: Any, voters: Any) -> None:
    source, now = voters(), ASKED_EVERY
    assert told(source, now)
    quorum.cluster_id, quorum.quorum_error = "another-cluster", 14
    reported = told(source, now + ASKED_EVERY)
    assert reported == [], "these voters are of the cluster before"
    quorum.quorum_error, clock[0] = 0, now + 2 * ASKED_EVERY
    (observed,) = source.poll(Micros(NOW))
    assert (observed.cluster_id, observed.caught_up) == ("another-cluster", (1, 2, 3))
