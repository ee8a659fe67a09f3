"""CLIENT TRACKING: remembers which keys sessions have read, and sends invalidation messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..reply import Push
from ..table.config import Config
from ..table.registry import CommandSpec
from .keyspace import Keyspace
from .session import Session, TrackingOptions

_KEEPS_CACHING = frozenset({"CLIENT CACHING", "CLIENT TRACKINGINFO", "MULTI", "EXEC"})
"""Commands after which CLIENT CACHING still applies. CLIENT TRACKINGINFO shows the mode."""
_CHANNEL = b"__redis__:invalidate"


class _Line(NamedTuple):
    """A command line of a client. Commands that a script calls belong to the script's line."""

    spec: CommandSpec
    argv: list[bytes]
    caching: bool | None
    """The mode that CLIENT CACHING had set for the line; None if it had set none."""

    def wants_tracking(self, options: TrackingOptions) -> bool:
        """Return whether keys that the line reads are tracked for a client with these options."""
        if "bcast" in options.words or ("optin" in options.words and self.caching is not True):
            return False
        return "optout" not in options.words or self.caching is not False


class Tracking:
    """Sends invalidation messages for the keys that sessions read and the prefixes they track.

    After a message, a session must read the key again to receive another. ``connected`` maps IDs to
    the clients of the database port. The caller must hold the engine's lock.

    Mappings of changed keys say whether each key has expired. NOLOOP, which suppresses messages
    about a client's own changes, does not apply to an expired key: its writer did not change it.
    For a session that tracks prefixes, nor does it apply to keys that the session's script changed.
    """

    def __init__(
        self, connected: Mapping[int, Session], config: Config, databases: list[Keyspace]
    ) -> None:
        self._connected = connected
        self._config = config
        self._databases = databases
        self._changed: dict[bytes, bool] = {}
        """Changed keys that sessions with prefixes have not been notified of yet.

        The value says whether the key has expired or a script changed it.
        """
        self.evicting = False
        """Whether messages are about evicted keys; they do not wait for the command's reply."""
        self._line: _Line | None = None
        """The last line of a session that tracks keys."""
        self._readers: dict[bytes, dict[int, None]] = {}
        """The IDs of the sessions that have read each key."""
        self._sessions: dict[int, Session] = {}

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def start(self, session: Session, options: TrackingOptions) -> None:
        session.tracking = options
        self._sessions[session.id] = session

    def stop(self, session: Session) -> None:
        session.tracking = None
        self._sessions.pop(session.id, None)

    def note(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> None:
        """Remember the keys that a session has read or, for a script, that were passed to it."""
        options = session.tracking
        if options is None or spec.name in _KEEPS_CACHING:
            return
        line, reads = self._line, spec.readonly
        if line is None or not session.in_script:
            line = self._line = _Line(spec, argv, options.caching)
            reads = reads and spec.group != "scripting"
            if not session.in_exec:
                options.caching = None
        if reads and line.wants_tracking(options):
            for place, _ in line.spec.key_positions(line.argv):
                self._readers.setdefault(line.argv[place], {})[session.id] = None

    def invalidate_changed(self, writer: Session | None, *, within: bool = False) -> None:
        """Send invalidation messages for the keys that have changed since the last call.

        ``within`` a transaction or script, sessions that track prefixes do not receive theirs yet.
        """
        for keyspace in self._databases:
            if keyspace.changed:
                changed, keyspace.changed = keyspace.changed, {}
                self._invalidate_readers(changed, writer)
                by_script = writer is not None and writer.in_script
                self._changed |= {key: by_script or expired for key, expired in changed.items()}
        if self._changed and not within:
            changed, self._changed = self._changed, {}
            self._invalidate_prefixes(changed, writer)

    def invalidate_evicted(self) -> None:
        """Send invalidation messages for keys that were evicted to make room for a command."""
        self.evicting = True
        try:
            self.invalidate_changed(None)
        finally:
            self.evicting = False

    def _invalidate_readers(self, changed: Mapping[bytes, bool], writer: Session | None) -> None:
        """Send a message to the readers of changed keys, except to ``writer`` if it uses NOLOOP."""
        for key, expired in changed.items():
            for number in self._readers.pop(key, ()):
                session = self._sessions.get(number)
                if session is None or session.tracking is None:
                    continue
                words = session.tracking.words
                is_own = session is writer and "noloop" in words and not expired
                if "bcast" not in words and not is_own:
                    self._send(session, session.tracking, [key])

    def _invalidate_prefixes(self, changed: Mapping[bytes, bool], writer: Session | None) -> None:
        """Send each session with prefixes one message per prefix, with the matching changed keys."""
        for session in list(self._sessions.values()):
            options = session.tracking
            if options is None or "bcast" not in options.words:
                continue
            own = session is writer and "noloop" in options.words
            keys = sorted(key for key, foreign in changed.items() if foreign or not own)
            for prefix in sorted(options.prefixes):
                if found := [key for key in keys if key.startswith(prefix)]:
                    self._send(session, options, found)

    def keep_within_bounds(self) -> None:
        """Forget the oldest keys beyond ``tracking-table-max-keys``, and notify their readers."""
        most = self._config.number("tracking-table-max-keys")
        while most and len(self._readers) > most:
            # As for an expired key, NOLOOP does not apply.
            self._invalidate_readers({next(iter(self._readers)): True}, None)

    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of tracked keys, of their readers (summed over keys) and of prefixes."""
        sessions = self._sessions.values()
        prefixes = {each for one in sessions if one.tracking for each in one.tracking.prefixes}
        return len(self._readers), sum(map(len, self._readers.values())), len(prefixes)

    def invalidate_all(self) -> None:
        for session in list(self._sessions.values()):
            if session.tracking is not None:
                self._send(session, session.tracking, None)
        self._readers.clear()

    def _send(self, session: Session, options: TrackingOptions, keys: list[bytes] | None) -> None:
        if not options.redirect:
            # RESP2 connections can receive only redirected messages.
            if session.connection_resp == 3:
                session.push(Push([b"invalidate", keys]))
            return
        target = self._connected.get(options.redirect)
        if target is not None and target.closing:
            target = None  # A client that is closing counts as disconnected.
        options.broken = target is None
        if target is None:
            if session.connection_resp == 3:
                session.push(Push([b"tracking-redir-broken", options.redirect]))
            return
        if target.connection_resp == 3:
            target.push(Push([b"invalidate", keys]))
        elif _CHANNEL in target.subscriptions["channel"]:
            target.push(Push([b"message", _CHANNEL, keys]))
