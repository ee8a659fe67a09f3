"""The second engine, which lets a real Redis or Valkey server run the commands.

As with the in-memory engine, the fake provides routes, tokens, faults, limits and the journal. The
server provides keys and time. The setting ``isolation`` determines which part of the server belongs
to the fake: the keys with a prefix of its own (``"prefix"``, the default), a numbered database of
its own (``"database"``), or everything in the URL's database (``"none"``).

Decided here:

- When the fake closes, its data is removed, except with ``"none"``.
- With a prefix, commands about all keys run as scripts, so they are atomic and do not see other
  keys. Their duration grows with the number of keys on the server.
- If the server allows creating users, scripts run as a user that can reach only the fake's own keys
  and channels.
- In a cluster, all keys of a fake share a hash tag, so commands on several keys work. To use
  several nodes, create several fakes.

Names and key patterns of ACL users get the prefixes of the fake that created them (``ACL SETUSER ann
~cache:*``), so two tests can each have a user called ann. A REST token encodes the user's name and
password, so any process that receives the token can log in. The server checks the user's rules.
When a user is deleted, its tokens become invalid.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from .. import errors
from ..acl import AclUser, first_user, join_selectors, read_only_user
from ..errors import CommandError
from ..reply import OK, QUEUED, Reply
from ..settings import KVConfig
from ..table.registry import EVERYTHING, CommandSpec, check_family_over_rest, check_over_rest
from ..table.rows import DOCUMENTED
from .feeds import MonitorFeed, Subscriptions
from .links import Link, Login
from .namespace import Namespace, RedisContents, RedisCopy, copy_of, restore_copy
from .rewriting import Answered, Prefixes, Prepared, RedisScripts, Rewriter, escaped, find_spec

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
    """Return name and password of a token: ``acl-`` and, in Base64, ``<length of name>:<both>``."""
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


@dataclass(eq=False)
class RedisSession:
    """A client's session: its user and its open transaction."""

    user: Any
    transport: str
    address: str
    queue: list[Prepared] | None = None
    """The commands of the open transaction, which EXEC sends together; None without one."""
    aborted: bool = False
    """Whether EXEC will fail, because a command of the open transaction was rejected."""
    deliver: Callable[[list[Any]], None] | None = None
    wake: Callable[[], None] | None = None

    @property
    def login(self) -> Any:
        """The login of the server's user that runs the commands, or None for the user in the URL."""
        return self.user.login if isinstance(self.user, RedisUser) else None

    def push(self, message: list[Any]) -> None:
        if self.deliver is not None:
            self.deliver(message)


