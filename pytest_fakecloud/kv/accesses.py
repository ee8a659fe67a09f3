"""The data that commands of the key-value server read and write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.accesses import ALL, READS_CLOCK, Touch
from .table.registry import CommandSpec, row_of, synopsis

if TYPE_CHECKING:
    from ..http.messages import Request
    from .fake import KVServer

KEY_OF_DB = "key of db"
"""The kind of accesses to keys, without the number of the database."""
_PATTERNS = frozenset(("PSUBSCRIBE", "PUNSUBSCRIBE"))
_WITHOUT_DATA = frozenset(("TIME", "LOLWUT"))
"""Commands of servers that access neither data nor settings."""


def touches_of_request(fake: KVServer, request: Request) -> Sequence[Touch] | None:
    """Return no accesses, because the engine reports its commands; None for a real server."""
    return () if hasattr(fake._engine, "run") else None


def touches_of_command(
    fake: str, database: int, databases: int, spec: Any, argv: Sequence[bytes]
) -> Iterable[Touch]:
    """Yield the accesses of a command, based on the keys and flags in the command table."""
    if spec.depends_on_time(argv):
        yield READS_CLOCK
    if spec.group == "pubsub" and spec.container is None:
        publishes = spec.arity > 0
        for channel in argv[1:2] if publishes else argv[1:]:
            yield Touch(fake, "channel", ALL if spec.name in _PATTERNS else text_of(channel), True)
        return
    # The commands in scripts and transactions are recorded when they run.
    is_script = "no_mandatory_keys" in spec.flags
    is_transaction = spec.group == "transactions" and not spec.keys
    acts_on_connection = "@connection" in spec.categories
    if is_script or is_transaction or acts_on_connection or spec.name in _WITHOUT_DATA:
        return
    touches: list[Touch] = []
    for key_spec in spec.keys:
        places = key_spec.positions(argv)
        if places is None:
            touches.append(Touch(fake, f"{KEY_OF_DB}{database}", ALL, bool(spec.write)))
        for place in places or ():
            touches.append(touch_of_key(fake, database, argv[place], "RO" not in key_spec.flags))
    name = spec.name.partition(" ")[0]
    if touches or (spec.keys and not spec.write):
        yield from touches
    elif spec.write or spec.readonly or name in ("INFO", "DEBUG", "SWAPDB", "MEMORY"):
        for index in range(databases):
            yield Touch(fake, f"{KEY_OF_DB}{index}", ALL, bool(spec.write))
    else:
        yield Touch(fake, "setting", ALL, spec.name != "CONFIG GET")


def touch_of_key(fake: str, database: int, key: bytes, writes: bool) -> Touch:
    return Touch(fake, f"{KEY_OF_DB}{database}", text_of(key), writes)


def key_of_touch(touch: Touch) -> bytes:
    """Return the key that ``touch_of_key()`` named; a key that is not UTF-8 is not found again."""
    return touch.name.encode()


def text_of(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")


# -- parts of values -------------------------------------------------------------------------------

_NAMES_OF_PARTS = ("field", "member")
_OPTIONAL = re.compile(r"\[[^\[\]]*\]")
"""An optional part of a synopsis."""


def parts_of_command(spec: CommandSpec, words: Sequence[str]) -> list[str]:
    """Return the fields or members that a command line names, based on its synopsis; an empty list if
    it accesses whole values.
    """
    if spec.group not in _GROUPS_WITH_PARTS:
        return []
    first, step, options = _place_of_parts(spec.name)
    upper = [word.upper() for word in words]
    if options is None:
        at = upper.index("FIELDS") if "FIELDS" in upper else len(words)
        return list(words[at + 2 :: step])
    if not first:
        return []
    while first - 1 < len(words) and step and upper[first - 1] in options:
        first += 1
    return list(words[first::step]) if step else list(words[first : first + 1])


_GROUPS_WITH_PARTS = ("hash", "set", "sorted-set", "geo")


@cache
def _place_of_parts(name: str) -> tuple[int, int, frozenset[str] | None]:
    """Return the position of the first field or member in the lines of a command, or 0; the distance
    to the next one, or 0; and the options before it, None if the word FIELDS precedes the fields.
    """
    text = synopsis(row_of(name).arguments)
    repeated = next((part for part in _OPTIONAL.findall(text) if "..." in part), "")
    step = len(repeated.split()) - 1 if repeated else 0
    if "FIELDS" in text:
        return 0, max(step, 1), None
    options = frozenset(re.findall(r"\b[A-Z]{2,}\b", text))
    required = _OPTIONAL.sub("", text).split()
    parts = [at for at, word in enumerate(required, 1) if word in _NAMES_OF_PARTS]
    return (parts[0] if parts else 0), step, options
