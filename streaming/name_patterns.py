"""Patterns of names: the one language in which clusters, topics and groups are chosen, in configuration and commands.

A pattern is a whole name in which ``*`` stands for any characters, none included, and ``?`` for one; every other
character is itself. One that begins with ``!`` leaves out. Of several patterns a name has to fit one that does not
leave out, if there is any such, and none that does; their order has no meaning. No patterns choose every name.

Regular expressions have no place here: RE2 of Prometheus, Rust in the SQL of Delta and Python differ, and the dots of
names would fit everything. Each pattern has one expression that means the same in all three.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_EXCLUDES: Final = "!"
_WILDCARDS: Final = {"*": ".*", "?": "."}
_EXPRESSION: Final = re.compile(r"^\^|^\.[*+]|\$$|\.\+|[\\|\[\]]")
"""Characters of expressions that names seldom have; ``?`` stands for one of those. ``orders.*`` is a pattern."""


class NamePatterns:
    """A choice of names.

    Attributes:
        written: the patterns.
        included: the regular expression of whole names that are chosen; empty for all.
        excluded: patterns of what is left out; empty for none.

    >>> chosen = NamePatterns(("orders-*", "!*-tmp"))
    >>> [name for name in ("orders", "orders-1", "orders-1-tmp") if chosen(name)]
    ['orders-1']
    """

    def __init__(self, written: Iterable[str] = ()) -> None:
        """Take patterns, which :func:`check_patterns` has passed if a user wrote them."""
        self.written: Final = tuple(written)
        self.included: Final = _expression(each for each in self.written if not is_exclusion(each))
        self.excluded: Final = _expression(each[1:] for each in self.written if is_exclusion(each))
        self._included = re.compile(self.included or ".*", re.DOTALL)
        self._excluded = re.compile(self.excluded or r"(?!)", re.DOTALL)

    def __call__(self, *names: str) -> bool:
        """Return whether something with these names, such as the name and the id of a cluster, is chosen."""
        return any(map(self._included.fullmatch, names)) and not any(map(self._excluded.fullmatch, names))


@lru_cache(64)
def patterns_of(*written: str) -> NamePatterns:
    """Return the choice of some patterns, which is compiled once."""
    return NamePatterns(written)


def is_exclusion(pattern: str) -> bool:
    """Return whether a pattern leaves out."""
    return pattern.startswith(_EXCLUDES)


def expression_of(pattern: str) -> str:
    r"""Return the regular expression that whole names of a pattern match, for RE2, Rust and Python.

    >>> expression_of("orders-*")
    'orders\\-.*'
    """
    return "".join(_WILDCARDS.get(letter) or re.escape(letter) for letter in pattern)


def check_patterns(key: str, patterns: Iterable[str]) -> None:
    """Refuse a pattern that is empty, or that is meant as a regular expression; the sentence names the key.

    Raises:
        ConfigurationError: one is; the sentence names the key and the fix.
    """
    for pattern in patterns:
        if pattern in {"", _EXCLUDES}:
            raise ConfigurationError(f"{key} has {pattern!r}; write a name, such as 'orders-*' or '!tmp-*'")
        if _EXPRESSION.search(pattern):
            raise ConfigurationError(
                f"{key} has {pattern!r}, which looks like a regular expression; write a whole name with * for any "
                f"characters and ? for one, for example {_meant(pattern)!r}"
            )


def _meant(pattern: str) -> str:
    """Return a pattern that may have been meant: as an expression that is found anywhere in a name."""
    first = re.sub(r"[()]", "", pattern.partition("|")[0])
    inner = re.sub(r"\\.|\[[^]]*\]?", "?", re.sub(r"\.[*+]", "*", first.removeprefix("^").removesuffix("$")))
    begin, end = "" if first.startswith("^") else "*", "" if pattern.endswith("$") else "*"
    return re.sub(r"\*+", "*", f"{begin}{inner}{end}")


def _expression(patterns: Iterable[str]) -> str:
    return "|".join(map(expression_of, patterns))
