"""DescribeConfigs, up to version 4: chosen keys of topics, which any broker knows, or of the broker that is asked.

One request has resources of one kind, and every one of them is described or has an error of its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.sources.protocol.connection import Connection

_NEWEST: Final = 4


class Resource(IntEnum):
    """A kind of resource, as Kafka numbers it."""

    TOPIC = 2
    BROKER = 4


class DescribedValue(NamedTuple):
    """The value of one key, and where it comes from, as Kafka numbers it: 1 is the topic's own configuration."""

    value: str | None
    source: int


class ResourceConfig(NamedTuple):
    """The configuration of a resource by key, without the keys that the broker does not have; or Kafka's error code."""

    error: int
    values: dict[str, DescribedValue]


def describe_configs(
    connection: Connection, kind: Resource, names: Iterable[str], keys: Sequence[str]
) -> dict[str, ResourceConfig]:
    """Ask for keys of resources, by name.

    Raises:
        ConnectionRefused: the broker does not respond.
    """
    of_resource = DescribeConfigsRequest.DescribeConfigsResource
    request: Any = DescribeConfigsRequest(
        version=connection.required(DescribeConfigsRequest.API_KEY, _NEWEST, "DescribeConfigs"),
        resources=[
            of_resource(resource_type=int(kind), resource_name=name, configuration_keys=[*keys]) for name in names
        ],
    )
    return connection.call(request, DescribeConfigsResponse, _read)


def _read(response: Any) -> dict[str, ResourceConfig]:  # noqa: ANN401 - kafka-python's messages ship no types
    return {
        result.resource_name: ResourceConfig(
            result.error_code,
            {each.name: DescribedValue(each.value, each.config_source) for each in result.configs or ()},
        )
        for result in response.results
    }
