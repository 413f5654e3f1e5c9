r"""Texts of others, such as the names of groups, as each kind of output writes them.

A name may hold anything: colours of a terminal, line ends, characters that turn the direction of writing, formulas.
Each kind of output has one place that writes names, and nothing is encoded anywhere else:

- for people: :func:`printable`, which :class:`streaming.terminal.Terminal` calls, and :mod:`streaming.web.markup`
- JSON and CSV: here
- the exposition: ``exporters.metrics.text``; PromQL: ``dashboards.promql``; texts and links of alerts, which are
  templates: ``dashboards.alerts.rule``

Where people read, a character that is not printable is written as Python would, and what is far too long is shortened
with a mark. Data is whole and parses back to what it was.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST: Final = 255
"""Characters that are shown of a name as it is: more than the name of a topic, with its partition, may have."""
HEAD: Final = 40
TAIL: Final = 15
"""Characters of a longer one that are shown of its beginning and its end."""
_LONGEST_SENTENCE: Final = 20_000
_LONG_WORD: Final = re.compile(rf"(\S{{{LONGEST},}}?)([,:;]?)(?!\S)")


def printable(text: str) -> str:
    r"""Return a text of one line: what a terminal would act on, and what cannot be seen, as an escape of Python.

    >>> print(printable("esc\x1b[31mred\n\u202etxt"))
    esc\x1b[31mred\n\u202etxt
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def shortened(text: str) -> str:
    """Return a name for people: of one that is longer than any topic's the beginning, the end and the length."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:HEAD]}…{text[-TAIL:]} ({len(text):,} characters)"


def with_short_words(text: str) -> str:
    """Return a sentence for people: words that are far too long are shortened, and the sentence if it still is."""
    if len(text) <= LONGEST:
        return text
    short = _LONG_WORD.sub(lambda word: shortened(word[1]) + word[2], text)
    return short if len(short) <= _LONGEST_SENTENCE else shortened(short)


def json_text(value: Any, *, allow_nan: bool = True) -> str:  # noqa: ANN401 - any value of JSON
    """Return a value as JSON on one line, readable where people can read it, and without a control character."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)
    return text if text.isprintable() else "".join(map(_escaped, text))


def json_document(name: str, values: Iterable[Any], before: str = "") -> Iterator[str]:
    r"""Yield the lines of one JSON document: an object with a list, one of its values on each line as it comes.

    Args:
        name: key of the list.
        values: of JSON.
        before: what stands before the key, encoded: ``"key": value, ``.

    >>> print("\n".join(json_document("rows", [1, "b"])))
    {"rows": [
    1
    ,"b"
    ]}
    """
    yield f"{{{before}{json_text(name)}: ["
    yield from (f"{',' * (index > 0)}{json_text(value)}" for index, value in enumerate(values))
    yield "]}"


def _escaped(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]


def yaml_text(value: Any) -> str:  # noqa: ANN401 - any value of JSON
    """Return a value as YAML on one line: JSON, but for the characters that JSON writes as two halves."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


_FORMULA: Final = (*"=+-@\t\r\n'", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The last ones are those of the first in full width, which spreadsheets take for the same."""
_SEPARATORS: Final = frozenset(',;"\t\r\n')


def csv_line(cells: Iterable[Any]) -> str:
    """Return a line of CSV, without its end. Unknown is empty, an empty text is quoted.

    A text that a spreadsheet would take for a formula, or that begins with an apostrophe, has one more apostrophe.
    """
    texts = [*map(_csv_cell, cells)]
    return ",".join(texts) if len(texts) != 1 else texts[0] or '""'


def _csv_cell(value: Any) -> str:  # noqa: ANN401 - a value of any column
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    guarded = f"'{value}" if value.startswith(_FORMULA) else value
    if guarded and _SEPARATORS.isdisjoint(guarded):
        return guarded
    return '"' + guarded.replace('"', '""') + '"'
