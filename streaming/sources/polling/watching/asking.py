"""The requests that a question takes on an open connection, one after the other, and what is read of their answers.

Depends on the messages of the protocol; knows no socket. What is asked each second of every broker is decoded only
where it differs from what a broker answered before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from streaming.contracts.identifiers import BrokerId
from streaming.sources.polling.broker import METADATA_NEWEST, METADATA_OLDEST, DescriptionDecoder, MetadataDecoder
from streaming.sources.polling.inference.inquiry import Ask, Presence, QuorumLeader
from streaming.sources.protocol import offset_messages
from streaming.sources.protocol.connection import UNSUPPORTED_VERSION, VALUE, RawRequest, RawResponse
from streaming.sources.protocol.primitives import INT8, INT16, INT32, ByteReader
from streaming.sources.protocol.quorum_messages import describe_quorum_request, read_quorum
from streaming.sources.protocol.unwaited import Call

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from streaming.sources.polling.broker import AnsweredTopic, DescriptionAnswer, MetadataAnswer
    from streaming.sources.polling.inference.inquiry import BrokerQuestion, Content
    from streaming.sources.polling.view import PartitionView
    from streaming.sources.protocol.connection import Connection

WITH_FENCED: Final = 2  # the version of DescribeCluster that lists fenced brokers (KIP-1073), Kafka 4.0
_FLEXIBLE_METADATA: Final = 9
_OPERATIONS_UNTIL: Final = 10
_QUORUM_NEWEST: Final = 2
_PARTITIONS_PER_RESPONSE: Final = 2000
_MOST_REMEMBERED: Final = 16
_DESCRIBE_BROKERS: Final = b"\0\1\1\0"  # no operations, the brokers, the fenced ones, too; no tagged fields


class Reply(NamedTuple):
    """Content of an answer, None of an error, and Kafka's error code."""

    content: Content | None
    error: int = 0


if TYPE_CHECKING:
    Steps = Generator[Call, Any, Reply]


class Requests:
    """Translates questions into requests. It remembers the brokers of the last answers by their bytes."""

    def __init__(self) -> None:
        self._brokers: dict[bytes, tuple[frozenset[BrokerId], frozenset[BrokerId]]] = {}

    def of(self, question: BrokerQuestion, connection: Connection) -> Steps:
        """Yield one request after the other, each is sent the value of its answer, and return the reply."""
        match question.ask:
            case Ask.PRESENCE:
                return self._presence(connection)
            case Ask.QUORUM:
                return _quorum(connection)
            case Ask.PARTITIONS:
                return _partitions(question, connection)
            case Ask.LOG_ENDS:
                return _log_ends(question, connection)
            case Ask.EPOCH_ENDS:
                return _epoch_ends(question, connection)

    def _presence(self, connection: Connection) -> Steps:
        if connection.newest(DescribeClusterRequest.API_KEY, WITH_FENCED) == WITH_FENCED:
            request: Any = RawRequest(DescribeClusterRequest.API_KEY, WITH_FENCED, _DESCRIBE_BROKERS)
            error, controller, brokers = yield Call(request, RawResponse(self._described), VALUE)
            fenced = None if brokers is None else brokers[1]
        else:
            version = connection.newest(MetadataRequest.API_KEY, METADATA_NEWEST)
            if version < 0:
                return Reply(None, UNSUPPORTED_VERSION)
            request = MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)
            if version >= _FLEXIBLE_METADATA:
                response = RawResponse(lambda reader: self._listed(reader, version))
                error, controller, brokers = yield Call(request, response, VALUE)
            else:
                error, controller, brokers = yield Call(request, MetadataResponse, _of_old_broker)
            fenced = None
        if brokers is None:
            return Reply(None, error)
        # Of KRaft any broker stands for the controller.
        is_said = controller >= 0 and not connection.is_kraft
        return Reply(Presence(BrokerId(controller) if is_said else None, brokers[0], fenced))

    def _described(self, reader: ByteReader) -> Any:  # noqa: ANN401 - three values
        error = reader.number(INT16)
        reader.nullable_string()  # what the error says
        reader.number(INT8)  # the kind of node, as asked
        reader.nullable_string()  # the cluster
        controller = reader.number(INT32)
        if error:
            return error, controller, None
        rest = reader.raw(reader.remaining)
        return 0, controller, self._remembered(rest, lambda: _brokers_of(ByteReader(rest), has_fenced=True))

    def _listed(self, reader: ByteReader, version: int) -> Any:  # noqa: ANN401 - as above
        """Read a response without topics: behind the controller are their number, operations, and tagged fields."""
        behind = 2 + INT32.size * (version <= _OPERATIONS_UNTIL)
        rest = reader.raw(reader.remaining - behind - INT32.size)
        controller = reader.number(INT32)
        return 0, controller, self._remembered(rest, lambda: _brokers_of(ByteReader(rest), has_fenced=False))

    def _remembered(self, data: bytes, read: Any) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:  # noqa: ANN401 - a function
        brokers = self._brokers.get(data)
        if brokers is None:
            brokers = read()
            if len(self._brokers) >= _MOST_REMEMBERED:
                self._brokers.clear()
            self._brokers[data] = brokers
        return brokers


