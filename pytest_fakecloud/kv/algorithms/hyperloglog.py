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

import math
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache

from ...core.budget import spend

PRECISION = 14
REGISTERS = 1 << PRECISION
HASH_BITS = 64 - PRECISION
REGISTER_BITS = 6
REGISTER_MAX = (1 << REGISTER_BITS) - 1
MAGIC = b"HYLL"
HEADER_SIZE = 16
DENSE, SPARSE = 0, 1
DENSE_SIZE = HEADER_SIZE + (REGISTERS * REGISTER_BITS + 7) // 8
SPARSE_VALUE_MAX = 32
SPARSE_RUN_MAX = 4
ZERO_MAX = 64
SEED = 0xADC83B19
_ALPHA_INF = 0.721347520444481703680
_MASK = (1 << 64) - 1
_STEPS_A_VALUE = 500
_HIGHEST = int.from_bytes(b"\x80" * REGISTERS, "little")
_M = 0xC6A4A7935BD1E995


class CorruptHyperLogLog(ValueError):
    """Raised for a value with a valid header if its sparse opcodes do not cover 16,384 registers."""


def murmur_hash_64a(key: bytes) -> int:
    """Return the little-endian MurmurHash64A of ``key``, as Redis computes it."""
    length = len(key)
    h = (SEED ^ (length * _M)) & _MASK
    whole = length & ~7
    for at in range(0, whole, 8):
        k = int.from_bytes(key[at : at + 8], "little") * _M & _MASK
        k = (k ^ (k >> 47)) * _M & _MASK
        h = (h ^ k) * _M & _MASK
    if length & 7:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 47)) * _M & _MASK
    return h ^ (h >> 47)


def register_of(element: bytes) -> tuple[int, int]:
    """Return an element's register, and the position of the first set bit in the rest of its hash."""
    digest = murmur_hash_64a(element)
    index = digest & (REGISTERS - 1)
    rest = (digest >> PRECISION) | (1 << HASH_BITS)
    return index, (rest & -rest).bit_length()


def empty() -> bytes:
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


def _runs(value: bytes) -> Iterable[tuple[int, int, int]]:
    """Yield the register value, run length and size in bytes of each opcode in a sparse value."""
    at = HEADER_SIZE
    while at < len(value):
        opcode = value[at]
        if opcode & 0x80:
            yield (opcode >> 2 & 0x1F) + 1, (opcode & 3) + 1, 1
        elif opcode & 0x40:
            if at + 1 >= len(value):
                raise CorruptHyperLogLog("the last XZERO opcode is truncated")
            yield 0, ((opcode & 0x3F) << 8 | value[at + 1]) + 1, 2
            at += 1
        else:
            yield 0, (opcode & 0x3F) + 1, 1
        at += 1


def registers(value: bytes) -> bytearray:
    """Return all registers, one byte each; raise `CorruptHyperLogLog` if there are not 16,384."""
    if value[4] == SPARSE:
        unpacked = bytearray()
        for register, length, _ in _runs(value):
            unpacked += bytes((register,)) * length
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


def stale(value: bytes) -> bytes:
    """Return a value with its cached count marked as stale."""
    return value[:15] + bytes((value[15] | 0x80,)) + value[HEADER_SIZE:]


def add(value: bytes, elements: Iterable[bytes], sparse_max_bytes: int) -> tuple[bytes, bool]:
    """Add elements; return the value, stale if a register changed, and whether one changed."""
    changed = False
    dense: bytearray | None = None
    places = _Places()
    for element in elements:
        index, count = register_of(element)
        if dense is None and not is_dense(value):
            start = places.before(value, index)
            grown, resume = _sparse_set(value, index, count, sparse_max_bytes, start)
            if grown is not value:
                changed = True
                places.changed(resume, len(grown) - len(value))
                value = grown
            continue
        if dense is None:
            dense = bytearray(value)
        changed = _dense_set(dense, index, count) or changed
    if dense is not None:
        value = bytes(dense)
    return (stale(value) if changed else value), changed


