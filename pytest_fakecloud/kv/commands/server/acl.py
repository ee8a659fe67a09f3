"""ACL commands, which manage users, their rules and REST tokens, and the log of denied commands."""

from __future__ import annotations

import secrets
from math import ceil

from ... import errors
from ...acl import (
    AclUser,
    Denied,
    apply_rules,
    categories_of,
    check_rules,
    describe_user,
    generate_token,
    has_space,
    user_details,
    wrapping_token,
)
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import OK, Map, Reply
from ...syntax import decoded, encoded, parse_int
from ...table.registry import Args, command
from ..arguments import subcommand_error

_BUILT_IN = (b"default", b"default_ro")


@command("ACL SETUSER")
def acl_setuser(session: Session, args: Args) -> Reply:
    """Create or change a user; if a rule is invalid, no rule is applied."""
    engine = session.engine
    if has_space(args[0]):
        raise CommandError(errors.ACL_USER_NAME)
    if engine.dialect == "vendor" and args[0] in _BUILT_IN:
        raise CommandError(errors.fixed_user(args[0]))
    if engine.dialect == "vendor" and session.interface != "local":
        check_rules(args[1:])
    name = decoded(args[0])
    user = engine.users.get(name) or AclUser(name, engine.dialect, engine.table)
    apply_rules(user, args[1:])
    engine.users[name] = user
    engine.users.disconnect_listeners(user)
    return OK


@command("ACL DELUSER")
def acl_deluser(session: Session, args: Args) -> Reply:
    """Delete users, their REST tokens and connections; return the number of users that existed."""
    engine = session.engine
    for name in args:
        if name == b"default" or (engine.dialect == "vendor" and name in _BUILT_IN):
            raise CommandError(errors.cannot_remove(name))
    return sum(engine.users.remove(decoded(name)) for name in args)


@command("ACL GETUSER")
def acl_getuser(session: Session, args: Args) -> Reply:
    """Return a user's flags, passwords, commands, keys, channels, and selectors, or nil."""
    user = session.engine.users.get(decoded(args[0]))
    return None if user is None else user_details(user)


@command("ACL LIST")
def acl_list(session: Session, args: Args) -> Reply:
    """Return the rules of every user."""
    return [describe_user(user) for _, user in sorted(session.engine.users.items())]


@command("ACL USERS")
def acl_users(session: Session, args: Args) -> Reply:
    """Return the names of all users."""
    return [encoded(name) for name in sorted(session.engine.users)]


@command("ACL WHOAMI")
def acl_whoami(session: Session, args: Args) -> Reply:
    """Return the name of the connection's user."""
    return encoded(session.user.name)


@command("ACL DRYRUN")
def acl_dryrun(session: Session, args: Args) -> Reply:
    """Return OK if a user may run a command, otherwise the reason; the command does not run."""
    engine = session.engine
    user = engine.users.get(decoded(args[0]))
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
            return b"This user has no permissions to run the '%b' command" % denied.subject
        kind = denied.reason.encode()
        return b"This user has no permissions to access the '%b' %b" % (denied.subject, kind)
    return OK


@command("ACL GENPASS")
def acl_genpass(session: Session, args: Args) -> Reply:
    """Return a random password as hexadecimal digits, 256 bits by default.

    Redis rounds the number of bits up to whole digits, the vendor to whole bytes (documentation).
    """
    if len(args) > 1:
        raise subcommand_error(session)
    bits = parse_int(args[0] if args else b"256", 1, 4096, outside=errors.ACL_GENPASS_BITS)
    digits = ceil(bits / 8) * 2 if session.engine.dialect == "vendor" else ceil(bits / 4)
    # Do not derive credentials from the random seed: a test's seed must not reveal its passwords.
    return secrets.token_hex(ceil(digits / 2))[:digits].encode()


@command("ACL GENTOKEN")
def acl_gentoken(session: Session, args: Args) -> Reply:
    """Return a token for a user: a password for ACL SETUSER that is also the user's REST token.

    The user need not exist and does not change. The token is made from a password, or is random. The
    vendor rejects a password of low entropy; the bound of 64 bits is decided here.
    """
    if len(args) > 2:
        raise subcommand_error(session)
    return generate_token(args[0], args[1] if len(args) == 2 else None)


@command("ACL RESTTOKEN")
def acl_resttoken(session: Session, args: Args) -> Reply:
    """Create a REST token for a user, given the user's password.

    The vendor documents the command. If the password is a token of ACL GENTOKEN that was made from
    another password, that one is accepted, too (documentation). Later changes of the user also apply
    to the token. The token becomes invalid when the user or the password is removed, and while the
    user is off (decided here).
    """
    name, password = args
    users = session.engine.users
    user = users.get(decoded(name))
    if user is not None and not user.accepts(password):
        password = wrapping_token(name, password)
    if user is None or not user.accepts(password):
        raise CommandError(errors.rest_token_failed(name))
    return users.make_token(user, password).encode()


@command("ACL CAT")
def acl_cat(session: Session, args: Args) -> Reply:
    """Return the command categories, or the commands in a category."""
    categories = categories_of(session.engine.table)
    if not args:
        return [category.encode() for category in categories]
    if len(args) > 1:
        raise subcommand_error(session)
    category = args[0].decode("utf-8", "replace").lower()
    if category not in categories:
        raise CommandError(errors.unknown_category(args[0]))
    members = session.engine.table.members_of(f"@{category}")
    return [spec.full_name.encode() for spec in sorted(members, key=lambda spec: spec.name)]


@command("ACL LOG")
def acl_log(session: Session, args: Args) -> Reply:
    """Return the latest denied commands and logins, 10 by default, or clear the log."""
    log = session.engine.users.log
    keeps_none = session.engine.dialect == "vendor" and session.interface != "local"
    if len(args) > 1:
        raise subcommand_error(session)
    if args and args[0].upper() == b"RESET":
        log.clear()
        return OK
    count = max(0, parse_int(args[0])) if args else 10
    if keeps_none:
        return []  # The vendor's service keeps no log (documentation).
    return [
        Map([
            b"count", entry.times,
            b"reason", entry.reason.encode(),
            b"context", entry.context.encode(),
            b"object", entry.object,
            b"username", entry.name,
            b"age-seconds", (session.engine.execution.now_us - entry.at_us) // 1000 / 1000,
            b"client-info", entry.client,
        ])
        for entry in log[:count]
    ]  # fmt: skip


@command("ACL LOAD", "ACL SAVE")
def acl_file(session: Session, args: Args) -> Reply:
    """Load users from the ACL file, or save them to the file.

    The vendor persists every change immediately, so in the vendor's dialect the commands return OK
    and change nothing (decided here). Redis returns an error if no ACL file is configured, which is
    always so in a fake.
    """
    if session.engine.dialect == "vendor":
        return OK
    raise CommandError(errors.ACL_NO_FILE)
