"""Every ``isrwatch`` command that the documentation shows can be parsed, and every sentence that it quotes exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.builder.references import REFERENCES
from streaming.commands import COMMANDS, load

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "conf/isrwatch.toml")),
        *ROOT.glob("exporters/web/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("deploy/**/*.md"),
        *ROOT.glob("conf/*/README.md"),
    )
)
TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text()
IN_A_BLOCK = re.compile(r"^(?: {0,6}|#     )(isrwatch [a-z-].*)$", re.MULTILINE)
TO_A_LOG = re.compile(r" > \S+ 2>&1 &$")
IN_A_SENTENCE = re.compile(r"`(isrwatch [^`]+)`")
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


OF_ALL = {"COMMAND", "--version", "--help", "--install-completion"}


def shown_in(page: str) -> Iterator[str]:
    """Every command of a page: in a block of code, in backticks, or in a comment of the configuration."""
    text = (ROOT / page).read_text().replace("{broker}", "7")
    blocks = BLOCK.findall(text) if page.endswith(".md") else [text]
    for block in blocks:
        yield from IN_A_BLOCK.findall(block.replace("\\\n", ""))
    yield from (" ".join(command.split()) for command in IN_A_SENTENCE.findall(BLOCK.sub("", text)))


def parse(command: str) -> None:
    """Parse a command as the command line does, without running it.

    Raises:
        typer.TyperException: there is no such command, option or argument.
    """
    for part in re.split(r" (?:&&|\|\|?) ", command):
        program, *words = shlex.split(TO_A_LOG.sub("", part), comments=True)
        if program == "isrwatch" and words and words[0] not in OF_ALL:
            _parsed(load(words[0]), words)


def _parsed(parser: Any, words: list[str]) -> None:
    name, *rest = words
    children = getattr(parser, "commands", {})
    if children and rest and not rest[0].startswith("-"):
        assert rest[0] in children, rest
        _parsed(children[rest[0]], rest)
        return
    context = typer.Context(parser, info_name=name, **parser.context_settings)
    values, surplus, _ = parser.make_parser(context).parse_args(args=[word for word in rest if word != "--help"])
    assert not surplus, surplus
    assert values is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_documentation_can_be_parsed(page: str) -> None:
    wrong: list[str] = []
    for command in shown_in(page):
        try:
            parse(command)
        except (typer.TyperException, KeyError, AssertionError, ValueError) as error:
            wrong.append(f"{command}: {error!r}")
    assert wrong == []


def test_every_example_of_a_help_text_is_shown_as_code_and_can_be_parsed() -> None:
    shown = IN_A_BLOCK.findall(REFERENCES["reference/commands.md"]())
    assert len(shown) >= sum("xample" in (parser.help or "") for parser in map(load, COMMANDS)) > 5
    for command in shown:
        parse(command)


@pytest.mark.parametrize(
    "command", ["isrwatch stat", "isrwatch state --brokres", "isrwatch sandbox upp", "isrwatch tables a b"]
)
def test_a_command_that_is_wrong_is_noticed(command: str) -> None:
    with pytest.raises((typer.TyperException, KeyError, AssertionError)):
        parse(command)


def test_the_readme_and_the_pages_for_a_start_show_commands_and_every_command_is_shown_somewhere() -> None:
    shown = {page: {command.split()[1] for command in shown_in(page)} for page in PAGES}
    assert all(shown[page] for page in ("README.md", "docs/getting-started.md", "docs/troubleshooting.md"))
    assert set(COMMANDS) - set().union(*shown.values()) == set()


def sentences() -> list[str]:
    """Every string of the programs, and every part of one that has no value in it."""
    modules = (path for room in ("streaming", "exporters") for path in (ROOT / room).rglob("*.py"))
    nodes = (node for path in modules for node in ast.walk(ast.parse(path.read_text())))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_sentence_that_the_troubleshooting_quotes_is_one_of_the_programs() -> None:
    quoted = re.findall(r'^\| "([^"]+)"', TROUBLE, re.MULTILINE)
    assert len(quoted) > 10
    said = sentences()
    assert [words for words in quoted if not any(words in sentence for sentence in said)] == []


def test_every_row_of_the_troubleshooting_says_what_it_means_and_what_to_do() -> None:
    lines = (line for line in TROUBLE.splitlines() if line.startswith("| ") and not line.startswith("| what you see"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(rows) > 30
    assert [row[0] for row in rows if len(row) != 3 or not all(row)] == []
