"""Brokers that are slow but alive: by response time, by replicas that are behind with them, and by their agents.

A broker is slow only compared with itself *and* its peers *and* a floor. One signal is enough, one round is not: the
score of a signal rises by 1 in a slow round and falls by 1 in another; that of a broker is the largest of its signals',
so that a short fault which one signal shows later than another is not taken for a long one. While more brokers are
slower than they were than a fault of one explains, the cluster is overloaded, and no score rises. What is not measured,
because there is no agent or it is silent, is no signal. Pure; a round is at least ten seconds.
"""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, Micros

HISTORY_ROUNDS: Final = 60
LEAST_HISTORY: Final = 12
LEAST_PEERS: Final = 2
"""With two peers a broker is compared with the slower one: it is slow compared with each of them."""
SLOW_SCORE: Final = 5
MOST_SCORE: Final = 8
MOST_SLOW_PERCENT: Final = 10
RESPONSE_FLOOR_MICROS: Final = 100_000
"""Faster than this is harmless: produce requests and fetches wait for longer."""
APPEND_FLOOR_MICROS: Final = 30_000
"""A healthy disk appends within a few milliseconds; an append occupies one of the broker's handlers, 8 by default."""
TIME_FACTOR: Final = 3
BEHIND_FLOOR_PERCENT: Final = 50
"""After a lost link between two brokers at most every second pair with one of them is behind."""
BEHIND_FACTOR: Final = 2
LEAST_PAIRS: Final = 2
_ALL_PERCENT: Final = 100


