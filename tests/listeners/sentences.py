"""What real listeners do, in sentences, each with the check that it holds in a play. README.md has these sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.listeners.recordings import NEVER, VERSIONS, Play, Record

_OTHERS: Final = (1, 2)
_REQUESTS: Final = (
    "ApiVersions", "DescribeCluster", "Metadata", "DescribeTopicPartitions", "ListOffsets", "OffsetForLeaderEpoch"
)  # fmt: skip
_NEXT_MS: Final = 700
"""Until a probe that asks each 200 ms has met something, on a machine that does other things, too."""


_ATTEMPT_MS: Final = 1000
"""Until an attempt at a connection is given up, and the next one follows."""
_BUSY_MS: Final = 2000
"""Until a controller does what is due, on a machine that starts a JVM at the same time."""


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
    return play.unlisted(3, _OTHERS)


def _late(play: Play) -> int:
    return play.late(3, _OTHERS)


def _is_expired(play: Play) -> bool:
    """Return whether broker 3 left its ISRs when its session had expired; its last heartbeat was before the fault."""
    return -play.heartbeat_ms - 100 < play.removed(3) - play.session_ms < _BUSY_MS


def _is_answered_later(play: Play, whole: int) -> bool:
    """Return whether an attempt at a new connection is answered, and seconds later the kept one."""
    new, kept = (play.first(3, probe, "answered", whole) for probe in ("new connection", "Metadata"))
    return new < whole + _ATTEMPT_MS + _NEXT_MS and new + 2000 < kept


def _stood(play: Play, node: int) -> bool:
    """Return whether the metadata offset of a broker stood from about the fault on."""
    return any(how == "stands" and -_NEXT_MS < at < _NEXT_MS for at, how in play.hows(node, "image"))


def _quorum_waits(play: Play, node: int) -> bool:
    return play.first(node, "DescribeQuorum", "silent") < _NEXT_MS


def _elected(play: Play) -> int:
    """Return when another controller became the active one."""
    return next(at for at, record in play.records() if "controller" in record and at > 0)


def _newest_end(play: Play, node: int, partition: str, until: int) -> int:
    """Return the newest end of the leader epoch before the fault that a broker answered."""
    return [ends[partition] for at, ends in play.answers(node, "epoch ends") if at <= until and partition in ends][-1]


def _answers_all_the_time(play: Play) -> bool:
    return all(how == "answered" for probe in _REQUESTS for _, how in play.hows(3, probe))


def _has_storage_errors(play: Play) -> bool:
    failed = {
        name for _, answer in play.answers(3, "ListOffsets") for name, value in answer.items() if value == {"error": 56}
    }
    at = play.done("3 gets SIGTERM") - 1
    shown = play.answer(1, "Metadata", at)
    offline = {name for name, value in shown.items() if name != "listed" and 3 in value["offline"]}
    return bool(failed) and failed == offline and 3 in shown["listed"]


def _new_quorum(play: Play, node: int) -> int:
    """Return when a broker first answered DescribeQuorum with another leader."""
    before = play.answer(node, "DescribeQuorum", 0)
    return next(
        at
        for at, answer in play.answers(node, "DescribeQuorum")
        if answer.get("leader", 0) > 0 and answer["leader"] != before["leader"] and answer["epoch"] > before["epoch"]
    )


def _stopped(play: Play) -> tuple[int, ...]:
    """Return the node that the first step was done to."""
    return (int(play.steps[0][1].split()[0]),)


def _reached(play: Play) -> set[int]:
    """Return the brokers that were not fenced."""
    return set(play.data["brokers"]) - {record["broker"] for _, record in play.records(fenced=True)}


def _partitions(play: Play, node: int) -> Iterator[tuple[str, Record]]:
    """Yield every state of a partition in the answers of a broker to DescribeTopicPartitions."""
    for _, answer in play.answers(node, "DescribeTopicPartitions"):
        for name, part in answer.items():
            if "elr" in part:
                yield name, part


def _has_elr(play: Play) -> bool:
    return any(part["elr"] or part["last_known_elr"] for node in (1, 2, 3) for _, part in _partitions(play, node))


def _keeps_last_replica(play: Play) -> bool:
    """Return whether a partition without a leader has one replica in its ISR."""
    states = [part for node in (1, 2, 3) for _, part in _partitions(play, node) if part["leader"] < 0]
    return bool(states) and all(len(part["isr"]) == 1 for part in states)


def _elr_below_min_isr(play: Play) -> bool:
    """Return whether the topic with a min.insync.replicas of 2 has such replicas, and only with one in sync."""
    states = [part for node in (1, 2, 3) for name, part in _partitions(play, node) if name.startswith("orders")]
    return any(part["elr"] for part in states) and all(len(part["isr"]) < 2 for part in states if part["elr"])


SENTENCES: Final = (
    Sentence(
        "A broker that is stopped cleanly leaves its ISRs at once, and closes its listener after that: with its next "
        "heartbeat, when it has leaders to give up.",
        ("stop", "stop_idle", "stop_by_default"),
        lambda play: (
            play.removed(3) < 500 and play.removed(3) < _closed(play) < play.removed(3) + play.heartbeat_ms + _BUSY_MS
        ),
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
        "A stopped broker of Kafka 4 is fenced once more when its session would have expired.",
        ("stop", "stop_idle"),
        lambda play: len([at for at, _ in play.records(broker=3, fenced=True) if at < play.done("is started")]) == 2,
        ("4.4", "4.3"),
    ),
    Sentence(
        "A killed broker refuses connections at once, and leaves its ISRs when its session has expired: the time "
        "between is the session, less at most one interval of heartbeats.",
        ("kill", "kill_by_default"),
        lambda play: _closed(play) < _NEXT_MS and _is_expired(play),
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
        "was lost; the next attempt at a new connection is answered.",
        ("cut_from_all",),
        lambda play: _is_answered_later(play, play.done("the network is whole")),
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
        ("cut_from_controllers", "cut_from_cluster", "cut_from_controllers_by_default"),
        lambda play: _stood(play, 3) and not any(_stood(play, node) for node in _OTHERS),
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
    Sentence(
        "A broker that is killed and started at once is refused until its old session has expired: only then may it "
        "register. If it waits for that, its ISRs are small for less than two seconds, which polls may miss.",
        ("kill_and_restart", "kill_and_restart_by_default"),
        lambda play: (
            play.removed(3) <= play.written(register=3) < play.first(3, "new connection", "answered", 1000)
            and _is_expired(play)
            and max(at for at, record in play.records() if 3 in record.get("isr", ())) < play.removed(3) + 2000
        ),
    ),
    Sentence(
        "Frozen for less than its session, a broker is silent, answers late what it was asked, and no record is "
        "written.",
        ("freeze_shortly",),
        lambda play: (
            not play.data["log"]
            and play.done("SIGCONT") <= play.first(3, "Metadata", "answered", 1) < play.done("SIGCONT") + _NEXT_MS
        ),
    ),
    Sentence(
        "A broker that only we do not reach is silent, and nothing else shows anything: no other broker ceases to list "
        "it, and it is not late in DescribeQuorum.",
        ("cut_from_us",),
        lambda play: not play.data["log"] and _unlisted(play) == NEVER and _late(play) == NEVER,
    ),
    Sentence(
        "Brokers that do not reach each other answer everything, stay listed and are not late in DescribeQuorum; "
        "leaders take each other's replicas out of ISRs when the lag limit is over.",
        ("cut_from_brokers", "one_link"),
        lambda play: (
            _answers_all_the_time(play)
            and _unlisted(play) == _late(play) == play.written(broker=3, fenced=True) == NEVER
            and play.lag_ms < play.removed(3) < NEVER
        ),
    ),
    Sentence(
        "A lost disk shows in the broker's own answer to ListOffsets with replica id -2: error 56 "
        "(KAFKA_STORAGE_ERROR) for every replica on it, and no other; others list these replicas as offline, and the "
        "broker as not fenced.",
        ("disk_lost",),
        _has_storage_errors,
    ),
    Sentence(
        "While there is no active controller DescribeQuorum through every broker is silent and the metadata offset of "
        "every broker stands; the brokers answer everything else as before.",
        ("controller_kill", "controller_freeze", "lone_controller_kill", "lone_controller_freeze"),
        lambda play: (
            all(_quorum_waits(play, node) and _stood(play, node) for node in play.data["brokers"])
            and _answers_all_the_time(play)
        ),
    ),
    Sentence(
        "Three controllers have another active one within 6 s.",
        ("controller_kill", "controller_freeze", "controller_cut", "controller_and_broker"),
        lambda play: _elected(play) < 6000,
    ),
    Sentence(
        "Every broker's DescribeQuorum that waits is answered with the new active controller and a larger epoch when "
        "the former one was killed.",
        ("controller_kill",),
        lambda play: all(_elected(play) <= _new_quorum(play, node) < _elected(play) + 1500 for node in (1, 2, 3)),
    ),
    Sentence(
        "When the former active controller hangs or is cut off, DescribeQuorum through the brokers stays silent "
        "although there is a new one, whenever it was asked, until the former one is back; the metadata offset of the "
        "brokers moves again within 5 s.",
        ("controller_freeze", "controller_cut"),
        lambda play: all(
            play.steps[-1][0] < _new_quorum(play, node)
            and play.steps[-1][0] < play.first(node, "new DescribeQuorum", "answered", 500)
            and _elected(play) <= play.first(node, "image", "moves", _elected(play)) < _elected(play) + 5000
            for node in (1, 2, 3)
            if node in _reached(play)
        ),
    ),
    Sentence(
        "An active controller that is stopped cleanly hands over before it closes its listener, within a second.",
        ("controller_stop",),
        lambda play: (
            _elected(play) < 1000
            and all(_elected(play) < play.first(node, "new connection", "refused") for node in _stopped(play))
        ),
    ),
    Sentence(
        "Without any controller no broker is fenced, however long that lasts.",
        ("lone_controller_kill",),
        lambda play: not list(play.records(fenced=True)),
    ),
    Sentence(
        "A former leader's epoch ends below what that leader had answered, when the new leader of an unclean election "
        "is asked by OffsetForLeaderEpoch.",
        ("unclean_election",),
        lambda play: _newest_end(play, 2, "risky-0", NEVER) < _newest_end(play, 3, "risky-0", play.done("3 gets")),
    ),
    Sentence(
        "In a clean election the former leader's epoch ends at the new leader at or above all that the former one had "
        "answered.",
        ("stop", "kill", "freeze"),
        lambda play: _newest_end(play, 1, "orders-2", NEVER) >= _newest_end(play, 3, "orders-2", play.removed(3)),
    ),
    Sentence(
        "Eligible leader replicas show in DescribeTopicPartitions as soon as an ISR is smaller than "
        "min.insync.replicas, and only then.",
        ("two_brokers", "elr_election"),
        _elr_below_min_isr,
        ("4.4", "4.3"),
    ),
    Sentence(
        "A broker that is unregistered is in no list of fenced brokers any more.",
        ("unregister",),
        lambda play: all(
            answer["fenced"] == []
            for node in _OTHERS
            for at, answer in play.answers(node, "DescribeCluster")
            if play.written(unregister=3) + _NEXT_MS < at < play.written(register=3)
        ),
        ("4.4", "4.3"),
    ),
    Sentence(
        "A preferred election changes the leader and the leader epoch of a partition, and nothing else.",
        ("preferred_elections",),
        lambda play: all(
            set(record) == {"partition", "leader"} for at, record in play.records() if "partition" in record and at >= 0
        ),
    ),
    Sentence(
        "A broker without a replica answers ListOffsets with replica id -2 by error 6 (NOT_LEADER_OR_FOLLOWER): from "
        "the end of a reassignment on, and until its beginning.",
        ("reassignment",),
        lambda play: (
            [answer.get("moved-0") for _, answer in play.answers(3, "ListOffsets")]
            == [{"error": 6}, None, {"error": 6}]
        ),
    ),
    Sentence(
        "Kafka 3.9 has none: the lists are empty, and the last replica stays in the ISR of a partition without a "
        "leader.",
        ("unclean_election",),
        lambda play: not _has_elr(play) and _keeps_last_replica(play),
        ("3.9",),
    ),
    Sentence(
        "DescribeCluster of Kafka 3.9 has no fenced brokers.",
        ("kill",),
        lambda play: all(
            "fenced" not in answer for node in (1, 2, 3) for _, answer in play.answers(node, "DescribeCluster")
        ),
        ("3.9",),
    ),
)
