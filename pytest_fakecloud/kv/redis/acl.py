"""ACL users on a real server, and their REST tokens.

Names and key patterns of users get the prefixes of the fake that created them (``ACL SETUSER ann
~cache:*``), so two tests can each have a user called ann. A REST token encodes the user's name and
password, so any process that receives the token can log in. The server checks the user's rules.
When a user is deleted, its tokens become invalid.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from .. import errors
from ..acl import AclUser, first_user, join_selectors, read_only_user
from ..errors import CommandError
from ..reply import Reply
from ..table.registry import CommandSpec
from .connection import Link, Login
from .rewriting import Answered, Prefixes, Prepared, escaped

_TOKEN = "acl-"
_DEFAULTS = (b"default", b"default_ro")


class RedisUser(NamedTuple):
    """A user on the server, which checks the permissions of this user's commands itself."""

    name: str
    login: Login
    unrestricted: bool = True


class RedisUsers:
    """The two default users, and the users on the server, which are looked up by REST token."""

    def __init__(self, link: Link, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self.read_only = read_only_user("vendor")
        """The user to whom the read-only token belongs."""
        self.default = first_user("vendor")

    def permit(self, session: Any, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise a NOPERM error if the session's user may not run the command."""
        session.user.check(spec, argv)

    def make_token(self, name: bytes, password: bytes) -> bytes:
        """Return a REST token for a user; raise ``CommandError`` for a wrong name or password."""
        if name in _DEFAULTS or not self._link.admits((self._prefixes.users + name, password)):
            raise CommandError(errors.rest_token_failed(name))
        sealed = urlsafe_b64encode(b"%d:%b%b" % (len(name), name, password))
        return _TOKEN.encode() + sealed.rstrip(b"=")

    def holder_of(self, token: str) -> Any:
        """Return the user of a REST token, or None if the server rejects the user's password."""
        opened = _opened(token)
        if opened is None:
            return None
        name, password = opened
        login = (self._prefixes.users + name, password)
        user = RedisUser(name.decode("utf-8", "replace"), login)
        return user if self._link.admits(login) else None


def _opened(token: str) -> Login | None:
    """Return the name and password in a token, or None if it is not valid.

    A token is ``acl-`` and, in Base64, the length of the name, a colon, the name and the password.
    """
    if not token.startswith(_TOKEN):
        return None
    sealed = token[len(_TOKEN) :]
    try:
        opened = urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
        length, _, rest = opened.partition(b":")
        rest.decode()
        return rest[: int(length)], rest[int(length) :]
    except ValueError:
        return None


def prepare_acl(
    prefixes: Prefixes, users: RedisUsers, user: RedisUser | AclUser, argv: list[bytes]
) -> Prepared | Answered:
    """Return the line to send for an ACL command of ``user``."""
    word = argv[1].upper()
    if word == b"WHOAMI" and not isinstance(user, RedisUser):
        # On the server, the default tokens run as the user in the URL, whose name is different.
        return Answered(user.name.encode())
    if word == b"RESTTOKEN":
        return Answered(users.make_token(argv[2], argv[3]))
    prepare = _PREPARED.get(word)
    return Prepared(list(argv)) if prepare is None else prepare(prefixes, argv)


def _setuser(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    _refuse_default_users(argv[2:3], errors.fixed_user)
    rules = (_with_prefixes(prefixes, rule) for rule in join_selectors(argv[3:]))
    return Prepared([*argv[:2], prefixes.users + argv[2], *rules])


def _deluser(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    _refuse_default_users(argv[2:], errors.cannot_remove)
    return Prepared([*argv[:2], *(prefixes.users + name for name in argv[2:])])


def _about_user(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    name = argv[2] if argv[2] in _DEFAULTS else prefixes.users + argv[2]
    return Prepared([*argv[:2], name, *argv[3:]], partial(_without_prefixes, prefixes))


_PREPARED: dict[bytes, Callable[[Prefixes, list[bytes]], Prepared]] = {
    b"GENTOKEN": lambda prefixes, argv: Prepared([b"ACL", b"GENPASS"]),
    b"SETUSER": _setuser,
    b"DELUSER": _deluser,
    b"GETUSER": _about_user,
    b"DRYRUN": _about_user,
    b"USERS": lambda prefixes, argv: Prepared(argv, partial(_own_names, prefixes)),
    b"LIST": lambda prefixes, argv: Prepared(argv, partial(_own_lines, prefixes)),
}


def _refuse_default_users(names: list[bytes], refusal: errors.Template) -> None:
    for name in names:
        if name in _DEFAULTS:
            raise CommandError(refusal(name))


def _with_prefixes(prefixes: Prefixes, rule: bytes) -> bytes:
    """Return a rule, or a selector in parentheses, with the fake's prefixes in the patterns."""
    if rule.startswith(b"("):
        inner = (_with_prefixes(prefixes, word) for word in rule[1:-1].split())
        return b"(" + b" ".join(inner) + b")"
    lower = rule.lower()
    if lower == b"allkeys":
        rule = b"~*"
    elif lower == b"allchannels":
        rule = b"&*"
    sign, tilde, pattern = rule.partition(b"~")
    if tilde and (not sign or sign.startswith(b"%")):
        return sign + b"~" + escaped(prefixes.keys) + pattern
    if rule.startswith(b"&"):
        return b"&" + escaped(prefixes.channels) + rule[1:]
    return rule


def _without_prefixes(prefixes: Prefixes, reply: Reply) -> Reply:
    if isinstance(reply, list):
        return [_without_prefixes(prefixes, item) for item in reply]
    return prefixes.without(reply) if isinstance(reply, bytes) else reply


def _own_names(prefixes: Prefixes, reply: Reply) -> Reply:
    """Return ``default``, the user of the fake's token, and the fake's names in a reply of ACL USERS."""
    if not prefixes.users or not isinstance(reply, list):
        return reply
    own = [name for name in reply if name.startswith(prefixes.users)]
    return [b"default", *(prefixes.without(name) for name in own)]


def _own_lines(prefixes: Prefixes, reply: Reply) -> Reply:
    """Return the lines in a reply of ACL LIST about the fake's users and ``default``."""
    if not prefixes.users or not isinstance(reply, list):
        return reply
    starts = (b"user " + prefixes.users, b"user default ")
    return [prefixes.without(line) for line in reply if line.startswith(starts)]
