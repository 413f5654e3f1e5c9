"""Commands to copy from a section of the runbook: for one platform, with the names of a cluster filled in.

A title in italics, such as ``*Bare metal, MSK*``, says for which platforms the rest of its paragraph and the block
behind it are. What has no title is for all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt

from exporters.web.runbook import CONFIGURED, LABELS, PLACEHOLDER, filled, for_shell, known_values, runbook
from streaming.secret_values import stands_elsewhere
from streaming.settings import PLATFORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streaming.settings import ClusterSettings, ExportSettings, Settings

_TITLE: Final = re.compile(r"\*([A-Z][\w ,]+?)\.?\*")
_FENCE: Final = "```"
_OUTSIDE_OF_LISTS: Final = 1
_SERVER: Final = "{server}"
_PARSER: Final = MarkdownIt("commonmark", {"html": False})


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """Commands to copy together.

    Attributes:
        heading: what they are for, one line of text.
        text: the commands, each value quoted for a shell; a name that is unknown stays a placeholder such as
            ``{topic}``.
    """

    heading: str
    text: str

    @property
    def left(self) -> list[str]:
        """The placeholders that are left in it."""
        return [f"{{{name}}}" for name in PLACEHOLDER.findall(self.text)]


def commands_for(section: str, platform: str, labels: Mapping[str, str]) -> list[CommandBlock]:
    """Return the blocks of a section in their order, after the block that sets up a shell for them.

    Of an unknown section there is no block, of an unknown platform there are the blocks of every platform. ``labels``
    are the values of ``LABELS`` and ``CONFIGURED`` that are known, from anywhere.
    """
    book = runbook()
    text = book.sections.get(book.shared.get(section, section))
    if text is None:
        return []
    values = values_of_blocks(labels)
    return [block for each in (book.setup, text) for block in _blocks(each, platform, values)]


def values_of_blocks(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the values that blocks are filled in with; by default the resource of Strimzi is called as the cluster."""
    return known_values({"resource": labels.get("cluster", ""), **labels}, (*LABELS, *CONFIGURED))


def for_platform(section: str, platform: str) -> str:
    """Return a section without what is for other platforms; all of it if the platform is unknown."""
    return "\n".join(_lines_for(section.splitlines(), platform)) if platform in PLATFORMS else section


def _lines_for(lines: Iterable[str], platform: str) -> Iterator[str]:
    is_for_it, is_in_block = True, False
    for line in lines:
        if line.startswith(_FENCE):
            is_in_block = not is_in_block
            if is_for_it:
                yield line
            is_for_it |= not is_in_block
            continue
        if not is_in_block:
            titles = _platforms(line)
            is_for_it = platform in titles if titles else is_for_it or not line
        if is_for_it:
            yield line


def _platforms(line: str) -> tuple[str, ...]:
    """Return the platforms that the title at the begin of a line names; none if there is no such title."""
    title = _TITLE.match(line)
    names = tuple(name.strip().casefold() for name in title[1].split(",")) if title else ()
    return names if set(names) <= {*PLATFORMS} else ()


def _blocks(section: str, platform: str, values: Mapping[str, str]) -> Iterator[CommandBlock]:
    quoted, general, heading = for_shell(values), "", ""
    for token in _PARSER.parse(for_platform(section, platform)):
        if token.type == "inline" and token.level == _OUTSIDE_OF_LISTS:
            words = "".join(" " if each.type == "softbreak" else each.content for each in token.children or ())
            heading = filled(words, values).rstrip(":")
            if not _platforms(token.content):
                general = heading
            elif platform in PLATFORMS and _TITLE.fullmatch(token.content):
                heading = general
        elif token.type == "fence" and ("server" in values or _SERVER not in token.content):
            yield CommandBlock(heading, filled(token.content.rstrip("\n"), quoted))


@dataclass(frozen=True, slots=True)
class Installations:
    """Facts that an exporter has of the clusters in its configuration; of any other one it has none.

    Attributes:
        clusters: by their display name.
        url: of the exporter, as others reach it; "" if it is unknown.
        alertmanager_url: of Alertmanager, likewise.
        poll_intervals: how often the brokers of a cluster are polled, in seconds, by its display name.
        advertised: returns the addresses that the brokers of a cluster advertise; "" if none is known. They stand in
            for those of the configuration.
    """

    clusters: Mapping[str, ClusterSettings] = field(default_factory=dict)
    url: str = ""
    alertmanager_url: str = ""
    poll_intervals: Mapping[str, float] = field(default_factory=dict)
    advertised: Callable[[str], str] = lambda _cluster: ""

    @staticmethod
    def of(configured: Iterable[Settings], exporting: ExportSettings | None = None) -> Installations:
        """Return those of a configuration: the settings of each cluster, as if it stood alone."""
        by_name = {each.cluster.name: each for each in configured}
        urls = (exporting.url, exporting.alertmanager_url) if exporting else ("", "")
        polls = {name: each.collect.poll_interval for name, each in by_name.items()}
        return Installations({name: each.cluster for name, each in by_name.items()}, *urls, polls)

    def platform(self, cluster: str) -> str:
        """Return the platform of a cluster; "" if it is unknown."""
        return self.clusters[cluster].platform if cluster in self.clusters else ""

    def labels(self, cluster: str) -> dict[str, str]:
        """Return the values of ``CONFIGURED`` that the configuration, or else the cluster itself, has."""
        configured = self.clusters[cluster].bootstrap_servers if cluster in self.clusters else ""
        servers = "" if stands_elsewhere(configured) else configured
        servers = servers or self.advertised(cluster)
        strimzi = _STRIMZI.search(servers)
        values = {
            "server": self.url.rstrip("/"),
            "bootstrap_servers": servers,
            **(strimzi.groupdict() if strimzi else {}),
        }
        return {name: value for name, value in values.items() if value}


_STRIMZI: Final = re.compile(
    r"(?:^|[.,])(?P<resource>[a-z0-9-]+)-kafka-(?:bootstrap|brokers)(?:\.(?P<namespace>[a-z0-9-]+))?(?=[.:,]|$)"
)
"""The address of a service of Strimzi, inside of Kubernetes; what follows may be ``.svc.cluster.local``."""
