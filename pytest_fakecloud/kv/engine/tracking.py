"""CLIENT TRACKING: the keys each session has read, and the sessions to tell that they changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..reply import Push

if TYPE_CHECKING:
    from ..table.registry import CommandSpec
    from .client import Client, TrackingOptions

__all__ = ["Tracking"]

_KEEPS_CACHING = frozenset({"CLIENT CACHING", "MULTI", "EXEC"})
"""What stands between CLIENT CACHING and the command, or transaction, it is for."""
_CHANNEL = b"__redis__:invalidate"


class Tracking:
    """The keys sessions have read, and the sessions that want to hear of whole prefixes.

    A key is forgotten once its readers were told, as they must read it again to be told again.
    ``connected`` are the clients of the database port by number, to whom messages can be
    redirected. Called under the engine's lock.
    """

    def __init__(self, connected: Mapping[int, Client]) -> None:
        self._connected = connected
        self._readers: dict[bytes, dict[int, None]] = {}
        self._sessions: dict[int, Client] = {}

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def start(self, session: Client, options: TrackingOptions) -> None:
        """Begin to track for a session, or go on with other options."""
        session.tracking = options
        self._sessions[session.id] = session

    def stop(self, session: Client) -> None:
        """Track no longer for a session; may be called any number of times."""
        session.tracking = None
        self._sessions.pop(session.id, None)

    def note(self, session: Client, spec: CommandSpec, argv: list[bytes]) -> None:
        """Remember the keys a session has just read, as far as its options ask for it."""
        options = session.tracking
        if options is None or spec.name in _KEEPS_CACHING:
            return
        caching = options.caching
        if not session.in_exec:
            options.caching = None
        if not spec.readonly or "bcast" in options.words:
            return
        if "optin" in options.words and caching is not True:
            return
        if "optout" in options.words and caching is False:
            return
        for place, _ in spec.key_positions(argv):
            self._readers.setdefault(argv[place], {})[session.id] = None

    def tell(self, keys: Iterable[bytes], writer: Client | None) -> None:
        """Tell the sessions concerned that keys have changed; ``writer`` changed them."""
        changed = dict.fromkeys(keys)
        for session in list(self._sessions.values()):
            options = session.tracking
            if options is None or (session is writer and "noloop" in options.words):
                continue
            if "bcast" in options.words:
                prefixes = tuple(options.prefixes) or (b"",)
                found = [key for key in changed if key.startswith(prefixes)]
            else:
                found = [key for key in changed if session.id in self._readers.get(key, ())]
            if found:
                self._send(session, options, found)
        for key in changed:
            self._readers.pop(key, None)

    def tell_all(self) -> None:
        """Tell all sessions that all keys are gone."""
        for session in list(self._sessions.values()):
            if session.tracking is not None:
                self._send(session, session.tracking, None)
        self._readers.clear()

    def _send(self, session: Client, options: TrackingOptions, keys: list[bytes] | None) -> None:
        if not options.redirect:
            # In version 2 of the protocol only a redirection can carry the message.
            if session.resp == 3:
                session.push(Push([b"invalidate", keys]))
            return
        target = self._connected.get(options.redirect)
        if target is None:
            if session.resp == 3:
                session.push(Push([b"tracking-redir-broken", options.redirect]))
            return
        if target.resp == 3:
            target.push(Push([b"invalidate", keys]))
        elif _CHANNEL in target.subscriptions["channel"]:
            target.push(Push([b"message", _CHANNEL, keys]))
