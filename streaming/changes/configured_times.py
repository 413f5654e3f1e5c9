"""The times of a cluster's own configuration, of which every waiting time of incidents is a multiple. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_SECOND: Final = 1_000_000


class ConfiguredTimes(NamedTuple):
    """Configured times in microseconds; the defaults are Kafka's, and hold until a broker has reported its own."""

    replica_lag_time: int = 30 * _SECOND
    """``replica.lag.time.max.ms``: a follower that did not catch up for so long is removed within half as long more."""
    broker_session: int = 9 * _SECOND
    """``broker.session.timeout.ms``: a broker that sent no heartbeat for so long is fenced."""
    fetch_wait: int = _SECOND // 2
    """``replica.fetch.wait.max.ms``: how long a follower's fetch may wait for records."""
    fetch_backoff: int = _SECOND
    """``replica.fetch.backoff.ms``: how long a follower waits after a fetch that failed."""
    registration: int = 60 * _SECOND
    """``initial.broker.registration.timeout.ms``: how long a broker that starts may take to register."""

    def configured(self, lag_millis: int | None, session_millis: int | None) -> ConfiguredTimes:
        """Return the times with those that brokers have reported; 0 and None are not reported."""
        return self._replace(
            replica_lag_time=(lag_millis or 0) * 1_000 or self.replica_lag_time,
            broker_session=(session_millis or 0) * 1_000 or self.broker_session,
        )

    @property
    def rejoined_at_once(self) -> int:
        """Return the time within which a healthy follower rejoins an ISR: a failed fetch and one that waits, twice."""
        return 2 * (self.fetch_wait + self.fetch_backoff)

    @property
    def lag_check(self) -> int:
        """Return how often a leader looks for followers that lag: all leaders report one cut within that time."""
        return self.replica_lag_time // 2

    @property
    def session_after_lag(self) -> int:
        """Return how long after its removal for lag the session of a broker that died, or was cut off, may end."""
        return max(0, self.broker_session - self.replica_lag_time) + self.lag_check

    @property
    def lost_together(self) -> int:
        """Return the time within which the sessions of brokers end that died at the same moment."""
        return self.broker_session

    @property
    def restart(self) -> int:
        """Return the time after which a broker that was stopped is not being restarted any more."""
        return 10 * self.registration
