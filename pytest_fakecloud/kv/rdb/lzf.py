"""The LZF algorithm, which compresses strings in RDB data.

A control byte below 32 announces that number of literals plus 1. In any other, the upper three bits
are the length of a match minus 2, or 7 if another byte extends it. The lower five bits and a
further byte are the distance of the match minus 1.
"""

from __future__ import annotations

MOST_GROWTH = 88
"""Maximum number of output bytes per compressed byte: 3 bytes encode a run of up to 264."""
# Maximum numbers of bytes: between a match and its source, in a match, and in a row of literals.
_FARTHEST = 8192
_LONGEST = 264
_LITERALS = 32
_SHORT_MATCH = 8  # the longest match whose length fits into its control byte


def decompress(data: bytes, size: int) -> bytes:
    """Decompress ``data`` to ``size`` bytes; raise ``ValueError`` for invalid data.

    The caller should first check that ``size`` is at most ``MOST_GROWTH`` times the length of
    ``data``. Otherwise all of ``data`` is decompressed before the error is found.
    """
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < _LITERALS:
                stop = at + control + 1
                out += data[at:stop]
                at = stop
                continue
            length = (control >> 5) + 2
            if length == _SHORT_MATCH + 1:
                length += data[at]
                at += 1
            start = len(out) - ((control & 31) << 8 | data[at]) - 1
            at += 1
            if start < 0:
                raise ValueError("LZF data refers to bytes before its start")
            if start + length <= len(out):
                out += out[start : start + length]
            else:
                # The source and the target overlap, so the copied bytes repeat.
                piece = out[start:]
                out += (piece * (length // len(piece) + 1))[:length]
            if len(out) > size:
                break
    except IndexError:
        at = -1  # The data end within a match.
    if at != end or len(out) != size:
        raise ValueError(f"LZF data does not decompress to the declared {size} bytes")
    return bytes(out)


def compress(data: bytes, most: int) -> bytes | None:
    """Compress ``data`` to at most ``most`` bytes; return None if the result would be larger.

    Matches are the same as in Redis: they never refer to the first byte, the last two bytes are
    literals unless a match ends there, and a result only a few bytes shorter than ``most`` is discarded.
    """
    out = bytearray()
    seen: dict[bytes, int] = {}
    at = literal = 0
    last = len(data) - 3
    while at <= last:
        three = data[at : at + 3]
        start = seen.get(three, -1)
        seen[three] = at
        if start < 1 or at - start > _FARTHEST:
            at += 1
            continue
        if len(out) + _size_of_literals(at - literal) + 4 >= most:
            return None
        longest = min(_LONGEST, len(data) - at - 2)
        length = _common(data, start, at, longest)
        _literals(out, data, literal, at)
        distance = at - start - 1
        if length <= _SHORT_MATCH:
            out.append(length - 2 << 5 | distance >> 8)
        else:
            out += bytes((7 << 5 | distance >> 8, length - _SHORT_MATCH - 1))
        out.append(distance & 255)
        at += length
        literal = at
        # Index the end of this match, so that later matches can start there.
        for place in (at - 2, at - 1):
            seen[data[place : place + 3]] = place
    # Like the compressor of Redis, stop if three more bytes might not fit.
    literals = max(len(data) - 2 - literal, 0)
    if len(out) + literals + literals // _LITERALS + 1 + 3 > most:
        return None
    _literals(out, data, literal, len(data))
    return bytes(out)


def _size_of_literals(count: int) -> int:
    return count + -(-count // _LITERALS)


def _common(data: bytes, start: int, at: int, longest: int) -> int:
    """Return how many bytes are equal from two positions on, at most ``longest``.

    The first three bytes are known to be equal, and count even if ``longest`` is lower.
    """
    length = 3
    while length + 8 <= longest and (
        data[start + length : start + length + 8] == data[at + length : at + length + 8]
    ):
        length += 8
    while length < longest and data[start + length] == data[at + length]:
        length += 1
    return length


def _literals(out: bytearray, data: bytes, start: int, stop: int) -> None:
    for at in range(start, stop, _LITERALS):
        piece = data[at : min(at + _LITERALS, stop)]
        out.append(len(piece) - 1)
        out += piece
