"""Random arguments: mostly valid, some at the limits, a few invalid."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

JUNK = (
    b"", b"abc", b"-1", b"0", b"1", b"1.5", b"nan", b"inf", b"-inf", b"1e3", b"+1", b"01", b" 1",
    b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"18446744073709551615",
    b"*", b"$", b">", b"(1", b"[a", b"NX", b"COUNT", b"LIMIT", b"\xff\x00\x01", b"5-5", b"-",
)  # fmt: skip
KINDS = ("str", "bit", "hash", "list", "numlist", "set", "zset", "lex", "geo", "hll", "stream")

_TEXT = r"""
small: 0 1 2 3 5 7 8 9 15 17 30 100
at: 4102444800 4102444801 1 0 -5 abc
atms: 4102444800000 4102444800001 1 0 -5 abc
pattern: * a* *1 str? [a-h]* nothing \x5c* *[^0]
getpattern: # str* w_* hash0->* nothing
bittype: u8 i8 u4 i16 u63 i64 u1 u64 i5
bitoffset: 0 1 7 8 #0 #1 #3 100 -1 abc
field: f1 f2 f3 f4 f5 name '' 7
lexmin: - - [a (a [b ( [ + a
lexmax: + + [c (c [b [\xff (b - b
unit: m km km km KM ft mi parsec
group: g1 g1 g1 g2 g3
consumer: alice bob carol
idle: 0 0 0 100000000 -1 abc
town: Palermo Catania Rome Oslo Quito Suva Nome Perth
"""


def _choices(text: str) -> dict[str, tuple[bytes, ...]]:
    """Parse lines of a name and its words: ``\\xff`` is a byte, and ``''`` an empty word."""
    choices = {}
    for line in text.strip().replace("\n  ", " ").split("\n"):
        name, _, words = line.partition(": ")
        choices[name] = tuple(
            b"" if word == "''" else word.encode().decode("unicode_escape").encode("latin-1")
            for word in words.split(" ")
        )
    return choices


CHOICES = _choices(_TEXT)
"""The possible words of each name."""
INTEGERS = {
    "num": (0.8, -20, 100, "9223372036854775807 -9223372036854775808 3.5 1e5"),
    "int": (0.85, -100, 300, "9223372036854775807 -9223372036854775808 1.5 abc"),
    "index": (0.95, -6, 9, "100 -100 abc 9223372036854775807"),
    "count": (0.93, 0, 6, "-1 100 abc 1.5"),
    "ttl": (0.9, 100000, 900000, "0 -1 abc 9223372036854775807 1.5"),
}
"""Names of integers: the share of those in a range, the range, and the other words."""


class Values:
    """Generates the values of templates from one seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.last_ms = 0

    def make(self, name: str) -> list[bytes]:
        """Return the words for `<name>` in a template."""
        if name in KINDS:
            return [self._key(name)]
        made = self.one(name)
        return made if isinstance(made, list) else [made]

    def one(self, name: str) -> Any:
        """Return a word or a list of words."""
        if name in CHOICES:
            return self.rng.choice(CHOICES[name])
        if name in INTEGERS:
            share, low, high, others = INTEGERS[name]
            if self.rng.random() < share:
                return b"%d" % self.rng.randrange(low, high)
            return self.rng.choice([word.encode() for word in others.split()])
        return getattr(self, name)()

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
            return self.one("num")
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

    def float(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.85:
            return repr(round(self.rng.uniform(-50, 50), self.rng.randrange(6))).encode()
        return self.rng.choice((b"1e10", b"3.0e-7", b"inf", b"abc", b"5", b"1e308", b"0x1p3"))

    def strval(self) -> list[bytes]:
        return [self._key("str"), self.val()]

    def fieldval(self) -> list[bytes]:
        return [self.one("field"), self.val()]

    def fields(self) -> list[bytes]:
        names = [self.one("field") for _ in range(self.rng.choice((1, 2, 3)))]
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
        return self._bound(0.3, b"-inf", 0.5, self.score)

    def max(self) -> bytes:
        return self._bound(0.3, b"+inf", 0.5, self.score)

    def idstart(self) -> bytes:
        return self._bound(0.5, b"-", 0.6, self.id)

    def idend(self) -> bytes:
        return self._bound(0.5, b"+", 0.6, self.id)

    def _bound(
        self, open_below: float, infinity: bytes, without_below: float, make: Callable[[], bytes]
    ) -> bytes:
        roll = self.rng.random()
        if roll < open_below:
            return infinity
        return (b"(" if roll < without_below else b"") + make()

    def lonlat(self) -> list[bytes]:
        if self.rng.random() < 0.04:
            return [self.rng.choice((b"181", b"abc", b"0")), self.rng.choice((b"86", b"0", b"1e3"))]
        spread = self.rng.choice((1.0, 20.0, 180.0))
        longitude = self.rng.uniform(-spread, spread)
        latitude = self.rng.uniform(-spread, spread) * 85 / 180
        return [b"%.6f" % longitude, b"%.6f" % latitude]

    def place(self) -> list[bytes]:
        return [*self.lonlat(), self.one("town")]

    def radius(self) -> bytes:
        roll = self.rng.random()
        if roll < 0.95:
            return b"%d" % self.rng.choice((0, 1, 10, 100, 500, 1000, 5000, 10000, 30000))
        return self.rng.choice((b"-1", b"abc", b"1.5", b"inf", b"1e308", b"1e200"))

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

    def readid(self) -> bytes:
        return self.rng.choice((b"0", b"0-0", b"$", self.id(), self.id(), b">", b"abc"))

    def groupid(self) -> bytes:
        return self.rng.choice((b"0", b"$", self.id(), b"0-0", b"abc"))
