"""The brokers' agents: which there are, and whether an agent is that of the broker that it is configured for.

No address proves whose agent answers: it may be copied from another broker's, given twice, or be recycled. An agent
says itself whose it is where it shows Kafka's MBean ``app-info``, whose id is the node's (:func:`node_ids_in`), as it
does with our ``conf/jmx-exporter.yml``. Of another one the partitions that it counts are compared with those that the
cluster lists for the broker: only where they are those of another broker, again and again, it is taken for that one's.

Pure, but for the time of the comparison.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.errors import ConfigurationError
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from streaming.sources.polling.view import ClusterView

EVERY: Final = "*"
_HELD: Final = re.compile(r"\{[^}]*\}")


class Agents(NamedTuple):
    """Addresses of agents: of brokers by their ids, and the pattern of all other ones, "" for none."""

    by_broker: dict[BrokerId, str]
    pattern: str = ""

    @property
    def are_any(self) -> bool:
        """True if there is something to scrape."""
        return bool(self.by_broker or self.pattern)

    def urls(self, hosts: Mapping[BrokerId, str]) -> dict[BrokerId, str]:
        """Return the address of each agent, by broker; ``hosts`` are those of the brokers' listeners."""
        if not self.pattern:
            return self.by_broker
        return {**{broker: self._url(broker, host) for broker, host in hosts.items()}, **self.by_broker}

    def without(self, brokers: Collection[BrokerId]) -> str:
        """Return which brokers have no agent, as one sentence; "" if all have one, or none has."""
        missing = [] if self.pattern or not self.by_broker else sorted({*brokers} - self.by_broker.keys())
        if not missing:
            return ""
        which = f"broker{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        return f'collect.broker_metrics has no agent of {which}: add "{missing[0]}" = "http://...", or "*" for all'

    def _url(self, broker: BrokerId, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        return self.pattern.replace("{host}", shown).replace("{broker}", str(broker))


def agents_from(settings: Mapping[str, str]) -> Agents:
    """Parse ``collect.broker_metrics``: broker id to URL, and ``*`` to the pattern of the URLs of all other brokers.

    Raises:
        ConfigurationError: a key is not a broker id, or a URL is not an HTTP URL.
    """
    by_broker: dict[BrokerId, str] = {}
    for broker, url in settings.items():
        if broker != EVERY and not broker.isdecimal():
            raise ConfigurationError(
                f'collect.broker_metrics: {broker!r} is no broker id; write "1" = "http://...", or "*" for every broker'
            )
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigurationError(f"collect.broker_metrics: the address of broker {broker} is no http:// address")
        if broker != EVERY:
            by_broker[BrokerId(int(broker))] = url
    pattern = settings.get(EVERY, "")
    held = set(_HELD.findall(pattern))
    if pattern and (not held or held - {"{host}", "{broker}"}):
        raise ConfigurationError(
            'collect.broker_metrics: the address of "*" needs {host}, the host of each broker, or {broker}, its id, '
            'and has nothing else in braces: write "*" = "http://{host}:9404/metrics"'
        )
    return Agents(by_broker, pattern)


def without_login(url: str) -> str:
    """Return an address as it may be printed."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


# The broker whose agent answers.


class Hosted(NamedTuple):
    """Partitions of one broker: how many it has a replica of, and how many it leads."""

    replicas: int
    led: int

    def __str__(self) -> str:
        return f"{self.replicas} partitions, of which it leads {self.led}"


class Figures(NamedTuple):
    """Figures of an agent about its node: its ids, none if they are not given, and its partitions, None likewise."""

    node_ids: frozenset[int]
    hosted: Hosted | None


class Doubt(NamedTuple):
    """Why an agent is not that of its broker; ``is_proven``: then nothing of it is recorded."""

    sentence: str
    is_proven: bool


MOST_COMPARED: Final = 200_000
"""Partitions of a cluster; beyond that they are not counted to find an agent that is another broker's."""
COMPARED_MICROS: Final = 20_000_000
"""So long a count of the cluster's partitions is compared; the next one is of another moment."""
CONTRADICTIONS: Final = 3
"""So many counts in turn an agent contradicts before it is called another broker's: leaders move."""


def hosted_in(view: ClusterView) -> dict[BrokerId, Hosted]:
    """Count the partitions of each broker; nothing where that is not all, or too many."""
    total = sum(map(len, view.topics.values()))
    if view.is_partial or view.hidden or total > MOST_COMPARED:
        return {}
    parts = [part for partitions in view.topics.values() for part in partitions.values()]
    replicas = Counter(broker for part in parts for broker in part.replicas)
    led = Counter(part.leader for part in parts)
    return {broker: Hosted(replicas[broker], led[broker]) for broker in view.brokers}


def sharing(urls: Mapping[BrokerId, str]) -> dict[BrokerId, list[BrokerId]]:
    """Return for each broker the others whose agents have the same address; none for one with an address of its own."""
    brokers: dict[str, list[BrokerId]] = {}
    for broker, url in urls.items():
        brokers.setdefault(without_login(url), []).append(broker)
    several = [each for each in brokers.values() if len(each) > 1]
    return {one: [other for other in each if other != one] for each in several for one in each}


def doubt_of(broker: BrokerId, url: str, others: Sequence[BrokerId], says: Figures) -> Doubt | None:
    """Return why an agent is not that of a broker, by what it says itself, or because others have it, too."""
    if broker in says.node_ids or not (says.node_ids or others):
        return None
    where = f"the agent of broker {broker} in collect.broker_metrics, {without_login(url)},"
    whose = ", ".join(map(str, sorted(says.node_ids) or others))
    is_that = "is that" if says.node_ids else "is also that"
    unsaid = "" if says.node_ids else ", and does not say whose it is"
    sentence = f"{where} {is_that} of broker {whose}{unsaid}, so nothing of it is recorded: correct the address"
    return Doubt(sentence, is_proven=True)


def contradiction(broker: BrokerId, url: str, says: Hosted, listed: Mapping[BrokerId, Hosted]) -> Doubt | None:
    """Return why the partitions that an agent counts are not those of its broker; None if they are, or may be."""
    own = listed.get(broker)
    if own is None or says == own:
        return None
    others = sorted(other for other, hosted in listed.items() if hosted == says)
    where = f"the agent of broker {broker} in collect.broker_metrics, {without_login(url)},"
    differs = f"{where} says {says}, and the cluster {own}"
    if not others:
        return Doubt(f"{differs}: check whose agent that is", is_proven=False)
    which = " or ".join(map(str, others))
    return Doubt(f"{differs}: it seems to be that of broker {which}, so nothing of it is recorded", is_proven=True)


class AgentWatch:
    """Finds agents that are not those of their brokers, by the newest view of the cluster, if there is one."""

    def __init__(self, view: Callable[[], ClusterView | None]) -> None:
        self._view, self._due = view, Timer(Micros(COMPARED_MICROS))
        self._listed: dict[BrokerId, Hosted] = {}
        self._round = 0
        self._compared: dict[BrokerId, int] = {}
        self._contradictions: dict[BrokerId, int] = {}
        self._doubts: dict[BrokerId, Doubt] = {}

    def doubt(self, broker: BrokerId, url: str, others: Sequence[BrokerId], says: Figures) -> Doubt | None:
        """Return why an agent is not that of a broker, None if it is, or may be; ``others`` have the same address."""
        doubt = doubt_of(broker, url, others, says)
        if doubt is not None or says.node_ids or says.hosted is None:
            return doubt
        self._count()
        if self._compared.get(broker) != self._round:
            self._compared[broker] = self._round
            self._compare(broker, url, says.hosted)
        return self._doubts.get(broker)

    def _count(self) -> None:
        view = self._view()
        if view is not None and self._due.take_due(monotonic()):
            self._listed, self._round = hosted_in(view), self._round + 1

    def _compare(self, broker: BrokerId, url: str, says: Hosted) -> None:
        """Compare once per count; one with which no agent agrees does not prove that these figures are wrong."""
        doubt = contradiction(broker, url, says, self._listed)
        count = self._contradictions[broker] = 0 if doubt is None else self._contradictions.get(broker, 0) + 1
        if doubt is None:
            self._doubts.pop(broker, None)
        elif count >= CONTRADICTIONS and (doubt.is_proven or 0 in self._contradictions.values()):
            self._doubts[broker] = doubt


def node_ids_in(sample: str, labels: Mapping[str, str]) -> frozenset[int]:
    """Return the id of the node that a sample of the MBean ``app-info`` names, in any dialect; none of other samples.

    >>> sorted(node_ids_in("kafka_server_app_info_starttimems", {"id": "2"}))
    [2]
    """
    if not sample.lower().startswith(APP_INFO):
        return frozenset()
    values = (value for key, value in labels.items() if key.lower().replace("_", "") in _IDS and value.isdecimal())
    return frozenset(map(int, values))


APP_INFO: Final = "kafka_server_app_info"
_IDS: Final = frozenset({"id", "clientid", "nodeid", "brokerid"})
"""Labels of the id: of the MBean itself, and of the metrics of its client, which is the node."""
