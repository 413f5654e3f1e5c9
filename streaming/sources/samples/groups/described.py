"""The groups of one coordinator: ListGroups 4 and 5, then one request per protocol that describes them.

DescribeGroups 5 and 6 for the classic protocol, ConsumerGroupDescribe for KIP-848, ShareGroupDescribe for KIP-932, and
StreamsGroupDescribe for KIP-1071. Requires Describe on the groups. Kafka leaves out groups that may not be described,
without an error, so one is described that does not exist.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.errors import ConnectionRefused, InvalidObservation
from streaming.sources.permissions import PROBE_PREFIX, Probe
from streaming.sources.protocol.connection import NodeTooOld, RawRequest, RawResponse, compact_array, compact_string
from streaming.sources.protocol.primitives import INT8, INT16, INT32, UINT16, ByteReader
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streaming.sources.protocol.connection import Connection

if TYPE_CHECKING:
    Owners = dict[str, dict[int, str]]
    """Client id of the owner, by topic and partition."""
    Share = Sequence[tuple[str, tuple[int, ...]]]
    """Topics, with the partitions of them that a member may read."""

CLASSIC: Final = "classic"
SHARE: Final = "share"
STREAMS: Final = "streams"
NO_GROUP: Final = f"{PROBE_PREFIX}group"
"""A group that does not exist: where it may not be described, others may be hidden."""
GROUP_AUTHORIZATION_FAILED: Final = 30
LIST_GROUPS: Final = 16
LIST_NEWEST: Final = 5
_TYPES_SINCE: Final = 5
_NO_FILTERS: Final = {4: b"\1\0", 5: b"\1\1\0"}  # of states and types: empty arrays, and no tagged fields
_CONSUMER_CLIENTS: Final = "consumer"  # the type of a classic group whose assignments are those of consumers


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group.

    Attributes:
        protocol: classic, consumer, share or streams.
        state: as its coordinator reports it.
        members: how many; None where it is not described.
        assignor: None while nothing is assigned.
        owners: the client ids of members, by the partitions that they may read; of several one of them.
    """

    protocol: str
    state: str
    members: int | None = None
    assignor: str | None = None
    owners: Owners = field(default_factory=dict)


class Description(NamedTuple):
    """The answer to a description of one group."""

    error: int
    group: str
    state: str
    members: int
    assignor: str
    owners: Owners


def list_groups(connection: Connection) -> dict[str, DescribedGroup]:
    """Ask one broker for the groups that it coordinates.

    Raises:
        ConnectionRefused: it does not respond, or is still loading its groups.
    """
    version = connection.newest(LIST_GROUPS, LIST_NEWEST, "ListGroups")
    if version not in _NO_FILTERS:
        raise NodeTooOld(f"{connection.address} lists its groups as brokers before Kafka 2.6 do: they are not read")
    response: RawResponse[tuple[int, dict[str, DescribedGroup]]] = RawResponse(
        lambda reader: _read_list(reader, version)
    )
    error, groups = response.value_of(connection, RawRequest(LIST_GROUPS, version, _NO_FILTERS[version]))
    if error:
        raise ConnectionRefused(f"{connection.address} cannot list its groups (Kafka's error {error})")
    return groups


def describe_groups(
    connection: Connection, groups: dict[str, DescribedGroup], probe: Probe | None = None
) -> tuple[dict[str, DescribedGroup], tuple[str, ...]]:
    """Describe groups at their coordinator: one request per protocol, whatever their number.

    Return the groups, of which one that has moved or ended meanwhile is as it was, and those that may not be described.
    The probe is described with them when it is due, else denied as it was last.

    Raises:
        ConnectionRefused: it does not respond.
    """
    probe = probe or Probe(NO_GROUP)
    by_protocol: dict[str, list[str]] = defaultdict(list)
    is_probed = probe.take_due(monotonic())
    if is_probed:
        by_protocol[CLASSIC].append(probe.name)
    for name, group in groups.items():
        by_protocol[group.protocol].append(name)
    described, denied = {**groups}, [] if is_probed or not probe.is_denied else [probe.name]
    for protocol, names in by_protocol.items():
        for one in _described(connection, protocol, names):
            if one.error == GROUP_AUTHORIZATION_FAILED:
                denied.append(one.group)
            elif not one.error and one.group in groups:
                described[one.group] = replace(
                    groups[one.group],
                    state=one.state,
                    members=one.members,
                    assignor=one.assignor or None,
                    owners=one.owners,
                )
    if is_probed:
        probe.note(monotonic(), is_denied=probe.name in denied)
    return described, tuple(denied)


class _Api(NamedTuple):
    """Request that describes groups of a protocol, and the versions that are read here."""

    key: int
    oldest: int
    newest: int
    read: Callable[[ByteReader, int], Description]


