"""The availability of commands over REST, and the options on which it depends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..errors import CommandError, not_available

if TYPE_CHECKING:
    from .registry import CommandSpec

OPTIONS_OF_READS = {b"GROUP": 3, b"COUNT": 2, b"BLOCK": 2}
"""Options of XREAD and XREADGROUP with arguments, and their numbers of words with the name."""


def options(
    argv: list[bytes], start: int, lengths: Mapping[bytes, int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the upper-case word of each option from ``start`` on.

    ``lengths`` are the numbers of words of the options that have arguments, with their names.
    """
    at = start
    while at < len(argv):
        word = argv[at].upper()
        yield at, word
        at += lengths.get(word, 1)


def check_over_rest(spec: CommandSpec, argv: list[bytes]) -> None:
    """Raise the vendor's error if a command is not available over REST.

    XREAD and XREADGROUP are available without BLOCK. With BLOCK they would keep the request open,
    like BLPOP, and the vendor's own queue library relies on the error. This function checks single
    commands and each command of a pipeline or transaction; the transaction is then discarded.
    """
    if not spec.over_rest:
        raise CommandError(not_available(spec.name.split()[0]))
    if spec.may_wait and asks_to_wait(argv):
        raise CommandError(not_available(spec.name) + b" with BLOCK, which waits")


def check_family_over_rest(spec: CommandSpec) -> None:
    """Raise the vendor's error if no subcommand of a container command is available over REST."""
    if not any(each.over_rest for each in (spec.subcommands or {}).values()):
        raise CommandError(not_available(spec.name))


def asks_to_wait(argv: list[bytes]) -> bool:
    """Return whether an XREAD or XREADGROUP command has the BLOCK option."""
    for _, word in options(argv, 1, OPTIONS_OF_READS):
        if word in (b"BLOCK", b"STREAMS"):
            return word == b"BLOCK"
    return False
