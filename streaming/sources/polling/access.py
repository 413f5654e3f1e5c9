"""Access to the brokers of a configuration: by direct connections, or by librdkafka where only that can log in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.sources.permissions import ClientErrors
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.configs import DescribedConfigs
from streaming.sources.polling.librdkafka import ClientBrokers, ClientLeader, close, new_client
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.protocol.tls import UnsupportedProperty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka.admin import AdminClient

    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.polling.broker import BrokerOpener
    from streaming.sources.polling.configs import ConfigDescriber
    from streaming.sources.polling.librdkafka import PartitionLeader
    from streaming.sources.protocol.addresses import Peers

_DEFAULTS: Final = {
    "client.id": "isrwatch",
    "log_level": "2",  # errors are reported by exceptions and error_cb
    "log.connection.close": "false",
    "socket.timeout.ms": "10000",  # then the connection to a hung broker is closed
}


class Access(NamedTuple):
    """Access to views of brokers, to offsets of leaders and to configurations.

    ``leaders`` is None where samples are taken on direct connections, which have every offset. ``close`` ends what
    describes configurations. ``older`` gives the same by librdkafka, for brokers that are too old for this.
    """

    brokers: BrokerOpener
    leaders: Callable[[Address], PartitionLeader] | None
    configs: ConfigDescriber
    close: Callable[[], None]
    older: Callable[[], Access]

    def configs_at(self, brokers: Mapping[BrokerId, tuple[str, int]]) -> ConfigDescriber:
        """Return what describes configurations, at these brokers."""
        if isinstance(self.configs, DescribedConfigs):
            self.configs.brokers = {broker: Address(*at) for broker, at in brokers.items()}
        return self.configs


def access_of(  # noqa: PLR0913 - all but two are keywords
    bootstrap_servers: str,
    client: Mapping[str, str],
    peers: Peers | None = None,
    *,
    cluster: str,
    name: str,
    seconds: float,
) -> Access:
    """Return how the brokers are asked with the properties of ``[cluster.client]``.

    Args:
        bootstrap_servers: ``host:port``, comma-separated.
        client: the properties.
        peers: record what each connection to a node saw.
        cluster: replaces the cluster id where the Kafka version has none.
        name: prefix of the threads' names.
        seconds: timeout of each request.

    Raises:
        ConfigurationError: a property is wrong.
    """
    errors = ClientErrors(bootstrap_servers)
    properties = {**_DEFAULTS, **client, "error_cb": errors}
    close(new_client(properties))  # refuses what only librdkafka knows to be wrong

    def connect(address: str) -> AdminClient:
        return new_client({**properties, "bootstrap.servers": address})

    def by_librdkafka() -> Access:
        shared = connect(bootstrap_servers)
        brokers = ClientBrokers(connect, errors.refusal, cluster=cluster)
        leaders = partial(ClientLeader, client=shared, seconds=seconds)
        return Access(brokers, leaders, shared, partial(close, shared), by_librdkafka)

    try:
        dial = dialer(from_client(client), peers)
    except UnsupportedProperty:
        return by_librdkafka()
    configs = DescribedConfigs(dial, parse_servers(bootstrap_servers), name=name, seconds=seconds)
    brokers = ConnectedBrokers(dial, cluster=cluster, seconds=seconds)
    return Access(brokers, None, configs, configs.close, by_librdkafka)
