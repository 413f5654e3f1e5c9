"""How long a fault can be seen at Kafka before it is reported: from its answers, and from what listeners do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Self

from deploy.sandbox.cluster import Sandbox
from streaming.contracts.events import IncidentClass
from tests.drill.faults import Told, suspects
from tests.listeners.probes import Recorder, Seen, now
from tests.listeners.requests import of_presence

_EVERY_SECONDS: Final = 0.5
LATE_MICROS: Final = 10_000_000
_PARTITION_FIELDS: Final = ("isr", "replicas", "leader")


class Shown(NamedTuple):
    """When brokers first showed a fault in an answer, and when a listener first failed; microseconds, None: never."""

    answered: int | None
    listened: int | None


class Reported(NamedTuple):
    """When an incident was reported, None if never, and when Kafka showed it."""

    expected: Told
    at: int | None
    shown: Shown

    @property
    def is_late(self) -> bool:
        """Whether it came too long after the first answer that shows it; of none, after a listener failed."""
        since = self.shown.listened if self.shown.answered is None else self.shown.answered
        return self.at is not None and since is not None and self.at - since > LATE_MICROS

    def __str__(self) -> str:
        kind, brokers = self.expected
        if self.at is None:
            return f"{kind} of {sorted(brokers)} was not reported"
        signs = (self.shown.answered, "the first answer that shows it"), (self.shown.listened, "a listener failed")
        parts = [f"{(self.at - at) / 1e6:.1f} s after {what}" for at, what in signs if at is not None and at <= self.at]
        return f"{kind} of {sorted(brokers)} was reported {' and '.join(parts) or 'before anything showed it'}"


class Timing:
    """Watches the incidents and the brokers of a drill, as a context.

    Args:
        sandbox: the cluster.
        incidents: returns the rows of incidents.
    """

    def __init__(self, sandbox: Sandbox, incidents: Callable[[], list[dict[str, Any]]]) -> None:
        self._sandbox, self._incidents = sandbox, incidents
        self._told: dict[Told, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="timing", daemon=True)

    def __enter__(self) -> Self:
        brokers = self._sandbox.plan.brokers
        nodes = {node: ((ports.host, ports.client), of_presence()) for node, ports in brokers.items()}
        self._began = now()
        self._recorder = Recorder(nodes, _EVERY_SECONDS)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._recorder.close()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            for row in self._incidents():
                if row["merged_into"] is None and row["updated_at"].timestamp() * 1e6 >= self._began:
                    told = IncidentClass(row["incident_class"]), suspects(row)
                    self._told.setdefault(told, now())

    def reported(self, expected: Told) -> Reported:
        """Return when an expected incident was reported, beside when Kafka showed it."""
        kind, brokers = expected
        fits = [at for (of, whom), at in self._told.items() if of is kind and brokers in (whom, frozenset())]
        shown = first_shown(self._recorder.seen, brokers, self._began)
        return Reported(expected, min(fits, default=None), shown)


def first_shown(seen: Iterable[Seen], brokers: frozenset[int], began: int) -> Shown:
    """Return when any broker first answered that one of these brokers is gone or that a partition of theirs changed.

    Args:
        seen: what probes met.
        brokers: who is to blame; of none of them any change counts.
        began: what is before it is not looked at.
    """
    answered: list[int] = []
    listened: list[int] = []
    before: dict[tuple[int, str], dict[str, Any]] = {}
    for one in sorted(seen, key=lambda each: each.at):
        if one.at < began:
            continue
        if one.how != "answered":
            if one.node in brokers and one.how != "open":
                listened.append(one.at)
            continue
        if one.content:
            last = before.setdefault((one.node, one.probe), one.content)
            if last is not one.content and _shows(last, one.content, brokers):
                answered.append(one.at)
            before[one.node, one.probe] = one.content
    return Shown(min(answered, default=None), min(listened, default=None))


def _shows(before: dict[str, Any], after: dict[str, Any], brokers: frozenset[int]) -> bool:
    """Return whether one of the brokers went away between two answers; of none, whether any partition changed."""
    for name, value in after.items():
        last = before.get(name, value)
        if name == "listed":
            gone = set(last) - set(value)
        elif isinstance(value, dict) and isinstance(last, dict) and "isr" in value and "isr" in last:
            if not brokers and any(last.get(field) != value.get(field) for field in _PARTITION_FIELDS):
                return True
            gone = set(last["isr"]) - set(value["isr"])
        else:
            continue
        if gone & brokers:
            return True
    return False
