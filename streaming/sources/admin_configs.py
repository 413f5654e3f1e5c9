"""``min.insync.replicas`` of every topic as brokers apply it: static broker defaults included (DescribeConfigs).

Knows confluent-kafka's admin client and the contracts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import ConfigResource, ResourceType

from streaming.contracts.observations import ConfigObserved, ConfigOrigin, Observation
from streaming.sources.admin_refusals import forbidden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, ConfigEntry

    from streaming.contracts.identifiers import Micros
    from streaming.errors import ConnectionRefused
    from streaming.sources.admin_view import ClusterView

_KEY: Final = "min.insync.replicas"
_BATCH: Final = 200  # topics in one request: an answer carries every configuration of each


@dataclass(slots=True)
class ConfigsRound:
    """The question that is under way, and what was answered last."""

    seconds: float
    refusal: ConnectionRefused | None = None
    _client: AdminClient | None = None  # held: one that is let go of may never give its answers
    _asked_at: Micros | None = None
    _answers: dict[ConfigResource, Future[dict[str, ConfigEntry]]] = field(default_factory=dict)
    _known: dict[str, str | None] = field(default_factory=dict)
    _gone: list[str] = field(default_factory=list)

    def ask(self, client: AdminClient, view: ClusterView, now: Micros, *, everything: bool) -> None:
        """Ask for the configuration of every topic, unless an answer is still owed.

        Args:
            client: a connected admin client.
            view: names the topics.
            now: the moment of the question.
            everything: tell what is known again, not only what changed.
        """
        if self._answers:
            return
        # A topic of the same name may be made anew: what was told of the old one must not be taken for its minimum.
        self._gone = [name for name, value in self._known.items() if name not in view.topics and value is not None]
        self._known = {} if everything else {name: self._known[name] for name in view.topics if name in self._known}
        names = list(view.topics)
        for start in range(0, len(names), _BATCH):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[start : start + _BATCH]]
            self._answers |= client.describe_configs(resources, request_timeout=self.seconds)
        self._client, self._asked_at = client if self._answers else None, now

    def pending(self) -> list[Future[dict[str, ConfigEntry]]]:
        """Give what to wait for."""
        return [future for future in self._answers.values() if not future.done()]

    def take(self, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Tell what was answered and is news."""
        if not (self._answers or self._gone) or self.pending() or self._asked_at is None:
            return []
        answers, self._answers, self._client = self._answers, {}, None
        gone, self._gone = self._gone, []
        news = [*((topic, None) for topic in gone), *self._news(answers)]
        window = {"occurred_not_before": self._asked_at, "occurred_not_after": max(self._asked_at, now)}
        return [
            ConfigObserved(**{**envelope, **window}, topic=topic, key=_KEY, value=value, origin=ConfigOrigin.DESCRIBE)
            for topic, value in news
        ]

    def _news(self, answers: dict[ConfigResource, Future[dict[str, ConfigEntry]]]) -> Iterator[tuple[str, str | None]]:
        for resource, future in answers.items():
            failure = future.exception()
            if failure is not None:
                self.refusal = forbidden(failure, "DESCRIBE_CONFIGS", f"topic {resource.name}") or self.refusal
                continue
            entry = future.result().get(_KEY)
            value = None if entry is None else entry.value
            if resource.name not in self._known or self._known[resource.name] != value:
                self._known[resource.name] = value
                yield resource.name, value
