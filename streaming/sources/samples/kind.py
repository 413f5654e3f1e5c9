"""The interface of a kind of sample: it asks brokers when it is due, and makes observations of their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streaming.contracts.identifiers import Micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.observations import Observation
    from streaming.errors import ConnectionRefused
    from streaming.sources.admin_view import ClusterView
    from streaming.sources.samples.broker_calls import BrokerAnswer, Work

    Ask = Callable[[str, BrokerId, Work], bool]
    """Puts a question of a kind to a broker, unless the last one of that kind is outstanding there.

    What is put to ``NO_BROKER`` is done here, without a connection.
    """


NEVER: Final = Micros(1 << 62)


class Shown(NamedTuple):
    """What an answer shows, and why something is missing in it."""

    observations: Sequence[Observation]
    refusal: ConnectionRefused | None = None


class Kind(Protocol):
    """A kind of sample.

    Attributes:
        names: of the kinds of questions that it puts.
        next_at: when it is due, by the monotonic clock.
    """

    names: Sequence[str]

    @property
    def next_at(self) -> Micros:
        """When it is due, by the monotonic clock."""

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Put the questions that are due."""

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> Shown:
        """Return what an answer shows; ``envelope`` are the fields that all observations share."""
