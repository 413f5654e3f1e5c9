"""Which faults a polled play has: by the kind of fault, so that every class comes often enough to be judged.

The seed alone decides: the stratum, whether there is a second fault, and which. A class that few plays are is filled up
with further seeds of its strata. What decides is what is drawn, never what is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from streaming.sources.simulated.scenario import Scenario
from tests.judge.faults import DRAWERS
from tests.judge.judging import seeds
from tests.judge.play import TAIL_SECONDS, Batch, Play, played, that_can_be
from tests.judge.polls.monitor import Polling
from tests.judge.trouble import Trouble

LEAST: Final = 30
"""Incidents of each class."""
_PAIRS_SHARE: Final = 1 / 2

Fits = Callable[[Scenario, Trouble], bool]


@dataclass(frozen=True, slots=True)
class Stratum:
    """Plays that begin with one kind of fault.

    Attributes:
        name: for people.
        fault: its kind.
        classes: what it mostly is, to fill these up.
        fits: narrows what is drawn.
        pairs: a second fault may come with it.
    """

    name: str
    fault: str
    classes: tuple[str, ...]
    fits: Fits | None = None
    pairs: bool = True


def _length(one: Trouble) -> float:
    return one.end - one.begin


def _between_lag_and_session(scenario: Scenario, one: Trouble) -> bool:
    """Return whether a broker stands still long enough to lag, and too short to be fenced."""
    constants = scenario.constants
    lag, session = constants.replica_lag_time_max_ms / 1_000, constants.broker_session_timeout_ms / 1_000
    return 1.5 * lag < _length(one) < session - 2


def _lags(scenario: Scenario, one: Trouble) -> bool:
    return _length(one) > 1.1 * scenario.constants.replica_lag_time_max_ms / 1_000


def _is_slow(scenario: Scenario, one: Trouble) -> bool:
    """Return whether a disk is much slower than what is written, for long enough."""
    rate, fetched = one.what.split(" of ")[0], one.what.split(" of ")[1].split()[0]
    return _lags(scenario, one) and float(rate) < 0.5 * float(fetched)


STRATA: Final = (
    Stratum("a crash", "crash", ("broker_loss",)),
    Stratum("a loss of power", "power_loss", ("broker_loss",)),
    Stratum("crashes in turn", "cascade", ("broker_loss",)),
    Stratum("several crashes", "several", ("broker_loss",)),
    Stratum("a lost rack", "rack", ("rack_loss",)),
    Stratum("a combined node", "combined", ("broker_loss",)),
    Stratum("an unclean election", "unclean", ("unclean_election",)),
    Stratum("a freeze", "pause", ("broker_loss",)),
    Stratum("a freeze within the session", "pause", ("leader_stall",), _between_lag_and_session),
    Stratum("a freeze within the session, alone", "pause", ("leader_stall",), _between_lag_and_session, pairs=False),
    Stratum("a stop", "stop", ("controlled_shutdown", "unsafe_shutdown")),
    Stratum("a stop, alone", "stop", ("controlled_shutdown", "unsafe_shutdown"), pairs=False),
    Stratum("a rolling restart", "rolling", ("rolling_restart", "unsafe_shutdown")),
    Stratum("a decommission", "decommission", ("reassignment",)),
    Stratum("a reassignment", "reassignment", ("reassignment",)),
    Stratum("preferred leaders", "preferred_election", ()),
    Stratum("a topic", "topics", ()),
    Stratum("a link", "link", ("link_failure",)),
    Stratum("a link for longer than the lag time", "link", ("link_failure",), _lags),
    Stratum("a split", "split", ("network_split",)),
    Stratum("a split for longer than the lag time", "split", ("network_split",), _lags),
    Stratum("an isolated broker", "isolation", ("broker_loss",)),
    Stratum("an isolated rack", "rack_isolation", ("rack_loss",)),
    Stratum("a slow disk", "slow_disk", ("slow_follower",)),
    Stratum("a disk that is much too slow", "slow_disk", ("slow_follower",), _is_slow),
    Stratum("a lost directory", "log_dir", ("disk_failure",)),
    Stratum("a controller", "controller", ("controller_failover",)),
    Stratum("a controller that stands still", "controller_stall", ("controller_stall",)),
)


def stratum_of(seed: int) -> Stratum:
    return STRATA[seed % len(STRATA)]


def kinds_of(seed: int) -> tuple[str, ...]:
    """Draw the faults of a play."""
    stratum, random = stratum_of(seed), Random(f"{seed} polled")
    if not stratum.pairs or random.random() >= _PAIRS_SHARE:
        return (stratum.fault,)
    (second,) = random.choices(list(DRAWERS), [weight for weight, _ in DRAWERS.values()])
    if second == stratum.fault == "combined":
        return (second,)  # only one node is the active controller
    return that_can_be((stratum.fault, second))


def polled(
    seed: int,
    kinds: tuple[str, ...] = (),
    polling: Polling | None = None,
    watch: Callable[[Batch], None] | None = None,
    tail: float = TAIL_SECONDS,
) -> Play:
    """Play a seed on a polled cluster; ``watch`` and ``tail`` as of every play."""
    fits = None if kinds else stratum_of(seed).fits
    return played(
        seed,
        kinds or kinds_of(seed),
        watch,
        tail,
        polling=polling or Polling(),
        fits=None if fits is None else lambda scenario, troubles: fits(scenario, troubles[0]),
    )


def seeds_of(root: str, classes: Collection[str], after: int) -> Iterator[int]:
    """Draw further seeds, without end, of strata that fill up some classes."""
    count = after
    while True:
        for seed in [*seeds(root, count + 200)][count:]:
            if set(stratum_of(seed).classes) & set(classes):
                yield seed
        count += 200
