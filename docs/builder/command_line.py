"""Every command with its arguments and options, from the declarations that the command line is parsed by."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from docs.builder.markdown import code, plain, table
from streaming.commands import COMMANDS, load
from streaming.contracts.events import Cause, EventKind, IncidentClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD: Final = """# Commands

`isrwatch COMMAND --help` prints the same. Options of `isrwatch` itself come before the command: `--version`, and
`--debug`, which shows the traceback of an error. Exit code 2 means a wrong option or configuration, 1 any other error;
where a command has others, it says so. An option whose value ends with `...` may be repeated.

## Options of several commands

*The usual ones* are {usual}.
"""
_COMMAND: Final = re.compile(r"(?:^|: )((?:isrwatch [a-z]+|spark-submit) .*)$")
_REPEATED: Final = re.compile(r"(?:; (?:may be repeated|repeatable)|\. May be repeated(?=\.))")
_VALUES: Final = re.compile(r": ([a-z_]+(?:, [a-z_]+)+)\.$")
_LINKS: Final = {
    ", ".join(Cause): "[every cause](events.md#causes)",
    ", ".join(EventKind): "[every event](events.md#events)",
    ", ".join(IncidentClass): "[every class](events.md#classes-of-incidents)",
}
_TYPES: Final = {
    "float": "NUMBER",
    "float range": "NUMBER",
    "str": "TEXT",
    "path": "PATH",
    "file": "FILE",
    "int": "N",
    "int range": "N",
}
_FAMILY: Final = "--collector."
_USUAL: Final = frozenset({"--cluster", "--output", "--local", "--server", "--tables", "--config"})
_ALL_OF_THEM: Final = "the usual ones"
_SEVERAL: Final = 3  # commands from which an option stands at the top
Declared = Any  # a command or a parameter of typer, whose classes are not public


class Row(NamedTuple):
    """An argument or option: its names, as one types it, and what it means."""

    names: tuple[str, ...]
    spelled: str
    meaning: str

    @property
    def brief(self) -> str:
        """The first name of an option, or an argument."""
        return self.names[0] if self.names else self.spelled.strip("`")


def commands_page() -> str:
    """Render every command; the sub-commands of a command follow it."""
    commands = {f"isrwatch {name}": load(name) for name in COMMANDS}
    shared = _shared(row for command in commands.values() for row in _rows(command) if row.names)
    head = _HEAD.format(usual=code(row.brief for row in shared if row.names[0] in _USUAL))
    lines = [head, *table(("option", "meaning"), ((row.spelled, row.meaning) for row in shared)), ""]
    for path, command in commands.items():
        lines += _command(path, 2, command, shared)
    return "\n".join(lines).replace("```\n\n```\n", "")  # examples below each other are one


def _shared(rows: Iterable[Row]) -> list[Row]:
    """Give the rows that several commands have, the most frequent first; of those with one name only the first."""
    counts = Counter(row for row in rows if not row.spelled.startswith("`["))
    shared: dict[str, Row] = {}
    for row, count in counts.most_common():
        if count >= _SEVERAL:
            shared.setdefault(row.brief, row)
    return list(shared.values())


def _command(path: str, level: int, command: Declared, shared: list[Row]) -> Iterator[str]:
    yield from (f"{'#' * level} {path}", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (*_paragraph(" ".join(paragraph.split())), "")
    rows = _rows(command)
    own = [row for row in rows if row not in shared]
    also = [row.brief for row in rows if row in shared]
    if set(also) >= _USUAL:
        also = [*(name for name in also if name not in _USUAL), _ALL_OF_THEM]
    children = getattr(command, "commands", {})
    of_children = _shared(row for child in children.values() for row in _rows(child) if row not in shared)
    if listed := own + of_children:
        yield from (*table(("option", "meaning"), ((row.spelled, row.meaning) for row in listed)), "")
    if also:
        yield from (f"{'Also' if own else 'Options'}: {code(also).replace(f'`{_ALL_OF_THEM}`', _ALL_OF_THEM)}.", "")
    for name, child in children.items():
        yield from _command(f"{path} {name}", level + 1, child, shared + of_children)


def _paragraph(text: str) -> Iterator[str]:
    """Show a command as code: one that a paragraph is, or that stands behind its colon."""
    example = _COMMAND.search(text)
    sentence = text[: example.start(1)] if example else text
    if sentence and sentence not in {"Example: ", "Examples: "}:
        yield plain(sentence.strip())
    if example:
        yield from ("```", example[1], "```")


def _rows(command: Declared) -> list[Row]:
    """Give the rows of a command; families of metrics share one, as do an argument and the option that is the same."""
    context = typer.Context(command)
    rows: list[Row] = []
    families = [each for each in command.params if each.opts[0].startswith(_FAMILY)]
    for each in command.params:
        if "--help" in each.opts or each in families[1:]:
            continue
        row = _row(each, context)
        if each in families:
            row = _of_families(row, [one.opts[0].removeprefix(_FAMILY) for one in families])
        if rows and not rows[-1].names and row.meaning == rows[-1].meaning:
            row = Row(row.names, f"{rows.pop().spelled} or {row.spelled}", row.meaning)
        rows.append(row)
    return rows


def _of_families(row: Row, families: list[str]) -> Row:
    meaning = row.meaning.replace(f"family {families[0]}", f"family {code(families[:1])}")
    others = f" Likewise: {code(families[1:])}."
    return Row(row.names, row.spelled, meaning + others)


def _row(parameter: Declared, context: typer.Context) -> Row:
    text = _REPEATED.sub("", parameter.help or "")
    values = _VALUES.search(text)
    link = _LINKS.get(values[1]) if values else None
    meaning = f"{plain(text[: values.start()])}: {link}." if values and link else plain(text)
    is_option = parameter.param_type_name != "argument"
    return Row((*parameter.opts, *parameter.secondary_opts) if is_option else (), _spelled(parameter, context),
               meaning + _default(parameter))  # fmt: skip


def _spelled(parameter: Declared, context: typer.Context) -> str:
    """Spell a parameter as one types it: its names, and what its value is."""
    if parameter.param_type_name == "argument":
        words = parameter.metavar or parameter.name.upper()
        return f"`{words if parameter.required else f'[{words}]'}`"
    names = code((*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return names
    kind = parameter.metavar or parameter.display_type(context).strip("<>").removeprefix("list[").removesuffix("]")
    return f"{names} `{_TYPES.get(kind, kind)}{'...' if parameter.multiple else ''}`"


def _default(parameter: Declared) -> str:
    """Name a default that is a number or a word; one that is a path of this machine says nothing elsewhere."""
    shown = isinstance(parameter.default, int | float | str) and not isinstance(parameter.default, bool)
    return f" Default: `{parameter.default}`." if shown and parameter.default != "" else ""
