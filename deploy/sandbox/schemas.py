"""The message schemas of two versions of Kafka, jar against jar, and what of the difference concerns isrwatch.

Kafka's jars hold the schemas from which its messages are generated, as JSON with comments: of requests and responses
in kafka-clients, of metadata records in kafka-metadata. Depends on jars and on what the sources ask and read.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import FetchRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.decoding import SCHEMAS, SKIPPED
from streaming.sources.polling import broker
from streaming.sources.polling.watching import asking
from streaming.sources.protocol import identity, offset_messages
from streaming.sources.samples import directories, transactions
from streaming.sources.samples.groups import blocks, described

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

ASKED: Final[Mapping[int, int]] = {
    FetchRequest.API_KEY: messages.FETCH_NEWEST,
    messages.FetchSnapshotRequest.API_KEY: messages.FETCH_SNAPSHOT_NEWEST,
    MetadataRequest.API_KEY: broker.METADATA_NEWEST,
    DescribeTopicPartitionsRequest.API_KEY: 0,
    ListPartitionReassignmentsRequest.API_KEY: 0,
    DescribeQuorumRequest.API_KEY: 2,
    DescribeConfigsRequest.API_KEY: 4,
    ApiVersionsRequest.API_KEY: identity.CHECKING_API_VERSIONS,
    DescribeClusterRequest.API_KEY: asking.WITH_FENCED,
    SaslHandshakeRequest.API_KEY: 1,
    SaslAuthenticateRequest.API_KEY: 1,
    directories.API_KEY: directories.NEWEST,
    offset_messages.API_KEY: offset_messages.NEWEST,
    OffsetForLeaderEpochRequest.API_KEY: offset_messages.EPOCHS_NEWEST,
    transactions.LIST: 0,
    transactions.DESCRIBE: 0,
    transactions.API_KEY: 0,
    described.LIST_GROUPS: described.LIST_NEWEST,
    **{api.key: api.newest for api in described.APIS.values()},
    blocks.OFFSET_FETCH: blocks.NEWEST,
    blocks.SHARE_OFFSETS: blocks.LAGS_SINCE,
}
"""The requests that isrwatch sends, and the newest version of each that it speaks."""
JARS: Final = ("kafka-clients", "kafka-metadata")
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
_FOLDERS: Final = ("common/message/", "common/metadata/")


@dataclass(frozen=True, slots=True)
class Schema:
    """One message: its key, what it is (request, response, metadata or data), its versions, and its fields by path."""

    key: int | None
    kind: str
    versions: str
    fields: Mapping[str, str]

    @property
    def bounds(self) -> tuple[int, int]:
        """The oldest and the newest version; (0, -1) for none."""
        if self.versions == "none":
            return 0, -1
        oldest, _, newest = self.versions.partition("-")
        return int(oldest), int(newest or oldest)


def read_schemas(jars: Iterable[Path]) -> dict[str, Schema]:
    """Read the schemas in jars, by name; other jars than those of ``JARS`` have none that matter."""
    schemas: dict[str, Schema] = {}
    for jar in jars:
        if not jar.name.startswith(JARS):
            continue
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if name.startswith(_FOLDERS) and name.endswith(".json"):
                    document = json.loads(_COMMENT.sub("", content.read(name).decode()))
                    schemas[document["name"]] = _schema(document)
    return schemas


def _schema(document: Mapping[str, Any]) -> Schema:
    common = {each["name"]: each["fields"] for each in document.get("commonStructs", ())}
    fields = dict(_fields(document.get("fields", ()), common, ""))
    return Schema(document.get("apiKey"), document["type"], document["validVersions"], fields)


def _fields(fields: Iterable[Mapping[str, Any]], common: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each field, and everything about it that is on the wire."""
    for field in fields:
        path = f"{above}{field['name']}"
        about = {key: value for key, value in sorted(field.items()) if key not in {"about", "fields", "name", "mapKey"}}
        yield path, ", ".join(f"{key} {value}" for key, value in about.items())
        inner = field.get("fields") or common.get(str(field["type"]).removeprefix("[]"), ())
        yield from _fields(inner, common, f"{path}.")


@dataclass(frozen=True, slots=True)
class Difference:
    """One message that differs. ``before`` or ``after`` is None if the version has none; ``verdict`` is of isrwatch.

    ``is_read``: isrwatch reads it as it is now; None if it never asks for it.
    """

    name: str
    before: Schema | None
    after: Schema | None
    verdict: str
    is_read: bool | None

    def lines(self) -> Iterator[str]:
        """Yield the message, what becomes of it, and its fields that differ."""
        key = next(each.key for each in (self.after, self.before) if each is not None)
        versions = (each.versions if each is not None else "none" for each in (self.before, self.after))
        yield f"{self.name} ({key}): versions {' -> '.join(versions)}; {self.verdict}"
        before = self.before.fields if self.before is not None else {}
        after = self.after.fields if self.after is not None else {}
        for path in dict.fromkeys([*before, *after]):
            if before.get(path) != after.get(path):
                kind = "new" if path not in before else "gone" if path not in after else "changed"
                yield f"  {kind} {path}: {after.get(path, before.get(path, ''))}"


def differences(before: Mapping[str, Schema], after: Mapping[str, Schema]) -> list[Difference]:
    """Return each message that differs, those that concern isrwatch first."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    differing = [_difference(name, before.get(name), after.get(name)) for name in names]
    return sorted(differing, key=lambda each: (each.is_read is None, each.name))


def _difference(name: str, before: Schema | None, after: Schema | None) -> Difference:
    schema = after or before
    assert schema is not None  # noqa: S101 - it is in one of the two
    oldest, newest = (0, -1) if after is None else after.bounds
    if schema.kind == "metadata":
        return Difference(name, before, after, *_of_record(schema.key or 0, newest, after))
    spoken = None if schema.key is None else ASKED.get(schema.key)
    if spoken is None:
        return Difference(name, before, after, "not asked by isrwatch", None)
    is_spoken = oldest <= spoken and newest >= 0
    asks = f"isrwatch asks version {min(spoken, newest)}" if is_spoken else f"isrwatch speaks {spoken} only: CHANGE IT"
    return Difference(name, before, after, asks, is_spoken)


def _of_record(key: int, newest: int, after: Schema | None) -> tuple[str, bool]:
    if after is None:
        return "no controller of it writes it any more", True
    if key in SKIPPED:
        return f"skipped by isrwatch as {SKIPPED[key]}", True
    schema = SCHEMAS.get(key)
    if schema is None:
        return "UNKNOWN to isrwatch, whose quarantine gets it: ADD IT", False
    if newest > schema.newest:
        return f"isrwatch reads up to version {schema.newest}: ADD IT", False
    return f"isrwatch reads version {newest}", True