def _brokers_of(reader: ByteReader, *, has_fenced: bool) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
    """Read brokers: those that are not fenced, and those that are."""

    def broker() -> tuple[BrokerId, bool]:
        number = BrokerId(reader.number(INT32))
        reader.string()  # its host
        reader.number(INT32)  # its port
        reader.nullable_string()  # its rack
        is_fenced = has_fenced and reader.boolean()
        reader.tags()
        return number, is_fenced

    brokers = reader.array(broker) or ()
    return (
        frozenset(number for number, is_fenced in brokers if not is_fenced),
        frozenset(number for number, is_fenced in brokers if is_fenced),
    )


def _of_old_broker(response: Any) -> Any:  # noqa: ANN401 - as above
    brokers = frozenset(BrokerId(each.node_id) for each in response.brokers)
    return 0, response.controller_id, (brokers, frozenset())


def _quorum(connection: Connection) -> Steps:
    version = connection.newest(DescribeQuorumRequest.API_KEY, _QUORUM_NEWEST)
    if version < 0:
        return Reply(None, UNSUPPORTED_VERSION)
    quorum = yield Call(describe_quorum_request(version), DescribeQuorumResponse, read_quorum)
    if quorum.error:
        return Reply(None, quorum.error)
    return Reply(QuorumLeader(quorum.leader.node, quorum.leader.epoch))


def _partitions(question: BrokerQuestion, connection: Connection) -> Steps:
    asked: dict[str, set[int]] = {}
    for topic, number, _ in question.partitions:
        asked.setdefault(topic, set()).add(number)
    topics: list[AnsweredTopic] = []
    if connection.newest(DescribeTopicPartitionsRequest.API_KEY, 0) == 0:
        topics = yield from _described(sorted(asked))
    else:
        version = connection.newest(MetadataRequest.API_KEY, METADATA_NEWEST)
        if version < METADATA_OLDEST:
            return Reply(None, UNSUPPORTED_VERSION)
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(asked)]
        request: Any = MetadataRequest(version=version, topics=names, allow_auto_topic_creation=False)
        answer: MetadataAnswer = yield Call(request, MetadataDecoder(), _same)
        topics = list(answer.topics)
    content: dict[str, dict[int, PartitionView]] = {}
    for one in topics:
        if not one.error and one.name in asked:
            numbers = asked[one.name]
            parts = {each: part for each, part in one.partitions.items() if -1 in numbers or each in numbers}
            content.setdefault(one.name, {}).update(parts)
    error = next((topic.error for topic in topics if topic.error), 0)
    return Reply(content or None, error) if error else Reply(content)


def _described(names: list[str]) -> Generator[Call, Any, list[AnsweredTopic]]:
    """Describe topics, in as many responses as it takes."""
    topics: list[AnsweredTopic] = []
    of_request, cursor = DescribeTopicPartitionsRequest, None
    while names:
        request: Any = of_request(
            version=0,
            topics=[of_request.TopicRequest(name=name) for name in names],
            response_partition_limit=_PARTITIONS_PER_RESPONSE,
            cursor=None if cursor is None else of_request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        answer: DescriptionAnswer = yield Call(request, DescriptionDecoder, _same)
        topics += answer.topics
        if answer.cursor is None or (cursor is not None and answer.cursor <= cursor):
            break
        cursor = answer.cursor
        names = [name for name in names if name >= cursor[0]]
    return topics


def _log_ends(question: BrokerQuestion, connection: Connection) -> Steps:
    partitions: dict[str, list[int]] = {}
    for topic, number, _ in question.partitions:
        partitions.setdefault(topic, []).append(number)
    version = connection.newest(offset_messages.API_KEY, offset_messages.NEWEST)
    if version < 0:
        return Reply(None, UNSUPPORTED_VERSION)
    answers = yield offset_messages.offsets_call(version, offset_messages.LOG_END, partitions)
    return _offsets(answers)


def _epoch_ends(question: BrokerQuestion, connection: Connection) -> Steps:
    partitions: dict[str, list[tuple[int, int]]] = {}
    for topic, number, epoch in question.partitions:
        partitions.setdefault(topic, []).append((number, epoch))
    call = offset_messages.epoch_ends_call(connection, partitions)
    if call is None:
        return Reply(None, UNSUPPORTED_VERSION)
    answers = yield call
    return _offsets(answers)


def _offsets(answers: offset_messages.Records) -> Reply:
    offsets, error = offset_messages.offsets_in(answers)
    return Reply(offsets or None, error) if error else Reply(offsets)


def _same(answer: Any) -> Any:  # noqa: ANN401 - as above
    return answer


def hosts_alone(
    broker: BrokerId, topics: Iterable[tuple[str, Mapping[int, PartitionView]]], others: set[BrokerId]
) -> dict[str, list[int]] | None:
    """Return partitions that together no other broker holds: who holds all of them is this one. None if there are none.

    Args:
        broker: holds them.
        topics: the partitions of each.
        others: the other brokers.
    """
    left, chosen = set(others), dict[str, list[int]]()
    for topic, parts in topics:
        for number, part in parts.items():
            if broker in part.replicas and not left <= set(part.replicas):
                left.intersection_update(part.replicas)
                chosen.setdefault(topic, []).append(number)
                if not left:
                    return chosen
    return None
