"""The arguments of command lines, with their names in the synopsis."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby

from pytest_fakecloud.kv.table.registry import COMMANDS, CommandSpec, spec_of
from pytest_fakecloud.kv.table.synopsis import TO_THE_END, Argument
from tests.budget import cases
from tests.harness import check_each

FIELDS = [
    ("HSET h a 1 b 2", "a b"),
    ("HGET h a", "a"),
    ("HMGET h a b", "a b"),
    ("HDEL h a b", "a b"),
    ("HINCRBY h a 3", "a"),
    ("HGETALL h", ""),
    ("HEXPIRE h 3 NX FIELDS 2 a b", "a b"),
    ("HSETEX h EX 3 FIELDS 2 a 1 b 2", "a b"),
    ("HSETEX h FIELDS 1 a 1 EX 3", "a"),
    ("SADD s x y", "x y"),
    ("SMOVE s t x", "x"),
    ("SINTER s t", ""),
    ("ZADD z 1 x", "x"),
    ("ZADD z NX CH 1 x 2 y", "x y"),
    ("ZINCRBY z 2 x", "x"),
    ("ZSCORE z x", "x"),
    ("GEOADD g 13 38 x 15 37 y", "x y"),
    ("GEOSEARCH g FROMMEMBER x BYRADIUS 1 m", ""),
    ("ZADD z 1 nx", "nx"),
    ("ZRANK z x WITHSCORE", "x"),
    ("GEODIST g x y km", "x y"),
    ("GEOPOS g x y", "x y"),
    ("XADD x * field value", ""),
    ("LSET l 1 x", ""),
    ("LPUSH l x", ""),
]


def test_commands_name_fields_and_members() -> None:
    check_each(check_fields, FIELDS)


def check_fields(line: str, fields: str) -> None:
    words = line.split()
    assert [*spec(words).fields_of(words)] == fields.split()


def spec(words: Sequence[str]) -> CommandSpec:
    known = spec_of(words)
    assert known is not None
    return known


NAMES = [
    ("SET k v px 5 NX", "key value PX milliseconds NX"),
    ("SET EX NX", "key value"),
    ("SET k v IFEQ get", "key value IFEQ value"),
    ("SET k v EX 5 EX 6", "key value EX seconds EX seconds"),
    ("SET k v EX", "key value EX"),
    ("SET k v x NX", "key value"),
    ("XGROUP CREATE s g $ MKSTREAM", "key group $ MKSTREAM"),
    ("MSETEX 1 k NX", "numkeys key value"),
    ("MSETEX 2 a NX b 1 NX", "numkeys key value key value NX"),
    ("ZADD z CH nx 1 ch", "key CH NX score member"),
    ("BLPOP a b 1", "key key timeout"),
    ("BITOP AND OR a", "AND destkey key"),
    ("XREAD STREAMS BLOCK s 0 1", "STREAMS key key id id"),
    ("XREAD BLOCK 5 COUNT 1 STREAMS s 0", "BLOCK milliseconds COUNT count STREAMS key id"),
    ("XADD s MAXLEN ~ 5 NOMKSTREAM * LIMIT v", "key MAXLEN ~ threshold NOMKSTREAM * field value"),
    ("XCLAIM s g c 5 1-0 2-0 JUSTID", "key group consumer min-idle-time id id JUSTID"),
    ("XPENDING s g IDLE 5 - + 1", "key group IDLE min-idle-time start end count"),
    ("XPENDING s g - + 0 c", "key group start end count consumer"),
    ("EVAL s 0 a", "script numkeys arg"),
    ("EVAL s 1 k a", "script numkeys key arg"),
    (f"EVAL s {'9' * 5000} k", "script numkeys key"),
    (
        "ZUNION 2 a b WITHSCORES WEIGHTS 1 2 AGGREGATE SUM",
        "numkeys key key WITHSCORES WEIGHTS weight weight AGGREGATE SUM",
    ),
    ("GEOSEARCH g BYBOX 1 2 m FROMMEMBER x", "key BYBOX width height M FROMMEMBER member"),
    (
        "BITFIELD b OVERFLOW SAT INCRBY u4 0 1 GET u4 0",
        "key OVERFLOW SAT INCRBY encoding offset increment GET encoding offset",
    ),
    ("VADD v VALUES 2 1 0 CAS CAS", "key VALUES numdims dim dim member CAS"),
    ("VADD v REDUCE 1 FP32 x REDUCE", "key REDUCE dimension FP32 blob member"),
    ("HEXPIRE h 5 a b", "key seconds"),
    ("AUTH p", "password"),
    ("JSON.STRAPPEND d x", "key value"),
    ("JSON.MGET a b $", "key key path"),
    ("JSON.MSET a $.x 1 b $.y 2", "key path value key path value"),
    ("JSON.GET d NOESCAPE INDENT x $.a $.b", "key NOESCAPE INDENT indent path path"),
    ("JSON.GET d noescape", "key NOESCAPE"),
    ("MIGRATE h 1 NX 0 5 KEYS COPY", "host port key destination-db timeout KEYS key"),
]


def test_each_word_of_a_line_is_an_argument() -> None:
    check_each(check_names, NAMES)


def check_names(line: str, names: str) -> None:
    words = line.split()
    assert spec(words).bound(words).names == names.split()


# -- lines that are drawn from synopses ------------------------------------------------------------

DATA = frozenset({
    "key", "source", "destination", "destkey", "field", "member", "value", "element", "message",
    "script", "arg", "pivot",
})  # fmt: skip
"""Arguments that can be any words, also some that are spelt like options."""
NOT_DRAWN = frozenset({"SEARCH.CREATE"})
"""A command whose synopsis does not say which words are the options of its fields."""


def test_lines_are_bound_to_the_arguments_that_they_are_drawn_from() -> None:
    chance = random.Random(20260101)
    lines = [
        (name, Drawn(COMMANDS[name], chance).line)
        for name in sorted(COMMANDS.keys() - NOT_DRAWN)
        for _ in range(cases(10))
    ]
    check_each(check_drawn, lines)


def check_drawn(name: str, line: Sequence[tuple[str, str]]) -> None:
    bound = COMMANDS[name].bound([*name.split(), *(word for _, word in line)])
    assert bound.names == [argument for argument, _ in line]


class Drawn:
    """A random line of a command, with options in any order: the name and the word of each argument."""

    def __init__(self, spec: CommandSpec, chance: random.Random) -> None:
        self.line: list[tuple[str, str]] = []
        self._spec, self._chance = spec, chance
        self._numbers: dict[str, int] = {}
        """How often each argument is repeated, if another argument says it."""
        if "STREAMS" in spec.options:  # It has as many keys as IDs.
            self._numbers = dict.fromkeys(("key", "id"), chance.randrange(1, 4))
        self._draw_all(spec.arguments)

    def _draw_all(self, arguments: Sequence[Argument]) -> None:
        for are_options, run in groupby(arguments, is_option):
            options = list(run)
            if are_options:
                self._chance.shuffle(options)
                options.sort(key=self._takes_all)
            for argument in options:
                for _ in range(self._times(argument)):
                    self._draw(argument)

    def _takes_all(self, argument: Argument) -> bool:
        """Return whether an option takes all words after it, so that it is the last one."""
        return self._spec.option_sizes.get(argument.token.encode()) == TO_THE_END

    def _times(self, argument: Argument) -> int:
        number = self._numbers.get(argument.name)
        if number is None:
            return self._chance.randrange(not argument.optional, 3 if argument.multiple else 2)
        return number - 1 if argument.multiple else min(number, 1)

    def _draw(self, argument: Argument) -> None:
        if argument.kind == "oneof":
            self._draw(self._chance.choice(argument.inner))
            return
        if argument.token:
            word = self._chance.choice([argument.token, argument.token.lower()])
            self.line.append((argument.token, word))
        if argument.kind == "string":
            self.line.append((argument.name, self._word(argument.name)))
        self._draw_all(argument.inner)

    def _word(self, name: str) -> str:
        if name.startswith("num"):
            counted = name.removeprefix("num").removesuffix("s")
            self._numbers[counted] = self._chance.randrange(self._spec.group != "scripting", 4)
            return str(self._numbers[counted])
        return self._chance.choice([*self._spec.options, "x"]) if name in DATA else "7"


def is_option(argument: Argument) -> bool:
    """Return whether an argument begins with a word, and others like it can be before it."""
    if argument.kind == "oneof":
        return all(inner.token.isupper() for inner in argument.inner)  # not `=` and `~` of XTRIM
    if argument.kind == "block" and not argument.token:
        return is_option(argument.inner[0])
    return argument.optional and argument.token != ""
