"""The runbook by alert: its sections, the names that a section is filled in with, and the link that an alert carries.

The text is Markdown. The catalogue says which section an alert shares; a table at the end of the text, which section
is that of a class of incidents.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streaming.contracts.alerts import ALERTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATH: Final = "/runbook"
LABELS: Final = ("cluster", "broker", "topic", "group")
"""The labels of an alert that a section is filled in with, where it has ``{cluster}`` and so on."""
CONFIGURED: Final = ("bootstrap_servers", "namespace", "resource", "server")
"""Values that blocks are filled in with besides, from the configuration; the resource is Strimzi's ``Kafka``."""
PLACEHOLDER: Final = re.compile(r"\{(" + "|".join((*LABELS, *CONFIGURED)) + r")\}")
_FILE: Final = "runbook.md"
SETUP: Final = "Before you copy"
_CLASSES: Final = "Incidents"
_HEADING: Final = re.compile(r"^## ", re.MULTILINE)
_ROW: Final = re.compile(r"^\| ([\w, ]+) \| \[(\w+)\]", re.MULTILINE)
_MEANING: Final = re.compile(r"\*\*Meaning\.\*\* (.+?\.)(?=\s|$)", re.DOTALL)
_LONGEST: Final = 255
_MAY_BE: Final = {
    "broker": re.compile(r"[0-9]{1,10}"),
    "bootstrap_servers": re.compile(r"[A-Za-z0-9._:,\[\]-]{1,4000}"),
    "server": re.compile(r"https?://[A-Za-z0-9._:/~%\[\]-]{1,2000}"),
    **dict.fromkeys(("namespace", "resource"), re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")),
}
_LONGEST_NAME: Final = 80


@dataclass(frozen=True, slots=True)
class Runbook:
    """Sections in Markdown, by the name of their alert.

    Attributes:
        sections: of the alerts.
        shared: the section that answers for another name, by that name: another alert, or a class of incidents.
        setup: the section that defines what the blocks of all others use.
    """

    sections: Mapping[str, str]
    shared: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""

    @staticmethod
    def of(text: str) -> Runbook:
        """Return the runbook of a file."""
        sections = _sections(text)
        shared = {name: alert.section for name, alert in ALERTS.items() if name != alert.section}
        for classes, section in _ROW.findall(sections.pop(_CLASSES, "")):
            shared |= dict.fromkeys(classes.split(", "), section)
        return Runbook(setup=sections.pop(SETUP, ""), sections=sections, shared=shared)

    def nearest(self, name: str) -> str:
        """Return the name of a section that is most like a name."""
        names = {each.casefold(): each for each in self.sections}
        (nearest,) = get_close_matches(name[:_LONGEST_NAME].casefold(), names, n=1, cutoff=0.0)
        return names[nearest]


@cache
def runbook() -> Runbook:
    """Return the runbook that this installation has."""
    return Runbook.of(Path(__file__).with_name(_FILE).read_text(encoding="utf-8"))


def first_sentence(section: str) -> str:
    """Return the first sentence of what an alert means, in Markdown."""
    meaning = _MEANING.search(section)
    return " ".join(meaning[1].split()) if meaning else ""


def _sections(text: str) -> dict[str, str]:
    parts = (part.partition("\n") for part in _HEADING.split(text)[1:])
    return {heading.strip(): body.strip() for heading, _, body in parts}


# The names that a section is filled in with. They come with the link, so they are anything that someone may write.


def known_values(given: Mapping[str, str], labels: Sequence[str] = LABELS) -> dict[str, str]:
    """Return the values that may be filled in; a value that no cluster can have stays a placeholder."""
    return {label: given[label] for label in labels if _may_be(label, given.get(label, ""))}


def _may_be(label: str, value: str) -> bool:
    if label in _MAY_BE:
        return _MAY_BE[label].fullmatch(value) is not None
    return 0 < len(value) <= _LONGEST and value.isprintable() and not value.startswith("-")


def filled(text: str, values: Mapping[str, str], *, left: str = "{}") -> str:
    """Fill a text in; a label without a value stays a placeholder, which is written into ``left``."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], left.format(match[0])), text)


def for_shell(values: Mapping[str, str]) -> dict[str, str]:
    """Quote values for a command that is copied into a shell."""
    return {label: shlex.quote(value) for label, value in values.items()}


# The link of an alert.


def runbook_link(url: str, section: str, labels: Mapping[str, str] | None = None) -> str | None:
    """Return the link of an alert to its section, a template of Prometheus; None without an address.

    ``labels`` has what the section is filled in with, and the label of the alert that has it. A broker may be followed
    there by a directory. An alert of all clusters lacks the label, which Grafana writes as ``<no value>``.
    """
    if not url:
        return None
    given = {name: f"$labels.{label}" for name, label in (labels or {}).items()}
    if "broker" in given:
        given["broker"] += ' | reReplaceAll ":.*" ""'
    parameters = "&".join(f"{name}={{{{ {value} | urlquery }}}}" for name, value in given.items())
    of_one = f"{{{{ if {given['cluster']} }}}}{parameters}{{{{ end }}}}" if "cluster" in given else parameters
    return f"{url.rstrip('/')}{PATH}/{quote(section)}" + (f"?{of_one}" if parameters else "")
