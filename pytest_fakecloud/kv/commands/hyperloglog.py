"""HyperLogLog commands, which estimate the number of distinct elements added to a string.

The strings have the byte format of Redis, so GET after PFADD returns the same bytes: ``HYLL``, the
encoding (0 dense, 1 sparse), three zero bytes, the cached cardinality (8 bytes, little endian; the
top bit marks it as stale), and the registers.

Dense registers are 16,384 numbers of 6 bits, least significant bit first. Sparse registers are
run-length opcodes: ZERO ``00llllll`` (length - 1), XZERO ``01llllll llllllll`` (length - 1), and
VAL ``1vvvvvll`` (value - 1, length - 1).

Existing libraries have their own registers and hashes, and none writes this format.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from itertools import accumulate
from operator import itemgetter

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import OK, Reply, Status
from ..table.registry import Args, command

PRECISION = 14
"""Number of bits of a hash that select a register."""
REGISTERS = 1 << PRECISION
HASH_BITS = 64 - PRECISION

_SEED = 0xADC83B19
"""The seed that Redis uses for HyperLogLogs."""
_MULTIPLIER = 0xC6A4A7935BD1E995
_MASK = (1 << 64) - 1
REGISTER_BITS = 6
REGISTER_MAX = (1 << REGISTER_BITS) - 1
MAGIC = b"HYLL"
HEADER_SIZE = 16
DENSE, SPARSE = 0, 1
DENSE_SIZE = HEADER_SIZE + (REGISTERS * REGISTER_BITS + 7) // 8
SPARSE_VALUE_MAX = 32
SPARSE_RUN_MAX = 4
ZERO_MAX = 64


def register_of(element: bytes) -> tuple[int, int]:
    """Return an element's register, and the position of the first set bit in the rest of its hash."""
    digest = murmur_hash_64a(element)
    index = digest & (REGISTERS - 1)
    high_bits = (digest >> PRECISION) | (1 << HASH_BITS)
    return index, (high_bits & -high_bits).bit_length()


def new_sparse() -> bytes:
    """Return an empty HyperLogLog, which is sparse and has a cached count of 0."""
    return MAGIC + bytes((SPARSE,)) + bytes(11) + _zeros(REGISTERS)


def is_hyperloglog(value: bytes | bytearray) -> bool:
    """Return whether a string has the header of a HyperLogLog and, if dense, the length of one."""
    if len(value) < HEADER_SIZE or value[:4] != MAGIC or value[4] > SPARSE:
        return False
    return value[4] == SPARSE or len(value) == DENSE_SIZE


def is_dense(value: bytes) -> bool:
    return value[4] == DENSE


def _zeros(length: int) -> bytes:
    """Return the opcode for a run of registers that are 0: ZERO or, if that is too short, XZERO."""
    if length <= ZERO_MAX:
        return bytes((length - 1,))
    return bytes((0x40 | length - 1 >> 8, length - 1 & 0xFF))


def _equal(value: int, length: int) -> bytes:
    """Return the opcode VAL for a run of registers that have the same value."""
    return bytes((0x80 | value - 1 << 2 | length - 1,))


_OPCODE = re.compile(rb"[\x40-\x7f].?|[^\x40-\x7f]", re.DOTALL)


@cache
def _run(opcode: bytes) -> tuple[int, int]:
    """Return the value and the number of the registers that an opcode covers."""
    byte = opcode[0]
    if byte & 0x80:
        return (byte >> 2 & 0x1F) + 1, (byte & 3) + 1
    if not byte & 0x40:
        return 0, byte + 1
    if len(opcode) == 2:
        return 0, ((byte & 0x3F) << 8 | opcode[1]) + 1
    raise CommandError(errors.CORRUPT_HYPERLOGLOG)  # the last XZERO opcode is truncated


def _opcodes(value: bytes) -> list[bytes]:
    return _OPCODE.findall(value, HEADER_SIZE)


