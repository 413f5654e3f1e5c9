"""What real listeners do, in sentences, each with the check that it holds in a play. README.md has these sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.listeners.recordings import NEVER, VERSIONS, Play

_OTHERS: Final = (1, 2)
_REQUESTS: Final = (
    "ApiVersions", "DescribeCluster", "Metadata", "DescribeTopicPartitions", "ListOffsets", "OffsetForLeaderEpoch"
)  # fmt: skip
_NEXT_MS: Final = 700
"""Until a probe that asks each 200 ms has met something, on a machine that does other things, too."""


class Sentence(NamedTuple):
    """One sentence.

    Attributes:
        text: as it stands in README.md.
        faults: the plays in which it holds; of the broker 3.
        holds: returns whether it does.
        versions: of Kafka; that of which there is no such play is passed over.
    """

    text: str
    faults: tuple[str, ...]
    holds: Callable[[Play], bool]
    versions: tuple[str, ...] = VERSIONS


def _closed(play: Play) -> int:
    """Return when the listener of broker 3 took no new connection any more."""
    return play.first(3, "new connection", "refused")


def _unlisted(play: Play) -> int:
    """Return when all other brokers have ceased to list broker 3."""
    return max(
        next((at for at, answer in play.answers(node, "DescribeCluster") if 3 not in answer["listed"]), NEVER)
        for node in _OTHERS
    )


def _late(play: Play) -> int:
    """Return when the quorum first has broker 3 as an observer that is late."""
    return min(
        next((at for at, answer in play.answers(node, "DescribeQuorum") if 3 in answer.get("late", ())), NEVER)
        for node in _OTHERS
    )


def _answers_all_the_time(play: Play) -> bool:
    return all(how == "answered" for probe in _REQUESTS for _, how in play.hows(3, probe))


SENTENCES: Final = (
    Sentence(
        "A broker that is stopped cleanly leaves its ISRs at once, and closes its listener after that, within 3 s.",
        ("stop", "stop_idle"),
        lambda play: play.removed(3) < 500 and play.removed(3) < _closed(play) < play.removed(3) + 3000,
    ),
    Sentence(
        "While it gives up its leaders, a stopping broker answers every request, and the others still list it.",
        ("stop",),
        lambda play: play.removed(3) + 400 < min(_unlisted(play), _closed(play)),
    ),
    Sentence(
        "A broker that leads nothing is fenced in the batch that takes it out of its ISRs, as one whose session has "
        "expired; only its listener, which closes in the same moment, shows that it was stopped.",
        ("stop_idle",),
        lambda play: (
            play.written(broker=3, fenced=True) == play.removed(3) and _closed(play) - play.removed(3) < _NEXT_MS
        ),
    ),
    Sentence(
        "A stopped broker is fenced once more when its session would have expired.",
        ("stop", "stop_idle"),
        lambda play: len([at for at, _ in play.records(broker=3, fenced=True) if at < play.done("is started")]) == 2,
    ),
    Sentence(
        "A killed broker refuses connections at once, and leaves its ISRs when its session has expired: the time "
        "between is the session, less at most one interval of heartbeats.",
        ("kill",),
        lambda play: _closed(play) < _NEXT_MS and -600 < play.removed(3) - play.session_ms < 600,
    ),
    Sentence(
        "A killed process ends its open connections: those with an unread request by RST, an idle one by FIN.",
        ("kill",),
        lambda play: (
            play.first(3, "idle connection", "closed") < _NEXT_MS
            and any(play.first(3, probe, "reset") < _NEXT_MS for probe in _REQUESTS)
        ),
    ),
    Sentence(
        "A frozen broker closes nothing and answers nothing, and its kernel still accepts new connections.",
        ("freeze",),
        lambda play: (
            all(play.first(3, probe, "silent") < _NEXT_MS for probe in _REQUESTS)
            and [how for _, how in play.hows(3, "idle connection")] == ["open"]
            and play.first(3, "new connection", "accepted, silent") < _NEXT_MS
        ),
    ),
    Sentence(
        "A broker whose network is dead is as silent as a frozen one, and new connections time out.",
        ("cut_from_all",),
        lambda play: (
            all(play.first(3, probe, "silent") < _NEXT_MS for probe in _REQUESTS)
            and play.first(3, "new connection", "unreachable") < _NEXT_MS
        ),
    ),
    Sentence(
        "Frozen, without network or cut off from the controllers, a broker leaves its ISRs when its session has "
        "expired, and is fenced in the same batch.",
        ("freeze", "cut_from_all", "cut_from_controllers"),
        lambda play: (
            -600 < play.removed(3) - play.session_ms < 600 and play.removed(3) == play.written(broker=3, fenced=True)
        ),
    ),
    Sentence(
        "After an outage of the network the open connections stay silent for seconds more, until TCP sends again what "
        "was lost; a new connection is answered at once.",
        ("cut_from_all",),
        lambda play: (
            play.first(3, "new connection", "answered", play.done("the network is whole"))
            < play.done("the network is whole") + _NEXT_MS
            < play.first(3, "Metadata", "answered", play.done("the network is whole"))
        ),
    ),
    Sentence(
        "A broker that is cut off from the controllers answers all requests but DescribeQuorum, which is silent.",
        ("cut_from_controllers",),
        lambda play: _answers_all_the_time(play) and play.first(3, "DescribeQuorum", "silent") < _NEXT_MS,
    ),
    Sentence(
        "It lists itself and everybody as not fenced, with the leaders and ISRs of before, for as long as it is cut "
        "off, while the others do not list it: the stale broker among them is the isolated one.",
        ("cut_from_controllers",),
        lambda play: (
            play.answer(3, "DescribeCluster", play.done("the network is whole"))["listed"] == [1, 2, 3]
            and all(
                3 in part["isr"]
                for name, part in play.answer(3, "Metadata", play.done("the network is whole")).items()
                if name != "listed"
            )
            and _unlisted(play) < play.removed(3) + _NEXT_MS
        ),
    ),
    Sentence(
        "The metadata offset in its ApiVersions (FinalizedFeaturesEpoch) stands from the first moment; it grows with "
        "every record, so at least twice a second, on every broker that the controllers reach.",
        ("cut_from_controllers",),
        lambda play: (
            play.first(3, "image", "stands") < _NEXT_MS
            and all([how for _, how in play.hows(node, "image")] == ["moves"] for node in _OTHERS)
        ),
    ),
    Sentence(
        "DescribeQuorum through any other broker says when each broker last fetched metadata: one that is killed, "
        "frozen or cut off is late there within 3 s, before its session has expired.",
        ("kill", "freeze", "cut_from_all", "cut_from_controllers"),
        lambda play: _late(play) < min(3000, play.removed(3)),
    ),
    Sentence(
        "The other brokers show a change of a partition within 300 ms of its record.",
        ("stop", "stop_idle", "kill", "freeze", "cut_from_controllers"),
        lambda play: all(
            min(at for at, answer in play.answers(node, "Metadata") if 3 not in answer["orders-0"]["isr"])
            < play.removed(3) + 300 + 200
            for node in _OTHERS
        ),
    ),
    Sentence(
        "The port of a broker that starts is refused until it is unfenced; from then on every request is answered.",
        ("stop", "stop_idle", "kill"),
        lambda play: (
            play.written(broker=3, fenced=False)
            <= play.first(3, "new connection", "answered", play.done("is started"))
            < play.written(broker=3, fenced=False) + _NEXT_MS
        ),
    ),
    Sentence(
        "A frozen broker that continues is unfenced without a new registration.",
        ("freeze",),
        lambda play: play.written(register=3) == NEVER and play.written(broker=3, fenced=False) < NEVER,
    ),
)
