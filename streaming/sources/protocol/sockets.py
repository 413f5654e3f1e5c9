"""From the name of a node to connected sockets: each address of the name gets its share of the time.

Addresses are connected to one after the other, each a moment after the one before, and none is given up meanwhile
(RFC 8305): one that swallows packets costs that moment. A resolver that hangs holds up one thread per name.
"""

from __future__ import annotations

import ipaddress
import os
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from errno import EADDRNOTAVAIL, ECONNREFUSED, EINPROGRESS, EMFILE, ENFILE, ENOBUFS, ENOMEM
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.errors import ConnectionRefused, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.sources.protocol.addresses import Address

CONNECT_SECONDS: Final = 3.0
"""For the resolver, and again for the addresses that it returns."""
MOMENT_SECONDS: Final = 0.25
SILENT: Final = "does not answer"
_LEAST_SECONDS: Final = 0.01
_REMEMBERED_SECONDS: Final = 600.0
_LATE_SECONDS: Final = 30.0
IMPATIENT_SECONDS: Final = 1.0
_MOST_NAMES: Final = 2_000
_LACKING: Final = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL})
"""Errors of a machine without files, memory or ports to connect from."""


class Failure(StrEnum):
    """Failure of a connection; what says least of the node behind the address comes first."""

    LOCAL = "local"
    """Not tried: this machine lacks what a connection takes."""
    REFUSED = "refused"
    """Refused at once: no process listens there."""
    UNREACHED = "unreached"
    """Neither accepted nor refused in time, or there is no way to it."""
    CLOSED = "closed"
    """Accepted, or open for long, and closed."""
    SILENT = "silent"
    """Accepted, or open for long, and without a response in time."""
    UNFIT = "unfit"
    """It answers, and TLS fails, or it speaks another protocol: its process runs."""


class NoAnswer(ConnectionRefused):
    """The node does not respond: ``how`` that showed."""

    def __init__(self, sentence: str, how: Failure) -> None:
        super().__init__(sentence)
        self.how = how


class Place(NamedTuple):
    """One address of a name, as ``getaddrinfo`` returns it."""

    family: int
    kind: int
    protocol: int
    at: tuple[Any, ...]

    def __str__(self) -> str:
        return str(self.at[0])


@dataclass(slots=True)
class _Lookup:
    """A question to the resolver; the answer may come when no caller waits for it any more."""

    is_answered: threading.Event = field(default_factory=threading.Event)
    answer: list[Place] | Exception = field(default_factory=list)
    answered_at: float = 0.0


_lookups: Final[dict[Address, _Lookup]] = {}
_remembered: Final[dict[Address, tuple[float, list[Place]]]] = {}
_first: Final[dict[Address, str]] = {}
_looking_up: Final = threading.Lock()


def resolved(address: Address, seconds: float) -> list[Place]:
    """Resolve a host as ``getaddrinfo`` does, which has no time limit of its own.

    The answer to a question that took too long is the answer to the next one. What was resolved a few minutes ago
    stands in while the resolver is silent, or fails for now.

    Raises:
        ConnectionRefused: it has no address, or none is known in time.
    """
    if _is_literal(address.host):
        return _places(address)
    remembered = _remembered.get(address)
    if remembered is not None and time.monotonic() - remembered[0] > _REMEMBERED_SECONDS:
        remembered = None
    lookup = _begun(address)
    limit = seconds if remembered is None else min(seconds, IMPATIENT_SECONDS)
    if not lookup.is_answered.wait(timeout=max(_LEAST_SECONDS, limit)):
        if remembered is not None:
            return remembered[1]
        raise NoAnswer(f"{address} cannot be reached: its name is not resolved in time", Failure.UNREACHED)
    with _looking_up:
        if _lookups.get(address) is lookup:
            del _lookups[address]
    if isinstance(lookup.answer, Exception):
        if remembered is not None and getattr(lookup.answer, "errno", None) == socket.EAI_AGAIN:
            return remembered[1]
        code = getattr(lookup.answer, "errno", None) or 0
        if (how := _how(code)) is Failure.LOCAL:
            raise NoAnswer(f"{address} cannot be reached: {_in_words(code)}", how)
        reason = getattr(lookup.answer, "strerror", None) or lookup.answer
        raise NoAnswer(f"{address} cannot be reached: {reason}", Failure.UNREACHED)
    if len(_remembered) >= _MOST_NAMES:
        _remembered.clear()
    _remembered[address] = time.monotonic(), lookup.answer
    return lookup.answer


def _begun(address: Address) -> _Lookup:
    """Return the question that is asked, or has just been answered; or ask."""
    with _looking_up:
        lookup = _lookups.get(address)
        is_late = lookup is not None and lookup.is_answered.is_set()
        if lookup is None or (is_late and time.monotonic() - lookup.answered_at > _LATE_SECONDS):
            lookup = _lookups[address] = _Lookup()
            thread = threading.Thread(target=_look_up, args=(address, lookup), name=f"resolve {address.host}")
            thread.daemon = True
            thread.start()
        return lookup


def _look_up(address: Address, lookup: _Lookup) -> None:
    try:
        lookup.answer = _places(address)
    except (OSError, UnicodeError) as error:
        lookup.answer = _lack() or error
    lookup.answered_at = time.monotonic()
    lookup.is_answered.set()


