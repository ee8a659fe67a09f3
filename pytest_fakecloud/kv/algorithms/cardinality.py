"""The hash function of HyperLogLogs, and the estimate of the cardinality from their registers."""

from __future__ import annotations

import math

PRECISION = 14
"""Number of bits of a hash that select a register."""
REGISTERS = 1 << PRECISION
HASH_BITS = 64 - PRECISION

_SEED = 0xADC83B19
"""The seed that Redis uses for HyperLogLogs."""
_MULTIPLIER = 0xC6A4A7935BD1E995
_MASK = (1 << 64) - 1


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


_ALPHA_INF = 0.721347520444481703680
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
