"""A broker and its controller: registration, heartbeats, the end (``BrokerLifecycleManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.constants import Error
from streaming.model.messages.membership import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    MetadataRequest,
)
from streaming.model.messages.timers import HeartbeatDue, RegistrationDue
from streaming.model.storage.disk import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from streaming.contracts.identifiers import BrokerEpoch, BrokerId
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.constants import Constants
    from streaming.model.storage.disk import Disk

# It hurries while it starts and once while it stops.
_STARTING_HEARTBEAT_MS: Final = 10
_STOPPING_HEARTBEAT_MS: Final = 50


class Lifecycle:
    """Registration of this process, as the controller sees it.

    Attributes:
        incarnation_id: drawn by the driver for each process.
        rack: ``broker.rack``, told at registration.
        epoch: its broker epoch, -1 before the registration.
        metadata_offset: up to where this process has read the metadata log.
        is_running: it has been unfenced, and serves requests (BrokerState RUNNING).
        wants_shut_down: it was told to stop.
        has_ended: it may go: it has stopped as agreed.

    Args:
        broker: whose it is.
        incarnation_id: see above.
        constants: timing.
        disk: has the clean-shutdown file.
        channel: the way to the active controller.
        registered: gets the broker epoch.
        unfenced: told when the controller first lets it lead.
    """

    def __init__(  # noqa: PLR0913 - a process has an identity, a configuration, a disk and a connection
        self,
        broker: BrokerId,
        incarnation_id: str,
        constants: Constants,
        disk: Disk,
        channel: ControllerChannel,
        *,
        registered: Callable[[BrokerEpoch], None],
        unfenced: Callable[[int], None],
    ) -> None:
        self.incarnation_id = incarnation_id
        self.rack: str | None = None
        self.epoch = NO_BROKER_EPOCH
        self.metadata_offset = -1
        self.is_running = False
        self.wants_shut_down = False
        self.has_ended = False
        self._broker = broker
        self._constants = constants
        self._disk = disk
        self._channel = channel
        self._on_registered = registered
        self._unfenced = unfenced
        self._was_asked_to_wait = False
        self._is_asking = False
        self._heartbeat_number = 0
        self._registration_retry_ms = constants.registration_retry_ms
        self._previous_epoch = disk.clean_shutdown_epoch
        disk.clean_shutdown_epoch = NO_BROKER_EPOCH
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            BrokerRegistrationResponse: lambda _, response: self._registered(response),
            RegistrationDue: lambda _now, _message: self.register(),
            BrokerHeartbeatResponse: self._heartbeat_answered,
            HeartbeatDue: lambda _, message: self._heartbeat(message),
        }

    def register(self) -> None:
        """Ask for a registration, and first for the metadata log if no controller sends it yet."""
        if not self._channel.is_open:
            self._channel.send(MetadataRequest(self._broker))
        log_dirs = self._disk.log_dirs.registered_names
        self._channel.send(
            BrokerRegistrationRequest(self._broker, self.incarnation_id, self._previous_epoch, self.rack, log_dirs)
        )
        self._is_asking = True

    def _registered(self, response: BrokerRegistrationResponse) -> None:
        self._is_asking = False
        if response.error is not Error.NONE:
            self._channel.outbox.after(self._registration_retry_ms, RegistrationDue())
            longest = self._constants.broker_session_timeout_ms // 2
            self._registration_retry_ms = min(2 * self._registration_retry_ms, longest)
            return
        self.epoch = response.broker_epoch
        self._on_registered(self.epoch)
        self._disk.log_dirs.untold = dict.fromkeys(self._disk.log_dirs.placed)
        self.report_directories()
        self._beat()

    def report_directories(self) -> None:
        """Tell the controller where new replicas lie, once it knows this process (``AssignmentsManager``)."""
        if self._disk.log_dirs.untold and self.epoch != NO_BROKER_EPOCH:
            placed = self._disk.log_dirs.take_untold()
            self._channel.send(AssignReplicasToDirsRequest(self._broker, self.epoch, placed))

    def _heartbeat(self, timer: HeartbeatDue) -> None:
        if timer.number == self._heartbeat_number:
            self._beat()

    def _beat(self) -> None:
        if self.epoch != NO_BROKER_EPOCH:
            log_dirs = self._disk.log_dirs
            self._channel.send(
                BrokerHeartbeatRequest(
                    self._broker,
                    self.epoch,
                    self.metadata_offset,
                    want_fence=False,
                    want_shut_down=self.wants_shut_down,
                    offline_log_dirs=tuple(log_dirs.offline),
                    cordoned_log_dirs=log_dirs.cordoned,
                )
            )
            self._is_asking = True

    def _heartbeat_answered(self, now: int, response: BrokerHeartbeatResponse) -> None:
        self._is_asking = False
        if response.should_shut_down:
            self._stop()
            return
        delay = self._constants.broker_heartbeat_interval_ms
        if self.wants_shut_down and not self._was_asked_to_wait:
            self._was_asked_to_wait, delay = True, _STOPPING_HEARTBEAT_MS
        elif not self.is_running and response.is_fenced:
            delay = _STARTING_HEARTBEAT_MS
        if not self.is_running and not response.is_fenced:
            self._unfenced(now)
        self._beat_after(delay)

    def _beat_after(self, delay_ms: int) -> None:
        self._heartbeat_number += 1  # only the newest timer counts
        self._channel.outbox.after(delay_ms, HeartbeatDue(self._heartbeat_number))

    def ask_again(self) -> None:
        """Ask the next controller, after a wait: what the former one did is unknown."""
        if not self._is_asking:
            return
        self._is_asking = False
        if self.epoch == NO_BROKER_EPOCH:
            self._channel.outbox.after(self._constants.registration_retry_ms, RegistrationDue())
        else:
            self._beat_after(self._constants.registration_retry_ms)

    def shut_down(self) -> None:
        """Operator sends SIGTERM: ask the controller for a controlled shutdown, or (if that is disabled) just stop."""
        self.wants_shut_down = True
        if self._constants.controlled_shutdown_enable:
            self._beat()
        else:
            self._stop()

    def _stop(self) -> None:
        self._disk.stop_cleanly(self.epoch)
        self.has_ended = True
