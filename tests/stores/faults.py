"""The faults that a test gives to requests, and which requests have one. Depends on no network."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ALWAYS: Final = 1_000_000
KINDS: Final = (
    ("list", r"[?&](list-type=2|comp=list)"),
    ("entry", r"/_delta_log/\d{20}\.json$"),
    ("log", r"/_delta_log/"),
    ("data", r"\.parquet$"),
)
"""What a request is about, by its path and query: the first that matches. What none matches is "other"."""


class Fault(Enum):
    """What happens to a request."""

    ANSWER_LOST = "the store has it; the connection is closed without an answer"
    BUSY_BEFORE = "503, and the store never sees it"
    BUSY_AFTER = "the store has it; the answer is 503"
    HANGS_BEFORE = "the client waits; the store sees it when the fault is released, gone client or not"
    HANGS_AFTER = "the store has it; the answer comes when the fault is released"
    UPLOAD_CUT = "half of its body reaches the store; both connections are closed"
    ANSWER_CUT = "the store has it; half of the answer's body comes, and the connection is closed"
    UNCONDITIONAL = "it reaches the store without its conditions; for a store that verifies no signature, such as moto"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the client sent it: ``path`` with its query, ``kind`` of ``KINDS`` or "other"."""

    method: str
    path: str

    @property
    def kind(self) -> str:
        """What it is about."""
        return next((kind for kind, pattern in KINDS if re.search(pattern, self.path)), "other")


@dataclass
class Rule:
    """A fault, and the requests that have it: so many more ``times`` those that ``applies`` picks.

    ``hit`` are those that had it; one that hangs is in there as soon as it hangs.
    """

    fault: Fault
    applies: Callable[[Request], bool]
    times: int
    hit: list[Request] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """End the fault: what hangs goes on, what comes passes."""
        self.times = 0
        self.released.set()


class Faults:
    """The rules of a proxy, and a count of the requests by method and kind."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault, applies: Callable[[Request], bool], times: int) -> Rule:
        """Add a rule; of several that apply the newest counts."""
        rule = Rule(fault, applies, times)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def release(self) -> None:
        """End all faults."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def of(self, request: Request) -> Rule | None:
        """Count a request, and return the rule whose fault it has, if any."""
        with self._lock:
            self.counts[request.method, request.kind] += 1
            for rule in self._rules:
                if rule.times > 0 and rule.applies(request):
                    rule.times -= 1
                    rule.hit.append(request)
                    return rule
        return None


def to(method: str, path: str = "") -> Callable[[Request], bool]:
    """Pick the requests of a method, to a path (with its query) that has a regular expression in it."""
    pattern = re.compile(path)
    return lambda request: request.method == method and pattern.search(request.path) is not None
