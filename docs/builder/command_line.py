"""Every command with its arguments and options, from the declarations that the command line is parsed by."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import typer

from docs.builder.markdown import plain, table
from streaming.commands import COMMANDS, load

_HEAD: Final = """# Commands

`isrwatch COMMAND --help` prints the same. Options of `isrwatch` itself come before the command: `--version`, and
`--debug`, which shows the traceback of an error. Exit code 2 means a wrong option or configuration, 1 any other error;
where a command has others, it says so.
"""
_COMMAND: Final = re.compile(r"(?:^|: )((?:isrwatch [a-z]+|spark-submit) .*)$")
Declared = Any  # a command or a parameter of typer, whose classes are not public


def commands_page() -> str:
    """Render every command; the sub-commands of a command follow it."""
    lines = [_HEAD]
    for name in COMMANDS:
        lines += _command(f"isrwatch {name}", load(name), level=2)
    return "\n".join(lines)


def _command(path: str, command: Declared, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {path}", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (*_paragraph(" ".join(paragraph.split())), "")
    parameters = [each for each in command.params if "--help" not in each.opts]
    if parameters:
        context = typer.Context(command)
        rows = ((_spelled(each, context), plain(each.help or "") + _default(each)) for each in parameters)
        yield from (*table(("argument or option", "meaning"), rows), "")
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(f"{path} {name}", child, level + 1)


def _paragraph(text: str) -> Iterator[str]:
    """Show a command as code: one that a paragraph is, or that stands behind its colon."""
    example = _COMMAND.search(text)
    sentence = text[: example.start(1)] if example else text
    if sentence and sentence not in {"Example: ", "Examples: "}:
        yield plain(sentence.strip())
    if example:
        yield from ("```", example[1], "```")


def _spelled(parameter: Declared, context: typer.Context) -> str:
    """Spell a parameter as one types it: its names, and what its value is."""
    if parameter.param_type_name == "argument":
        words = parameter.metavar or parameter.name.upper()
        return f"`{words if parameter.required else f'[{words}]'}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    kind = "" if parameter.is_flag else f" `{parameter.metavar or parameter.display_type(context).strip('<>')}`"
    return names + kind + (", may be repeated" if parameter.multiple else "")


def _default(parameter: Declared) -> str:
    """Name a default that is a number or a word; one that is a path of this machine says nothing elsewhere."""
    shown = isinstance(parameter.default, int | float | str) and not isinstance(parameter.default, bool)
    return f" Default: `{parameter.default}`." if shown and parameter.default != "" else ""
