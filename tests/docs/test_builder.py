"""The documentation is built without a warning, and its references have everything that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from docs.builder.__main__ import main
from docs.builder.markdown import plain
from docs.builder.metrics import said_of
from docs.builder.pages import DocumentationBroken, build, places, with_site_links, write_html
from docs.builder.references import REFERENCES
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.terminal.tables_command import flat
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
    assert "array&lt;int&gt;" in (tmp_path / "site" / "reference" / "tables.html").read_text()
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
        ("[a](../README.md#what-it-costs)", "[a](index.md)", set()),
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


def sections_of(place: str) -> dict[str, str]:
    """The text below each heading of a reference, up to the next one."""
    parts = re.split(r"^#+ (.*)\n", REFERENCES[place](), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cells_of(section: str) -> list[list[str]]:
    """The cells of every row of the tables of a section, heads left out."""
    rows = re.findall(r"^\|((?:`|\[).*)\|$", section, re.MULTILINE)
    return [re.split(r"(?<!\\)\|", row) for row in rows]


def code_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def columns_in(place: str) -> dict[str, list[str]]:
    """Every column that a section has: in a row of its own, or named as one of another place."""
    return {
        heading: [
            *(name for row in cells_of(text) for name in code_in(row[0])),
            *(
                name
                for names in re.findall(r"^\[[^]]*\]\(#\S*\): (.*)$", text, re.MULTILINE)
                for name in code_in(names)
            ),
        ]
        for heading, text in sections_of(place).items()
    }


def test_the_reference_of_the_tables_has_each_column_once_and_says_what_it_is_in_the_place_that_it_names() -> None:
    text, sections, columns = (
        REFERENCES["reference/tables.md"](),
        sections_of("reference/tables.md"),
        columns_in("reference/tables.md"),
    )
    for table in TABLES.values():
        assert sorted(columns[table.name]) == sorted(name for name, _ in flat(table.columns))
        for place, names in re.findall(r"^\[`?([^]`]*)`?\]\(#\S*\): (.*)$", sections[table.name], re.MULTILINE):
            explained = {name: row for row in cells_of(sections[place]) for name in code_in(row[0])}
            comments = dict(flat(table.columns))
            assert [name for name in code_in(names) if plain(comments[name].comment) not in explained[name][2]] == []
    assert text.count("|deterministic: the same change gives the same id|") == 1


def test_the_references_have_every_table_path_and_statement() -> None:
    headings = {place: list(sections_of(place)) for place in REFERENCES}
    assert set(TABLES) - set(headings["reference/tables.md"]) == set()
    assert {endpoint.path for endpoint in ENDPOINTS} - set(headings["reference/api.md"]) == set()
    numbers = [heading.partition(".")[0] for heading in headings["reference/statements.md"][1:]]
    assert numbers == [str(number) for number in STATEMENTS]


def test_the_reference_of_the_metrics_has_each_with_its_labels() -> None:
    rows = {
        row[0].strip("`"): (text.split("|metric|")[0], row[1])
        for text in sections_of("reference/metrics.md").values()
        for row in cells_of(text)
    }
    for metric in (*CATALOGUE, *(each.metric for each in JMX_METRICS)):
        above, meaning = rows[metric.name]
        shared = re.findall(r"^Labels of (?:all|it): (.*)\.$", above, re.MULTILINE)
        own = re.findall(r" By ((?:`\w+`(?:, )?)+)\.", meaning)
        assert {label for part in (*shared, *own) for label in code_in(part)} == set(metric.labels)
        begin, mark, _ = re.split(r"\.([†‡§])|$", meaning, maxsplit=1)
        ends = re.findall(rf"^{mark} .(.*)$", above, re.MULTILINE) if mark else [""]
        text = begin if mark else plain(said_of(metric))
        assert meaning.startswith(text)
        assert plain(said_of(metric)).startswith(text)
        assert any(plain(said_of(metric)).endswith(end) for end in ends)


def test_the_reference_of_the_api_has_every_parameter_and_column_of_each_path() -> None:
    sections = sections_of("reference/api.md")
    common = set(re.findall(r"^- `(\w+)`", sections["All paths"], re.MULTILINE))
    for endpoint in ENDPOINTS:
        text = sections[endpoint.path]
        own = re.findall(r"^- `(\w+)`", text, re.MULTILINE)
        brief = [name for line in re.findall(r"^Parameters: (.*)", text, re.MULTILINE) for name in code_in(line)]
        assert sorted((*own, *brief)) == sorted(each.name for each in (*endpoint.of_path, *endpoint.parameters))
        assert set(brief) <= common
        for schema in endpoint.schemas.values():
            assert sorted(columns_of_rows(sections, text)) == sorted(schema["properties"])


def columns_of_rows(sections: dict[str, str], text: str) -> list[str]:
    """The columns of the rows of a path: its own, those of tables that it names, or those of another path."""
    for path in re.findall(r"^Rows as those of `(.*)`\.$", text, re.MULTILINE):
        return columns_of_rows(sections, sections[path])
    names = [name for row in cells_of(text) for name in code_in(row[0])]
    for table, rest in re.findall(r"^Columns of \[(\w+)\]\(\S+\)(.*)\.$", text, re.MULTILINE):
        listed = code_in(rest)
        whole = TABLES[table].column_names()
        names += listed if rest.startswith(":") else [name for name in whole if name not in listed]
    return names


def test_the_reference_of_commands_has_each_with_all_its_options() -> None:
    sections = sections_of("reference/commands.md")
    missing = [
        f"{name} {option}"
        for name in COMMANDS
        for path, command in commands_within(f"isrwatch {name}", load(name))
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
        if option.startswith("-") and option not in {"--help", "-h"}
        if not is_documented(option, each.opts[0], sections, path)
    ]
    assert missing == []


def commands_within(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands_within(f"{path} {name}", child)


def is_documented(option: str, first: str, sections: dict[str, str], path: str) -> bool:
    """Whether an option is in the section of its command, or is named there by its first name and described above."""
    section = sections[path]
    rows = {name: row for row in cells_of(section) for name in code_in(row[0])}
    if option in rows or (
        option.partition(".")[0].endswith("collector") and f"`{option.partition('.')[2]}`" in section
    ):
        return True
    above = "".join(sections.get(place, "") for place in ("Options of several commands", path.rpartition(" ")[0]))
    named = re.findall(r"^(?:Also|Options): (.*)\.$", section, re.MULTILINE)
    if any("the usual ones" in line for line in named):
        named += re.findall(r"^\*The usual ones\* are (.*)\.$", above, re.MULTILINE)
    return any(first in code_in(line) for line in named) and option in [
        n for r in cells_of(above) for n in code_in(r[0])
    ]


def test_the_reference_of_the_configuration_has_every_key() -> None:
    text = REFERENCES["reference/configuration.md"]()
    headings = set(re.findall(r"^###? (\S+)$", text, re.MULTILINE))
    assert settings_keys() - headings == set()


@pytest.mark.parametrize("values", [Cause, Evidence, IncidentClass, Severity])
def test_every_value_of_a_cause_or_an_incident_has_its_meaning_in_the_code(values: type[StrEnum]) -> None:
    assert list(meanings(values)) == [str(value) for value in values]
    text = REFERENCES["reference/events.md"]()
    assert [value for value in values if f"\n|`{value}`|" not in text] == []


def test_what_the_builder_writes_of_a_statement_is_what_explain_prints() -> None:
    text = re.sub(r"\\([*<\[\]_])", r"\1", REFERENCES["reference/statements.md"]())
    said = [part for each in STATEMENTS.values() for part in (each.claim, each.does, each.differs)]
    assert [part for part in said if part.replace("``", "`") not in text] == []
