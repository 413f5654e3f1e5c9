"""ApiVersions 4: the features that a broker supports, and the levels that the cluster uses.

Version 3 leaves out every feature that can be off, as it can say no level 0 (KAFKA-17011): then those are not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from streaming.sources.protocol.connection import CLIENT_ID

if TYPE_CHECKING:
    from streaming.sources.protocol.connection import Connection

OLDEST: Final = 3
NEWEST: Final = 4


class Feature(NamedTuple):
    """One feature: its name, the highest level that the broker supports, and the level that is finalized, 0 for off."""

    name: str
    supported_level: int
    finalized_level: int


def describe_features(connection: Connection) -> tuple[Feature, ...]:
    """Ask a broker for its features; one that is too old to have any has none.

    Raises:
        ConnectionRefused: it does not respond.
    """
    version = connection.newest(ApiVersionsRequest.API_KEY, NEWEST)
    if version < OLDEST:
        return ()
    request: Any = ApiVersionsRequest(version=version, client_software_name=CLIENT_ID, client_software_version="1")
    return connection.call(request, ApiVersionsResponse, _read)


def _read(response: Any) -> tuple[Feature, ...]:  # noqa: ANN401 - kafka-python's messages ship no types
    finalized = {each.name: each.max_version_level for each in response.finalized_features or ()}
    return tuple(
        Feature(each.name, each.max_version, finalized.get(each.name, 0)) for each in response.supported_features or ()
    )
