"""Users that exist without a rule: ``default``, ``default_ro``, the test, and a client before login."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from .. import errors
from ..errors import CommandError
from ..table.registry import EVERYTHING, CommandSpec, Table
from .users import AclUser, Selector

if TYPE_CHECKING:
    from ..settings import Dialect


class Anonymous(AclUser):
    """The user of a client that has not logged in, who may only log in and out."""

    known = False

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Deny all commands except AUTH, HELLO, QUIT and RESET."""
        if "no_auth" not in spec.flags:
            raise CommandError(errors.NOAUTH)


ANONYMOUS = Anonymous("default")


@cache
def _all_permissions(table: Table) -> Selector:
    selector = Selector(table)
    selector.set_all_commands(True)
    selector.all_keys = selector.all_channels = True
    return selector


def first_user(dialect: Dialect, table: Table = EVERYTHING) -> AclUser:
    """Return the initial user ``default``, who may do everything and needs no password."""
    user = AclUser("default", dialect, table)
    user.on = user.passwordless = True
    user.selectors = [_all_permissions(table)]
    user.update_unrestricted()
    return user


@cache
def tester(dialect: Dialect) -> AclUser:
    """Return the user as which the test itself runs commands. Rules cannot restrict this user."""
    return first_user(dialect)


_ALSO_READ = ("PING", "ECHO", "TIME", "DBSIZE", "COMMAND", "MULTI", "EXEC", "DISCARD")
"""Commands outside ``@read`` that the read-only user may run, because they show no stored data."""


@cache
def _read_permissions(table: Table) -> Selector:
    selector = Selector(table)
    selector.set_category("@read", True)
    for category in ("@dangerous", "@scripting"):
        selector.set_category(category, False)
    for name in ("SCAN", "KEYS"):
        selector.set_command(table.commands[name], False)
    for name in (*_ALSO_READ, "CLIENT SETINFO"):
        if name in table.commands:
            selector.set_command(table.commands[name], True)
    selector.all_keys = selector.all_channels = True
    return selector


def read_only_user(dialect: Dialect, table: Table = EVERYTHING) -> AclUser:
    """Return the user of the read-only token, ``default_ro`` (specification).

    KEYS, SCAN and scripts are denied according to the vendor's documentation and user reports. The
    user has no password, because only the read-only token logs in as this user.

    Decided here: PUBLISH and administration are denied as well.
    """
    user = AclUser("default_ro", dialect, table)
    user.on = True
    user.selectors = [_read_permissions(table)]
    return user
