"""What Java makes of random bits: ``Random.nextInt(bound)`` and ``Collections.shuffle``. The bits are the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence

_INT_LIMIT: Final = 1 << 31


class JavaRandom:
    """``java.util.Random`` over somebody's bits, so that the same bits give Kafka's own choices.

    Args:
        bits: gives a whole number of that many random bits; ``random.Random(seed).getrandbits`` does.
    """

    def __init__(self, bits: Callable[[int], int]) -> None:
        self._bits = bits

    def next_int(self, bound: int) -> int:
        """Give 0 to ``bound`` - 1, equally distributed."""
        drawn = self._bits(31)
        if bound & (bound - 1) == 0:
            return bound * drawn >> 31  # the high bits are the better ones
        # What lies beyond the last multiple of the bound would favour small numbers.
        while drawn - drawn % bound + bound - 1 >= _INT_LIMIT:
            drawn = self._bits(31)
        return drawn % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Bring ``items`` into a random order, in place."""
        for size in range(len(items), 1, -1):
            other = self.next_int(size)
            items[size - 1], items[other] = items[other], items[size - 1]
