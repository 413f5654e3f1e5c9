"""The directories that a broker keeps its logs in, one a disk (``LogManager``; KIP-112, KIP-858, KIP-1066).

A replica lies in one directory. With a single one, which is the usual case, nothing is kept for replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition


class LogDirs:
    """Directories ``dir-1``, ``dir-2``, ...

    Attributes:
        names: all that the broker is configured with.
        offline: those that cannot be read; an ordered set.
        cordoned: those that get no new replicas.
        placed: where each replica lies; empty with a single directory.
        untold: those of ``placed`` that the controller was not told yet; an ordered set.
    """

    __slots__ = ("_replicas_in", "cordoned", "names", "offline", "placed", "untold")

    def __init__(self, count: int = 1) -> None:
        self.names = tuple(f"dir-{number}" for number in range(1, count + 1))
        self.offline: dict[str, None] = {}
        self.cordoned: tuple[str, ...] = ()
        self.placed: dict[TopicPartition, str] = {}
        self.untold: dict[TopicPartition, None] = {}
        self._replicas_in = dict.fromkeys(self.names, 0)

    @property
    def online(self) -> tuple[str, ...]:
        """The directories that can be read."""
        return tuple(name for name in self.names if name not in self.offline)

    @property
    def registered_names(self) -> tuple[str, ...]:
        """What a registration says: the readable ones; a broker with a single directory names none."""
        return self.online if len(self.names) > 1 else ()

    def place(self, key: TopicPartition) -> None:
        """Put a new replica where the fewest are; into a cordoned directory only if there is no other."""
        if len(self.names) == 1:
            return
        open_ones = [name for name in self.online if name not in self.cordoned] or list(self.online)
        name = min(open_ones, key=self._replicas_in.__getitem__)
        self.placed[key] = name
        self.untold[key] = None
        self._replicas_in[name] += 1

    def remove(self, key: TopicPartition) -> None:
        """A replica was deleted."""
        name = self.placed.pop(key, None)
        if name is not None:
            self._replicas_in[name] -= 1
            self.untold.pop(key, None)

    def is_offline(self, key: TopicPartition) -> bool:
        """Return whether a replica lies where nothing can be read."""
        return bool(self.offline) and self.placed.get(key, self.names[0]) in self.offline

    def take_untold(self) -> tuple[tuple[TopicPartition, str], ...]:
        """Give what the controller has to be told of."""
        untold, self.untold = self.untold, {}
        return tuple((key, self.placed[key]) for key in untold)
