"""One controller process: a voter of the quorum and, while it leads, the active controller (``QuorumController``).

All controllers of a cluster share one :class:`Controller`, the replicated state; the active one alone touches it. What
it does is written to its own log, and nothing of it leaves this process before the quorum has it: no batch is seen, no
broker is told, no request is answered. A controller that was deposed without knowing it is asked further, and never
answers; that is all that others see of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.model.controller.metadata_writer import Commit
from streaming.model.messages.membership import FromController, NotController
from streaming.model.messages.network import Outbox
from streaming.model.messages.quorum import ControllerRegistrationRequest
from streaming.model.messages.timers import AppendLingerOver, ControllerTaskDue, StartUp
from streaming.model.nodes.quorum.raft import Raft
from streaming.model.nodes.quorum.voter import Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.constants import Constants
    from streaming.model.controller.controller import Controller
    from streaming.model.messages.network import Message, Timer
    from streaming.model.nodes.quorum.raft_log import QuorumDisk


def joined(first: Commit, second: Commit) -> Commit:
    """Make one batch of two that follow each other; its timestamp is that of the moment it was opened."""
    batch = replace(first.batch, records=first.batch.records + second.batch.records)
    return Commit(first.now, batch, first.transitions + second.transitions)


def sender_of(request: Any) -> BrokerId:  # noqa: ANN401 - any request of a broker
    """Tell who asks; every request says so, in one of two ways."""
    sender: BrokerId = request.header.sender if hasattr(request, "header") else request.broker
    return sender


class ControllerProcess:
    """A process. Feed it with :meth:`receive`, then empty ``outbox``.

    Attributes:
        raft: its part in the quorum.

    Args:
        node: its address; its id is the same number without the sign.
        incarnation_id: drawn by the driver for each process.
        voters: the addresses of all controllers.
        constants: timing and switches.
        state: what the quorum replicates.
        disk: what outlives the process.
        jitter: gives a number in ``[0, n)``; it spreads elections.
    """

    def __init__(  # noqa: PLR0913 - a process has an identity, a configuration, a disk and an environment
        self,
        node: BrokerId,
        incarnation_id: str,
        voters: tuple[BrokerId, ...],
        constants: Constants,
        *,
        state: Controller,
        disk: QuorumDisk,
        jitter: Callable[[int], int],
    ) -> None:
        self.outbox = Outbox()
        self.has_ended = False
        self.node = node
        self._me = (-node, incarnation_id)
        self._linger_ms = constants.controller_quorum_append_linger_ms
        self._state = state
        self._open_batch: Commit | None = None
        self._unanswered: list[tuple[int, BrokerId, Message]] = []
        self._asked_in_epoch = 0

        def leader_change(now: int, epoch: int, offset: int) -> Commit:
            return state.writer.leader_change(now, -node, epoch, offset)

        self.raft = Raft(node, voters, constants, disk, jitter=jitter, leader_change=leader_change, outbox=self.outbox)

    @property
    def is_active(self) -> bool:
        """True if it leads, has committed that it does, and no other controller has since."""
        return self.raft.role is Role.LEADER and self._state.writer.epoch == self.raft.epoch

    def start(self, now: int, start_up_ms: int) -> None:
        """Operator starts the process; the first ones of a cluster are up at once."""
        if start_up_ms:
            self.outbox.after(start_up_ms, StartUp())
        else:
            self.receive(now, StartUp())

    def shut_down(self, now: int) -> None:
        """Operator sends SIGTERM: the leader names its successor, and goes."""
        self.raft.resign(now)
        self.settle(now)
        self.has_ended = True

    def disconnected(self, broker: BrokerId) -> None:
        """A broker's process ended; the next one with its id has asked nothing yet."""
        self._unanswered = [request for request in self._unanswered if request[1] != broker]

    def receive(self, now: int, payload: Message | Timer) -> None:
        """Take one message or timer; what follows is in ``outbox``."""
        if isinstance(payload, ControllerTaskDue):
            self._do_task(now, payload)
        elif isinstance(payload, StartUp):
            self.raft.start(now)
        elif isinstance(payload, AppendLingerOver):
            self._write_batch(now, payload)
        elif isinstance(payload, ControllerRegistrationRequest):
            if self.is_active:
                self._state.register_controller(now, (-payload.controller, payload.incarnation_id))
        elif not self.raft.receive(now, payload):
            self._request(now, payload)
        self.settle(now)

    def _request(self, now: int, request: Message) -> None:
        if self.is_active:
            self._state.receive(now, request)
        elif self.raft.role is Role.LEADER and self.raft.epoch < self._state.writer.epoch:
            self._unanswered.append((self.raft.log.end, sender_of(request), request))
        else:
            self._refuse(sender_of(request))

    def _refuse(self, broker: BrokerId) -> None:
        self.outbox.send(broker, NotController(self.node, self.raft.leader, self.raft.epoch))

    def _do_task(self, now: int, timer: ControllerTaskDue) -> None:
        if self.is_active and timer.epoch == self.raft.epoch:
            period, operation = self._state.tasks[timer.task]
            operation(now)
            self.outbox.after(period, timer)

    # -------------------------------------------------------------- the log, and what waits for it

    def settle(self, now: int) -> None:
        """After every input and operation: write what was done, tell what is committed, refuse what will never be."""
        raft, writer = self.raft, self._state.writer
        if raft.leader_state is None:
            self._step_down()
            return
        if writer.epoch < raft.epoch and raft.high_watermark > raft.leader_state.start_offset:
            self._activate(now)
        if self.is_active:
            self._write(now)
            self._report_committed()

    def _step_down(self) -> None:
        """Senders that wait for an answer will not get it here."""
        for broker in dict.fromkeys(receiver for _, receiver, _ in self._unanswered):
            self._refuse(broker)
        self._unanswered, self._open_batch = [], None
        if self.raft.role is Role.FOLLOWER:
            self._register()

    def _activate(self, now: int) -> None:
        """The LeaderChange is committed, and with it all that is left of earlier epochs."""
        raft, state = self.raft, self._state
        common = raft.log.end_offset_for(state.writer.epoch)[1] if state.writer.epoch else 0
        state.activate(now, self._me, raft.epoch, (common, raft.log.end))
        for task, (period, _) in state.tasks.items():
            self.outbox.after(period, ControllerTaskDue(task, raft.epoch))

    def _register(self) -> None:
        """Follower tells the active controller of itself, once it knows that there is one, unless that is known."""
        raft = self.raft
        node, incarnation_id = self._me
        if self._state.registry.controllers.get(node) == incarnation_id or self._asked_in_epoch == raft.epoch:
            return
        if raft.leader is not None and raft.log.last_epoch == raft.epoch and raft.high_watermark > raft.log.epoch_start:
            self._asked_in_epoch = raft.epoch
            self.outbox.send(raft.leader, ControllerRegistrationRequest(self.node, incarnation_id))

    def _write(self, now: int) -> None:
        """Append the batches of operations; those that fall within the linger become one."""
        writer, outbox = self._state.writer, self._state.outbox
        appended, writer.appended = writer.appended, []
        for commit in appended:
            if self._open_batch is not None:
                self._open_batch = joined(self._open_batch, commit)
            elif self._linger_ms:
                self._open_batch = commit
                self.outbox.after(self._linger_ms, AppendLingerOver(commit.batch.base_offset))
            else:
                self.raft.append(now, commit, len(commit.batch.records))
        messages, outbox.messages = outbox.messages, []
        self._unanswered += [(writer.end_offset, receiver, message) for receiver, message in messages]

    def _write_batch(self, now: int, timer: AppendLingerOver) -> None:
        commit = self._open_batch
        if self.is_active and commit is not None and commit.batch.base_offset == timer.base_offset:
            self._open_batch = None
            self.raft.append(now, commit, len(commit.batch.records))

    def _report_committed(self) -> None:
        raft, writer = self.raft, self._state.writer
        for entry in raft.log.entries_between(writer.committed_offset, raft.high_watermark):
            writer.committed(entry.payload, entry.end_offset)
        raft.forget(writer.committed_offset)
        done = 0
        for offset, receiver, message in self._unanswered:
            if offset > raft.high_watermark:
                break
            done += 1
            self.outbox.send(receiver, FromController(self.node, raft.epoch, message))
        del self._unanswered[:done]
