"""The hash function of HyperLogLogs."""

from __future__ import annotations

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
