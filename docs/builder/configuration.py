"""Every key of the configuration with its default and its comment, from ``conf/isrwatch.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from docs.builder.markdown import plain
from streaming.resources import conf_path

_HEAD: Final = """# Configuration

One TOML file, given with `--config`. A wrong key, type or value is refused with one sentence that names it. This is
[conf/isrwatch.toml](../../conf/isrwatch.toml), which has every key with its default; start from a copy of it. Relative
paths are resolved against the working directory of the command.
"""
_SECTION: Final = re.compile(r"^#?(\[[a-z_.]+\])$")
_KEY: Final = re.compile(r'^(#?)([a-z_]+|"[^"]+") = (.+)$')


def configuration_page() -> str:
    """Render all sections and keys in the order of the file."""
    _, _, text = conf_path("isrwatch.toml").read_text(encoding="utf-8").partition("\n\n")  # the head is about the file
    rendered = "\n".join([_HEAD, *_rendered(text.splitlines())])
    return rendered.replace("```\n\n```toml\n", "") + "\n"  # examples below each other are one


def _rendered(lines: Iterable[str]) -> Iterator[str]:
    """Put each comment below the heading of what it is about; one that is about nothing is a paragraph of its own."""
    comment: list[str] = []
    section = ""
    for line in lines:
        if heading := _SECTION.match(line):
            section = heading[1].strip("[]")
            yield from (f"## {section}", "", *_prose(comment))
        elif key := _KEY.match(line):
            is_example, name, value = key.groups()
            yield from _key(section, name, value, bool(is_example), comment)
        elif line.startswith("#"):
            comment.append(line[2:])
            continue
        else:
            yield from _prose(comment)
        comment = []
    yield from _prose(comment)


def _key(section: str, name: str, value: str, is_example: bool, comment: list[str]) -> Iterator[str]:  # noqa: FBT001 - of a row
    if name.startswith('"'):  # a key that the user chooses, or a property of librdkafka
        yield from (*_prose(comment), "```toml", f"{name} = {value}", "```", "")
        return
    default = f"Empty by default; for example `{value}`." if is_example else f"Default: `{value}`."
    yield from (f"### {section}.{name}", "", default, "", *_prose(comment))


def _prose(comment: list[str]) -> Iterator[str]:
    """Join the lines of each paragraph; what is indented is code."""
    paragraphs = "\n".join(comment).strip("\n").split("\n\n") if comment else []
    for paragraph in paragraphs:
        lines = paragraph.splitlines()
        words = [line for line in lines if not line.startswith("    ")]
        code = [line[4:] for line in lines if line.startswith("    ")]
        if words:
            yield from (plain(" ".join(words)), "")
        if code:
            yield from ("```toml", *code, "```", "")