def registers(value: bytes) -> bytearray:
    """Return all registers, one byte each; raise `CommandError` if there are not 16,384."""
    if value[4] == SPARSE:
        unpacked = bytearray()
        # A corrupted value can have any number of opcodes, so find only those that are needed.
        opcodes = (found[0] for found in _OPCODE.finditer(value, HEADER_SIZE))
        for rank, length in map(_run, opcodes):
            unpacked += bytes((rank,)) * length
            if len(unpacked) > REGISTERS:
                break
        if len(unpacked) != REGISTERS:
            raise CommandError(errors.CORRUPT_HYPERLOGLOG)
        return unpacked
    import numpy as np  # slow to import and rarely needed

    packed = np.frombuffer(value, np.uint8, offset=HEADER_SIZE)
    bits = np.unpackbits(packed, bitorder="little").reshape(-1, REGISTER_BITS)
    return bytearray(np.packbits(bits, axis=1, bitorder="little"))


def _pack_dense(unpacked: bytes | bytearray) -> bytes:
    import numpy as np

    registers = np.frombuffer(unpacked, np.uint8).reshape(-1, 1)
    bits = np.unpackbits(registers, axis=1, count=REGISTER_BITS, bitorder="little")
    return bytes(np.packbits(bits, bitorder="little"))


def to_dense(value: bytes) -> bytes:
    """Return a HyperLogLog with dense registers. The cached count is kept."""
    if is_dense(value):
        return value
    return MAGIC + bytes((DENSE,)) + value[5:HEADER_SIZE] + _pack_dense(registers(value))


def mark_stale(value: bytes) -> bytes:
    return value[:15] + bytes((value[15] | 0x80,)) + value[HEADER_SIZE:]


def add(value: bytes, elements: Iterable[bytes], sparse_max_bytes: int) -> tuple[bytes, bool]:
    """Add elements; return the value, stale if a register changed, and whether one changed."""
    changed = False
    target = _Dense(value) if is_dense(value) else _Sparse(value, sparse_max_bytes)
    for index, rank in map(register_of, elements):
        try:
            changed |= target.set(index, rank)
        except _SparseFull:
            target = _Dense(to_dense(target.value()))
            changed |= target.set(index, rank)
    return (mark_stale(target.value()) if changed else value), changed


class _Dense:
    """A dense value whose registers can be raised."""

    def __init__(self, value: bytes) -> None:
        self._bytes = bytearray(value)

    def value(self) -> bytes:
        return bytes(self._bytes)

    def set(self, index: int, rank: int) -> bool:
        """Raise a register to ``rank``; return False if it is at least as high already."""
        byte, shift = divmod(index * REGISTER_BITS, 8)
        pair = slice(HEADER_SIZE + byte, HEADER_SIZE + byte + 2)
        number = int.from_bytes(self._bytes[pair], "little")
        if (number >> shift & REGISTER_MAX) >= rank:
            return False
        number = number & ~(REGISTER_MAX << shift) | rank << shift
        # The last register is in a single byte.
        self._bytes[pair] = number.to_bytes(len(self._bytes[pair]), "little")
        return True


class _SparseFull(Exception):
    """Raised for a change that needs dense registers. Nothing has changed."""


