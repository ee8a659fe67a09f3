"""The users of a server, their REST tokens, and the log of denied commands and failed logins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.ids import new_token
from ..acl.users import (
    ANONYMOUS,
    AclUser,
    Denied,
    RestToken,
    first_user,
    password_hash,
    read_only_user,
)
from ..errors import WRONGPASS, CommandError
from ..reply import Map
from ..table.syntax import encoded

if TYPE_CHECKING:
    from ..table.registry import CommandSpec
    from .engine import Engine
    from .session import Session


# -- ACL LOG ---------------------------------------------------------------------------------------

_SAME_WITHIN_US = 60_000_000
"""Microseconds within which equal denials are counted in one entry."""
_COMPARED = 10
"""Number of the newest entries with which a denial is compared, as on a real server."""


class LogEntry(NamedTuple):
    """An entry of ACL LOG. ``client`` is the client's line in CLIENT LIST."""

    reason: str
    context: str
    object: bytes
    name: bytes
    at_us: int
    client: bytes
    times: int = 1

    @property
    def denied(self) -> tuple[Any, ...]:
        """The denial without its time and client. Equal denials are counted in one entry."""
        return self.reason, self.context, self.object, self.name


class AclLog:
    """The entries of ACL LOG, newest first. ``longest`` returns the maximum number of entries."""

    def __init__(self, longest: Callable[[], int]) -> None:
        self._longest = longest
        self._entries: list[LogEntry] = []

    def add(self, entry: LogEntry) -> None:
        for place, known in enumerate(self._entries[:_COMPARED]):
            is_same = known.denied == entry.denied
            if is_same and abs(entry.at_us - known.at_us) <= _SAME_WITHIN_US:
                del self._entries[place]
                entry = entry._replace(times=known.times + 1)
                break
        self._entries.insert(0, entry)
        del self._entries[self._longest() :]

    def clear(self) -> None:
        self._entries.clear()

    def show(self, count: int, now_us: int) -> list[Any]:
        """Return the latest ``count`` entries as in the reply of ACL LOG."""
        return [
            Map(
                [
                    *(b"count", entry.times),
                    *(b"reason", entry.reason.encode()),
                    *(b"context", entry.context.encode()),
                    *(b"object", entry.object),
                    *(b"username", entry.name),
                    *(b"age-seconds", (now_us - entry.at_us) // 1000 / 1000),
                    *(b"client-info", entry.client),
                ]
            )
            for entry in self._entries[:count]
        ]


# -- users and tokens ------------------------------------------------------------------------------

_TRANSACTION_ENDPOINT = frozenset({"MULTI", "EXEC"})
"""Commands that a REST request for a transaction runs implicitly, without needing permission."""


class UsersCopy(NamedTuple):
    """A copy of the users and REST tokens, made by ``Users.snapshot()``."""

    users: dict[str, AclUser]
    tokens: dict[str, RestToken]


class Users:
    """The ACL users of a server by name (the vendor's also has ``default_ro``), and REST tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions = engine.sessions
        dialect, table = engine.dialect, engine.table
        self._users: dict[str, AclUser] = {"default": first_user(dialect, table)}
        self.read_only = read_only_user(dialect, table)
        """The user of the read-only token."""
        if dialect == "vendor":
            self._users[self.read_only.name] = self.read_only
        self._tokens: dict[str, RestToken] = {}
        self.log = AclLog(lambda: engine.config.number("acllog-max-len"))
        """Denied commands and logins, as returned by ACL LOG."""

    def __iter__(self) -> Iterator[AclUser]:
        return (user for _, user in sorted(self._users.items()))

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def __getitem__(self, name: str) -> AclUser:
        return self._users[name]

    def get(self, name: str) -> AclUser | None:
        return self._users.get(name)

    def add(self, user: AclUser) -> None:
        self._users[user.name] = user

    def remove(self, name: str) -> bool:
        """Remove a user, its REST tokens and its connections; return whether it existed."""
        user = self._users.pop(name, None)
        if user is None:
            return False
        for token in [token for token, held in self._tokens.items() if held.user == name]:
            del self._tokens[token]
        for session in self._sessions.of(user):
            self._sessions.disconnect(session)
        return True

    def disconnect_listeners(self, user: AclUser) -> None:
        """Close a user's connections that have a subscription which is no longer allowed."""
        for session in self._sessions.of(user):
            if any(
                not user.may_listen(name, kind == "pattern")
                for kind, names in session.subscriptions.items()
                for name in names
            ):
                self._sessions.disconnect(session)

    # -- logging in ------------------------------------------------------------------------------

    def visitor(self) -> AclUser:
        """Return the user of a new connection: ``default`` without a password, or ``ANONYMOUS``."""
        default = self._users["default"]
        return default if default.on and default.passwordless else ANONYMOUS

    def authenticate(self, name: str, password: bytes) -> AclUser:
        """Return the user with this name and password; raise WRONGPASS if there is none."""
        user = self._users.get(name)
        if user is None or not user.accepts(password):
            raise CommandError(WRONGPASS)
        return user

    def make_token(self, user: AclUser, password: bytes) -> str:
        """Create a REST token, which is valid as long as the user accepts the password."""
        token = new_token()
        self._tokens[token] = RestToken(user.name, password_hash(password))
        return token

    def holder_of(self, token: str) -> AclUser | None:
        """Return the user of a REST token, or None if the token is not valid."""
        held = self._tokens.get(token)
        user = self._users.get(held.user) if held is not None else None
        if held is None or user is None or not user.accepts_hash(held.hash):
            return None
        return user

    def permit(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise NOPERM, and log it for ACL LOG, unless the session's user may run a command line."""
        if session.transport == "rest" and spec.name in _TRANSACTION_ENDPOINT:
            return
        try:
            session.user.check(spec, argv)
        except Denied as denied:
            context = "toplevel"
            if session.in_script:
                context = "lua"
            elif session.queue is not None or session.in_exec:
                context = "multi"
            self.log_denied(session, denied.reason, context, denied.subject, session.user.name)
            raise

    def log_denied(
        self, session: Session, reason: str, context: str, object: bytes, name: str
    ) -> None:
        client = self._engine.describe(session).rstrip(b"\n")
        at_us = self._engine.clock.now_us()
        self.log.add(LogEntry(reason, context, object, encoded(name), at_us, client))

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> UsersCopy:
        users = {name: user.copy() for name, user in self._users.items()}
        return UsersCopy(users, dict(self._tokens))

    def restore(self, saved: UsersCopy) -> None:
        """Restore users and tokens. Existing users are changed in place: sessions refer to them."""
        for name in [name for name in self._users if name not in saved.users]:
            self.remove(name)
        for name, user in saved.users.items():
            if name in self._users:
                self._users[name].adopt(user)
            else:
                self._users[name] = user.copy()
        self._tokens = dict(saved.tokens)
