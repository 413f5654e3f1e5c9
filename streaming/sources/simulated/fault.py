"""What may happen to a simulated cluster, as values: faults, repairs, and what administrators do."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection


class Action(StrEnum):
    """What may happen."""

    KILL = "kill"
    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    LOSE_POWER = "lose_power"
    WIPE = "wipe"
    SLOW_DISK = "slow_disk"
    MEND_DISK = "mend_disk"
    FAIL_LOG_DIR = "fail_log_dir"
    UNREGISTER = "unregister"
    HOLD = "hold"
    SLOW = "slow"
    RELEASE = "release"
    CUT = "cut"
    MEND = "mend"
    ELECT = "elect"
    REASSIGN = "reassign"
    CANCEL_REASSIGNMENT = "cancel_reassignment"
    ALTER_CONFIG = "alter_config"


class Need(NamedTuple):
    """What an action is about, and what undoes it.

    Attributes:
        subjects: exactly one of these fields says to what it happens.
        also: these fields are needed, too.
        healed_by: the action that makes up for it, None where nothing needs to.
    """

    subjects: tuple[str, ...]
    also: tuple[str, ...] = ()
    healed_by: Action | None = None


_BROKERS: Final = ("broker", "rack")
_PROCESSES: Final = (*_BROKERS, "controller", "client")
NEEDS: Final[dict[Action, Need]] = {
    Action.KILL: Need(_PROCESSES, healed_by=Action.START),
    Action.START: Need(_PROCESSES),
    Action.STOP: Need(_PROCESSES, healed_by=Action.START),
    Action.PAUSE: Need(_PROCESSES, healed_by=Action.RESUME),
    Action.RESUME: Need(_PROCESSES),
    Action.LOSE_POWER: Need(_BROKERS, healed_by=Action.START),
    Action.WIPE: Need(_BROKERS),
    Action.SLOW_DISK: Need(_BROKERS, ("records_per_second",), healed_by=Action.MEND_DISK),
    Action.MEND_DISK: Need(_BROKERS),
    Action.FAIL_LOG_DIR: Need(("broker",), ("directory",)),
    Action.UNREGISTER: Need(("broker",)),
    Action.HOLD: Need(("link",), healed_by=Action.RELEASE),
    Action.SLOW: Need(("link",), ("records_per_second",), healed_by=Action.RELEASE),
    Action.RELEASE: Need(("link",)),
    Action.CUT: Need(("link",), healed_by=Action.MEND),
    Action.MEND: Need(("link",)),
    Action.ELECT: Need(("topic",), ("election",)),
    Action.REASSIGN: Need(("topic",), ("replicas",)),
    Action.CANCEL_REASSIGNMENT: Need(("topic",)),
    Action.ALTER_CONFIG: Need(("topic",), ("key",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens.

    Attributes:
        at: seconds after the begin of the scenario.
        action: what.
        broker: to which broker.
        rack: or to every broker of which rack.
        controller: or to which controllers: ``active`` is the one that is it then, ``all`` is all of them.
        client: or to which producer or member of a group, by its id.
        link: (sender, receiver): what the sender sends to the receiver; a node may be ``controller``.
        records_per_second: what a slow link or disk still carries.
        directory: which log directory fails.
        topic: whose partitions an administrator changes.
        partition: which of them; None: all.
        replicas: what a partition is reassigned to.
        election: ``preferred`` or ``unclean``.
        key: of the topic's configuration; ``value`` is the new one, None deletes it.
    """

    at: float
    action: Action
    broker: BrokerId | None = None
    rack: str | None = None
    controller: str | None = None
    client: BrokerId | None = None
    link: tuple[BrokerId, BrokerId] | None = None
    records_per_second: int | None = None
    directory: str | None = None
    topic: str | None = None
    partition: int | None = None
    replicas: tuple[BrokerId, ...] | None = None
    election: str | None = None
    key: str | None = None
    value: str | None = None

    def sentence(self) -> str:
        """Say it: ``kill broker 3``."""
        words = [self.action.replace("_", " ")]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in {"at", "action"} and value is not None:
                words.append(f"{item.name.replace('_', ' ')} {_said(value)}")
        return " ".join(words)

    @property
    def subject(self) -> tuple[str, object]:
        """What it happens to: (field, value)."""
        return next((name, value) for name in NEEDS[self.action].subjects if (value := getattr(self, name)) is not None)

    def check(self, key: str) -> None:
        """Refuse a fault that says too little or too much.

        Raises:
            ConfigurationError: names what is missing.
        """
        need = NEEDS[self.action]
        if sum(getattr(self, name) is not None for name in need.subjects) != 1:
            raise ConfigurationError(f"{key}: {self.action} needs {' or '.join(need.subjects)}")
        for name in need.also:
            if getattr(self, name) is None:
                raise ConfigurationError(f"{key}: {self.action} needs {name}")
        if self.records_per_second is not None and self.records_per_second < 1:
            raise ConfigurationError(f"{key}: {self.action} needs records_per_second of at least 1")
        if self.client is not None and self.action in {Action.START, Action.STOP}:
            raise ConfigurationError(
                f"{key}: a client is killed, paused or resumed; {self.action} needs broker or rack"
            )
        if self.controller not in {None, "active", "all"}:
            raise ConfigurationError(f"{key}: controller is {self.controller!r}; use active or all")
        if self.election not in {None, "preferred", "unclean"}:
            raise ConfigurationError(f"{key}: election is {self.election!r}; use preferred or unclean")


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join("controller" if node < 0 else str(node) for node in value)
    return str(value)


def check_healed(faults: Collection[Fault]) -> None:
    """Refuse faults that leave something broken at the end, for a scenario that begins again.

    Raises:
        ConfigurationError: names the repair that is missing.
    """
    sick: dict[object, Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.at):
        # Whoever is active when the fault comes is healed with all the others.
        subject = "controllers" if fault.controller else fault.subject
        if NEEDS[fault.action].healed_by is not None:
            sick[subject] = fault
        else:
            sick.pop(subject, None)
    for (field, value), fault in ((fault.subject, fault) for fault in sick.values()):
        cure = NEEDS[fault.action].healed_by
        raise ConfigurationError(
            f"repeat needs a healed cluster at the end: add a fault {cure} for {field} {_said(value)}"
        )
