"""Rejects commands that are not available over REST because they block or belong to a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CommandError, not_available

if TYPE_CHECKING:
    from .registry import CommandSpec

_WORDS_OF_READS = {b"GROUP": 3, b"COUNT": 2}
"""Options of XREAD and XREADGROUP with arguments, and their numbers of words with the name."""


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
    at = 1
    while at < len(argv):
        word = argv[at].upper()
        if word == b"BLOCK":
            return True
        if word == b"STREAMS":
            return False
        at += _WORDS_OF_READS.get(word, 1)
    return False
