"""Small faults in bytes and in JSON values, drawn from a generator of random numbers."""

from __future__ import annotations

from random import Random
from typing import Any, Final

_NUMBERS: Final = (0, 1, -1, 127, 128, -128, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 2**70)
_TEXTS: Final = (
    "", " ", "\x00", "orders", "é" * 9, "\ud800", "x" * 300, "null", "-1", "NaN", "2023-11-14", "[]", "🦀", "a/b",
)  # fmt: skip
_VALUES: Final = (None, True, False, 1.5, -0.0, 1e308, float("nan"), float("inf"), [], {}, [[]], [None], {"": None})


def odd_value(dice: Random) -> Any:
    """Draw a JSON value that hardly any field expects."""
    return dice.choice((dice.choice(_NUMBERS), dice.choice(_TEXTS), dice.choice(_VALUES)))


def odd_bytes(dice: Random, data: bytes) -> bytes:
    """Damage bytes at one to four places: bits, single bytes, and whole pieces of them."""
    damaged = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(damaged) + 1)
        until = min(len(damaged), at + dice.choice((1, 1, 2, 4, 8, 64)))
        match dice.randrange(8):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(damaged):
                damaged[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            case 2:
                del damaged[at:until]
            case 3:
                damaged[at:at] = damaged[at:until]
            case 4:
                damaged[at:at] = dice.randbytes(until - at)
            case 5:
                damaged[at:until] = bytes(until - at)
            case 6:
                damaged[at:until] = dice.choice(_NUMBERS[:-1]).to_bytes(9, "big", signed=True)[-(until - at) :]
            case _:
                del damaged[at:]
    return bytes(damaged)


def odd_json(dice: Random, value: Any) -> Any:
    """Replace, remove, repeat or add something at one to three places of a JSON value; the value is not changed."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        value = _odd_at(dice, value)
    return value


def _odd_at(dice: Random, value: Any) -> Any:  # noqa: PLR0911 - one per fault
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        match dice.randrange(10):
            case 0:
                return {name: item for name, item in value.items() if name != key}
            case 1:
                return {**value, dice.choice(_TEXTS): odd_value(dice)}
            case 2:
                return {**value, key: value[dice.choice(sorted(value))]}
            case _:
                return {**value, key: _odd_at(dice, value[key])}
    if isinstance(value, list) and value and dice.random() < 0.8:
        at = dice.randrange(len(value))
        match dice.randrange(6):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case 2:
                return [*value[at:], *value[:at]]
            case _:
                return [*value[:at], _odd_at(dice, value[at]), *value[at + 1 :]]
    if type(value) is int and dice.random() < 0.5:
        return value + dice.choice((-1, 1, 2, 1000, -(10**6), 3_600_000_000))
    return odd_value(dice)
