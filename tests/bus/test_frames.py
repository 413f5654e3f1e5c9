"""Frames: what is whole is found, what is damaged is told, wherever a buffer is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.bus.frames import (
    HEADER_BYTES,
    MAGIC,
    MAX_PAYLOAD,
    BusFrame,
    DamagedRange,
    encode_frame,
    end_of_last_frame,
    last_frame_start,
    parse,
)

PAYLOADS = st.lists(st.binary(max_size=12).filter(lambda payload: MAGIC not in payload), min_size=1, max_size=6)


def framed(payloads: list[bytes], position: int = 0) -> list[BusFrame]:
    """Frames as they must be found."""
    frames = []
    for payload in payloads:
        frames.append(BusFrame(position, payload))
        position = frames[-1].end
    return frames


def parsed_in_pieces(data: bytes, cuts: list[int]) -> list[BusFrame | DamagedRange]:
    """Parse a log that grows piece by piece, and is closed at last."""
    found: list[BusFrame | DamagedRange] = []
    done = 0
    for cut in sorted(cut % (len(data) + 1) for cut in cuts):
        items, covered = parse(data[done:cut], done, closed=False)
        found, done = found + items, done + covered
    return found + parse(data[done:], done, closed=True)[0]


def damaged(payloads: list[bytes], data: st.DataObject) -> bytes:
    """Frames in which some bytes are changed, and whose end is cut off."""
    whole = bytearray(b"".join(map(encode_frame, payloads)))
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        whole[at] ^= 0x55
    return bytes(whole[: data.draw(st.integers(0, len(whole)))])


@given(PAYLOADS, st.integers(0, 10**12))
def test_what_was_framed_is_found(payloads: list[bytes], position: int) -> None:
    data = b"".join(map(encode_frame, payloads))
    assert (framed(payloads, position), len(data)) == parse(data, position, closed=False)


@given(PAYLOADS, st.data())
def test_an_incomplete_last_frame_is_not_yet_written(payloads: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(map(encode_frame, payloads))
    before = len(whole) - HEADER_BYTES - len(payloads[-1])
    cut = data.draw(st.integers(before, len(whole) - 1))
    assert (framed(payloads[:-1]), before) == parse(whole[:cut], 0, closed=False)


@given(PAYLOADS, st.data())
def test_a_damaged_byte_costs_its_own_frame_only(payloads: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(map(encode_frame, payloads)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    undamaged = [frame for frame in framed(payloads) if not frame.position <= at < frame.end]
    items, covered = parse(bytes(whole), 0, closed=True)
    assert len(whole) == covered
    assert undamaged == [item for item in items if isinstance(item, BusFrame)]
    (damage,) = (item for item in items if isinstance(item, DamagedRange))
    assert damage.position <= at < damage.end
    assert bytes(whole[damage.position : damage.end]) == damage.raw


@given(PAYLOADS, st.data(), st.lists(st.integers(0, 500), max_size=5))
def test_where_a_damaged_log_is_cut_into_pieces_changes_nothing(
    payloads: list[bytes], data: st.DataObject, cuts: list[int]
) -> None:
    whole = damaged(payloads, data)
    assert parse(whole, 0, closed=True)[0] == parsed_in_pieces(whole, cuts)


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=3))
def test_garbage_is_told_once_and_whole(garbage: bytes, cuts: list[int]) -> None:
    items = parsed_in_pieces(garbage, cuts)
    assert garbage == b"".join(item.raw for item in items if isinstance(item, DamagedRange))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"rubbish, long enough for a header", "no frame begins here"),
        (b"rubbish", "no frame begins here"),
        (MAGIC, "incomplete frame"),
        (encode_frame(b"payload")[:-1], "incomplete frame"),
        (encode_frame(b"payload")[:-1] + b"?", "checksum mismatch"),
        (MAGIC + (MAX_PAYLOAD + 1).to_bytes(4) + bytes(4), "checksum mismatch"),
    ],
)
def test_the_reason_says_what_is_wrong(raw: bytes, reason: str) -> None:
    assert [DamagedRange(7, raw, reason, 7 + len(raw))] == parse(raw, 7, closed=True)[0]


def test_a_payload_with_the_magic_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="magic"):
        encode_frame(b"x" + MAGIC)


def test_a_payload_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than"):
        encode_frame(bytes(MAX_PAYLOAD + 1))


@given(payloads=PAYLOADS, data=st.data())
def test_the_end_of_what_is_whole_is_where_reading_from_the_front_comes_to(
    payloads: list[bytes], data: st.DataObject
) -> None:
    whole = damaged(payloads, data)
    assert parse(whole, 0, closed=False)[1] == end_of_last_frame(whole)


@given(payloads=st.lists(st.binary(max_size=30).filter(lambda raw: MAGIC not in raw), max_size=6), data=st.data())
def test_the_last_start_of_a_frame_is_one_that_reading_from_the_front_finds(
    payloads: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(map(encode_frame, payloads)))
    if whole and data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1
    limit = data.draw(st.integers(0, len(whole)))
    starts = [item.position for item in parse(bytes(whole), 0, closed=True)[0] if isinstance(item, BusFrame)]
    expected = max((start for start in starts if 0 < start <= limit), default=None)
    assert expected == last_frame_start(bytes(whole), limit)
