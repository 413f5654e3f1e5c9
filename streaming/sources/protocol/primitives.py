"""Kafka's wire types of the flexible versions (KIP-482)."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.errors import InvalidObservation

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_VARINT_BITS: Final = 63
_WIDTHS: Final = {letter: struct.calcsize(f">{letter}") for letter in "bhiq"}


class ByteReader:
    """Reads one value after another. Compact lengths are stored plus one; 0 is null.

    Raises:
        InvalidObservation: from every method, when the bytes end early or are invalid.
    """

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def remaining(self) -> int:
        """The number of bytes that are left."""
        return len(self._data) - self.position

    def number(self, layout: struct.Struct) -> int:
        """Read one big-endian number of a fixed width."""
        start = self._advance(layout.size)
        value: int = layout.unpack_from(self._data, start)[0]
        return value

    def structure(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read several big-endian numbers of fixed widths."""
        return layout.unpack_from(self._data, self._advance(layout.size))

    def numbers(self, letter: str) -> tuple[int, ...] | None:
        """Read a compact array of numbers of one width (``letter`` as in ``struct``)."""
        length = self.unsigned_varint()
        if length == 0:
            return None
        layout = f">{length - 1}{letter}"
        start = self._advance((length - 1) * _WIDTHS[letter])
        return struct.unpack_from(layout, self._data, start)

    def records(self, layout: struct.Struct) -> list[tuple[Any, ...]]:
        """Read a compact array of structures of a fixed width, each with its tagged fields, which are skipped.

        A thousand of them cost as much as a few: where none has a tagged field they are read at once.
        """
        count = self.unsigned_varint() - 1
        width = layout.size + 1
        if count <= 0:
            return []
        end = self.position + count * width
        if end <= len(self._data) and not any(self._data[self.position + layout.size : end : width]):
            start = self._advance(count * width)
            padded = struct.Struct(f"{layout.format}x")
            return list(padded.iter_unpack(memoryview(self._data)[start:end]))
        return [self._record(layout) for _ in range(count)]

    def _record(self, layout: struct.Struct) -> tuple[Any, ...]:
        record = self.structure(layout)
        self.tags()
        return record

    def boolean(self) -> bool:
        """Read one byte as a truth value."""
        return self._data[self._advance(1)] != 0

    def raw(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        start = self._advance(size)
        return self._data[start : start + size]

    def uuid(self) -> str:
        """Read 16 bytes as an id in Kafka's notation: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.raw(16))[:22].decode()

    def unsigned_varint(self) -> int:
        """Read seven bits per byte, the lowest first; most of them are of one byte."""
        value = shift = 0
        if self.position < len(self._data) and (byte := self._data[self.position]) < 0x80:  # noqa: PLR2004 - as below
            self.position += 1
            return byte
        while shift <= _VARINT_BITS:
            byte = self._data[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit
                return value
            shift += 7
        raise InvalidObservation(f"a varint at byte {self.position} does not end")

    def varint(self) -> int:
        """Read a zig-zag varint, as used in record batches."""
        value = self.unsigned_varint()
        return (value >> 1) ^ -(value & 1)

    def string(self) -> str:
        """Read a compact string that is not nullable."""
        value = self.nullable_string()
        if value is None:
            raise InvalidObservation(f"a string at byte {self.position} is null")
        return value

    def nullable_string(self) -> str | None:
        """Read a compact string, or None."""
        length = self.unsigned_varint()
        if length == 0:
            return None
        try:
            return self.raw(length - 1).decode()
        except UnicodeDecodeError:
            raise InvalidObservation(f"a string before byte {self.position} is not UTF-8") from None

    def array(self, element: Callable[[], T]) -> tuple[T, ...] | None:
        """Read a compact array, or None."""
        length = self.unsigned_varint()
        if length - 1 > self.remaining:
            raise InvalidObservation(
                f"an array of {length - 1} at byte {self.position}, but {self.remaining} bytes are left"
            )
        return None if length == 0 else tuple(element() for _ in range(length - 1))

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a structure: tag to bytes."""
        by_tag: dict[int, bytes] = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            by_tag[tag] = self.raw(self.unsigned_varint())
        return by_tag

    def _advance(self, size: int) -> int:
        start = self.position
        if size < 0 or start + size > len(self._data):
            raise InvalidObservation(f"ends at byte {len(self._data)}, inside a value that begins at byte {start}")
        self.position = start + size
        return start


INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
UINT16: Final = struct.Struct(">H")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
