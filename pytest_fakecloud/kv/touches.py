"""The data that commands of the key-value server read and write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..cloud.fake import core_of
from ..core.touches import ALL, READS_CLOCK, Touch
from .table.exceptions import PUBLISHES

if TYPE_CHECKING:
    from ..http.messages import Request
    from .fake import KVServer
    from .table.synopsis import BoundLine

KEY_OF_DB = "key of db"
"""The kind of touches of keys, without the number of the database."""
_PATTERNS = frozenset(("PSUBSCRIBE", "PUNSUBSCRIBE"))
_WITHOUT_ACCESS = frozenset(("TIME", "LOLWUT"))
"""Commands of servers that access neither data nor settings."""


def touches_of_request(fake: KVServer, request: Request) -> Sequence[Touch] | None:
    """Return no touches, because the engine reports its commands; None for a real server."""
    return () if hasattr(core_of(fake).engine, "run") else None


def touches_of_command(
    fake: str, database: int, databases: int, spec: Any, line: Sequence[bytes]
) -> Iterable[Touch]:
    """Yield what a command touches, based on the keys and flags in the command table."""
    if spec.depends_on_time(line):
        yield READS_CLOCK
    if spec.group == "pubsub" and spec.container is None:
        for channel in line[1:2] if spec.name in PUBLISHES else line[1:]:
            yield Touch(fake, "channel", ALL if spec.name in _PATTERNS else text_of(channel), True)
        return
    # The commands in scripts and transactions are recorded when they run.
    is_script = "no_mandatory_keys" in spec.flags
    is_transaction = spec.group == "transactions" and not spec.keys
    acts_on_connection = "@connection" in spec.categories
    if is_script or is_transaction or acts_on_connection or spec.name in _WITHOUT_ACCESS:
        return
    touches = [
        touch_of_key(fake, database, line[at], key.stores) for at, key in spec.key_positions(line)
    ]
    for key in spec.keys_not_found(line):
        touches.append(Touch(fake, f"{KEY_OF_DB}{database}", ALL, key.stores))
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


def fields_of(name: str, bound: BoundLine) -> tuple[str, ...]:
    """Return the fields, members or indexes that the arguments of a command name."""
    fields = bound.with_role("field")
    if name == "ARSET" and fields[0].isdecimal():
        first = int(fields[0])
        return tuple(map(str, range(first, first + len(bound.with_role("value")))))
    return fields


def has_field(value: Any, field: str) -> bool:
    """Return whether the value of a key has a field, member or index."""
    type_name = getattr(value, "type_name", "")
    if type_name == "array":
        return field.isdecimal() and int(field) in value.values
    return type_name in ("hash", "set", "vectorset", "zset") and field.encode() in value


def text_of(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")
