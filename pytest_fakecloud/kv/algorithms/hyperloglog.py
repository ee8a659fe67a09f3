"""HyperLogLogs in the byte format of Redis, with sparse or dense registers.

A HyperLogLog is a string value, so all functions take and return ``bytes``, and GET after PFADD
returns the same bytes as in Redis. The bytes are ``HYLL``, the encoding (0 dense, 1 sparse), three
zero bytes, the cached cardinality (8 bytes, little endian; the top bit marks it as stale), and the
registers.

Dense registers are 16,384 numbers of 6 bits, least significant bit first. Sparse registers are
run-length opcodes: ZERO ``00llllll`` (length - 1), XZERO ``01llllll llllllll`` (length - 1), and
VAL ``1vvvvvll`` (value - 1, length - 1).

Existing libraries have their own registers and hashes, and none writes this format. Hashing a short
element takes 1.7 us.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from ...core.budget import spend
from .cardinality import HASH_BITS, PRECISION, REGISTERS, estimate, murmur_hash_64a

REGISTER_BITS = 6
REGISTER_MAX = (1 << REGISTER_BITS) - 1
MAGIC = b"HYLL"
HEADER_SIZE = 16
DENSE, SPARSE = 0, 1
DENSE_SIZE = HEADER_SIZE + (REGISTERS * REGISTER_BITS + 7) // 8
SPARSE_VALUE_MAX = 32
SPARSE_RUN_MAX = 4
ZERO_MAX = 64
_STEPS_PER_VALUE = 500


class CorruptHyperLogLog(ValueError):
    """Raised for a value with a valid header if its sparse opcodes do not cover 16,384 registers."""


def register_of(element: bytes) -> tuple[int, int]:
    """Return an element's register, and the position of the first set bit in the rest of its hash."""
    digest = murmur_hash_64a(element)
    index = digest & (REGISTERS - 1)
    rest = (digest >> PRECISION) | (1 << HASH_BITS)
    return index, (rest & -rest).bit_length()


def new_sparse() -> bytes:
    """Return an empty HyperLogLog, which is sparse and has a cached count of 0."""
    return MAGIC + bytes((SPARSE,)) + bytes(11) + _xzero(REGISTERS)


def is_hyperloglog(value: bytes) -> bool:
    """Return whether a string has the header of a HyperLogLog and, if dense, the length of one."""
    if len(value) < HEADER_SIZE or value[:4] != MAGIC or value[4] > SPARSE:
        return False
    return value[4] == SPARSE or len(value) == DENSE_SIZE


def is_dense(value: bytes) -> bool:
    return value[4] == DENSE


def _xzero(length: int) -> bytes:
    length -= 1
    return bytes(((length >> 8) | 0x40, length & 0xFF))


def _zeros(length: int) -> bytes:
    return _xzero(length) if length > ZERO_MAX else bytes((length - 1,))


def _value(value: int, length: int) -> int:
    return (value - 1) << 2 | (length - 1) | 0x80


def _short_opcode(byte: int) -> tuple[int, int, int] | None:
    if byte & 0x80:
        return (byte >> 2 & 0x1F) + 1, (byte & 3) + 1, 1
    return None if byte & 0x40 else (0, byte + 1, 1)


_SHORT_OPCODES = [_short_opcode(byte) for byte in range(256)]
"""The register value, the run length and the size of opcodes of one byte; None for XZERO."""


def _decode_xzero(value: bytes, at: int) -> tuple[int, int, int]:
    if at + 1 >= len(value):
        raise CorruptHyperLogLog("the last XZERO opcode is truncated")
    return 0, ((value[at] & 0x3F) << 8 | value[at + 1]) + 1, 2


