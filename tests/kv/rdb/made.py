"""Random keys of every type, of sizes around the thresholds of encodings, as command lines."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

INTEGERS = (
    *(0, 1, -1, 63, 64, 127, 128, -128, -129, 4095, 4096, -4096, -4097, 9999, 10000),
    *(2**15 - 1, 2**15, -(2**15), 2**23 - 1, 2**23, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1),
    *(2**32, 2**63 - 1, -(2**63), 2**63, 2**64),
)
SIZES = (0, 1, 4, 5, 11, 12, 20, 21, 43, 44, 45, 62, 63, 64, 65, 66, 126, 127, 128, 300)
LARGE = (4093, 4095, 4096, 8180, 8192, 16380, 16383, 16384, 20000, 65536, 70000)
COUNTS = (1, 2, 3, 5, 8)
MANY = (99, 100, 101, 127, 128, 129, 130, 511, 512, 513)
SCORES = (
    *(b"0", b"-0", b"1", b"-1", b"0.1", b"1.5", b"3.0", b"1e17", b"1e300", b"5e-324"),
    *(b"inf", b"-inf", b"4611686018427387904", b"9223372036854775808", b"1.7976931348623157e308"),
)


def word(random: Random, size: int | None = None) -> bytes:
    kind = random.random()
    if size is None:
        if kind < 0.3:
            return b"%d" % random.choice(INTEGERS)
        if kind < 0.35:
            return random.choice((b"007", b"+1", b"-0", b" 1", b"1.0", b"1_0", b""))
        size = random.choice(SIZES)
    return bytes(random.choices(b"ab", k=size)) if kind < 0.7 else random.randbytes(size)


def _count(random: Random) -> int:
    return random.choice(MANY) if random.random() < 0.04 else random.choice(COUNTS)


def _some(random: Random, count: int) -> list[bytes]:
    """Return strings, most sets of which fit the packed encodings."""
    longest = random.choice((5, 63, 64)) if random.random() < 0.9 else 65
    return [
        word(random, longest) if random.random() < 0.2 else word(random)[:longest]
        for _ in range(count)
    ]


def lines_of(random: Random, key: bytes) -> Iterator[list[bytes]]:
    count = _count(random)
    match random.choice(("string", "list", "integers", "set", "hash", "zset", "stream")):
        case "string":
            size = random.choice(LARGE) if random.random() < 0.03 else None
            yield [b"SET", key, word(random, size)]
        case "list":
            items = _some(random, count)
            if random.random() < 0.05:
                items[0] = word(random, random.choice(LARGE))
            yield [random.choice((b"RPUSH", b"LPUSH")), key, *items]
        case "integers":
            width = random.choice((2, 5, 12))
            members = [random.randrange(-(10**width), 10**width) for _ in range(count)]
            yield [b"SADD", key, *(b"%d" % member for member in members)]
        case "set":
            yield [b"SADD", key, *_some(random, count)]
        case "hash":
            yield [b"HSET", key, *_some(random, 2 * count)]
        case "zset":
            pairs = zip(random.choices(SCORES, k=count), _some(random, count), strict=True)
            yield [b"ZADD", key, *(part for pair in pairs for part in pair)]
        case "stream":
            yield from _stream(random, key, count)
    if random.random() < 0.2:
        yield [b"PEXPIREAT", key, b"%d" % random.randrange(4 * 10**12, 9 * 10**12)]


def _stream(random: Random, key: bytes, count: int) -> Iterator[list[bytes]]:
    ids = []
    ms, sequence = random.choice((0, 1, 2**40)), random.choice((1, 2**63, 2**64 - 1))
    for _ in range(count):
        ids.append(b"%d-%d" % (ms, sequence))
        fields = [b"f", word(random)] if random.random() < 0.8 else _some(random, 4)
        yield [b"XADD", key, ids[-1], *fields]
        ms += random.choice((1, 3, 1000))
        sequence = random.choice((0, 5, 2**64 - 1))
    if random.random() < 0.3:
        yield [b"XDEL", key, *random.sample(ids, k=min(2, count))]
    if random.random() < 0.5:
        yield [b"XGROUP", b"CREATE", key, b"g1", random.choice((b"0", b"$", ids[0]))]
        yield [b"XREADGROUP", b"GROUP", b"g1", b"ann", b"COUNT", b"2", b"STREAMS", key, b">"]
        yield [b"XREADGROUP", b"GROUP", b"g1", b"bob", b"COUNT", b"1", b"STREAMS", key, b">"]
        yield [b"XGROUP", b"CREATE", key, b"g2", b"0", b"ENTRIESREAD", b"7"]
        yield [b"XGROUP", b"CREATECONSUMER", key, b"g2", b"idle"]
