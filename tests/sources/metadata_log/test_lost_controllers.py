"""A metadata log that cannot be read is no quorum without a leader: it is said who leads, and why it is not asked."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.identifiers import ClusterId
from streaming.errors import ConnectionRefused
from streaming.settings import ClusterSettings, ControllersSettings, Settings
from streaming.sources.metadata_log.quorum import Bootstrap, ControllerAddresses
from streaming.sources.metadata_log.tail import Tail
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from tests.sources.metadata_log.conftest import CLUSTER_ID, FRAMES


def tail_of(quorum: Any, *fixed: int) -> Tail:
    """A tail that asks nodes 2 and 3 as brokers, and controllers at fixed addresses, or as they say."""
    at = {number: Address("127.0.0.1", node.port) for number, node in quorum.nodes.items()}
    controllers = ControllerAddresses(by_node={number: at[number] for number in fixed})
    bootstrap = Bootstrap((at[2], at[3]), dialer(Security()), controllers)
    return Tail(bootstrap, dialer(Security()), cluster_id=ClusterId(CLUSTER_ID), pause=lambda _: None)


def refusal(quorum: Any, *fixed: int) -> str:
    """What is said once no controller has served the log."""
    tail, said = tail_of(quorum, *fixed), list[str]()
    while not said:
        try:
            tail.poll()
        except ConnectionRefused as refused:
            said.append(str(refused))
    tail.close()
    return said[0]


@pytest.mark.parametrize("may_be_asked", [True, False])
@pytest.mark.parametrize("epoch", [1, 7])
def test_a_leader_without_a_fixed_address_is_named(quorum: Any, epoch: int, *, may_be_asked: bool) -> None:
    quorum.append(*FRAMES)
    quorum.elect(3, epoch)
    quorum.partition_error = 0 if may_be_asked else 31
    said = refusal(quorum, 1, 2)
    assert said.startswith("no controller serves the metadata log: 127.0.0.1:")
    assert said.endswith("; controller 3 leads, and has no address in cluster.controllers.addresses: add it")


@pytest.mark.parametrize("fixed", [(1, 2, 3), ()])
def test_a_leader_that_does_not_answer_at_its_address_leads_all_the_same(quorum: Any, fixed: tuple[int, ...]) -> None:
    quorum.append(*FRAMES)
    quorum.nodes[1].stop()
    said = refusal(quorum, *fixed)
    where = f"127.0.0.1:{quorum.nodes[1].port}"
    assert said.endswith(f"; the brokers say that controller 1 leads, which is asked at {where}")


@pytest.mark.parametrize("fixed", [(1, 2, 3), ()])
def test_controllers_that_are_restored_from_a_copy_are_followed_in_their_lower_epochs(
    quorum: Any, fixed: tuple[int, ...]
) -> None:
    quorum.append(*FRAMES)
    quorum.elect(1, 7)
    tail = tail_of(quorum, *fixed)
    tail.connect()
    for leader in (1, 2):
        quorum.elect(leader, 2)
        quorum.nodes[1].disconnect()
        for _ in range(20):
            with suppress(ConnectionRefused):
                tail.poll()
        assert tail.is_serving
    tail.close()


def test_controllers_of_a_cluster_that_was_rebuilt_are_named_as_such(quorum: Any) -> None:
    quorum.fetch_error = 104
    said = refusal(quorum, 1, 2, 3)
    assert f" is a controller of another cluster than {quorum.cluster_id}: check its address; if the cluster" in said


def test_nothing_is_said_of_a_leader_that_nobody_names(quorum: Any) -> None:
    quorum.partition_error, quorum.fetch_error = 31, 3
    assert "leads" not in refusal(quorum, 1, 2, 3)


def test_doctor_names_the_voters_that_have_no_fixed_address(quorum: Any) -> None:
    quorum.append(*FRAMES)
    quorum.voters = dict.fromkeys((1, 2, 3), 0)
    addresses = {str(number): f"127.0.0.1:{node.port}" for number, node in quorum.nodes.items() if number != 3}
    controllers = ControllersSettings(addresses=addresses)
    cluster = ClusterSettings(bootstrap_servers=quorum.addresses(), controllers=controllers)
    (_, *warnings) = CHECKS["metadata log"](Settings(cluster=cluster))
    assert [(status, sentence[:78]) for status, sentence in warnings] == [
        (Status.WARNING, "controller 3 is a voter, and has no address in cluster.controllers.addresses: ")
    ]


def test_doctor_names_a_voter_whose_directory_is_gone(quorum: Any) -> None:
    quorum.append(*FRAMES)
    quorum.voters, quorum.observers = dict.fromkeys((1, 2, 3), 0), {3: 77, 9: 9}
    (_, warning) = CHECKS["metadata log"](Settings(cluster=ClusterSettings(bootstrap_servers=quorum.addresses())))
    assert warning[0] is Status.WARNING
    assert warning[1].startswith(
        "the directory AAAAAAAAAAAAAAAAAAAAAw of voter 3 is gone: it runs with AAAAAAAAAAAAAAA"
    )


@pytest.mark.parametrize(
    ("api_keys", "is_crossed", "sentence"),
    [
        ({32: 4}, True, "the address of controller 1, {at}, leads to another one"),
        ({32: 4}, False, "controller 1 at {at} leads no longer, and no other one leads so far"),
        ({}, False, "controller 1 at {at} leads no longer, and no other one leads so far, or its address leads to ano"),
    ],
)
def test_a_leader_that_resigns_is_not_taken_for_an_address_that_leads_to_another_one(
    quorum: Any, api_keys: dict[int, int], *, is_crossed: bool, sentence: str
) -> None:
    """Until the next election one that stops, or was removed, names itself, as every other one does (as 4.3.1)."""
    quorum.append(*FRAMES)
    quorum.versions = api_keys
    node = quorum.nodes[1]
    if is_crossed:
        node.node_id = 2
    quorum.fetch_error = 6
    said = refusal(quorum, 1)
    assert said.startswith(f"no controller serves the metadata log: {sentence.format(at=f'127.0.0.1:{node.port}')}")