def _opcodes(value: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the register value, the run length and the size in bytes of each sparse opcode."""
    at = HEADER_SIZE
    while at < len(value):
        opcode = _SHORT_OPCODES[value[at]] or _decode_xzero(value, at)
        yield opcode
        at += opcode[2]


def registers(value: bytes) -> bytearray:
    """Return all registers, one byte each; raise `CorruptHyperLogLog` if there are not 16,384."""
    if value[4] == SPARSE:
        unpacked = bytearray()
        for rank, length, _ in _opcodes(value):
            unpacked += bytes((rank,)) * length
            if len(unpacked) > REGISTERS:
                break
        if len(unpacked) != REGISTERS:
            raise CorruptHyperLogLog(
                f"the opcodes cover {len(unpacked)} registers, expected {REGISTERS}"
            )
        return unpacked
    # Treat all registers as one integer. Repeatedly move the upper half of each group (of all
    # registers, then of halves, quarters, and so on) until each register starts at a byte.
    number = int.from_bytes(value[HEADER_SIZE:DENSE_SIZE], "little")
    for size, low in _halves():
        high = low << REGISTER_BITS * size
        number = number & low | (number & high) << (8 - REGISTER_BITS) * size
    return bytearray(number.to_bytes(REGISTERS, "little"))


@cache
def _halves() -> list[tuple[int, int]]:
    """For each level of splitting, return the registers in a half and the mask of the lower halves."""
    found = []
    for level in reversed(range(PRECISION)):
        size = 1 << level
        one = ((1 << REGISTER_BITS * size) - 1).to_bytes(2 * size, "little")
        found.append((size, int.from_bytes(one * (REGISTERS // (2 * size)), "little")))
    return found


def _pack_dense(unpacked: bytes | bytearray) -> bytes:
    packed = bytearray()
    for at in range(0, REGISTERS, 4):
        three = (
            unpacked[at] | unpacked[at + 1] << 6 | unpacked[at + 2] << 12 | unpacked[at + 3] << 18
        )
        packed += three.to_bytes(3, "little")
    return bytes(packed)


def to_dense(value: bytes) -> bytes:
    """Return a HyperLogLog with dense registers. The cached count is kept."""
    if is_dense(value):
        return value
    return MAGIC + bytes((DENSE,)) + value[5:HEADER_SIZE] + _pack_dense(registers(value))


def mark_stale(value: bytes) -> bytes:
    """Return a value with its cached count marked as stale."""
    return value[:15] + bytes((value[15] | 0x80,)) + value[HEADER_SIZE:]


def add(value: bytes, elements: Iterable[bytes], sparse_max_bytes: int) -> tuple[bytes, bool]:
    """Add elements; return the value, stale if a register changed, and whether one changed."""
    changed = False
    dense: bytearray | None = None
    index_of_opcodes = _OpcodeIndex()
    for element in elements:
        index, rank = register_of(element)
        if dense is None and not is_dense(value):
            start = index_of_opcodes.start_for(value, index)
            grown, resume = _sparse_set(value, index, rank, sparse_max_bytes, start)
            if grown is not value:
                changed = True
                index_of_opcodes.shift_after(resume, len(grown) - len(value))
                value = grown
            continue
        if dense is None:
            dense = bytearray(value)
        changed = _dense_set(dense, index, rank) or changed
    if dense is not None:
        value = bytes(dense)
    return (mark_stale(value) if changed else value), changed


def _dense_set(dense: bytearray, index: int, rank: int) -> bool:
    bit = index * REGISTER_BITS
    at = HEADER_SIZE + (bit >> 3)
    shift = bit & 7
    pair = int.from_bytes(dense[at : at + 2], "little")
    if (pair >> shift & REGISTER_MAX) >= rank:
        return False
    pair = pair & ~(REGISTER_MAX << shift) | rank << shift
    size = min(2, len(dense) - at)
    dense[at : at + size] = pair.to_bytes(2, "little")[:size]
    return True


_Opcode = tuple[int, int]
"""An opcode: its byte position, and the index of the first register that it covers."""
_FIRST: _Opcode = (HEADER_SIZE, 0)


class _OpcodeIndex:
    """Positions of every 16th opcode of a sparse value, from which to search for a register.

    Without it, adding n elements takes O(n²), because each search starts at the first opcode.
    """

    _INTERVAL = 16
    """Number of opcodes from one recorded opcode to the next."""
    _MAX_CHANGES = 250
    """Number of changes after which the positions are recorded again, because the value has grown."""
    _REACH = 24
    """After a change, opcodes may have moved or merged within this number of bytes."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._registers: list[int] = []
        self._changes = 0
        """Number of changes since the positions were recorded, or since the start."""

    def start_for(self, value: bytes, index: int) -> _Opcode:
        """Return a recorded opcode that precedes the opcode of a register, or the first opcode."""
        # A few elements are added faster without positions.
        enough = self._MAX_CHANGES if self._positions else self._INTERVAL
        if self._changes > enough:
            self._rebuild(value)
        # Return the last suitable opcode but one, because merging needs the preceding opcode.
        place = bisect_right(self._registers, index) - 2
        return (self._positions[place], self._registers[place]) if place >= 0 else _FIRST

    def _rebuild(self, value: bytes) -> None:
        self._positions, self._registers, self._changes = [], [], 0
        at, register = _FIRST
        for number, (_, length, size) in enumerate(_opcodes(value)):
            if number % self._INTERVAL == 0:
                self._positions.append(at)
                self._registers.append(register)
            at += size
            register += length

    def shift_after(self, resume: _Opcode, growth: int) -> None:
        """Update the positions after the bytes that follow ``resume`` grew by ``growth``."""
        self._changes += 1
        low = bisect_right(self._positions, resume[0])
        high = bisect_right(self._positions, resume[0] + self._REACH)
        # Opcodes that may have moved are replaced by ``resume``, which precedes the change and has
        # not moved.
        kept = [resume] if high > low else []
        self._positions[low:] = [
            *(at for at, _ in kept),
            *(at + growth for at in self._positions[high:]),
        ]
        self._registers[low:high] = [register for _, register in kept]


def _promoted(value: bytes, index: int, rank: int) -> bytes:
    dense = bytearray(to_dense(value))
    _dense_set(dense, index, rank)
    return bytes(dense)


class _Found(NamedTuple):
    """The opcode of a register in a sparse value."""

    at: int
    first: int
    """Index of the first register that the opcode covers."""
    rank: int
    length: int
    size: int
    before: int
    """Byte position of the preceding opcode, or -1."""
    resume: _Opcode
    """An opcode at which a search for a higher register can start after a change."""


def _find_opcode(value: bytes, index: int, start: _Opcode) -> _Found:
    (at, first), before = start, -1
    previous = resume = start
    while at < len(value):
        rank, length, size = _SHORT_OPCODES[value[at]] or _decode_xzero(value, at)
        if index < first + length:
            return _Found(at, first, rank, length, size, before, resume)
        before = at
        resume, previous = previous, (at, first)
        at += size
        first += length
    raise CorruptHyperLogLog(f"the opcodes end before register {index}")


def _sparse_set(
    value: bytes, index: int, rank: int, sparse_max_bytes: int, start: _Opcode = _FIRST
) -> tuple[bytes, _Opcode]:
    """Raise a register of a sparse value to ``rank``, if the register is lower.

    Return the value, and an opcode at which a search for a higher register can start. The steps are
    those of Redis, because the bytes depend on them: an opcode for exactly this register is changed
    in place, any other is split, and equal values are merged among up to five opcodes.
    """
    if rank > SPARSE_VALUE_MAX:
        return _promoted(value, index, rank), _FIRST
    found = _find_opcode(value, index, start)
    if found.before < 0 and start != _FIRST:
        # Merging needs the preceding opcode, which is before the start of the search, so search
        # from the beginning.
        found = _find_opcode(value, index, _FIRST)
    if found.rank >= rank:
        return value, found.resume
    at, size = found.at, found.size
    pieces = bytes((_value(rank, 1),)) if found.length == size == 1 else _split(found, index, rank)
    if len(pieces) > size and len(value) + len(pieces) - size > sparse_max_bytes:
        return _promoted(value, index, rank), _FIRST
    value = value[:at] + pieces + value[at + size :]
    return _merged(value, found.before, at), found.resume


def _split(found: _Found, index: int, rank: int) -> bytes:
    """Return the opcodes that replace an opcode when one of its registers gets another value."""

    def run(length: int) -> bytes:
        if not length:
            return b""
        return bytes((_value(found.rank, length),)) if found.rank else _zeros(length)

    last = found.first + found.length - 1
    return run(index - found.first) + bytes((_value(rank, 1),)) + run(last - index)


def _merged(value: bytes, before: int, at: int) -> bytes:
    """Merge adjacent VAL opcodes with equal values among the five opcodes from ``before`` on."""
    merged = bytearray(value)
    place = before if before >= 0 else HEADER_SIZE
    for _ in range(5):
        if place >= len(merged):
            break
        opcode = merged[place]
        if not opcode & 0x80:
            place += 2 if opcode & 0x40 else 1
            continue
        if place + 1 < len(merged) and merged[place + 1] & 0x80:
            following = merged[place + 1]
            if opcode >> 2 & 0x1F == following >> 2 & 0x1F:
                length = (opcode & 3) + (following & 3) + 2
                if length <= SPARSE_RUN_MAX:
                    merged[place : place + 2] = bytes(((opcode & 0x7C) | 0x80 | (length - 1),))
                    continue
        place += 1
    return bytes(merged)


def cached_count(value: bytes) -> tuple[int, bytes]:
    """Return the cardinality of a value, and the value with the cardinality cached in its header."""
    if not value[15] & 0x80:
        return int.from_bytes(value[8:HEADER_SIZE], "little", signed=True), value
    cardinality = estimate(registers(value))
    cached = cardinality.to_bytes(8, "little", signed=True)
    return cardinality, value[:8] + cached + value[HEADER_SIZE:]


_TOP_BITS = int.from_bytes(b"\x80" * REGISTERS, "little")
"""The top bit of the byte of each register."""


def register_maxima(values: Iterable[bytes]) -> bytearray:
    """Return the maximum of each register over several values."""
    largest = 0
    for value in values:
        spend(_STEPS_PER_VALUE)
        other = int.from_bytes(registers(value), "little")
        # A register uses six bits of its byte, so the top bit of the byte can show which of two
        # registers is larger.
        least = (largest | _TOP_BITS) - other & _TOP_BITS
        larger = (least >> 7) * 255
        largest = other ^ (largest ^ other) & larger
    return bytearray(largest.to_bytes(REGISTERS, "little"))


def merge(target: bytes, largest: bytes | bytearray, dense: bool, sparse_max_bytes: int) -> bytes:
    """Raise the registers of ``target`` to ``largest``; with ``dense``, convert it to dense ones."""
    if dense:
        target = to_dense(target)
    start = _FIRST
    for index, register in enumerate(largest):
        if not register:
            continue
        if is_dense(target):
            unpacked = bytearray(map(max, registers(target), largest))
            target = target[:HEADER_SIZE] + _pack_dense(unpacked)
            break
        target, start = _sparse_set(target, index, register, sparse_max_bytes, start)
    return mark_stale(target)


def describe(value: bytes) -> str:
    """Return the opcodes of a sparse value, such as ``Z:n`` (XZERO) and ``v:value,length`` (VAL)."""
    return " ".join(
        f"v:{register},{length}" if register else f"{'Z' if size == 2 else 'z'}:{length}"
        for register, length, size in _opcodes(value)
    )


def self_test(seed: bytes, elements: int = 1024) -> str | None:
    """Test the functions of this module. Return the description of an error, or None if there is
    none.

    Elements derived from ``seed`` are added to a sparse value, a dense value and plain registers.
    All three must agree, and the estimates must be within four standard errors (0.81 % each).
    """
    sparse, dense = new_sparse(), to_dense(new_sparse())
    plain = bytearray(REGISTERS)
    new: list[bytes] = []
    for number in range(1, elements + 1):
        element = seed + number.to_bytes(8, "little")
        index, rank = register_of(element)
        plain[index] = max(plain[index], rank)
        new.append(element)
        if number & (number - 1):
            continue
        sparse, _ = add(sparse, new, DENSE_SIZE)
        dense, _ = add(dense, new, DENSE_SIZE)
        new.clear()
        if registers(sparse) != plain or registers(dense) != plain:
            return f"registers differ after {number} elements"
        if abs(estimate(plain) - number) > max(2.0, number * 4 * 0.0081):
            return f"{number} elements are estimated as {estimate(plain)}"
    return None
