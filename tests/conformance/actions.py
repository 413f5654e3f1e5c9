"""What a log turned out to be: actions of the model, and deviations from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.records import MetadataRecord, PartitionChange
from streaming.model.messages.registrations import Transition
from tests.conformance.quirks import Quirk


class ActionName(StrEnum):
    """What a controller does, one name for each reason to write a record."""

    CREATE_TOPIC = "create topic"
    CREATE_PARTITION = "create partition"
    DELETE_TOPIC = "delete topic"
    ALTER_CONFIG = "alter config"
    CLEAR_ELR = "clear elr"
    REGISTER_BROKER = "register broker"
    UNREGISTER_BROKER = "unregister broker"
    FENCE_BROKER = "fence broker"
    UNFENCE_BROKER = "unfence broker"
    BEGIN_CONTROLLED_SHUTDOWN = "begin controlled shutdown"
    CHANGE_BROKER = "change broker"
    FAIL_DIRECTORIES = "fail directories"
    ASSIGN_DIRECTORIES = "assign directories"
    ALTER_PARTITION = "alter partition"
    ELECT_PREFERRED = "elect preferred leader"
    ELECT_UNCLEAN = "elect unclean leader"
    REASSIGN = "reassign"
    CANCEL_REASSIGNMENT = "cancel reassignment"
    ELECT_CONTROLLER = "elect controller"
    REGISTER_CONTROLLER = "register controller"
    UPDATE_FEATURE = "update feature"
    NO_OP = "no-op"
    TRANSACTION = "transaction"
    OTHER = "other"


class Action(NamedTuple):
    """One record, explained.

    Attributes:
        offset: of the record.
        name: what the controller did.
        subject: ``broker 3``, ``orders-0``, ``orders``; empty for the cluster.
        broker: who came or went, where the action is about a broker.
        causes: what may be behind the step of a partition; one of them is the true one.
        step: the partition before and after, where the record tells of one.
        quirk: a deviation of Kafka from the model that it takes to explain the record.
    """

    offset: int
    name: ActionName
    subject: str = ""
    broker: BrokerId | None = None
    causes: tuple[Cause, ...] = ()
    step: Transition | None = None
    quirk: Quirk | None = None

    def __str__(self) -> str:
        """Write it as one line: ``126  fence broker 3: orders-0  [fenced]``."""
        about = "" if self.broker is None else f" {self.broker}"
        subject = f": {self.subject}" if self.subject else ""
        causes = f"  [{' or '.join(self.causes)}]" if self.causes else ""
        quirk = f"  ({self.quirk})" if self.quirk else ""
        return f"{self.offset}  {self.name}{about}{subject}{causes}{quirk}"


class Alternative(NamedTuple):
    """An action that was considered for a record, and why it is not it.

    ``would_write`` is None where the action would have changed nothing, or was not enabled; ``why`` says so.
    """

    name: ActionName
    would_write: PartitionChange | None
    why: str


class Missing(NamedTuple):
    """A partition change that belongs to an action and is not in the log; ``subject`` names the partition."""

    subject: str
    change: PartitionChange


@dataclass(frozen=True, slots=True)
class Deviation:
    """A record that no action of the model explains; or, with ``missing``, one that an action should have brought.

    Attributes:
        offset: of the record; of the action's own record for those that are missing.
        seen: the record.
        subject: what it is about: ``orders-0``, ``orders``, ``broker 3``; empty for the cluster.
        reason: what is wrong, in a sentence.
        considered: actions that came into question.
        missing: partition changes that belong to the action and were not there.
    """

    offset: int
    seen: MetadataRecord
    subject: str
    reason: str
    considered: tuple[Alternative, ...] = ()
    missing: tuple[Missing, ...] = ()

    def __str__(self) -> str:
        """Write it over several lines: the record, then each alternative."""
        lines = [f"{self.offset}  {self.reason}: {self.seen}"]
        lines += [
            f"    {action.name}: {action.why}{f' {action.would_write}' if action.would_write else ''}"
            for action in self.considered
        ]
        lines += [f"    missing {write.subject}: {write.change}" for write in self.missing]
        return "\n".join(lines)


class Explanation(NamedTuple):
    """A batch, explained as far as possible."""

    actions: tuple[Action, ...]
    deviations: tuple[Deviation, ...]