class RedisEngine:
    """A key-value store whose commands a real server runs.

    The scheme of ``url`` is ``redis``, ``rediss``, ``unix``, ``valkey``, ``valkeys``,
    ``redis+cluster`` or ``redis+sentinel`` (``redis+sentinel://host:port/primary``). The query of
    the URL can contain connection settings of redis-py, and ``prefix=`` to let several processes
    share a prefix. The setting ``documented_only`` does not apply to commands in scripts.

    Raises ``ContractError`` for an invalid URL, an unreachable server, and a clock with fake time.
    """

    def __init__(self, clock: Timekeeper, ids: Ids, url: str, settings: KVConfig) -> None:
        clock.check_real_time()
        self.clock = clock
        self.table = EVERYTHING
        self.settings = settings
        self.lock = nullcontext()  # The server itself runs one command at a time.
        self.namespace = namespace = Namespace(url, settings.isolation)
        self._prefixes = namespace.prefixes
        self.pubsub = Subscriptions(namespace.link, namespace.prefixes)
        self.monitors = MonitorFeed(namespace.link, namespace.prefixes)
        self.streaming: set[RedisSession] = set()
        """The sessions of open event streams."""
        self.users = RedisUsers(namespace.link, namespace.prefixes)
        fraction = ids.stream("kv", "random").random
        self._rewriter = Rewriter(namespace.prefixes, fraction, self.pubsub.patterns)
        self._scripts = RedisScripts() if settings.dialect == "vendor" else None
        # The first copy becomes the baseline.
        self._has_baseline = settings.isolation != "none"
        self._release_clock = clock.tie_to_real_time(
            f"the real server behind it ({namespace.link.where}) runs in real time. To move the "
            "clock, use the in-memory engine (leave out engine=)"
        )
        self.closed = False

    def session(
        self,
        user: Any = None,
        transport: str = "local",
        address: str = "",
        at_us: int | None = None,
        size: int = 0,
    ) -> RedisSession:
        """Open a session, by default for the user ``default``. The server ignores the last two."""
        return RedisSession(user or self.users.default, transport, address)

    def _check_offered(
        self, session: RedisSession, spec: CommandSpec | None, argv: list[bytes]
    ) -> None:
        if session.transport == "rest":
            if spec is not None:
                check_over_rest(spec, argv)
            elif (family := EVERYTHING.find_family(argv)) is not None:
                check_family_over_rest(family)
        limited = self.settings.documented_only and session.transport != "local"
        if spec is not None and limited and spec.name not in DOCUMENTED:
            raise CommandError(errors.not_available(spec.name))

    def give_way(self) -> None:
        """Do nothing, because the server itself takes turns between its clients."""

    def execute(self, session: RedisSession, argv: list[bytes]) -> Reply:
        spec = find_spec(argv)
        name = spec.name if spec is not None else ""
        try:
            self._check_offered(session, spec, argv)
            self.namespace.check_claim()
            if name in ("MULTI", "EXEC", "DISCARD") and len(argv) == 1:
                return self._run_transaction_command(session, name)
            if spec is not None:
                self._check(session, spec, argv)
            reply = self._run_or_queue(session, self._prepared(session, spec, argv), argv)
        except CommandError as error:
            # As on a real server, a nested MULTI does not abort the transaction.
            if session.queue is not None and name != "MULTI":
                session.aborted = True
            raise CommandError(self._prefixes.without(error.text)) from None
        if name == "ACL DELUSER":
            removed = {word.decode("utf-8", "replace") for word in argv[2:]}
            for each in tuple(self.streaming):
                if each.login is not None and each.user.name in removed and each.wake:
                    each.wake()
        return reply

    def _check(self, session: RedisSession, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` if the user's permissions or the limit for keys forbid a command."""
        if not session.user.unrestricted:
            session.user.check(spec, argv)
        limit = self.settings.max_key_size
        if limit is None or session.transport == "local":
            return
        for place, key in spec.key_positions(argv):
            if key.writes and len(argv[place]) > limit:
                raise CommandError(errors.max_key_size(limit, len(argv[place])))

    def _prepared(
        self, session: RedisSession, spec: CommandSpec | None, argv: list[bytes]
    ) -> Prepared | Answered:
        if spec is not None and spec.name.startswith("ACL "):
            self._rewriter.check(spec, argv)
            return prepare_acl(self._prefixes, self.users, session.user, argv)
        prepared = self._rewriter.prepare(spec, argv)
        if self._scripts is not None and spec is not None and isinstance(prepared, Prepared):
            self._scripts.adapt(spec.name, prepared)
        return prepared

    def _run_or_queue(
        self, session: RedisSession, prepared: Prepared | Answered, argv: list[bytes]
    ) -> Reply:
        if isinstance(prepared, Answered):
            if session.queue is not None:
                raise CommandError(errors.NOT_IN_TRANSACTION)
            return prepared.reply
        if session.queue is not None:
            session.queue.append(prepared)
            return QUEUED
        login = session.login
        if login is not None and prepared.emulated:
            # Check the user's permission for the original command (such as FLUSHDB), because the
            # user may not have permission for the script that replaces it.
            verdict = self.namespace.link.call([b"ACL", b"DRYRUN", login[0], *argv])
            if isinstance(verdict, bytes):
                raise CommandError(b"NOPERM " + verdict)
            login = None
        elif login is None and prepared.runs_script:
            login = self.namespace.script_login
        return self._answered(prepared, self.namespace.link.call(prepared.argv, login))

    def _answered(self, prepared: Prepared, reply: Reply) -> Reply:
        if prepared.answer is not None and not isinstance(reply, CommandError):
            reply = prepared.answer(reply)
        return self._prefixes.strip(reply)

    def _run_transaction_command(self, session: RedisSession, name: str) -> Reply:
        if name == "MULTI":
            if session.queue is not None:
                raise CommandError(errors.NESTED_MULTI)
            session.queue, session.aborted = [], False
            return OK
        queue, session.queue = session.queue, None
        if name == "DISCARD":
            if queue is None:
                raise CommandError(errors.DISCARD_WITHOUT_MULTI)
            return OK
        if queue is None:
            raise CommandError(errors.EXEC_WITHOUT_MULTI)
        if session.aborted:
            raise CommandError(errors.EXECABORT)
        login = session.login
        if login is None and any(prepared.runs_script for prepared in queue):
            login = self.namespace.script_login
        *queued, replies = self.namespace.link.transaction([one.argv for one in queue], login)
        for reply in queued:
            if isinstance(reply, CommandError):
                raise CommandError(errors.exec_aborted_by(reply.text))
        if not isinstance(replies, list):
            raise replies if isinstance(replies, CommandError) else CommandError(errors.EXECABORT)
        return [self._answered(*pair) for pair in zip(queue, replies, strict=True)]

    def abandon(self, session: RedisSession) -> None:
        session.queue = None
        self.pubsub.drop(session)

    @contextmanager
    def reading(self) -> Iterator[RedisContents]:
        """Provide the fake's keys within a ``with`` block. Each access reads from the server."""
        self.namespace.check_claim()
        yield RedisContents(self.namespace)

    def snapshot(self) -> RedisCopy:
        """Copy the fake's keys and users.

        With ``isolation="none"``, the copy includes the function libraries and all users except
        ``default`` and the user in the URL. Otherwise libraries are not copied, because they belong
        to all users of the server. Scripts are not copied, because a server does not list its
        cached scripts. Parameters (CONFIG SET) are not copied either. With ``isolation="none"``,
        the first copy, which becomes the baseline, is empty: the data existed before the fake.
        """
        if not self._has_baseline:
            self._has_baseline = True
            return RedisCopy(None)
        return copy_of(self.namespace)

    def restore(self, saved: RedisCopy) -> None:
        restore_copy(self.namespace, saved)

    def close(self) -> None:
        """Remove the fake's data from the server and close all connections. Later calls do nothing."""
        if self.closed:
            return
        self.closed = True
        self._release_clock()
        self.pubsub.close()
        self.monitors.close()
        self.namespace.close()
