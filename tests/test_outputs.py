"""Each kind of output has one place that writes names of others: nothing of the product writes past it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

PRODUCT = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for room in ("streaming", "exporters", "dashboards", "deploy")
    for path in (REPOSITORY / room).rglob("*.py")
)
DOORS = {
    "rich.console.Console": {"streaming/terminal.py"},
    "logging.Formatter": {"streaming/terminal.py", "exporters/web/command.py"},  # those of machines write JSON
    "logging.StreamHandler": {"streaming/terminal.py"},
    "logging.basicConfig": set[str](),
    "print": {"deploy/release/__main__.py"},
    "typer.echo": set[str](),
    "click.echo": set[str](),
    "sys.stdout.write": {"deploy/docker/health.py", "deploy/images/__main__.py"},
    "sys.stderr.write": {"deploy/images/__main__.py", "deploy/images/build.py"},
    "console.file.write": set[str](),
    "output.console.file.write": set[str](),
    "self.console.file.write": set[str](),
    "self.file.write": {"streaming/terminal.py"},
    "csv.writer": set[str](),
    "csv.DictWriter": set[str](),
    "html.escape": {"streaming/web/markup.py"},
    "starlette.responses.JSONResponse": {"streaming/web/responses.py"},
    "starlette.responses.PlainTextResponse": {"streaming/web/responses.py", "streaming/web/server.py"},  # "log in"
    "prometheus_client.utils.floatToGoString": set[str](),
}
"""What writes, and the files that may."""
JSON = {"json.dumps", "json.dump"}
WRITE_JSON = {
    # The cursor of a page, and the hash of a selection; what Alertmanager is sent.
    "exporters/web/api_resource.py", "streaming/commands/alerts.py",
    # The state of the sandbox, on disk.
    "deploy/sandbox/plan.py",
}  # fmt: skip
READ_BY_PEOPLE = ("exporters/", "streaming/commands/", "streaming/web/", "deploy/sandbox/")


@cache
def used(path: str) -> frozenset[str]:
    """Give the dotted names that a file calls, derives from or hands over, with the module that they come from."""
    nodes = [*ast.walk(ast.parse((REPOSITORY / path).read_text()))]
    origin = {
        (each.asname or each.name): f"{node.module}.{each.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    bases = [base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
    mentioned = (*(call.func for call in calls), *bases, *(each for call in calls for each in call.args))
    names = (dotted(node).partition(".") for node in mentioned)
    return frozenset(origin.get(first, first) + dot + rest for first, dot, rest in names)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return dotted(node.value)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("door", DOORS)
def test_only_its_own_place_writes(door: str) -> None:
    assert {path for path in PRODUCT if door in used(path)} - DOORS[door] == set()


def test_json_that_people_or_programs_get_is_written_by_one_function() -> None:
    of_outputs = [path for path in PRODUCT if path.startswith(READ_BY_PEOPLE)]
    assert {path for path in of_outputs if JSON & used(path)} <= WRITE_JSON


def test_what_stands_in_a_table_or_a_line_goes_through_the_field_that_escapes_it() -> None:
    unescaped = {path for path in PRODUCT if "field.text(" in (REPOSITORY / path).read_text()}
    assert unescaped == set()


def test_the_doors_are_there() -> None:
    there = {(door, path) for door, paths in DOORS.items() for path in paths if path in PRODUCT}
    assert {(door, path) for door, path in there if door not in used(path)} == set(), "a door that nothing uses"


def test_a_new_way_out_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text(
        "import html\nfrom html import escape\nfrom rich.console import Console\nescape('a')\nConsole()\nprint(1)"
    )
    assert {"html.escape", "rich.console.Console", "print"} <= used(str(file))
