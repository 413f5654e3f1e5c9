"""A path of the JSON API: what it accepts and what it returns, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.convertors import StringConvertor, register_url_convertor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.web.api_resource import Schema, View
    from exporters.web.parameters import Parameter, Query

PREFIX: Final = "/api/v1"
Answer = tuple[int, dict[str, Any]]


class _NameConvertor(StringConvertor):
    """Takes whatever a name may hold, a ``/`` and an end of a line included."""

    regex = r"[\s\S]*"


_NAME: Final = "name_in_path"
register_url_convertor(_NAME, _NameConvertor())


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path.

    Attributes:
        name: the path below ``/api/v1``, with ``{parameters}``.
        summary: one line.
        help: what it returns.
        parameters: everything that a request may give; ``cluster`` is among them, unless it is about one thing.
        of_path: the parameters in the path.
        answer: status and content of the response.
        response: schema of the content.
        statuses: the statuses with such a content, each with its meaning.
        schemas: named schemas that ``response`` refers to.
        no_history: why ``at`` is refused; None where it is a parameter, or there is no moment.
        is_self_dated: ``answer`` takes care of ``at``.
    """

    name: str
    summary: str
    help: str
    parameters: tuple[Parameter, ...]
    of_path: tuple[Parameter, ...] = ()
    answer: Callable[[View, Query], Answer]
    response: Schema
    statuses: Mapping[int, str]
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    no_history: str | None = None
    is_self_dated: bool = False

    @property
    def path(self) -> str:
        """Path of the endpoint."""
        return f"{PREFIX}/{self.name}"

    @property
    def route(self) -> str:
        """The same as a pattern of Starlette: what is in the path may have a ``/`` in it."""
        pattern = f"/{self.name}"
        for parameter in self.of_path:
            pattern = pattern.replace(f"{{{parameter.name}}}", f"{{{parameter.name}:{_NAME}}}")
        return pattern

    @property
    def operation(self) -> str:
        """Name of the operation, of letters, digits and ``_``."""
        return self.name.replace("/", "_").replace("{", "").replace("}", "")