def _dense_set(dense: bytearray, index: int, count: int) -> bool:
    bit = index * REGISTER_BITS
    at = HEADER_SIZE + (bit >> 3)
    shift = bit & 7
    pair = int.from_bytes(dense[at : at + 2], "little")
    if (pair >> shift & REGISTER_MAX) >= count:
        return False
    pair = pair & ~(REGISTER_MAX << shift) | count << shift
    size = min(2, len(dense) - at)
    dense[at : at + size] = pair.to_bytes(2, "little")[:size]
    return True


_Opcode = tuple[int, int]
"""An opcode: its byte position, and the index of the first register that it covers."""
_FIRST: _Opcode = (HEADER_SIZE, 0)


class _Places:
    """Positions of some opcodes in a sparse value, without which adding n elements takes O(n²)."""

    EVERY = 16
    """Number of opcodes from one recorded opcode to the next."""
    LASTS = 250
    """Number of changes after which the positions are recorded again, because the value has grown."""
    REACH = 24
    """After a change, opcodes may have moved or merged within this number of bytes."""

    def __init__(self) -> None:
        self._ats: list[int] = []
        self._firsts: list[int] = []
        self._changes = -1
        """Number of changes since the positions were recorded, which begins after a few elements."""

    def before(self, value: bytes, index: int) -> _Opcode:
        """Return a recorded opcode that precedes the opcode of a register, or the first opcode."""
        if self._changes > self.LASTS or (self._changes == self.EVERY and not self._ats):
            self._note(value)
        # Return the last suitable opcode but one, because merging needs the preceding opcode.
        place = bisect_right(self._firsts, index) - 2
        return (self._ats[place], self._firsts[place]) if place >= 0 else _FIRST

    def _note(self, value: bytes) -> None:
        self._ats, self._firsts, self._changes = [], [], 0
        at, first = _FIRST
        for number, (_, length, size) in enumerate(_runs(value)):
            if number % self.EVERY == 0:
                self._ats.append(at)
                self._firsts.append(first)
            at += size
            first += length

    def changed(self, resume: _Opcode, growth: int) -> None:
        """Update the positions after the bytes that follow ``resume`` grew by ``growth``."""
        self._changes += 1
        low = bisect_right(self._ats, resume[0])
        high = bisect_right(self._ats, resume[0] + self.REACH)
        # Opcodes that may have moved are replaced by ``resume``, which precedes the change and has
        # not moved.
        kept = [resume] if high > low else []
        self._ats[low:] = [*(at for at, _ in kept), *(at + growth for at in self._ats[high:])]
        self._firsts[low:high] = [first for _, first in kept]


def _promoted(value: bytes, index: int, count: int) -> bytes:
    dense = bytearray(to_dense(value))
    _dense_set(dense, index, count)
    return bytes(dense)


def _sparse_set(
    value: bytes, index: int, count: int, sparse_max_bytes: int, start: _Opcode = _FIRST
) -> tuple[bytes, _Opcode]:
    """Raise a register of a sparse value to ``count``, if the register is lower.

    Return the value, and an opcode at which a search for a higher register can start. The steps are
    those of Redis, because the bytes depend on them: an opcode for exactly this register is changed
    in place, any other is split, and equal values are merged among up to five opcodes.
    """
    if count > SPARSE_VALUE_MAX:
        return _promoted(value, index, count), _FIRST

    (at, first), before, span = start, -1, 0
    previous, resume = start, start
    while at < len(value):
        opcode = value[at]
        size = 1
        if opcode & 0x80:
            span = (opcode & 3) + 1
        elif opcode & 0x40:
            if at + 1 >= len(value):
                raise CorruptHyperLogLog("the last XZERO opcode is truncated")
            span = ((opcode & 0x3F) << 8 | value[at + 1]) + 1
            size = 2
        else:
            span = (opcode & 0x3F) + 1
        if index <= first + span - 1:
            break
        before = at
        resume, previous = previous, (at, first)
        at += size
        first += span
    if span == 0 or at >= len(value):
        raise CorruptHyperLogLog(f"the opcodes end before register {index}")
    if before < 0 and start != _FIRST:
        # Merging needs the preceding opcode, which is before the start of the search, so search
        # from the beginning.
        return _sparse_set(value, index, count, sparse_max_bytes)

    old = (opcode >> 2 & 0x1F) + 1 if opcode & 0x80 else 0
    if old >= count:
        return value, resume
    if span == 1 and size == 1:
        value = value[:at] + bytes((_value(count, 1),)) + value[at + 1 :]
        return _merged(value, before, at), resume

    last = first + span - 1
    pieces = bytearray()
    if index != first:
        length = index - first
        pieces += bytes((_value(old, length),)) if old else _zeros(length)
    pieces.append(_value(count, 1))
    if index != last:
        length = last - index
        pieces += bytes((_value(old, length),)) if old else _zeros(length)
    if len(pieces) > size and len(value) + len(pieces) - size > sparse_max_bytes:
        return _promoted(value, index, count), _FIRST
    value = value[:at] + bytes(pieces) + value[at + size :]
    return _merged(value, before, at), resume


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


