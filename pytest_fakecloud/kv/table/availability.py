"""Which command lines REST offers: none of those that wait, or that belong to a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CommandError, not_available

if TYPE_CHECKING:
    from .registry import CommandSpec

_WORDS_OF_READS = {b"GROUP": 3, b"COUNT": 2}
"""The option words of XREAD and XREADGROUP that others follow: how many with these."""


def check_over_rest(spec: CommandSpec, argv: list[bytes]) -> None:
    """Raise the vendor's error for a line REST has not.

    XREAD and XREADGROUP are there, but not with BLOCK: like BLPOP they would hold the request, and
    the vendor's own queue library counts on the refusal. So it is alone, in a pipeline and in a
    transaction, which it discards.
    """
    if not spec.over_rest:
        raise CommandError(not_available(spec.name.split()[0]))
    if spec.may_wait and asks_to_wait(argv):
        raise CommandError(not_available(spec.name) + b" with BLOCK, which waits")


def check_family_over_rest(spec: CommandSpec) -> None:
    """Raise the vendor's error for a command of which REST has no sub-command."""
    if not any(each.over_rest for each in (spec.subcommands or {}).values()):
        raise CommandError(not_available(spec.name))


def asks_to_wait(argv: list[bytes]) -> bool:
    """Whether an XREAD or XREADGROUP has BLOCK among its options."""
    at = 1
    while at < len(argv):
        word = argv[at].upper()
        if word == b"BLOCK":
            return True
        if word == b"STREAMS":
            return False
        at += _WORDS_OF_READS.get(word, 1)
    return False
