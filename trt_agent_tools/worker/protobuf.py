"""Reads protobuf messages field by field, where they lie: nothing is loaded that is only stepped over."""

import mmap
from collections.abc import Iterator
from typing import Union

VARINT, EIGHT_BYTES, BYTES, GROUP, GROUP_END, FOUR_BYTES = range(6)
"""How a field is written: the wire types, by their numbers."""

MAX_DEPTH = 100
"""The protobuf library's own limit: what is nested deeper the parser refuses."""

MAX_BYTES = 2**31 - 1
"""The largest message that the protobuf library takes."""

_MAX_VARINT_BITS = 63

Data = Union[mmap.mmap, bytes]  # noqa: UP007  (mmap has no | on Python 3.10)
"""What a message lies in."""


class MalformedError(Exception):
    """The bytes are no protobuf message. The parser will say so in its own words."""


def fields(data: Data, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, begin and end of each field's content between `start` and `end`.

    Groups, which ONNX has none of, are stepped over.

    Raises:
        MalformedError: what is there is no message.
    """
    position = start
    groups: list[int] = []
    while position < end:
        tag, position = varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        begin = position
        # Number 0 is no field: zeros, in a file that was never filled.
        if kind == VARINT and number:
            _, position = varint(data, position, end)
        elif kind == BYTES:
            length, begin = varint(data, position, end)
            position = begin + length
        elif kind in {EIGHT_BYTES, FOUR_BYTES}:
            position += 8 if kind == EIGHT_BYTES else 4
        elif kind == GROUP and len(groups) < MAX_DEPTH:
            groups.append(number)
            continue
        elif kind == GROUP_END and groups and groups[-1] == number:
            groups.pop()
            continue
        else:
            raise MalformedError(f"wire type {kind}")
        if position > end:
            raise MalformedError("a field is longer than what holds it")
        if not groups:
            yield number, kind, begin, position
    if groups:
        raise MalformedError("a group has no end")


def varint(data: Data, position: int, end: int) -> tuple[int, int]:
    """Return the number at `position` and where it ends.

    Raises:
        MalformedError: it has no end before `end`, or none within 64 bits.
    """
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  (the last byte of a varint)
            return value, position
        shift += 7
        if shift > _MAX_VARINT_BITS:
            break
    raise MalformedError("a number has no end")


def encode_varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004  (what seven bits hold)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
