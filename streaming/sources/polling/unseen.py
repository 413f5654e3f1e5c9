"""Brokers that run and have no listener of the name that is asked: in words, and the name of that listener.

Kafka says of partitions that they lead LISTENER_NOT_FOUND, leaves them out of its list of brokers, and has no name for
the listener: only the configuration of a broker that is listed has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.errors import ConnectionRefused
from streaming.sources.protocol.config_messages import Resource, describe_configs

if TYPE_CHECKING:
    from collections.abc import Collection

    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection

_LISTENERS: Final = ("advertised.listeners", "listeners")


def listener_name(connection: Connection, broker: BrokerId, address: Address) -> str:
    """Return the name of the listener that a broker has at an address; empty where it does not say.

    Args:
        connection: to that broker.
        broker: its id.
        address: as it is advertised.
    """
    try:
        answer = describe_configs(connection, Resource.BROKER, [str(broker)], [*_LISTENERS])
    except ConnectionRefused:
        return ""
    values = answer[str(broker)].values if str(broker) in answer else {}
    for key in _LISTENERS:
        for listener in ((values[key].value if key in values else None) or "").split(","):
            name, _, place = listener.strip().partition("://")
            if place == str(address):
                return name
    return ""


def unseen_sentence(brokers: Collection[BrokerId], listener: str) -> str:
    """Say which brokers have no listener of the name that is asked, what follows, and what to do.

    >>> unseen_sentence([3], "MONITOR")[:78]
    'broker 3 has no listener MONITOR, by which isrwatch asks the brokers: it runs '
    """
    one = len(brokers) == 1
    who = f"broker{'' if one else 's'} {', '.join(map(str, sorted(brokers)))} {'has' if one else 'have'}"
    asked = f"no listener {listener}" if listener else "no listener of the name"
    its, it_runs = ("its", "it runs") if one else ("their", "they run")
    return (
        f"{who} {asked}{',' if listener else ''} by which isrwatch asks the brokers: {it_runs} and can only be seen "
        f"in ISRs, and {its} log directories, offsets, groups and transactions are missing; add the listener, or name "
        "one that every broker has in cluster.bootstrap_servers"
    )
