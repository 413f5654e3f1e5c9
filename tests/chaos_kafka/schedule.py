"""One run on a real cluster, drawn from a seed: the cluster, which fault when, and which of our processes dies in it.

Pure. What only the running cluster has (who leads, how many partitions there are) is chosen by numbers between 0 and 1
that are drawn here: the same seed plays the same faults, as far as a real cluster lets anything be the same.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from deploy.sandbox.plan import DEFAULT

FIRST_CONTROLLER: Final = 101
LOG, POLL = "log", "poll"
COLLECTOR, JOB = "collector", "job"
SHARE_OF_OWN_DEATHS: Final = 0.5
SHARE_OF_RECOVERIES: Final = 0.5
ACTIVE: Final = 0
"""In place of a controller: the one that is active then."""


class Topic(NamedTuple):
    """A topic that is written to all the time."""

    partitions: int
    replication_factor: int
    min_isr: int


class Shape(NamedTuple):
    """A cluster."""

    brokers: int = 5
    controllers: int = 3
    version: str = DEFAULT

    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    def controller_ids(self) -> tuple[int, ...]:
        return tuple(range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.controllers))

    def topics(self) -> dict[str, Topic]:
        """Return the topics: those of two replicas are the first to lose their leader, and can be moved anywhere."""
        return {"orders": Topic(6, 3, 2), "payments": Topic(4, 3, 1), "audit": Topic(4, 2, 1)}


FULL: Final = Shape()
SMALL: Final = Shape(brokers=3, controllers=1)


class OwnDeath(NamedTuple):
    """One of our programs is killed ``after`` seconds of a fault, and started again ``down`` seconds later."""

    side: str
    program: str
    after: float
    down: float

    def __str__(self) -> str:
        return f"kill the {self.program} of the {self.side} {self.after:.1f} s later, for {self.down:.1f} s"


class KafkaAct(NamedTuple):
    """A fault.

    Attributes:
        pause: seconds before it.
        harm: what is done.
        brokers: all of them in a random order; a fault takes as many as it needs.
        controller: which one, or the active one.
        topic: of a fault that has one.
        draw: chooses among what only the running cluster has.
        seconds: how long the fault lasts.
        own: which of our programs dies meanwhile.
        recovers: whether the cluster is whole again before the next fault.
    """

    pause: float
    harm: str
    brokers: tuple[int, ...]
    controller: int
    topic: str
    draw: float
    seconds: float
    own: OwnDeath | None
    recovers: bool

    def __str__(self) -> str:
        controller = "the active one" if self.controller == ACTIVE else str(self.controller)
        own = f"; {self.own}" if self.own else ""
        brokers = " ".join(map(str, self.brokers))
        return (
            f"after {self.pause:.1f} s {self.harm}: brokers {brokers}, controller {controller}, {self.topic}, "
            f"{self.draw:.3f}, {self.seconds:.1f} s{own}{'; recovers' if self.recovers else ''}"
        )


class KafkaSchedule(NamedTuple):
    """One run."""

    seed: int
    shape: Shape
    acts: tuple[KafkaAct, ...]

    def __str__(self) -> str:
        lines = "".join(f"\n  {number}. {act}" for number, act in enumerate(self.acts, start=1))
        brokers, controllers, version = self.shape
        return f"seed {self.seed}, Kafka {version}, {brokers} brokers, {controllers} controllers{lines}"


def drawn(
    seed: int, faults: int, harms: tuple[str, ...], shape: Shape = FULL, *, longest: float = 10.0
) -> KafkaSchedule:
    """Draw a run of so many faults: each harm as often as the others, give or take one, in a random order.

    Args:
        seed: the same draws the same.
        faults: how many.
        harms: what there is to draw from.
        shape: the cluster.
        longest: seconds that a fault lasts at most: both shorter and longer ones than a broker's session are drawn.
    """
    dice = Random(f"{seed} kafka")
    chosen = list[str]()
    while len(chosen) < faults:
        chosen += dice.sample(sorted(harms), len(harms))
    return KafkaSchedule(seed, shape, tuple(_act(dice, harm, shape, longest) for harm in chosen[:faults]))


def _act(dice: Random, harm: str, shape: Shape, longest: float) -> KafkaAct:
    return KafkaAct(
        pause=dice.random() * 2.0,
        harm=harm,
        brokers=tuple(dice.sample(shape.broker_ids(), shape.brokers)),
        controller=dice.choice((ACTIVE, ACTIVE, *shape.controller_ids())),
        topic=dice.choice(sorted(shape.topics())),
        draw=dice.random(),
        seconds=0.2 + dice.random() * (longest - 0.2),
        own=_own_death(dice) if dice.random() < SHARE_OF_OWN_DEATHS else None,
        recovers=dice.random() < SHARE_OF_RECOVERIES,
    )


def _own_death(dice: Random) -> OwnDeath:
    return OwnDeath(
        side=dice.choice((LOG, POLL)),
        program=dice.choice((COLLECTOR, JOB)),
        after=dice.random() * 3.0,
        down=dice.random() * 8.0,  # long enough to miss what happens meanwhile
    )