class SpeedSample(NamedTuple):
    """One broker in one round; see ``contracts.samples.BrokerSpeedObserved``."""

    response_micros: int
    followed_leaders: int = 0
    followed_leaders_behind: int = 0
    followers: int = 0
    followers_behind: int = 0
    append_micros: int | None = None

    @property
    def behind_percent(self) -> int | None:
        """The larger share of pairs that are behind, as follower or as leader; None with too few to compare."""
        roles = (self.followed_leaders_behind, self.followed_leaders), (self.followers_behind, self.followers)
        return max((_ALL_PERCENT * behind // pairs for behind, pairs in roles if pairs >= LEAST_PAIRS), default=None)


class BrokerSpeed(NamedTuple):
    """The conclusion about one broker.

    Attributes:
        is_slow: None where it cannot be said.
        is_overloaded: more brokers are slower than they were than can be blamed; None as above.
        scores: of its signals, each 0 to ``MOST_SCORE``; empty at first.
        since: the round in which the score last rose from 0; None at 0.
        reasons: what was slow in the last slow round; empty unless the score is above 0.
        responses: response times of earlier rounds, microseconds, oldest first; a slow round is not among them.
        behind: the same of shares of pairs that were behind, per cent.
        appends: the same of times of appends, where an agent gives them.
    """

    is_slow: bool | None = None
    is_overloaded: bool | None = None
    scores: tuple[int, ...] = ()
    since: Micros | None = None
    reasons: tuple[str, ...] = ()
    responses: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    appends: tuple[int, ...] = ()

    @property
    def score(self) -> int:
        """The largest of its scores."""
        return max(self.scores, default=0)


UNKNOWN_SPEED: Final = BrokerSpeed()


class _Signal(NamedTuple):
    """One measure of one broker: slower than it was, also than its peers, and in words. None: cannot be said."""

    is_raised: bool | None
    is_apart: bool = False
    reason: str = ""


def after_round(
    before: Mapping[BrokerId, BrokerSpeed], samples: Mapping[BrokerId, SpeedSample], at: Micros
) -> dict[BrokerId, BrokerSpeed]:
    """Conclude from one round; of a broker that did not respond nothing: it may be down, or cut off from here."""
    speeds = {broker: before.get(broker, UNKNOWN_SPEED) for broker in samples}
    signals = {broker: _signals(broker, speeds[broker], samples) for broker in samples}
    slower = [broker for broker in samples if speeds[broker].is_slow or any(each.is_raised for each in signals[broker])]
    is_overloaded = len(slower) > most_slow(len(samples))
    return {
        broker: _concluded(speed, samples[broker], signals[broker], at, is_overloaded=is_overloaded)
        for broker, speed in speeds.items()
    }


def most_slow(brokers: int) -> int:
    """Return how many brokers of a cluster may be called slow."""
    return max(1, brokers * MOST_SLOW_PERCENT // _ALL_PERCENT)


def _signals(broker: BrokerId, speed: BrokerSpeed, samples: Mapping[BrokerId, SpeedSample]) -> tuple[_Signal, ...]:
    mine, others = samples[broker], [each for other, each in samples.items() if other != broker]
    responses = [each.response_micros for each in others]
    appends = [each.append_micros for each in others if each.append_micros is not None]
    behind = [each.behind_percent for each in others if each.behind_percent is not None]
    return (
        _time_signal("responds", mine.response_micros, RESPONSE_FLOOR_MICROS, speed.responses, responses),
        _time_signal("appends", mine.append_micros, APPEND_FLOOR_MICROS, speed.appends, appends),
        _behind_signal(mine, speed.behind, behind),
    )


def _time_signal(verb: str, micros: int | None, floor: int, history: Sequence[int], peers: Sequence[int]) -> _Signal:
    if micros is None or len(history) < LEAST_HISTORY or len(peers) < LEAST_PEERS:
        return _Signal(None)
    usual, seldom, theirs = median(history), quantiles(history, n=10)[-1], _of_peers(peers)
    is_raised = micros >= floor and micros >= TIME_FACTOR * usual
    is_apart = micros > seldom and micros >= TIME_FACTOR * theirs  # a broker may pause now and then, as usual
    said = f"{verb} in {_ms(micros)}, usually in {_ms(usual)}, its peers in {_ms(theirs)}"
    return _Signal(is_raised, is_raised and is_apart, said)


def _behind_signal(sample: SpeedSample, history: Sequence[int], peers: Sequence[int]) -> _Signal:
    percent = sample.behind_percent
    if percent is None or len(history) < LEAST_HISTORY or len(peers) < LEAST_PEERS:
        return _Signal(None)
    usual, theirs = median(history), _of_peers(peers)
    is_raised = percent > BEHIND_FLOOR_PERCENT and percent >= BEHIND_FACTOR * usual
    said = f"{' and '.join(_behind_in_words(sample))}; usually {usual:.0f} %, its peers {theirs:.0f} %"
    return _Signal(is_raised, is_raised and percent >= BEHIND_FACTOR * theirs, said)


def _of_peers(values: Sequence[int]) -> float:
    return max(values) if len(values) == LEAST_PEERS else median(values)


def _behind_in_words(sample: SpeedSample) -> list[str]:
    said = []
    if sample.followed_leaders_behind:
        said.append(f"is behind {sample.followed_leaders_behind} of the {sample.followed_leaders} brokers it follows")
    if sample.followers_behind:
        said.append(f"{sample.followers_behind} of its {sample.followers} followers are behind")
    return said


def _ms(micros: float) -> str:
    return f"{micros / 1000:.3g} ms"


def _concluded(
    speed: BrokerSpeed, sample: SpeedSample, signals: tuple[_Signal, ...], at: Micros, *, is_overloaded: bool
) -> BrokerSpeed:
    usual = speed._replace(
        responses=_longer(speed.responses, sample.response_micros),
        behind=_longer(speed.behind, sample.behind_percent),
        appends=_longer(speed.appends, sample.append_micros),
    )
    if all(signal.is_raised is None for signal in signals):
        return usual._replace(is_slow=None, is_overloaded=None)
    apart = tuple(signal.reason for signal in signals if signal.is_apart)
    steps = ((not is_overloaded) if signal.is_apart else -1 for signal in signals)
    before = speed.scores or (0,) * len(signals)
    scores = tuple(min(MOST_SCORE, max(0, was + step)) for was, step in zip(before, steps, strict=True))
    score = max(scores)
    return (speed if apart else usual)._replace(
        is_slow=score >= SLOW_SCORE or (bool(speed.is_slow) and score > 0),
        is_overloaded=is_overloaded,
        scores=scores,
        since=(speed.since or at) if score else None,
        reasons=(apart or speed.reasons) if score else (),
    )


def _longer(history: tuple[int, ...], value: int | None) -> tuple[int, ...]:
    return history if value is None else (*history, value)[-HISTORY_ROUNDS:]
