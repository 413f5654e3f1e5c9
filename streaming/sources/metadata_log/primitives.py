"""Kafka's wire types of the flexible versions (KIP-482). Knows bytes only, no record and no message."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Final, TypeVar

from streaming.errors import Quarantined

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_VARINT_BITS: Final = 63


class Reader:
    """Reads one value after another. A compact length is stored plus one; 0 stands for null.

    Raises:
        Quarantined: from every method, where the bytes end early or make no sense.
    """

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def remaining(self) -> int:
        """Count the bytes that are left."""
        return len(self._data) - self.position

    def number(self, layout: struct.Struct) -> int:
        """Read one big-endian number of a fixed width."""
        start = self._advance(layout.size)
        value: int = layout.unpack_from(self._data, start)[0]
        return value

    def numbers(self, letter: str) -> tuple[int, ...] | None:
        """Read a compact array of numbers of one width (``letter`` as in ``struct``)."""
        length = self.unsigned_varint()
        if length == 0:
            return None
        layout = f">{length - 1}{letter}"
        start = self._advance((length - 1) * struct.calcsize(letter))
        return struct.unpack_from(layout, self._data, start)

    def boolean(self) -> bool:
        """Read one byte as a truth value."""
        return self._data[self._advance(1)] != 0

    def raw(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        start = self._advance(size)
        return self._data[start : start + size]

    def uuid(self) -> str:
        """Read 16 bytes as Kafka's tools spell an id: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.raw(16))[:22].decode()

    def unsigned_varint(self) -> int:
        """Read seven bits a byte, the lowest first."""
        value = shift = 0
        while shift <= _VARINT_BITS:
            byte = self._data[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the bit that says "more follows"
                return value
            shift += 7
        raise Quarantined(f"a varint at byte {self.position} does not end")

    def varint(self) -> int:
        """Read a zig-zag varint, as record batches use it."""
        value = self.unsigned_varint()
        return (value >> 1) ^ -(value & 1)

    def string(self) -> str:
        """Read a compact string that may not be null."""
        value = self.nullable_string()
        if value is None:
            raise Quarantined(f"a string at byte {self.position} is null")
        return value

    def nullable_string(self) -> str | None:
        """Read a compact string, or None."""
        length = self.unsigned_varint()
        if length == 0:
            return None
        try:
            return self.raw(length - 1).decode()
        except UnicodeDecodeError:
            raise Quarantined(f"a string before byte {self.position} is not UTF-8") from None

    def array(self, element: Callable[[], T]) -> tuple[T, ...] | None:
        """Read a compact array, or None."""
        length = self.unsigned_varint()
        if length - 1 > self.remaining:
            raise Quarantined(f"an array of {length - 1} at byte {self.position}, but {self.remaining} bytes are left")
        return None if length == 0 else tuple(element() for _ in range(length - 1))

    def tags(self) -> dict[int, bytes]:
        """Read the tagged section that ends a structure: tag to its bytes."""
        found = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            found[tag] = self.raw(self.unsigned_varint())
        return found

    def _advance(self, size: int) -> int:
        start = self.position
        if size < 0 or start + size > len(self._data):
            raise Quarantined(f"ends at byte {len(self._data)}, inside a value that begins at byte {start}")
        self.position = start + size
        return start


INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
UINT16: Final = struct.Struct(">H")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
