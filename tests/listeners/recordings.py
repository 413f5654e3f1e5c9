"""The committed recordings: one file for each version of Kafka, with one play for each fault.

A play is JSON. Its times are milliseconds after the first thing that was done:

``about``                       what happens
``brokers`` ``controllers``     the nodes; a node of both roles is a controller with 100 added
``session_ms`` ``heartbeat_ms`` broker.session.timeout.ms, broker.heartbeat.interval.ms
``lag_ms``                      replica.lag.time.max.ms
``longest_stall_ms``            how late the recorder itself was at most
``steps``                       [time, what was done]
``log``                         [time, offset, record]: what the controllers wrote
``met``                         [time, node, probe, how, difference]: what changed of what a probe meets

A probe is a request on a connection that is kept, ``new connection``, ``idle connection`` or ``new DescribeQuorum``,
which is asked on a new connection each time. ``how`` is answered, silent (from when the question was sent), refused,
unreachable, closed (by FIN), reset, timed out (by the kernel); of a new connection also what followed when it was
accepted. The difference of an answer has the fields that are new or different; None is of one that is gone.
Further rows are of numbers that move while all is well: each second ``log ends`` (ListOffsets) and ``epoch ends``
(OffsetForLeaderEpoch, of the leader epochs before the fault), and what ``stands`` for at least 1.5 s: ``image`` (the
metadata offset in ApiVersions) and ``quorum high watermark`` (DescribeQuorum).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "fixtures" / "listeners"
VERSIONS: Final = ("4.4", "4.3", "3.9")
NEVER: Final = 10**9
"""Milliseconds of what does not happen in a play."""

Record = dict[str, Any]


class Play:
    """One recorded play, to be asked."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.session_ms: int = data["session_ms"]
        self.heartbeat_ms: int = data["heartbeat_ms"]
        self.lag_ms: int = data["lag_ms"]
        self.steps: list[tuple[int, str]] = [(at, text) for at, text in data["steps"]]

    def done(self, text: str) -> int:
        """Return when a step with this text in it was done."""
        return next((at for at, step in self.steps if text in step), NEVER)

    def hows(self, node: int, probe: str, since: int = -NEVER) -> Iterator[tuple[int, str]]:
        """Yield how a probe fared, with the times at which that changed."""
        last = ""
        for at, of, name, how, *_ in self.data["met"]:
            if of == node and name == probe and how != last:
                last = how
                if at >= since:
                    yield at, how

    def first(self, node: int, probe: str, how: str, since: int = 0) -> int:
        """Return when a probe first fared so; a prefix of it is enough."""
        return next((at for at, met in self.hows(node, probe, since) if met.startswith(how)), NEVER)

    def how(self, node: int, probe: str, at: int) -> str:
        """Return how a probe fared at a time."""
        return [how for when, how in self.hows(node, probe) if when <= at][-1]

    def answers(self, node: int, probe: str) -> Iterator[tuple[int, Record]]:
        """Yield the whole answer at each change of it."""
        answer: Record = {}
        for at, of, name, _, *difference in self.data["met"]:
            if of == node and name == probe and difference:
                answer = {key: value for key, value in (answer | difference[0]).items() if value is not None}
                yield at, answer

    def answer(self, node: int, probe: str, at: int) -> Record:
        """Return the newest answer before a time."""
        return [answer for when, answer in self.answers(node, probe) if when <= at][-1]

    def records(self, **fields: Any) -> Iterator[tuple[int, Record]]:
        """Yield the records that have these values, in the order of the log."""
        for at, _, record in self.data["log"]:
            if all(record.get(key) == value for key, value in fields.items()):
                yield at, record

    def written(self, since: int = 0, **fields: Any) -> int:
        """Return when the first record with these values was written."""
        return next((at for at, _ in self.records(**fields) if at >= since), NEVER)

    def removed(self, broker: int, since: int = 0) -> int:
        """Return when a broker first left an ISR."""
        return next(
            (
                at
                for at, record in self.records()
                if at >= since and "partition" in record and "isr" in record and broker not in record["isr"]
            ),
            NEVER,
        )

    def unlisted(self, broker: int, others: Iterable[int]) -> int:
        """Return when all others had ceased to list a broker."""
        return max(
            next(
                (
                    at
                    for at, answer in self.answers(node, "DescribeCluster")
                    if at > 0 and broker not in answer["listed"]
                ),
                NEVER,
            )
            for node in others
        )

    def late(self, broker: int, others: Iterable[int]) -> int:
        """Return when a broker was first late as an observer of the quorum, by what the others answer."""
        return min(
            next(
                (
                    at
                    for at, answer in self.answers(node, "DescribeQuorum")
                    if at > 0 and broker in answer.get("late", ())
                ),
                NEVER,
            )
            for node in others
        )


def path_of(version: str) -> Path:
    """Return the file of a version of Kafka."""
    return FOLDER / f"kafka-{version}.json.gz"


@cache
def plays(version: str) -> dict[str, Play]:
    """Return the recorded plays of a version by fault; none of a version that was not recorded."""
    return {fault: Play(data) for fault, data in _read(version).items()}


def keep(version: str, recorded: dict[str, dict[str, Any]]) -> None:
    """Add plays to the file of a version, or replace them."""
    path = path_of(version)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_read(version) | recorded, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _read(version: str) -> dict[str, dict[str, Any]]:
    path = path_of(version)
    if not path.exists():
        return {}
    data: dict[str, dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))
    return data