def _described(connection: Connection, protocol: str, names: Iterable[str]) -> tuple[Description, ...]:
    api = APIS.get(protocol)
    version = -1 if api is None else connection.newest(api.key, api.newest)
    if api is None or version < api.oldest:
        return ()
    body = compact_array(map(compact_string, names)) + b"\0\0"  # no authorized operations, no tagged fields
    response = RawResponse(lambda reader: _read_described(reader, api.read, version))
    return response.value_of(connection, RawRequest(api.key, version, body))


def _read_list(reader: ByteReader, version: int) -> tuple[int, dict[str, DescribedGroup]]:
    error = reader.number(INT16)
    return error, dict(reader.array(lambda: _listed(reader, version)) or ())


def _listed(reader: ByteReader, version: int) -> tuple[str, DescribedGroup]:
    name, _, state = reader.string(), reader.string(), reader.string()
    protocol = reader.string().lower() if version >= _TYPES_SINCE else CLASSIC
    reader.tags()
    return name, DescribedGroup(protocol, state)


def _read_described(
    reader: ByteReader, read: Callable[[ByteReader, int], Description], version: int
) -> tuple[Description, ...]:
    return reader.array(lambda: read(reader, version)) or ()


def _classic(reader: ByteReader, version: int) -> Description:
    error = reader.number(INT16)
    if version >= 6:  # noqa: PLR2004 - KIP-1043
        reader.nullable_string()
    name, state, clients, assignor = (reader.string() for _ in range(4))
    members = reader.array(lambda: _classic_member(reader)) or ()
    reader.number(INT32)  # authorized operations
    reader.tags()
    shares = [(client, _assigned(assignment)) for client, assignment in members if clients == _CONSUMER_CLIENTS]
    return Description(error, name, state, len(members), assignor, _owners(shares))


def _classic_member(reader: ByteReader) -> tuple[str, bytes]:
    reader.string()  # its id
    reader.nullable_string()
    client, _ = reader.string(), reader.string()
    _, assignment = (reader.raw(reader.unsigned_varint() - 1) for _ in range(2))
    reader.tags()
    return client, assignment


def _assigned(assignment: bytes) -> Share:
    """Read an assignment, whose bytes only the members of a group agree about; other ones have no partitions."""
    reader = ByteReader(assignment)
    try:
        reader.number(INT16)  # its version
        return [_assigned_topic(reader) for _ in range(reader.number(INT32))]
    except (InvalidObservation, UnicodeDecodeError, struct.error):
        return []


def _assigned_topic(reader: ByteReader) -> tuple[str, tuple[int, ...]]:
    topic, count = reader.raw(reader.number(INT16)).decode(), reader.number(INT32)
    return topic, struct.unpack(f">{count}i", reader.raw(4 * count))


def _consumer(reader: ByteReader, version: int) -> Description:
    def member() -> tuple[str, Share]:
        reader.string()  # its id
        for _ in range(2):  # instance and rack
            reader.nullable_string()
        client = _client(reader)
        reader.nullable_string()  # the pattern of topics
        share, _ = _share_of(reader), _share_of(reader)  # the present one, and the target
        if version >= 1:
            reader.number(INT8)  # whether it speaks the classic protocol (KIP-1099)
        reader.tags()
        return client, share

    return _of_epochs(reader, member)


def _sharing(reader: ByteReader, _version: int) -> Description:
    def member() -> tuple[str, Share]:
        reader.string()  # its id
        reader.nullable_string()  # its rack
        client, share = _client(reader), _share_of(reader)
        reader.tags()
        return client, share  # several members may read a partition: one of them stands for all

    return _of_epochs(reader, member)


def _streams(reader: ByteReader, _version: int) -> Description:
    """Read a streams group; how its tasks are assigned is a configuration that the response does not name."""
    group = read_streams_group(reader)
    return Description(group.error, group.group, group.state, len(group.members), "", _owners(group.shares))


def _of_epochs(reader: ByteReader, member: Callable[[], tuple[str, Share]]) -> Description:
    """Read a group of the protocols that have a group epoch and an assignment epoch."""
    error, _, name, state = reader.number(INT16), reader.nullable_string(), reader.string(), reader.string()
    for _ in range(2):
        reader.number(INT32)
    assignor, members = reader.string(), reader.array(member) or ()
    reader.number(INT32)  # authorized operations
    reader.tags()
    return Description(error, name, state, len(members), assignor, _owners(members))


def _client(reader: ByteReader) -> str:
    """Read the middle of a member: its epoch, client id and host, and the topics that it subscribes to."""
    reader.number(INT32)
    client, _ = reader.string(), reader.string()
    reader.array(reader.string)
    return client


def _share_of(reader: ByteReader) -> Share:
    def topic() -> tuple[str, tuple[int, ...]]:
        reader.raw(16)  # the topic id
        name, numbers = reader.string(), reader.numbers("i") or ()
        reader.tags()
        return name, numbers

    topics = reader.array(topic) or ()
    reader.tags()
    return topics


