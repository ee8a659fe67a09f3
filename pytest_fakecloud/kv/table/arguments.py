"""The arguments of commands by name, which COMMAND DOCS reports and the console shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from .registry import CommandSpec
from .rows import ROWS, synopsis

KEYS = frozenset({
    "destination", "destkey", "dst", "index", "key", "newkey", "shardchannel", "source",
    "sourcekey", "src", "storedistkey", "storekey",
})  # fmt: skip
"""The names of arguments that are keys, if the command table has a position for them.

A name may end in 1 or 2 (``key1 key2``).
"""
INTEGERS = frozenset({
    "count", "milliseconds", "numfields", "numids", "numkeys", "seconds",
    "unix-time-milliseconds", "unix-time-seconds",
})  # fmt: skip


class Argument(NamedTuple):
    """An argument of a command, as ``COMMAND DOCS`` describes it.

    ``kind`` is ``string``, ``pure-token`` for a literal word, ``oneof`` for a choice or ``block``
    for a sequence. ``token`` is the word before the argument. ``inner`` are the alternatives of a
    choice, or the arguments of a sequence.
    """

    name: str
    kind: str
    token: str = ""
    inner: Sequence[Argument] = ()
    optional: bool = False
    multiple: bool = False


_TOKEN = re.compile(r"\[|\]|\(|\)|\||\.\.\.|[^\s\[\]()|]+")
_Tokens: TypeAlias = list[str]


def _sequence(tokens: _Tokens) -> list[Argument]:
    """Parse arguments up to the end of the synopsis, of the brackets or of the alternative."""
    found: list[Argument] = []
    while tokens and tokens[0] not in ("|", "]", ")"):
        token = tokens.pop(0)
        if token == "...":
            found = [_one(found)._replace(multiple=True)]
        elif token in "[(":
            found.append(_group(tokens)._replace(optional=token == "["))
        else:
            is_literal = token.upper() == token and not token.isdigit()
            kind, literal = ("pure-token", token) if is_literal else ("string", "")
            found.append(Argument(token.lower(), kind, literal))
    return found


def _group(tokens: _Tokens) -> Argument:
    """Parse the content of brackets, and the closing bracket."""
    alternatives = [_one(_sequence(tokens))]
    while tokens.pop(0) == "|":
        alternatives.append(_one(_sequence(tokens)))
    if len(alternatives) == 1:
        return alternatives[0]
    return Argument("|".join(one.name for one in alternatives), "oneof", inner=alternatives)


def _one(sequence: list[Argument]) -> Argument:
    """Return a sequence as one argument. A literal word becomes the token of what follows it."""
    first, *rest = sequence
    if not rest:
        return first
    if first.kind != "pure-token" or first.optional:
        return Argument(first.name, "block", inner=sequence)
    if (
        len(rest) == 1
        and rest[0].kind == "string"
        and not rest[0].optional
        and not rest[0].multiple
    ):
        return rest[0]._replace(token=first.token)
    return Argument(first.name, "block", first.token, rest)


SYNOPSES = {row.name: synopsis(row.arguments) for row in ROWS if row.arguments}
"""The synopsis of each command that takes arguments; containers and their HELP are not listed."""


def arguments(spec: CommandSpec) -> list[Argument]:
    """Return the arguments of a command. A container has none, because its subcommands have them."""
    return _sequence(_TOKEN.findall(SYNOPSES.get(spec.name, "")))
