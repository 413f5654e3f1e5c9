"""Query parameters, each declared once: its parser, its JSON Schema and its documentation follow from the declaration.

Whatever is not declared is refused: a misspelled filter that is ignored would select everything.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.times import Clock, parse_iso
from streaming.errors import ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DIGITS: Final = 19
LARGEST: Final = 2**63 - 1


class RequestRefused(IsrwatchError):
    """A request cannot be answered: the status of the response, and a sentence with what is allowed."""

    def __init__(self, status: int, sentence: str) -> None:
        """Refuse a request."""
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One query parameter.

    Attributes:
        name: as in the URL.
        help: what it selects, in one sentence.
        schema: JSON Schema of one value.
        parse: converts one value; raises ValueError.
        is_repeatable: several values select what fits any of them.
        default: the value if it is not given; without values a repeatable one is ().
    """

    name: str
    help: str
    schema: Mapping[str, Any]
    parse: Callable[[str], Any]
    is_repeatable: bool = False
    default: Any = None

    def value_of(self, given: Sequence[str]) -> Any:  # noqa: ANN401 - of the type that it declares
        """Convert what a request has of it.

        Raises:
            RequestRefused: a value is wrong, or there is more than one where one is allowed.
        """
        if not given:
            return () if self.is_repeatable else self.default
        if len(given) > 1 and not self.is_repeatable:
            raise RequestRefused(400, f"{self.name} is given {len(given)} times; give it once")
        values = tuple(map(self._parsed, given))
        return values if self.is_repeatable else values[0]

    def _parsed(self, text: str) -> Any:  # noqa: ANN401 - of the type that it declares
        try:
            return self.parse(text)
        except (ValueError, OverflowError):
            raise RequestRefused(400, f"{self.name} is {text!r}; use {self._allowed()}") from None

    def _allowed(self) -> str:
        schema = self.schema
        if "enum" in schema:
            return f"one of {', '.join(map(str, schema['enum']))}"
        if schema.get("type") == "boolean":
            return "true or false"
        if schema.get("type") in {"integer", "number"}:
            return f"a number from {schema['minimum']} to {schema['maximum']}"
        return str(schema["description"])


def text(name: str, help_text: str, **more: Any) -> Parameter:  # noqa: ANN401 - fields of Parameter
    """Declare a parameter whose values are names."""
    return Parameter(name=name, help=help_text, schema={"type": "string"}, parse=str, **more)


def choice(name: str, help_text: str, values: Iterable[str], **more: Any) -> Parameter:  # noqa: ANN401 - as above
    """Declare a parameter with a closed set of values."""
    allowed = [str(value) for value in values]

    def parse(given: str) -> str:
        return allowed[allowed.index(given)]

    return Parameter(name=name, help=help_text, schema={"type": "string", "enum": allowed}, parse=parse, **more)


def number(
    name: str,
    help_text: str,
    *,
    at_least: int = 0,
    at_most: int = 2**31 - 1,
    **more: Any,  # noqa: ANN401 - as above
) -> Parameter:
    """Declare a parameter that is a whole number."""

    def parse(given: str) -> int:
        value = _whole(given)
        if not at_least <= value <= at_most:
            raise ValueError
        return value

    schema = {"type": "integer", "minimum": at_least, "maximum": at_most}
    return Parameter(name=name, help=help_text, schema=schema, parse=parse, **more)


def seconds(name: str, help_text: str) -> Parameter:
    """Declare a parameter that is a duration in seconds."""
    least, most = 0.001, 2**31 - 1

    def parse(given: str) -> float:
        value = float(given)
        if not (given.isascii() and len(given) <= _DIGITS and least <= value <= most):
            raise ValueError
        return value

    schema = {"type": "number", "minimum": least, "maximum": most}
    return Parameter(name=name, help=help_text, schema=schema, parse=parse)


def flag(name: str, help_text: str) -> Parameter:
    """Declare a parameter that is true or false; false by default."""
    values = {"true": True, "false": False}

    def parse(given: str) -> bool:
        if given not in values:
            raise ValueError
        return values[given]

    return Parameter(name=name, help=help_text, schema={"type": "boolean"}, parse=parse, default=False)


def moment(name: str, help_text: str) -> Parameter:
    """Declare a parameter that is a time: UTC microseconds, as in every response, or ISO 8601."""

    def parse(given: str) -> int:
        if given.isdecimal():
            return min(_whole(given), LARGEST)
        at = parse_iso(given)
        zoned = at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
        return (zoned - _EPOCH) // dt.timedelta(microseconds=1)

    described = "microseconds since 1970, or ISO 8601 such as 2026-03-01T10:30:00Z; without a zone it is UTC"
    schema = {"type": "string", "description": described, "examples": ["1772361000000000", "2026-03-01T10:30:00Z"]}
    return Parameter(name=name, help=help_text, schema=schema, parse=parse)


AT: Final = Parameter(
    name="at",
    help="Show this moment of the past, by what had occurred by then; without it the present.",
    schema={
        "type": "string",
        "description": "ISO 8601 such as 2026-03-01T10:30:00Z, microseconds since 1970, or a span before now such as "
        "15m",
        "examples": ["2026-03-01T10:30:00Z", "15m"],
    },
    parse=str,
)


def moment_of(text: str, now: int) -> int:
    """Read the value of ``at``, UTC microseconds.

    Raises:
        RequestRefused: it is no moment.
    """
    try:
        if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
            return Clock(now).read(text)
        Clock(now).iso(int(text))
        return int(text)
    except (ConfigurationError, OverflowError):
        raise RequestRefused(400, f"at is {text!r}; use {AT.schema['description']}") from None


def _whole(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) <= _DIGITS):
        raise ValueError
    return int(given)


@dataclass(frozen=True, slots=True)
class Query:
    """Parameters of a request: the value of every declared one, by name."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of the type that the parameter declares
        """Return the value of a parameter."""
        return self.values[name]


def query_of(
    parameters: Sequence[Parameter], given: Iterable[tuple[str, str]], shown: Sequence[Parameter] | None = None
) -> Query:
    """Parse the parameters of a request; a refusal names those that are ``shown``, by default all.

    Raises:
        RequestRefused: one is unknown or wrong; the sentence names it and what is allowed.
    """
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in given:
        texts[name].append(value)
    allowed = [parameter.name for parameter in parameters]
    for name in texts:
        if name not in allowed:
            names = ", ".join(each.name for each in (parameters if shown is None else shown))
            raise RequestRefused(400, f"unknown parameter {name!r}; allowed: {names or 'none'}")
    return Query({parameter.name: parameter.value_of(texts[parameter.name]) for parameter in parameters})