def _owners(members: Iterable[tuple[str, Share]]) -> Owners:
    owners: Owners = {}
    for client, topics in members:
        for topic, numbers in topics:
            owners.setdefault(topic, {}).update(dict.fromkeys(numbers, client))
    return owners


APIS: Final[dict[str, _Api]] = {
    CLASSIC: _Api(15, 5, 6, _classic),
    "consumer": _Api(69, 0, 1, _consumer),
    SHARE: _Api(77, 1, 1, _sharing),
    STREAMS: _Api(89, 0, 0, _streams),
}


# A streams group (KIP-1071), as StreamsGroupDescribe 0 describes it: read from bytes.
#
# A member has tasks, and a task reads one partition of every source topic of its subtopology, if there is one of that
# number. Standby and warm-up tasks read changelogs alone.


if TYPE_CHECKING:
    Tasks = Sequence[tuple[str, tuple[int, ...]]]
    """Subtopologies, with the partitions that a member reads in the topics of each."""

_NULL: Final = -1
_OF_TOPIC: Final = struct.Struct(">ih")  # partitions, replication factor
_OF_TASK: Final = struct.Struct(">iq")  # partition, offset


class StreamsGroup(NamedTuple):
    """One group, with an error of Kafka or none.

    Attributes:
        sources: the topics that each subtopology reads.
        members: the client id of each, and its active tasks.
    """

    error: int
    group: str
    state: str
    sources: Mapping[str, tuple[str, ...]]
    members: Sequence[tuple[str, Tasks]]

    @property
    def shares(self) -> list[tuple[str, list[tuple[str, tuple[int, ...]]]]]:
        """The topics and partitions of each member, those included that no topic has."""
        return [
            (
                client,
                [(topic, numbers) for subtopology, numbers in tasks for topic in self.sources.get(subtopology, ())],
            )
            for client, tasks in self.members
        ]


def read_streams_group(reader: ByteReader) -> StreamsGroup:
    """Read a group.

    Raises:
        InvalidObservation: the bytes are none.
    """
    error, _, name, state = reader.number(INT16), reader.nullable_string(), reader.string(), reader.string()
    for _ in range(2):  # group epoch, assignment epoch
        reader.number(INT32)
    sources = _topology(reader)
    members = reader.array(lambda: _member(reader)) or ()
    reader.number(INT32)  # authorized operations
    reader.tags()
    return StreamsGroup(error, name, state, dict(sources), members)


def _topology(reader: ByteReader) -> Sequence[tuple[str, tuple[str, ...]]]:
    if reader.number(INT8) == _NULL:
        return ()
    reader.number(INT32)  # its epoch
    subtopologies = reader.array(lambda: _subtopology(reader)) or ()
    reader.tags()
    return subtopologies


def _subtopology(reader: ByteReader) -> tuple[str, tuple[str, ...]]:
    name, topics = reader.string(), reader.array(reader.string) or ()
    reader.array(reader.string)  # the repartition topics that it writes
    reader.array(lambda: _internal_topic(reader))  # its changelogs
    repartitioned = reader.array(lambda: _internal_topic(reader)) or ()
    reader.tags()
    return name, (*topics, *repartitioned)


def _internal_topic(reader: ByteReader) -> str:
    name, _ = reader.string(), reader.structure(_OF_TOPIC)
    reader.array(lambda: _pair(reader))
    reader.tags()
    return name


def _member(reader: ByteReader) -> tuple[str, Tasks]:
    reader.string()  # its id
    reader.number(INT32)
    for _ in range(2):  # instance and rack
        reader.nullable_string()
    client, _ = reader.string(), reader.string()
    reader.number(INT32)  # the epoch of its topology
    reader.string()  # its process
    if reader.number(INT8) != _NULL:  # its endpoint: host and port
        reader.string()
        reader.number(UINT16)
        reader.tags()
    reader.array(lambda: _pair(reader))  # its tags
    for _ in range(2):  # offsets of its tasks, and the ends of their changelogs
        reader.array(lambda: _task_offset(reader))
    active, _ = _assignment(reader), _assignment(reader)  # the present one, and the target
    reader.boolean()  # whether it speaks the classic protocol
    reader.tags()
    return client, active


def _assignment(reader: ByteReader) -> Tasks:
    active, *_ = (reader.array(lambda: _task_ids(reader)) or () for _ in range(3))  # then standby and warm-up tasks
    reader.tags()
    return active


def _task_ids(reader: ByteReader) -> tuple[str, tuple[int, ...]]:
    subtopology, numbers = reader.string(), reader.numbers("i") or ()
    reader.tags()
    return subtopology, numbers


def _task_offset(reader: ByteReader) -> None:
    reader.string()
    reader.structure(_OF_TASK)
    reader.tags()


def _pair(reader: ByteReader) -> None:
    for _ in range(2):
        reader.string()
    reader.tags()