def _sigma(x: float) -> float:
    if x == 1.0:
        return math.inf
    y, z = 1.0, x
    while True:
        x *= x
        previous = z
        z += x * y
        y += y
        if z == previous:
            return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z = 1.0, 1 - x
    while True:
        x = math.sqrt(x)
        previous = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
        if z == previous:
            return z / 3


def estimate(unpacked: bytes | bytearray) -> int:
    """Estimate the cardinality with Ertl's improved estimator; return -2^63 for 2^63 or more."""
    histogram = [0] * 64
    for register in range(64):
        histogram[register] = unpacked.count(register)
    m = float(REGISTERS)
    z = m * _tau((m - histogram[HASH_BITS + 1]) / m)
    for j in range(HASH_BITS, 0, -1):
        z += histogram[j]
        z *= 0.5
    z += m * _sigma(histogram[0] / m)
    # With crafted registers, the estimate can exceed the range of an integer reply. Return the
    # result of the conversion in Redis (observed on Redis 7.0).
    if _ALPHA_INF * m * m >= 2**63 * z:
        return -(2**63)
    return math.floor(_ALPHA_INF * m * m / z + 0.5)


def count(value: bytes) -> tuple[int, bytes]:
    """Return the cardinality of a value, and the value with the cardinality cached in its header."""
    if not value[15] & 0x80:
        return int.from_bytes(value[8:HEADER_SIZE], "little", signed=True), value
    cardinality = estimate(registers(value))
    cached = cardinality.to_bytes(8, "little", signed=True)
    return cardinality, value[:8] + cached + value[HEADER_SIZE:]


def maxima(values: Iterable[bytes]) -> bytearray:
    """Return the maximum of each register over several values."""
    largest = 0
    for value in values:
        spend(_STEPS_A_VALUE)
        other = int.from_bytes(registers(value), "little")
        # A register uses six bits of its byte, so the top bit of the byte can show which of two
        # registers is larger.
        least = (largest | _HIGHEST) - other & _HIGHEST
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
    return stale(target)


def describe(value: bytes) -> str:
    """Return the opcodes of a sparse value, such as ``Z:n`` (XZERO) and ``v:value,length`` (VAL)."""
    return " ".join(
        f"v:{register},{length}" if register else f"{'Z' if size == 2 else 'z'}:{length}"
        for register, length, size in _runs(value)
    )


def self_test(seed: bytes, elements: int = 1024) -> str | None:
    """Test the functions of this module. Return the description of an error, or None if there is
    none.

    Elements derived from ``seed`` are added to a sparse value, a dense value and plain registers.
    All three must agree, and the estimates must be within four standard errors (0.81 % each).
    """
    sparse, dense = empty(), to_dense(empty())
    plain = bytearray(REGISTERS)
    new: list[bytes] = []
    for number in range(1, elements + 1):
        element = seed + number.to_bytes(8, "little")
        index, count_of_zeros = register_of(element)
        plain[index] = max(plain[index], count_of_zeros)
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
