"""The documentation is built without a warning, and its references have everything that there is."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from docs.builder.__main__ import main
from docs.builder.pages import DocumentationBroken, build, places, with_site_links, write_html
from docs.builder.references import REFERENCES
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.web.api import ENDPOINTS
from streaming.commands import COMMANDS, load
from streaming.contracts.events import Cause, Evidence, IncidentClass, Severity, meanings
from streaming.contracts.tables import TABLES
from streaming.model.cluster.statements import STATEMENTS
from streaming.settings import Settings

ROOT = Path(__file__).parents[2]


def test_every_page_is_built_and_every_link_of_it_leads_to_one(tmp_path: Path) -> None:
    build(tmp_path / "site")
    missing = [
        place for place in places(ROOT).values() if not (tmp_path / "site" / place).with_suffix(".html").is_file()
    ]
    assert missing == []
    # As text, too, an option begins with two hyphens.
    assert "without --broker, list" in (tmp_path / "site" / "reference" / "commands.html").read_text()
    targets = {
        (page.parent / link).resolve()
        for page in (tmp_path / "site").rglob("*.html")
        for link in re.findall(r'href="(?![a-z]+:)([^"#?]+)[^"]*"', page.read_text())
    }
    assert len(targets) > len(places(ROOT))
    assert [str(target) for target in targets if not target.exists()] == []


def test_links_anchors_and_pictures_that_are_missing_fail_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    missing = "[a](no-page.md) [b](other.md#no-there) [c](#no-here) ![d](no.png)"
    (pages / "index.md").write_text(f"# One\n\n{missing}\n\n```{{toctree}}\nother\n```\n")
    (pages / "other.md").write_text("# Other\n\n## Here\n")
    with pytest.raises(DocumentationBroken) as broken:
        write_html(pages, tmp_path / "site")
    told = str(broken.value)
    assert [name for name in ("no-page.md", "no-there", "no-here", "no.png") if name not in told] == []


def test_a_page_that_no_list_leads_to_fails_the_build_and_right_pages_do_not(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# One\n\n[two](other.md#here-too)\n\n```{toctree}\nother\n```\n")
    (pages / "other.md").write_text("# Other\n\n## Here, too\n")
    write_html(pages, tmp_path / "site")
    assert 'href="other.html#here-too"' in (tmp_path / "site" / "index.html").read_text()
    (pages / "forgotten.md").write_text("# Forgotten\n")
    with pytest.raises(DocumentationBroken, match="forgotten"):
        write_html(pages, tmp_path / "site")


@pytest.mark.parametrize(
    ("text", "expected", "files"),
    [
        ("[a](../exporters/web/runbook.md#x)", "[a](runbook.md#x)", set()),
        ("[a](reference/metrics.md)", "[a](reference/metrics.md)", set()),
        ("[a](../deploy/sandbox)", "[a](sandbox.md)", set()),
        ("[a](../conf/isrwatch.toml)", "[a](files/conf/isrwatch.toml)", {"conf/isrwatch.toml"}),
        ("[a](#x) [b](mailto:c) [d](/e)", "[a](#x) [b](mailto:c) [d](/e)", set()),
        ("`[a](../exporters/web/runbook.md)`", "`[a](../exporters/web/runbook.md)`", set()),
        ("```\n[a](../exporters/web/runbook.md)\n```", "```\n[a](../exporters/web/runbook.md)\n```", set()),
        ("[a](../gone.md)", "[a](../gone.md)", set()),
    ],
)
def test_a_link_between_files_becomes_one_of_the_site(text: str, expected: str, files: set[str]) -> None:
    changed = with_site_links(text, "docs/api.md", places(ROOT), lambda name: (ROOT / name).is_file())
    assert changed == (expected, files)


def test_a_checkout_has_every_reference_as_the_code_says_it_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["references", "--check"]), capsys.readouterr().err) == (0, "")
    assert {f"reference/{path.name}" for path in (ROOT / "docs" / "reference").iterdir()} == {*REFERENCES}


def test_a_reference_that_is_out_of_date_or_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["references", "--output", str(tmp_path)]) == 0
    assert main(["references", "--check", "--output", str(tmp_path)]) == 0
    (tmp_path / "docs/reference/events.md").write_text("# Events of another time\n")
    (tmp_path / "docs/reference/metrics.md").unlink()
    capsys.readouterr()
    assert main(["references", "--check", "--output", str(tmp_path)]) == 1
    stale = "docs/reference/metrics.md, docs/reference/events.md"
    assert capsys.readouterr().err == f"{stale} not up to date; run: make generated\n"
    assert not (tmp_path / "docs/reference/metrics.md").exists()


def settings_keys() -> set[str]:
    """Every key of the configuration that is not chosen by the user."""
    keys: set[str] = set()
    for section, settings in get_type_hints(Settings).items():
        keys |= {f"{section}.{key}" for key in get_type_hints(settings)}
    return keys


def options(command: Any) -> set[str]:
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*(options(child) for child in getattr(command, "commands", {}).values()))


def test_the_references_have_every_metric_table_path_and_statement() -> None:
    metrics = {metric.name for metric in CATALOGUE} | {each.metric.name for each in JMX_METRICS}
    assert {name for name in metrics if f"| `{name}` |" not in REFERENCES["reference/metrics.md"]()} == set()
    headings = {place: re.findall(r"^#+ (.*)$", render(), re.MULTILINE) for place, render in REFERENCES.items()}
    assert set(TABLES) - set(headings["reference/tables.md"]) == set()
    assert {endpoint.path for endpoint in ENDPOINTS} - set(headings["reference/api.md"]) == set()
    numbers = [heading.partition(".")[0] for heading in headings["reference/statements.md"][1:]]
    assert numbers == [str(number) for number in STATEMENTS]


def test_the_reference_of_the_api_has_every_parameter_and_column() -> None:
    text = REFERENCES["reference/api.md"]()
    names = {parameter.name for endpoint in ENDPOINTS for parameter in endpoint.parameters}
    names |= {column for each in ENDPOINTS for schema in each.schemas.values() for column in schema["properties"]}
    assert {name for name in names if f"| `{name}` |" not in text} == set()


def test_the_reference_of_commands_has_each_with_all_its_options() -> None:
    sections = re.split(r"^## isrwatch ", REFERENCES["reference/commands.md"](), flags=re.MULTILINE)[1:]
    assert [section.split("\n")[0] for section in sections] == list(COMMANDS)
    missing = [
        f"{name} {option}"
        for name, section in zip(COMMANDS, sections, strict=True)
        for option in options(load(name)) - {"--help", "-h"}
        if option.startswith("-") and f"`{option}`" not in section
    ]
    assert missing == []


def test_the_reference_of_the_configuration_has_every_key() -> None:
    text = REFERENCES["reference/configuration.md"]()
    headings = set(re.findall(r"^###? (\S+)$", text, re.MULTILINE))
    assert settings_keys() - headings == set()


@pytest.mark.parametrize("values", [Cause, Evidence, IncidentClass, Severity])
def test_every_value_of_a_cause_or_an_incident_has_its_meaning_in_the_code(values: type[StrEnum]) -> None:
    assert list(meanings(values)) == [str(value) for value in values]
    text = REFERENCES["reference/events.md"]()
    assert [value for value in values if f"| `{value}` |" not in text] == []


def test_what_the_builder_writes_of_a_statement_is_what_explain_prints() -> None:
    text = re.sub(r"\\([*<\[\]_])", r"\1", REFERENCES["reference/statements.md"]())
    said = [part for each in STATEMENTS.values() for part in (each.claim, each.does, each.differs)]
    assert [part for part in said if part.replace("``", "`") not in text] == []