def _lack() -> OSError | None:
    """Return the error of a machine that has no file left for the resolver, which gives it any other name."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error
    return None


def _places(address: Address) -> list[Place]:
    answers = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [Place(int(family), int(kind), protocol, at) for family, kind, protocol, _, at in answers]


def first_of(address: Address) -> str:
    """Return the address of a name to begin with: of all connections of this process the one that worked last."""
    return _first.get(address, "")


def begin_with(address: Address, at: str) -> None:
    """Begin with an address of a name next time."""
    if len(_first) >= _MOST_NAMES:
        _first.clear()
    _first[address] = at


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Race:
    """Connects to the addresses of a name; each is begun a moment after the one before, or when none is under way.

    Args:
        places: the addresses; the families take turns.
        first: the address to begin with, which worked last; those behind it follow, then those before it.
        seconds: how long an address may take to accept a connection.

    Attributes:
        failures: why an address cannot be used.
        how: of all addresses that cannot be used the failure that says most of the node.
        step_seconds: how long a step on a connection may take while other addresses are left.
    """

    def __init__(self, places: Sequence[Place], *, first: str = "", seconds: float | None = None) -> None:
        ordered = _by_turns(places)
        at = next((number for number, place in enumerate(ordered) if str(place) == first), 0)
        self._waiting = [*ordered[at:], *ordered[:at]]
        self._seconds = CONNECT_SECONDS if seconds is None else seconds
        self._moment = min(MOMENT_SECONDS, self._seconds / (2 * max(1, len(ordered))))
        self.step_seconds, self._next_at = self._seconds / 2, 0.0
        self._begun: dict[socket.socket, tuple[Place, float]] = {}
        self._selector = selectors.PollSelector()  # takes no file of its own, of which there may be none left
        self.failures: dict[Place, str] = {}
        self.how = Failure.LOCAL

    def fail(self, place: Place, why: str, how: Failure) -> None:
        """Note why an address cannot be used."""
        self.failures[place] = why
        self.how = max(self.how, how, key=list(Failure).index)

    @property
    def is_last(self) -> bool:
        """True if no other address is left."""
        return not self._waiting and not self._begun

    @property
    def upcoming(self) -> str:
        """The address that would be next; "" if none is left."""
        left = [*(place for place, _ in self._begun.values()), *self._waiting]
        return str(left[0]) if left else ""

    def next(self) -> tuple[socket.socket, Place] | None:
        """Return the next connected socket and its address; None if no address is left."""
        while self._waiting or self._begun:
            now = time.monotonic()
            if self._waiting and (not self._begun or now >= self._next_at):
                self._begin(self._waiting.pop(0), now)
                continue
            until = min(until for _, until in self._begun.values())
            until = min(until, self._next_at) if self._waiting else until
            for key, _ in self._selector.select(max(_LEAST_SECONDS, until - now)):
                connected = self._ended(key.fileobj)  # type: ignore[arg-type] # sockets were registered
                if connected is not None:
                    return connected
            self._give_up(time.monotonic())
        return None

    def close(self) -> None:
        """Give up what is under way."""
        for under_way in self._begun:
            under_way.close()
        self._begun.clear()
        self._selector.close()

    def _begin(self, place: Place, now: float) -> None:
        try:
            plain = socket.socket(place.family, place.kind, place.protocol)  # fails where the machine has no IPv6
        except OSError as error:
            self.fail(place, _in_words(error.errno or 0) or str(error), _how(error.errno or 0))
            return
        plain.setblocking(False)
        code = plain.connect_ex(place.at)
        if code not in {0, EINPROGRESS}:
            plain.close()
            self.fail(place, _in_words(code), _how(code))
            return
        self._next_at = now + self._moment
        self._begun[plain] = place, now + self._seconds
        self._selector.register(plain, selectors.EVENT_WRITE)

    def _ended(self, plain: socket.socket) -> tuple[socket.socket, Place] | None:
        self._selector.unregister(plain)
        place, _ = self._begun.pop(plain)
        code = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code:
            plain.setblocking(True)
            return plain, place
        plain.close()
        self.fail(place, _in_words(code), _how(code))
        return None

    def _give_up(self, now: float) -> None:
        for plain in [each for each, (_, until) in self._begun.items() if until <= now]:
            self._selector.unregister(plain)
            self.fail(self._begun.pop(plain)[0], SILENT, Failure.UNREACHED)
            plain.close()


def _how(code: int) -> Failure:
    if code in _LACKING:
        return Failure.LOCAL
    return Failure.REFUSED if code == ECONNREFUSED else Failure.UNREACHED


def _in_words(code: int) -> str:
    """Return the words of the system for an error; "" for none. What this machine lacks is not blamed on the node."""
    if not code:
        return ""
    return (
        f"this machine cannot connect: {reason_of(OSError(code, os.strerror(code)))}"
        if code in _LACKING
        else os.strerror(code)
    )


def _by_turns(places: Sequence[Place]) -> list[Place]:
    """Let the families take turns (RFC 8305, 4), or ten silent addresses of one hold up all of the other."""
    families: dict[int, list[Place]] = {}
    for place in dict.fromkeys(places):
        families.setdefault(place.family, []).append(place)
    return [place for place in chain(*zip_longest(*families.values())) if place is not None]


def in_one_sentence(address: Address, failures: Mapping[Place, str]) -> str:
    """Say why no address of a name can be used, each with its own reason."""
    if len(failures) == 1:
        (reason,) = failures.values()
        return reason if reason.startswith(str(address)) else f"{address} cannot be reached: {_alone(reason)}"
    reasons = "; ".join(f"{place} {_verb(reason, address)}" for place, reason in failures.items())
    return f"{address} cannot be reached at any of its {len(failures)} addresses: {reasons}"


def _alone(reason: str) -> str:
    return f"it {reason}" if reason == SILENT else reason


def _verb(reason: str, address: Address) -> str:
    """Return a reason as what is said of one address: the name before it is that of all of them."""
    own = reason.removeprefix(f"{address} ")
    return own if own != reason or reason == SILENT else f"fails: {reason}"
