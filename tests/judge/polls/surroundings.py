"""Where the monitor of a play stands: what of the cluster it reaches, through what, and what a dead address answers.

Everything is drawn by the seed of the play, and nothing of it changes what the cluster does.

- A broker that is cut off from the others, and from the controllers, is mostly cut off from the monitor as well: they
  share a network. Or it is not: brokers replicate through a network of their own.
- Now and then the monitor stands on the wrong side of a cut, with the few.
- A machine without power neither accepts nor refuses, nor does the address of a pod that was deleted.
- Now and then there is a proxy in front, which accepts connections for dead brokers.
- Connections of brokers that are well are closed now and then, by a firewall or a proxy that is loaded again.
- It may not read the configuration of brokers now and then, so their times are unknown.
- The monitor itself stands still now and then, on a machine that does other things.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from streaming.contracts.identifiers import BrokerId
from streaming.sources.simulated.scenario import Action, Fault, Scenario
from tests.judge.trouble import Trouble

PORT: Final = 9092
_PROXY_SHARE: Final = 1 / 16
_DENIED_SHARE: Final = 1 / 8
_POD_SHARE: Final = 1 / 5
_SAME_NETWORK_SHARE: Final = 1 / 2
_WRONG_SIDE_SHARE: Final = 1 / 10
_RESETS_SHARE: Final = 1 / 8
_STALLS_SHARE: Final = 1 / 16
_LONGEST_STALL: Final = 12.0
_CUTS: Final = frozenset({"isolation", "rack_isolation", "split"})
_ENDS: Final = frozenset({Action.STOP, Action.KILL, Action.WIPE})


class Proxy(StrEnum):
    """What stands in front of every broker."""

    NONE = "none"
    CLOSES = "closes"
    """Accepts for a dead broker, and closes when it cannot connect to it."""
    HANGS = "hangs"
    """Accepts for a dead broker, and keeps the connection without an answer."""
    SHARED = "shared"
    """One address for all brokers: connections for a dead one are led to another."""


class Span(NamedTuple):
    """Seconds of the play in which something holds for brokers."""

    brokers: frozenset[BrokerId]
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is between the monitor and the brokers.

    Attributes:
        unreached: packets neither come nor go.
        without_power: as that, and what was connected is unknown to the machine when it is back.
        without_address: of a deleted pod: its process has ended, and nobody refuses connections to it.
        resets: a connection is closed at the begin of each, and nothing else.
        stalls: of the monitor.
        proxy: in front of all.
        knows_times: of sessions and lag; the monitor may read the configuration of brokers.
        addresses: as brokers advertise them.
    """

    unreached: tuple[Span, ...] = ()
    without_power: tuple[Span, ...] = ()
    without_address: tuple[Span, ...] = ()
    resets: tuple[Span, ...] = ()
    stalls: tuple[Span, ...] = ()
    proxy: Proxy = Proxy.NONE
    knows_times: bool = True
    addresses: Mapping[BrokerId, tuple[str, int]] = field(default_factory=dict)

    def is_reached(self, broker: BrokerId, at: float) -> bool:
        """Return whether packets come through to a machine that has power."""
        return not _holds(self.unreached, broker, at)

    def has_power(self, broker: BrokerId, at: float) -> bool:
        """Return whether the machine of a broker runs."""
        return not _holds(self.without_power, broker, at)

    def has_address(self, broker: BrokerId, at: float) -> bool:
        """Return whether somebody refuses connections to a process that does not run."""
        return not _holds(self.without_address, broker, at)

    def resets_within(self, broker: BrokerId, begin: float, end: float) -> bool:
        """Return whether a connection to a broker is closed in between."""
        return any(broker in span.brokers and begin < span.begin <= end for span in self.resets)

    def stands_still(self, at: float) -> bool:
        """Return whether the monitor does nothing just then."""
        return any(span.begin <= at < span.end for span in self.stalls)

    def words(self) -> str:
        """Say what is unusual, for a person who reads a transcript."""
        parts = [f"proxy {self.proxy}"] * (self.proxy is not Proxy.NONE)
        parts += ["times unknown"] * (not self.knows_times)
        for name in ("unreached", "without_power", "without_address", "resets", "stalls"):
            parts += [f"{name} {sorted(each.brokers)} {each.begin:.1f}-{each.end:.1f}" for each in getattr(self, name)]
        return "; ".join(parts) or "nothing unusual"


def _holds(spans: Iterable[Span], broker: BrokerId, at: float) -> bool:
    return any(broker in span.brokers and span.begin <= at < span.end for span in spans)


def drawn_surroundings(seed: int, scenario: Scenario, troubles: Sequence[Trouble]) -> Surroundings:
    """Draw where the monitor of a play stands."""
    random = Random(f"{seed} surroundings")
    proxy = random.choice([*Proxy][1:]) if random.random() < _PROXY_SHARE else Proxy.NONE
    are_pods = random.random() < _POD_SHARE
    unreached = [span for one in troubles if one.kind in _CUTS for span in _beyond_a_cut(random, scenario, one)]
    return Surroundings(
        unreached=tuple(unreached),
        without_power=tuple(_away(troubles, {Action.LOSE_POWER})),
        without_address=tuple(_away(troubles, _ENDS)) if are_pods else (),
        resets=tuple(_resets(random, scenario, troubles)),
        stalls=tuple(_stalls(random, troubles)),
        proxy=proxy,
        knows_times=random.random() >= _DENIED_SHARE,
        addresses={
            broker: ("gateway" if proxy is Proxy.SHARED else f"broker-{broker}", PORT) for broker in scenario.brokers
        },
    )


def _beyond_a_cut(random: Random, scenario: Scenario, one: Trouble) -> Iterator[Span]:
    """Draw whom the monitor does not reach while a cut lasts: nobody at all, those beyond it, or all others."""
    chance = random.random()
    others = frozenset(scenario.brokers) - one.brokers
    if chance < _WRONG_SIDE_SHARE:
        yield Span(others, one.begin, one.end)
    elif chance < _WRONG_SIDE_SHARE + _SAME_NETWORK_SHARE:
        yield Span(one.brokers, one.begin, one.end)


def _resets(random: Random, scenario: Scenario, troubles: Sequence[Trouble]) -> Iterator[Span]:
    """Draw connections that are closed, of one broker or of all at once."""
    if random.random() < _RESETS_SHARE:
        for _ in range(random.choice((1, 2, 3))):
            brokers = frozenset(random.sample(scenario.brokers, random.choice((1, 1, len(scenario.brokers)))))
            at = _moment(random, troubles)
            yield Span(brokers, at, at)


def _stalls(random: Random, troubles: Sequence[Trouble]) -> Iterator[Span]:
    if random.random() < _STALLS_SHARE:
        at = _moment(random, troubles)
        yield Span(frozenset(), at, at + random.uniform(1.5, _LONGEST_STALL))


def _moment(random: Random, troubles: Sequence[Trouble]) -> float:
    return random.uniform(5, max(one.end for one in troubles) + 40)


def _away(troubles: Iterable[Trouble], actions: Iterable[Action]) -> Iterator[Span]:
    """Give from when until when brokers are away after an action; for ever, if nothing starts them."""
    for one in troubles:
        faults = [(act.at, act.what) for act in one.acts if isinstance(act.what, Fault)]
        for at, fault in faults:
            if fault.action in actions and fault.broker is not None:
                starts = (
                    start
                    for start, other in faults
                    if other.action is Action.START and other.broker == fault.broker and start >= at
                )
                yield Span(frozenset({fault.broker}), at, min(starts, default=math.inf))
