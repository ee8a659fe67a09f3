"""XXH3 with 64 bits, seed 0: the hash behind DIGEST, after the algorithm's public specification."""

from __future__ import annotations

from struct import unpack_from

__all__ = ["digest", "xxh3_64"]

_MASK = 2**64 - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def digest(data: bytes) -> bytes:
    """The hash as sixteen lower-case hexadecimal digits."""
    return b"%016x" % xxh3_64(data)


def xxh3_64(data: bytes) -> int:
    """The 64-bit hash of the bytes."""
    length = len(data)
    if length <= 16:
        return _short(data, length)
    if length <= 128:
        total = length * _P64_1
        for i in range((length - 1) // 32, -1, -1):
            total += _mix16(data, 16 * i, 32 * i)
            total += _mix16(data, length - 16 * (i + 1), 32 * i + 16)
        return _avalanche(total & _MASK)
    if length <= 240:
        return _middle(data, length)
    return _long(data, length)


def _read32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _read64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MX1 & _MASK
    return value ^ value >> 32


def _xxh64_avalanche(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _swap(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _short(data: bytes, length: int) -> int:
    if length > 8:
        low = _read64(data, 0) ^ _read64(_SECRET, 24) ^ _read64(_SECRET, 32)
        high = _read64(data, length - 8) ^ _read64(_SECRET, 40) ^ _read64(_SECRET, 48)
        return _avalanche((length + _swap(low) + high + _fold(low, high)) & _MASK)
    if length >= 4:
        combined = _read32(data, length - 4) + (_read32(data, 0) << 32)
        value = combined ^ _read64(_SECRET, 8) ^ _read64(_SECRET, 16)
        value ^= _rotate(value, 49) ^ _rotate(value, 24)
        value = value * _MX2 & _MASK
        value ^= (value >> 35) + length
        value = value * _MX2 & _MASK
        return value ^ value >> 28
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _xxh64_avalanche(combined ^ _read32(_SECRET, 0) ^ _read32(_SECRET, 4))
    return _xxh64_avalanche(_read64(_SECRET, 56) ^ _read64(_SECRET, 64))


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(
        _read64(data, at) ^ _read64(_SECRET, secret_at),
        _read64(data, at + 8) ^ _read64(_SECRET, secret_at + 8),
    )


def _middle(data: bytes, length: int) -> int:
    total = length * _P64_1
    for i in range(8):
        total += _mix16(data, 16 * i, 16 * i)
    total = _avalanche(total & _MASK)
    for i in range(8, length // 16):
        total += _mix16(data, 16 * i, 16 * (i - 8) + 3)
    total += _mix16(data, length - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values = unpack_from("<8Q", data, at)
    keys = unpack_from("<8Q", _SECRET, secret_at)
    for i in range(8):
        mixed = values[i] ^ keys[i]
        lanes[i ^ 1] = (lanes[i ^ 1] + values[i]) & _MASK
        lanes[i] = (lanes[i] + (mixed & 0xFFFFFFFF) * (mixed >> 32)) & _MASK


def _long(data: bytes, length: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    per_block = (len(_SECRET) - 64) // 8
    blocks = (length - 1) // (64 * per_block)
    last_key = unpack_from("<8Q", _SECRET, len(_SECRET) - 64)
    for block in range(blocks):
        for stripe in range(per_block):
            _accumulate(lanes, data, 64 * (block * per_block + stripe), 8 * stripe)
        for i in range(8):
            lane = lanes[i]
            lanes[i] = (lane ^ lane >> 47 ^ last_key[i]) * _P32_1 & _MASK
    start = blocks * per_block
    for stripe in range((length - 1) // 64 - start):
        _accumulate(lanes, data, 64 * (start + stripe), 8 * stripe)
    _accumulate(lanes, data, length - 64, len(_SECRET) - 64 - 7)
    total = length * _P64_1
    keys = unpack_from("<8Q", _SECRET, 11)
    for i in range(0, 8, 2):
        total += _fold(lanes[i] ^ keys[i], lanes[i + 1] ^ keys[i + 1])
    return _avalanche(total & _MASK)
