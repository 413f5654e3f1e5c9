"""The pages that are rendered from the code, by their place in the site; references stand in the repository, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from docs.builder.alerts import with_table_of_alerts
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
    from pathlib import Path

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


def rendered_files(root: Path) -> dict[str, dict[str, str]]:
    """Render what a checkout has without a build of the site, by folder and name of the file.

    Args:
        root: of the repository, with the runbook, of which only the table of alerts is rendered.
    """
    references = {place.removeprefix("reference/"): _MARK + render() for place, render in REFERENCES.items()}
    runbook = (root / "dashboards" / "runbook.md").read_text(encoding="utf-8")
    return {"docs/reference": references, "dashboards": {"runbook.md": with_table_of_alerts(runbook)}}