class _Sparse:
    """A sparse value whose registers can be raised, while it has at most ``max_bytes``.

    A change takes the same steps as in Redis, because the bytes depend on them: an opcode for
    exactly one register is changed in place, any other is split, and equal values are merged among
    up to five opcodes.
    """

    _MERGE_STEPS = 5

    def __init__(self, value: bytes, max_bytes: int) -> None:
        self._header = value[:HEADER_SIZE]
        self._opcodes = _opcodes(value)
        lengths = map(itemgetter(1), map(_run, self._opcodes))
        self._starts = list(accumulate(lengths, initial=0))
        """The first register of each opcode, and the register after the last one."""
        self._size = len(value)
        self._max_bytes = max_bytes

    def value(self) -> bytes:
        return self._header + b"".join(self._opcodes)

    def set(self, index: int, rank: int) -> bool:
        """Raise a register to ``rank``; return False if it is at least as high already."""
        if index >= self._starts[-1]:
            raise CommandError(errors.CORRUPT_HYPERLOGLOG)
        at = bisect_right(self._starts, index) - 1
        opcode, start, end = self._opcodes[at], self._starts[at], self._starts[at + 1]
        present, _ = _run(opcode)
        if present >= rank:
            return False
        if rank > SPARSE_VALUE_MAX:
            raise _SparseFull
        fill = partial(_equal, present) if present else _zeros
        pieces: dict[int, bytes] = {}  # The opcodes by the first register that they cover.
        if start < index:
            pieces[start] = fill(index - start)
        pieces[index] = _equal(rank, 1)
        if index + 1 < end:
            pieces[index + 1] = fill(end - index - 1)
        growth = sum(map(len, pieces.values())) - len(opcode)
        if growth > 0 and self._size + growth > self._max_bytes:
            raise _SparseFull
        self._opcodes[at : at + 1] = pieces.values()
        self._starts[at : at + 1] = pieces
        self._size += growth
        self._merge(max(at - 1, 0))
        return True

    def _merge(self, at: int) -> None:
        """Merge adjacent VAL opcodes with equal values, from the opcode at ``at`` on."""
        opcodes = self._opcodes
        for _ in range(self._MERGE_STEPS):
            if at + 1 >= len(opcodes):
                return
            value, length = _run(opcodes[at])
            following, more = _run(opcodes[at + 1])
            if value and value == following and length + more <= SPARSE_RUN_MAX:
                opcodes[at : at + 2] = [_equal(value, length + more)]
                del self._starts[at + 1]
                self._size -= 1
            else:
                at += 1


def cached_count(value: bytes) -> tuple[int, bytes]:
    """Return the cardinality of a value, and the value with the cardinality cached in its header."""
    if not value[15] & 0x80:
        return int.from_bytes(value[8:HEADER_SIZE], "little", signed=True), value
    cardinality = estimate(registers(value))
    cached = cardinality.to_bytes(8, "little", signed=True)
    return cardinality, value[:8] + cached + value[HEADER_SIZE:]


def register_maxima(values: Iterable[bytes]) -> bytearray:
    import numpy as np

    largest = np.zeros(REGISTERS, np.uint8)
    for value in values:
        largest = np.maximum(largest, registers(value))
    return bytearray(largest)


def merge(target: bytes, largest: bytes | bytearray, dense: bool, sparse_max_bytes: int) -> bytes:
    """Raise the registers of ``target`` to ``largest``; with ``dense``, convert it to dense ones.

    No register of ``target`` is above ``largest``.
    """
    if not dense:
        sparse = _Sparse(target, sparse_max_bytes)
        with suppress(_SparseFull):
            for index, register in enumerate(largest):
                if register:
                    sparse.set(index, register)
            return mark_stale(sparse.value())
    return mark_stale(to_dense(target)[:HEADER_SIZE] + _pack_dense(largest))


def describe(value: bytes) -> str:
    """Return the opcodes of a sparse value, such as ``Z:n`` (XZERO) and ``v:value,length`` (VAL)."""
    words = []
    for opcode in _opcodes(value):
        register, length = _run(opcode)
        zeros = f"{'Z' if len(opcode) == 2 else 'z'}:{length}"
        words.append(f"v:{register},{length}" if register else zeros)
    return " ".join(words)


def murmur_hash_64a(key: bytes) -> int:
    """Return the little-endian MurmurHash64A of ``key``, as Redis computes it."""
    length = len(key)
    h = (_SEED ^ (length * _MULTIPLIER)) & _MASK
    whole = length & ~7
    for at in range(0, whole, 8):
        k = int.from_bytes(key[at : at + 8], "little") * _MULTIPLIER & _MASK
        k = (k ^ (k >> 47)) * _MULTIPLIER & _MASK
        h = (h ^ k) * _MULTIPLIER & _MASK
    if length & 7:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ (h >> 47)) * _MULTIPLIER & _MASK
    return h ^ (h >> 47)


_ALPHA_INF = 1 / (2 * math.log(2))
"""The constant of the estimator for infinitely many registers: 1 / (2 ln 2)."""


