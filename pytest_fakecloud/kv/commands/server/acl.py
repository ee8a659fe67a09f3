"""ACL: users, their rules, their REST tokens, and the log of refusals."""

from __future__ import annotations

import secrets

from ... import errors
from ...acl.rules import (
    apply_rules,
    categories_of,
    describe_user,
    user_details,
)
from ...acl.users import AclUser, Denied
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import OK, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from .help import help_reply

__all__: list[str] = []

PASSWORD_BITS = 256
_BUILT_IN = (b"default", b"default_ro")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _bad_arguments(subcommand: bytes) -> CommandError:
    return CommandError(errors.bad_subcommand_arguments("ACL", subcommand))


# -- users ---------------------------------------------------------------------------------------


@command("ACL SETUSER")
def acl_setuser(session: Session, args: Args) -> Reply:
    """Make a user, or change one: all rules are applied, or none."""
    engine = session.engine
    if any(byte in b" \t\n\r\v\f\0" for byte in args[0]):
        raise CommandError(errors.ACL_USER_NAME)
    if engine.dialect == "vendor" and args[0] in _BUILT_IN:
        raise CommandError(errors.fixed_user(args[0]))
    name = _text(args[0])
    user = engine.users.get(name)
    if user is None:
        user = AclUser(name, engine.dialect, engine.table)
        apply_rules(user, args[1:])
        engine.users.add(user)
    else:
        apply_rules(user, args[1:])
        engine.users.disconnect_listeners(user)
    return OK


@command("ACL DELUSER")
def acl_deluser(session: Session, args: Args) -> Reply:
    """Remove users, their REST tokens and their connections; how many there were."""
    engine = session.engine
    for name in args:
        if name == b"default" or (engine.dialect == "vendor" and name in _BUILT_IN):
            raise CommandError(errors.cannot_remove(name))
    return sum(engine.users.remove(_text(name)) for name in args)


@command("ACL GETUSER")
def acl_getuser(session: Session, args: Args) -> Reply:
    """Flags, passwords, commands, keys, channels and selectors of a user; nil when there is none."""
    user = session.engine.users.get(_text(args[0]))
    return None if user is None else user_details(user)


@command("ACL LIST")
def acl_list(session: Session, args: Args) -> Reply:
    """Every user as the rules that would make it."""
    return [describe_user(user) for user in session.engine.users]


@command("ACL USERS")
def acl_users(session: Session, args: Args) -> Reply:
    """The names of all users."""
    return [_bytes(user.name) for user in session.engine.users]


@command("ACL WHOAMI")
def acl_whoami(session: Session, args: Args) -> Reply:
    """The name of the user who asks."""
    return _bytes(session.user.name)


@command("ACL DRYRUN")
def acl_dryrun(session: Session, args: Args) -> Reply:
    """Whether a user may run a command line, without running it: OK, or why not."""
    engine = session.engine
    user = engine.users.get(_text(args[0]))
    if user is None:
        raise CommandError(errors.user_not_found(args[0]))
    line = args[1:]
    try:
        spec = engine.table.resolve(line)
    except CommandError:
        raise CommandError(errors.command_not_found(line[0])) from None
    if not spec.least <= len(line) <= spec.most:
        raise CommandError(errors.wrong_arity(spec.full_name))
    try:
        user.check(spec, line)
    except Denied as denied:
        if denied.reason == "command":
            return b"This user has no permissions to run the '%b' command" % denied.object
        kind = denied.reason.encode()
        return b"This user has no permissions to access the '%b' %b" % (denied.object, kind)
    return OK


# -- credentials ---------------------------------------------------------------------------------


def _random_digits(args: Args, subcommand: bytes) -> bytes:
    bits = PASSWORD_BITS
    if args:
        bits = parse_int(args[0])
        if not 0 < bits <= 4096:
            raise CommandError(errors.ACL_GENPASS_BITS)
    digits = (bits + 3) // 4
    # Credentials are never from the random seed: who knows a test must not know its passwords.
    return secrets.token_hex((digits + 1) // 2)[:digits].encode()


@command("ACL GENPASS")
def acl_genpass(session: Session, args: Args) -> Reply:
    """A random password of so many bits (256), as hexadecimal digits."""
    if len(args) > 1:
        raise _bad_arguments(b"GENPASS")
    return _random_digits(args, b"GENPASS")


@command("ACL GENTOKEN")
def acl_gentoken(session: Session, args: Args) -> Reply:
    """A random password for a user, to give to SETUSER as ``>password``.

    ``ACL GENTOKEN name [bits]``: the vendor names the command and not its arguments, so these are
    decided here. The user need not exist, and is not changed.
    """
    if len(args) > 2:
        raise _bad_arguments(b"GENTOKEN")
    return _random_digits(args[1:], b"GENTOKEN")


@command("ACL RESTTOKEN")
def acl_resttoken(session: Session, args: Args) -> Reply:
    """A REST token for a user, given its password (specification).

    It follows every later change of the user, and ends with the user, with its password, and while
    the user is off (decided here).
    """
    engine = session.engine
    user = engine.users.get(_text(args[0]))
    if user is None or not user.accepts(args[1]):
        raise CommandError(errors.rest_token_failed(args[0]))
    return engine.users.make_token(user, args[1]).encode()


# -- the rest ------------------------------------------------------------------------------------


@command("ACL CAT")
def acl_cat(session: Session, args: Args) -> Reply:
    """The categories of commands, or the commands of one."""
    known = categories_of(session.engine.table)
    if not args:
        return [category.encode() for category in known]
    if len(args) > 1:
        raise _bad_arguments(b"CAT")
    category = args[0].decode("utf-8", "replace").lower()
    if category not in known:
        raise CommandError(errors.unknown_category(args[0]))
    members = session.engine.table.members_of(f"@{category}")
    return [spec.full_name.encode() for spec in sorted(members, key=lambda spec: spec.name)]


@command("ACL LOG")
def acl_log(session: Session, args: Args) -> Reply:
    """The latest refusals (10, or as many as wanted), or forget them all."""
    log = session.engine.users.log
    if len(args) > 1:
        raise _bad_arguments(b"LOG")
    if args and args[0].upper() == b"RESET":
        log.clear()
        return OK
    count = 10
    if args:
        count = max(0, parse_int(args[0]))
    return log.show(count, session.engine.now_us)


@command("ACL LOAD", "ACL SAVE")
def acl_file(session: Session, args: Args) -> Reply:
    """Read the users back, or write them down: the vendor keeps every change at once.

    So both are OK there and change nothing (decided here); the stock server refuses them without a
    file for the users, and there is none.
    """
    if session.engine.dialect == "vendor":
        return OK
    raise CommandError(errors.ACL_NO_FILE)


@command("ACL HELP")
def acl_help(session: Session, args: Args) -> Reply:
    """The sub-commands of ACL."""
    return help_reply(session, "ACL")
