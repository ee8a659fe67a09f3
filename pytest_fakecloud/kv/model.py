"""Who runs commands, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from .table.registry import CommandSpec

__all__ = ["Transport", "User"]

Transport = Literal["local", "rest", "port"]
"""Where commands come from: the tester, HTTP, or the database port."""


class User(Protocol):
    """Whoever runs commands. ``unrestricted`` spares the check of every command."""

    name: str
    unrestricted: bool
    passwordless: bool

    @property
    def known(self) -> bool:
        """Whether this is somebody, and not one who has yet to log in."""

    def accepts(self, password: bytes) -> bool:
        """Whether the password lets somebody in as this user."""

    def copy(self) -> User:
        """One that later changes of this one leave alone."""

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` with a NOPERM text unless the user may run this command line."""

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """Whether the command may read every key for this user."""

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """Whether the user may listen to a channel or pattern."""