def _sigma(x: float) -> float:
    """Return x + the sum of x^(2^k) * 2^(k-1) for k = 1, 2, …: the weight of registers that are 0."""
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
    """Return a third of 1 - x - the sum of (1 - x^(2^-k))^2 * 2^-k: the weight of full registers."""
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
    histogram = [unpacked.count(register) for register in range(64)]
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


def estimated_size(elements: Iterable[bytes]) -> int:
    """Estimate the number of distinct elements, with a standard error of about 0.81 %."""
    ranks = bytearray(REGISTERS)
    for element in elements:
        register, rank = register_of(element)
        ranks[register] = max(ranks[register], rank)
    return estimate(ranks)


# -- commands ------------------------------------------------------------------------------------


def _find(session: Session, key: bytes) -> bytes | None:
    value = session.db.string(key)
    if value is not None and not is_hyperloglog(value):
        raise CommandError(errors.NOT_HYPERLOGLOG)
    return None if value is None else bytes(value)


def _keep(session: Session, key: bytes, value: bytes, event: str) -> None:
    # A bytearray, because OBJECT ENCODING reports `raw` for a string that was changed in place.
    session.db.set(key, bytearray(value), keep_ttl=True, event=event)


@command("PFADD")
def pfadd(session: Session, args: Args) -> Reply:
    """Add elements to a HyperLogLog and return whether its registers changed."""
    value = _find(session, args[0])
    limit = session.engine.config.number("hll-sparse-max-bytes")
    grown, changed = add(value or new_sparse(), args[1:], limit)
    if value is None and not changed:
        # Creating a HyperLogLog counts as a change.
        grown, changed = mark_stale(grown), True
    if changed:
        _keep(session, args[0], grown, "pfadd")
    return int(changed)


@command("PFCOUNT")
def pfcount(session: Session, args: Args) -> Reply:
    """Return the estimated number of distinct elements in the union of HyperLogLogs."""
    if len(args) > 1:
        values = [value for key in args if (value := _find(session, key)) is not None]
        return estimate(register_maxima(values))
    value = _find(session, args[0])
    if value is None:
        return 0
    cardinality, cached = cached_count(value)
    if cached is not value:
        _keep(session, args[0], cached, "")
    return cardinality


@command("PFMERGE")
def pfmerge(session: Session, args: Args) -> Reply:
    """Merge HyperLogLogs into one key."""
    stored = [_find(session, key) for key in args]
    values = [value for value in stored if value is not None]
    target = stored[0] or new_sparse()
    limit = session.engine.config.number("hll-sparse-max-bytes")
    dense = any(map(is_dense, values))
    merged = merge(target, register_maxima(values), dense, limit)
    _keep(session, args[0], merged, "pfadd")
    return OK


def _convert(session: Session, key: bytes, value: bytes) -> None:
    """Make a value dense, which clients that watch the key do not notice."""
    session.db.put_in_place(key, bytearray(to_dense(value)))
    session.db.touch_unwatched(key, "")


@command("PFDEBUG")
def pfdebug(session: Session, args: Args) -> Reply:
    """Inspect a HyperLogLog's representation with GETREG, DECODE, ENCODING, or TODENSE."""
    word, key = args[0].upper(), args[1]
    value = _find(session, key)
    if value is None:
        raise CommandError(errors.PFDEBUG_NO_KEY)
    if word == b"GETREG":
        # Like Redis, convert the value itself to the dense representation.
        _convert(session, key, value)
        return list(registers(value))
    if word == b"DECODE":
        if is_dense(value):
            raise CommandError(errors.PFDEBUG_NOT_SPARSE)
        return describe(value).encode()
    if word == b"ENCODING":
        return Status(b"dense" if is_dense(value) else b"sparse")
    if word == b"TODENSE":
        if is_dense(value):
            return 0
        _convert(session, key, value)
        return 1
    raise CommandError(errors.pfdebug_unknown(args[0]))


@command("PFSELFTEST")
def pfselftest(session: Session, args: Args) -> Reply:
    """Test the implementation; has no effect, because the tests of the fake do that."""
    return OK
