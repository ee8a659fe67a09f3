"""CLIENT TRACKING: the keys that sessions have read, and invalidation messages for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..reply import Push

if TYPE_CHECKING:
    from ..table.config import Config
    from ..table.registry import CommandSpec
    from .client import Client, TrackingOptions
    from .keyspace import Keyspace

_KEEPS_CACHING = frozenset({"CLIENT CACHING", "CLIENT TRACKINGINFO", "MULTI", "EXEC"})
"""Commands after which CLIENT CACHING is still in effect; it applies to the next other command or
transaction.

CLIENT TRACKINGINFO shows the flag, so it must not end its effect.
"""
_CHANNEL = b"__redis__:invalidate"


class Tracking:
    """The keys that sessions have read, and the sessions that track prefixes (BCAST).

    Once the readers of a key have received an invalidation message, the key is forgotten: they must
    read it again to receive another. ``connected`` maps numbers to clients of the database port, to
    which messages can be redirected. Called under the engine's lock.
    """

    def __init__(
        self, connected: Mapping[int, Client], config: Config, databases: list[Keyspace]
    ) -> None:
        self._connected = connected
        self._config = config
        self._databases = databases
        self._changed: dict[bytes, bool] = {}
        """Changed keys of which readers have been notified, but not yet the sessions that track
        prefixes.
        """
        self.evicting = False
        """Whether messages about evicted keys are being sent; these are sent before the next reply."""
        self._line: tuple[CommandSpec, list[bytes], bool | None] | None = None
        """The last command outside a script: its spec, its line, and the CLIENT CACHING before it."""
        self._readers: dict[bytes, dict[int, None]] = {}
        self._sessions: dict[int, Client] = {}

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def start(self, session: Client, options: TrackingOptions) -> None:
        """Start tracking for a session, or replace its options."""
        session.tracking = options
        self._sessions[session.id] = session

    def stop(self, session: Client) -> None:
        """Stop tracking for a session; does nothing if the session does not track."""
        session.tracking = None
        self._sessions.pop(session.id, None)

    def note(self, session: Client, spec: CommandSpec, argv: list[bytes]) -> None:
        """Remember the keys that a session has just read, if its options say so.

        For a read in a script, these are the keys passed to the script (specification).
        """
        options = session.tracking
        if options is None or spec.name in _KEEPS_CACHING:
            return
        if session.in_script and self._line is not None:
            reads = spec.readonly
            spec, argv, caching = self._line
        else:
            caching = options.caching
            self._line = (spec, argv, caching)
            reads = spec.readonly and spec.group != "scripting"
            if not session.in_exec:
                options.caching = None
        if not reads or "bcast" in options.words:
            return
        if "optin" in options.words and caching is not True:
            return
        if "optout" in options.words and caching is False:
            return
        for place, _ in spec.key_positions(argv):
            self._readers.setdefault(argv[place], {})[session.id] = None

    def invalidate_changed(self, writer: Client | None, *, within: bool = False) -> None:
        """Send invalidation messages for the keys that have changed since the last call.

        With ``within``, in a transaction or script, only the readers of a key get a message: a
        session that reads the key later will read the new value.
        """
        for keyspace in self._databases:
            if keyspace.changed:
                changed, keyspace.changed = keyspace.changed, {}
                self._invalidate_readers(changed, writer)
                self._changed.update(changed)
        if self._changed and not within:
            changed, self._changed = self._changed, {}
            self._invalidate_prefixes(changed, writer)

    def _invalidate_readers(self, changed: Mapping[bytes, bool], writer: Client | None) -> None:
        """Send a message to the readers of changed keys, but not to ``writer`` if it uses NOLOOP."""
        for key, expired in changed.items():
            for number in self._readers.pop(key, ()):
                session = self._sessions.get(number)
                if session is None or session.tracking is None:
                    continue
                words = session.tracking.words
                if "bcast" not in words and not (
                    session is writer and "noloop" in words and not expired
                ):
                    self._send(session, session.tracking, [key])

    def _invalidate_prefixes(self, changed: Mapping[bytes, bool], writer: Client | None) -> None:
        """Send each session that tracks prefixes one message per prefix, listing its changed keys."""
        for session in list(self._sessions.values()):
            options = session.tracking
            if options is None or "bcast" not in options.words:
                continue
            own = session is writer and "noloop" in options.words
            told = sorted(key for key, expired in changed.items() if expired or not own)
            for prefix in sorted(options.prefixes):
                if found := [key for key in told if key.startswith(prefix)]:
                    self._send(session, options, found)

    def keep_within_bounds(self) -> None:
        """Forget keys beyond ``tracking-table-max-keys``, with a message to their readers."""
        most = self._config.number("tracking-table-max-keys")
        while most and len(self._readers) > most:
            self._invalidate_readers({next(iter(self._readers)): True}, None)

    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of tracked keys, of their readers summed over keys, and of prefixes."""
        sessions = self._sessions.values()
        prefixes = {each for one in sessions if one.tracking for each in one.tracking.prefixes}
        return len(self._readers), sum(map(len, self._readers.values())), len(prefixes)

    def invalidate_all(self) -> None:
        """Send all sessions a message that all keys are invalid."""
        for session in list(self._sessions.values()):
            if session.tracking is not None:
                self._send(session, session.tracking, None)
        self._readers.clear()

    def _send(self, session: Client, options: TrackingOptions, keys: list[bytes] | None) -> None:
        if not options.redirect:
            # Version 2 of the protocol supports only redirected messages.
            if session.resp == 3:
                session.push(Push([b"invalidate", keys]))
            return
        target = self._connected.get(options.redirect)
        if target is not None and target.closing:
            target = None  # QUIT is answered before the connection ends.
        options.broken = target is None
        if target is None:
            if session.resp == 3:
                session.push(Push([b"tracking-redir-broken", options.redirect]))
            return
        if target.resp == 3:
            target.push(Push([b"invalidate", keys]))
        elif _CHANNEL in target.subscriptions["channel"]:
            target.push(Push([b"message", _CHANNEL, keys]))
