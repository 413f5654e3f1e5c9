"""Names of others in the templates of alerts, each written for where it is read: a sentence, a shell.

A label may have anything, and Prometheus inserts it as it is. Links have their own: ``exporters.web.runbook``.
"""

from __future__ import annotations

import re
from typing import Final

from streaming.escapes import HEAD, LONGEST, TAIL

_OF_LABEL: Final = re.compile(r"\{\{ ((?:\$labels)?\.(\w*)(?: \| [^{}]*)?) \}\}")
_LONG: Final = frozenset({"group", "topic", "subject"})
"""The labels whose values may be far too long to read: Kafka limits the others, or the configuration has them."""
PLAIN: Final = r"reReplaceAll `[\pC\p{Zl}\p{Zp}]` `?`"
"""A part of a template that leaves no control character, line end or turn of the direction of writing."""


QUOTED: Final = r"reReplaceAll `[\pC\p{Zl}\p{Zp}\\|\[\]]` `?` | reReplaceAll `'` `'\''`"
"""A part of a template for a word of a shell between apostrophes, which is a pattern: in one ``?`` stands for what
cannot be typed, or would look like an expression."""


def shortened(most: int = LONGEST) -> str:
    """Return a part of a template that leaves the beginning and the end of a long text, with a mark between them."""
    return f"reReplaceAll `(?s)^(.{{{HEAD}}}).{{{most - HEAD - TAIL + 1},}}(.{{{TAIL}}})$` `$1…$2`"


def sentence(template: str) -> str:
    """Return a sentence with every label written for people."""

    def written(label: re.Match[str]) -> str:
        short = f" | {shortened()}" if label[2] in _LONG else ""
        return f"{{{{ {label[1]} | {PLAIN}{short} }}}}"

    return _OF_LABEL.sub(written, template)


def command(template: str) -> str:
    """Return a command with every label quoted for a shell."""
    return _OF_LABEL.sub(lambda label: f"'{{{{ {label[1]} | {QUOTED} }}}}'", template)
