"""Random arguments: mostly valid, some at the limits, a few invalid."""

from __future__ import annotations

import random
from collections.abc import Callable

JUNK = (
    b"", b"abc", b"-1", b"0", b"1", b"1.5", b"nan", b"inf", b"-inf", b"1e3", b"+1", b"01", b" 1",
    b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"18446744073709551615",
    b"*", b"$", b">", b"(1", b"[a", b"NX", b"COUNT", b"LIMIT", b"\xff\x00\x01", b"5-5", b"-",
)  # fmt: skip
TOWNS = (b"Palermo", b"Catania", b"Rome", b"Oslo", b"Quito", b"Suva", b"Nome", b"Perth")
KINDS = ("str", "bit", "hash", "list", "numlist", "set", "zset", "lex", "geo", "hll", "stream")


class Values:
    """Generates the values of templates from one seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.last_ms = 0

    def make(self, name: str) -> list[bytes]:
        """Return the words for `<name>` in a template."""
        if name in KINDS:
            return [self._key(name)]
        maker: Callable[[], bytes | list[bytes]] = getattr(self, name)
        made = maker()
        return made if isinstance(made, list) else [made]

    def _key(self, kind: str) -> bytes:
        if self.rng.random() < 0.05:
            kind = self.rng.choice(KINDS)
        return f"{kind}{self.rng.randrange(3)}".encode()

    def _keys(self, kind: str) -> list[bytes]:
        count = self.rng.choice((1, 2, 2, 3))
        return [b"%d" % count, *(self._key(kind) for _ in range(count))]

    def key(self) -> bytes:
        return self._key(self.rng.choice(KINDS))

    def lists(self) -> list[bytes]:
        return self._keys("list")

    def sets(self) -> list[bytes]:
        return self._keys("set")

    def zsets(self) -> list[bytes]:
        return self._keys(self.rng.choice(("zset", "zset", "zset", "set")))

    def val(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.5:
            return self.rng.choice(
                (b"a", b"b", b"c", b"hello", b"foobar", b"ohmytext", b"mynewtext")
            )
        if roll < 0.8:
            return self.num()
        if roll < 0.85:
            return self.rng.choice(JUNK)
        if roll < 0.88:
            return b"x" * self.rng.choice((63, 64, 65, 200, 5000))
        return bytes(self.rng.randrange(256) for _ in range(self.rng.randrange(12)))

    def many(self) -> list[bytes]:
        return [b"%d" % self.rng.getrandbits(40) for _ in range(self.rng.choice((20, 300)))]

    def bulk(self) -> list[bytes]:
        """Return, now and then, enough words to exceed the limits of the small encodings."""
        if self.rng.random() < 0.7:
            return [self.member()]
        text = self.rng.choice((b"%d", b"m%d", b"a rather long text %d"))
        return [text % n for n in range(self.rng.choice((129, 520)))]

    def bulkscored(self) -> list[bytes]:
        return [word for name in self.bulk() for word in (self.score(), name)]

    def bulklexed(self) -> list[bytes]:
        return [word for name in self.bulk() for word in (b"0", name)]

    def num(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.8:
            return b"%d" % self.rng.randrange(-20, 100)
        return self.rng.choice((b"9223372036854775807", b"-9223372036854775808", b"3.5", b"1e5"))

    def small(self) -> bytes:
        return b"%d" % self.rng.choice((0, 1, 2, 3, 5, 7, 8, 9, 15, 17, 30, 100))

    def int(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.85:
            return b"%d" % self.rng.randrange(-100, 300)
        return self.rng.choice((b"9223372036854775807", b"-9223372036854775808", b"1.5", b"abc"))

    def float(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.85:
            return repr(round(self.rng.uniform(-50, 50), self.rng.randrange(6))).encode()
        return self.rng.choice((b"1e10", b"3.0e-7", b"inf", b"abc", b"5", b"1e308", b"0x1p3"))

    def index(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.95:
            return b"%d" % self.rng.randrange(-6, 9)
        return self.rng.choice((b"100", b"-100", b"abc", b"9223372036854775807"))

    def count(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.93:
            return b"%d" % self.rng.randrange(0, 6)
        return self.rng.choice((b"-1", b"100", b"abc", b"1.5"))

    def ttl(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.9:
            return b"%d" % self.rng.randrange(100000, 900000)
        return self.rng.choice((b"0", b"-1", b"abc", b"9223372036854775807", b"1.5"))

    def at(self) -> bytes:
        return self.rng.choice((b"4102444800", b"4102444801", b"1", b"0", b"-5", b"abc"))

    def atms(self) -> bytes:
        return self.rng.choice((b"4102444800000", b"4102444800001", b"1", b"0", b"-5", b"abc"))

    def pattern(self) -> bytes:
        return self.rng.choice(
            (b"*", b"a*", b"*1", b"str?", b"[a-h]*", b"nothing", b"\\*", b"*[^0]")
        )

    def getpattern(self) -> bytes:
        return self.rng.choice((b"#", b"str*", b"w_*", b"hash0->*", b"nothing"))

    def strval(self) -> list[bytes]:
        return [self._key("str"), self.val()]

    def bittype(self) -> bytes:
        return self.rng.choice((b"u8", b"i8", b"u4", b"i16", b"u63", b"i64", b"u1", b"u64", b"i5"))

    def bitoffset(self) -> bytes:
        return self.rng.choice((b"0", b"1", b"7", b"8", b"#0", b"#1", b"#3", b"100", b"-1", b"abc"))

    def field(self) -> bytes:
        return self.rng.choice((b"f1", b"f2", b"f3", b"f4", b"f5", b"name", b"", b"7"))

    def fieldval(self) -> list[bytes]:
        return [self.field(), self.val()]

    def fields(self) -> list[bytes]:
        names = [self.field() for _ in range(self.rng.choice((1, 2, 3)))]
        return [b"%d" % len(names), *names]

    def fieldvals(self) -> list[bytes]:
        count = self.rng.choice((1, 2))
        return [b"%d" % count, *(word for _ in range(count) for word in self.fieldval())]

    def member(self) -> bytes:
        if self.rng.random() < 0.9:
            return self.rng.choice((b"a", b"b", b"c", b"d", b"e", b"f", b"10", b"7", b"-3"))
        return self.val()

    def score(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.6:
            return b"%d" % self.rng.randrange(-5, 10)
        if roll < 0.9:
            return repr(round(self.rng.uniform(-5, 10), self.rng.randrange(1, 6))).encode()
        return self.rng.choice(
            (
                b"inf", b"-inf", b"1e20", b"1e-7", b"nan", b"abc", b"0.1", b"3.3", b"1e300", b"+2",
                b"-0",
            )
        )  # fmt: skip

    def scored(self) -> list[bytes]:
        return [self.score(), self.member()]

    def lexed(self) -> list[bytes]:
        return [b"0", self.rng.choice((b"a", b"aa", b"ab", b"b", b"c", b"d", b"\xff", b""))]

    def min(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.3:
            return b"-inf"
        return (b"(" if roll < 0.5 else b"") + self.score()

    def max(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.3:
            return b"+inf"
        return (b"(" if roll < 0.5 else b"") + self.score()

    def lexmin(self) -> bytes:
        return self.rng.choice((b"-", b"-", b"[a", b"(a", b"[b", b"(", b"[", b"+", b"a"))

    def lexmax(self) -> bytes:
        return self.rng.choice((b"+", b"+", b"[c", b"(c", b"[b", b"[\xff", b"(b", b"-", b"b"))

    def town(self) -> bytes:
        return self.rng.choice(TOWNS)

    def lonlat(self) -> list[bytes]:
        if self.rng.random() < 0.04:
            return [self.rng.choice((b"181", b"abc", b"0")), self.rng.choice((b"86", b"0", b"1e3"))]
        spread = self.rng.choice((1.0, 20.0, 180.0))
        longitude = self.rng.uniform(-spread, spread)
        latitude = self.rng.uniform(-spread, spread) * 85 / 180
        return [b"%.6f" % longitude, b"%.6f" % latitude]

    def place(self) -> list[bytes]:
        return [*self.lonlat(), self.town()]

    def radius(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.95:
            return b"%d" % self.rng.choice((0, 1, 10, 100, 500, 1000, 5000, 10000, 30000))
        return self.rng.choice((b"-1", b"abc", b"1.5", b"inf", b"1e308", b"1e200"))

    def unit(self) -> bytes:
        return self.rng.choice((b"m", b"km", b"km", b"km", b"KM", b"ft", b"mi", b"parsec"))

    def newid(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.75:
            self.last_ms += self.rng.randrange(1, 3)
            return b"%d-%d" % (self.last_ms, self.rng.randrange(0, 3))
        if roll < 0.85:
            return b"%d-*" % self.last_ms
        return self.rng.choice((b"0-0", b"1-1", b"abc", b"5", b"-", b"0-*", b"7-7-7"))

    def id(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.9:
            return b"%d-%d" % (max(self.last_ms - self.rng.randrange(12), 0), self.rng.randrange(3))
        return self.rng.choice(
            (b"0", b"5", b"0-0", b"abc", b"%d-%d" % ((1 << 64) - 1, (1 << 64) - 1))
        )

    def idstart(self) -> bytes:
        roll = self.rng.random()
        return b"-" if roll < 0.5 else b"(" + self.id() if roll < 0.6 else self.id()

    def idend(self) -> bytes:
        roll = self.rng.random()
        return b"+" if roll < 0.5 else b"(" + self.id() if roll < 0.6 else self.id()

    def readid(self) -> bytes:
        return self.rng.choice((b"0", b"0-0", b"$", self.id(), self.id(), b">", b"abc"))

    def group(self) -> bytes:
        return self.rng.choice((b"g1", b"g1", b"g1", b"g2", b"g3"))

    def groupid(self) -> bytes:
        return self.rng.choice((b"0", b"$", self.id(), b"0-0", b"abc"))

    def consumer(self) -> bytes:
        return self.rng.choice((b"alice", b"bob", b"carol"))

    def idle(self) -> bytes:
        return self.rng.choice((b"0", b"0", b"0", b"100000000", b"-1", b"abc"))
