"""The documentation names files, functions and steps that exist."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from docs.builder.polling import with_comparison
from docs.builder.quality import NOT_JUDGED, QUALITY, Section, compared, marks, section_of, write_section
from exporters.metrics.catalogue import CATALOGUE
from streaming.commands import COMMANDS
from streaming.sources.permissions import EXTRA_PERMISSIONS, PERMISSIONS
from streaming.sources.services import SERVICES, Service

ROOT = Path(__file__).parents[1]
FLOW = ROOT / "docs" / "contributing" / "how-a-change-flows.md"
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")))
# `file.py`: `name`, `Class.method`
CODE = re.compile(r"`([\w./-]+\.py)`: ((?:`[\w.]+`(?:, )?)+)")


def code_of(text: str) -> list[tuple[str, str]]:
    """Every pair of a Python file and a name that a text says is in it."""
    return [(file, name) for file, names in CODE.findall(text) for name in re.findall(r"`([\w.]+)`", names)]


def names_in(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """What a module defines at its top, and the methods of its classes."""
    names: set[str] = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(prefix + name)
            case ast.ClassDef(name=name, body=inner):
                names |= {prefix + name} | names_in(inner, f"{prefix}{name}.")
            case ast.Assign(targets=targets):
                names |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(prefix + name)
            case _:
                pass
    return names


def tables_of(page: Path) -> list[list[list[str]]]:
    """The rows of each Markdown table of a page, without its heading."""
    tables = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()] for table in tables]


def rows_of(text: str) -> list[list[str]]:
    """Every row of every table of a text."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_the_documentation_is_in_its_file(page: str) -> None:
    pairs = code_of((ROOT / page).read_text())
    missing = [
        f"{file}: {name}"
        for file, name in pairs
        if not (ROOT / file).is_file() or name not in names_in(ast.parse((ROOT / file).read_text()).body)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_the_documentation_exists(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    made = {"build", "dist"}  # by commands
    folders = "|".join(
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in made
    )
    paths = set(re.findall(rf"`((?:{folders})/[\w./-]*)`", text))
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)(?:#[\w-]*)?\)", text))
    here = (ROOT / page).parent
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    assert {link for link in links if not (here / link).exists()} == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_anchor_of_the_documentation_is_a_heading(page: str) -> None:
    # The build of the site checks its own; README is no page of it.
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", (ROOT / page).read_text())
    places = {target: ROOT / page if not target else (ROOT / page).parent / target for target, _ in links}
    missing = [f"{target}#{anchor}" for target, anchor in links if anchor not in anchors_of(places[target].read_text())]
    assert missing == []


def anchors_of(text: str) -> set[str]:
    """The anchors that a forge gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_picture_of_the_flow_has_the_steps_of_its_tables_in_order() -> None:
    (picture,) = re.findall(r"```mermaid\n(.*?)```", FLOW.read_text(), re.DOTALL)
    steps, times = tables_of(FLOW)
    nodes = re.findall(r'\["([^"]+)"\]', picture)
    assert nodes == [row[0] for row in steps]
    assert nodes == [row[0] for row in times]
    assert [node.split()[0] for node in nodes] == [str(number) for number in range(1, len(nodes) + 1)]


def test_every_step_of_the_flow_names_code_and_says_all() -> None:
    steps, times = tables_of(FLOW)
    assert [row[0] for row in steps if not code_of(row[1])] == []
    assert [row[0] for row in (*steps, *times) if not all(row)] == []
    assert ({len(row) for row in steps}, {len(row) for row in times}) == ({3}, {4})


def test_contributing_is_a_short_map_that_leads_to_the_flow_and_to_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert f"]({FLOW.relative_to(ROOT)})" in text
    assert len(text.splitlines()) <= 200
    folder, missing = ROOT, []
    for path in map(Path, re.findall(r"`([\w/]+\.py)`", text.partition("## Where do I find")[2])):
        folder = ROOT / path.parent if path.parent.name else folder
        missing += [] if (folder / path.name).is_file() else [str(path)]
    assert missing == []


def test_the_page_of_permissions_has_each_of_them_as_it_is_defined() -> None:
    page = ROOT / "docs" / "permissions.md"
    every = (*PERMISSIONS, *EXTRA_PERMISSIONS)
    permissions, _ = tables_of(page)
    assert permissions == [[f"`{one.operation}` on {one.on}", one.requests, one.without] for one in every]


def test_the_page_for_a_start_grants_every_permission_that_is_always_used() -> None:
    text = (ROOT / "docs" / "own-cluster.md").read_text().replace("\\\n", "")
    granted = set[tuple[str, tuple[str, ...]]]()
    for command in re.findall(r"^kafka-acls .*--add .*$", text, re.MULTILINE):
        words = shlex.split(command.partition("User:isrwatch")[2])
        operations = {word for before, word in pairwise(words) if before == "--operation"}
        option = tuple(word for word in words if word not in {*operations, "--operation"})
        granted |= {(operation, option) for operation in operations}
    assert granted == {(one.operation, one.option) for one in PERMISSIONS}


def grants_on(page: str) -> set[str]:
    """The permissions of a page of a service, as :class:`streaming.sources.services.Service` spells them."""
    text = (ROOT / page).read_text()
    if "values-strimzi.yaml" in text:  # the chart has the rules
        text += (ROOT / "deploy" / "chart" / "templates" / "strimzi.yaml").read_text()
    actions = {*re.findall(r"kafka-cluster:\w+", text)} - {"kafka-cluster:Connect"}
    of_cli = {f"{operation} {where}" for operation, where in re.findall(r"--operations? (\S+) (--.*)", text)}
    rules = re.findall(r"resource: \{type: (\w+).*\n\s+operations: \[(.*)\]", text)
    return actions | of_cli | {f"{kind}: {each}" for kind, operations in rules for each in operations.split(", ")}


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_the_page_of_a_service_grants_what_was_tried_with_the_same_permissions(service: Service) -> None:
    assert grants_on(service.document) == {*service.grants.values()}


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_every_line_of_the_page_of_a_service_says_how_it_is_known_and_every_source_is_named_and_dated(
    service: Service,
) -> None:
    text = (ROOT / service.document).read_text()
    lines = [re.sub(r"\s+", " ", line) for line in re.findall(r"^- (?:.|\n(?=  ))*", text, re.MULTILINE)]
    assert len(lines) >= 8
    assert [line for line in lines if not re.search(r"\*\*(Proven|Untried)\*\*|\[\d\]", line)] == []
    *_, sources = text.strip().split("\n\n")
    named = set(re.findall(r"\[(\d)\] [*`]", sources))
    assert set(re.findall(r"\[(\d)\]", " ".join(lines))) == named
    assert re.search(r"read \d{4}-\d{2}-\d{2}", sources)


def test_the_comparison_of_the_log_and_of_polls_has_the_figures_of_the_judge() -> None:
    """What is not judged says so; a figure that the page of quality has must not be left out."""
    text = with_comparison()
    assert text == (ROOT / "README.md").read_text(), "run: make generated"
    rows = {row[0]: row[1:] for row in rows_of(text) if row[0].endswith("judged")}
    judged = section_of((ROOT / QUALITY).read_text(), Section.INCIDENTS)
    assert len(rows) >= 4
    assert NOT_JUDGED not in [figure for both in rows.values() for figure in both]
    assert [log for log, _ in rows.values() if log.split(" of ")[0] not in judged] == []


def test_a_section_of_the_page_of_quality_is_replaced_alone_and_what_it_lacks_is_called_not_judged(
    tmp_path: Path,
) -> None:
    page = tmp_path / QUALITY
    page.parent.mkdir()
    page.write_text("\n\n".join(line for section in Section for line in marks(section)))
    write_section(Section.SLOW, "slow", page)
    write_section(
        Section.POLLED,
        "| what | aim | found | at 30 s |\n|---|---|---|---|\n"
        "| class right (incidents that a poll could see) | 85 % | 87.6 % (84.0 to 90.0) of 612 | 61.0 % of 612 |\n"
        "| unclean elections reported that a poll could see | all | 31 of 31 | 30 of 31 |\n",
        page,
    )
    assert section_of(page.read_text(), Section.SLOW) == "slow"
    assert [polled for _, _, polled in compared(tmp_path)] == ["87.6 % of 612", *[NOT_JUDGED] * 3, "31 of 31"]
    assert "| class of an incident right | not judged | 87.6 % of 612 |" in page.read_text()


def test_the_page_of_quality_answers_in_words_and_one_table_before_its_sections() -> None:
    text = (ROOT / QUALITY).read_text()
    before, _, _ = text.partition(marks(Section.INCIDENTS)[0])
    assert len(re.findall(r"[^\s|]*\w[^\s|]*", before)) < 400
    assert before.count("\n|---") + before.count("\n| ---") == 1
    assert [section for section in Section if not section_of(text, section)] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_line_of_the_documentation_waits_for_a_check(page: str) -> None:
    assert "<!-- check -->" not in (ROOT / page).read_text()


def test_the_page_that_compares_names_options_that_exist_and_every_metric_of_kafka_exporter() -> None:
    text = (ROOT / "docs" / "how-it-compares.md").read_text()
    metrics = set(re.findall(r"`(kafka_\w+)`", text))
    drop_ins = {metric.name for metric in CATALOGUE if metric.is_drop_in}
    counts = {"kafka_brokers", "kafka_broker_info", "kafka_topic_partitions", "kafka_topic_partition_replicas"}
    assert drop_ins - counts <= metrics
    files = ("terminal/subject_commands.py", "terminal/options.py", "web/command.py")
    commands = (ROOT / "exporters" / each for each in files)
    options = {option for command in commands for option in re.findall(r'"(--[a-z-]+)"', command.read_text())}
    assert set(re.findall(r"(?<=[ `])--[a-z-]+", text)) - options == set()
    rows = [row for table in tables_of(ROOT / "docs" / "how-it-compares.md") for row in table]
    assert [row[0] for row in rows if not all(row)] == []


NAMED_BY_PAGES = (
    *PAGES,
    "exporters/web/runbook.md",
    *(str(path.relative_to(ROOT)) for path in ROOT.glob("deploy/**/*.md")),
)


@pytest.mark.parametrize("page", sorted({*NAMED_BY_PAGES} - {"docs/contributing/renamed.md"}))
def test_every_metric_and_command_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text().replace("\\_", "_")
    metrics = {metric.name for metric in CATALOGUE}
    # A page may name what several metrics begin with, and the samples of a counter without their ending.
    named = set(re.findall(r"\bkafka_replication_[a-z_]+[a-z]\b(?!_?[*{<])", text))
    assert {name for name in named if not any(metric.startswith(name) for metric in metrics)} == set()
    assert set(re.findall(r"`isrwatch ([a-z]+)", text)) - {*COMMANDS} == set()


def with_examples() -> list[str]:
    """Modules whose docstrings hold an example."""
    files = (path for room in ("streaming", "exporters", "dashboards") for path in (ROOT / room).rglob("*.py"))
    return sorted(".".join(it.relative_to(ROOT).with_suffix("").parts) for it in files if ">>> " in it.read_text())


@pytest.mark.parametrize("module", with_examples())
def test_every_example_of_a_docstring_gives_what_it_says(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0
