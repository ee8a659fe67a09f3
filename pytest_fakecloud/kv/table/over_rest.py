"""The commands that are not available over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CommandError, not_available
from ..syntax import option_places
from .exceptions import AVAILABLE_OVER_REST, OPTIONS_OF_READS, UNAVAILABLE_OVER_REST
from .groups import GROUPS

if TYPE_CHECKING:
    from .registry import CommandSpec


def is_available(spec: CommandSpec) -> bool:
    """Return whether a command is available over REST, at least without BLOCK. Those that block are
    not, nor those about a connection, because each request has its own.
    """
    if spec.name in AVAILABLE_OVER_REST:
        return True
    blocks = "blocking" in spec.flags and not spec.may_wait
    return GROUPS[spec.group].over_rest and not (blocks or spec.name in UNAVAILABLE_OVER_REST)


def check_over_rest(spec: CommandSpec, line: list[bytes]) -> None:
    """Raise the vendor's error if a command is not available over REST.

    XREAD and XREADGROUP are available without BLOCK. With BLOCK they would keep the request open,
    like BLPOP, and the vendor's own queue library relies on the error. This function checks single
    commands and each command of a pipeline or transaction; the transaction is then discarded.
    """
    if not spec.rest:
        raise CommandError(not_available(spec.name))
    if spec.may_wait and asks_to_wait(line):
        raise CommandError(not_available(spec.name))


def check_container_over_rest(spec: CommandSpec, line: list[bytes]) -> None:
    """Raise the vendor's error if no subcommand of a container command is available over REST.

    A real server may have subcommands that the table does not have.
    """
    if not any(subcommand.rest for subcommand in (spec.subcommands or {}).values()):
        raise CommandError(not_available(b" ".join(line[:2]).upper()))


def asks_to_wait(line: list[bytes]) -> bool:
    """Return whether an XREAD or XREADGROUP command has the BLOCK option."""
    for _, word in option_places(line, 1, OPTIONS_OF_READS):
        if word in (b"BLOCK", b"STREAMS"):
            return word == b"BLOCK"
    return False
