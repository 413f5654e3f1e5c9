"""The pages that are rendered from the code, by their place in the site; references stand in the repository, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from docs.builder.api import api_page
from docs.builder.changelog import changelog_page
from docs.builder.command_line import commands_page
from docs.builder.configuration import configuration_page
from docs.builder.event_values import events_page
from docs.builder.metrics import metrics_page
from docs.builder.statements import statements_page
from exporters.terminal.reference import markdown as tables_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REFERENCES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/api.md": api_page,
    "reference/commands.md": commands_page,
    "reference/configuration.md": configuration_page,
    "reference/metrics.md": metrics_page,
    "reference/statements.md": statements_page,
    "reference/tables.md": tables_page,
    "reference/events.md": events_page,
}
RENDERED: Final[Mapping[str, Callable[[], str]]] = {"changelog.md": changelog_page, **REFERENCES}
_MARK: Final = "<!-- Rendered from the code by `make generated`: change the code, not this file. -->\n\n"


def reference_files() -> dict[str, str]:
    """Render the files of the folder ``reference``, by name: a checkout has them without a build of the site."""
    return {place.removeprefix("reference/"): _MARK + render() for place, render in REFERENCES.items()}
