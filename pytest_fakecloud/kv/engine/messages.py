"""Messages to clients: pub/sub, keyspace notifications, and invalidations of CLIENT TRACKING.

The parameter ``notify-keyspace-events`` selects classes of keyspace events (``g$lshzxetdmn``; ``A``
is all but ``m`` and ``n``) and channels. ``K`` selects ``__keyspace@<db>__:<key>``, whose messages
are event names; ``E`` selects ``__keyevent@<db>__:<event>``, whose messages are keys. Names and
order of the events were observed on Redis 7.0, those of field expiry on Valkey 9.1. Those of JSON
and vector commands are decided here.

From Redis 8.8 on, the letters ``S``, ``T``, ``I`` and ``V`` select channels about the changed fields of
hashes (documentation). A length before a key or a field is its number of bytes, the event is that of
the keyspace event, and the messages follow those of ``K`` and ``E`` in this order (decided here: the
documentation's example has other lengths, and no order).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..algorithms.glob import matcher
from ..config import ALL_EVENTS, FIELD_LETTERS, Config
from ..reply import Push, PushKind
from ..table.registry import CommandSpec
from .keyspace import Keyspace
from .sessions import Session, TrackingOptions

_CONFIRMATIONS = {
    "channel": (b"subscribe", b"unsubscribe"),
    "pattern": (b"psubscribe", b"punsubscribe"),
    "shard": (b"ssubscribe", b"sunsubscribe"),
}
"""For each kind of subscription, the first words of the messages that confirm its start and end."""
KINDS = tuple(_CONFIRMATIONS)


class PubSub:
    """The pub/sub subscriptions of all sessions.

    Messages are passed to ``session.push()`` as ``Push`` lists, under the engine's lock. So a
    ``ClientConnection`` must only queue a message for a thread of the interface, and must not write to
    a socket or run a test's code.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, dict[bytes, dict[Session, None]]] = {kind: {} for kind in KINDS}

    def subscribe(self, session: Session, kind: str, name: bytes) -> None:
        session.subscriptions[kind][name] = None
        self._listeners[kind].setdefault(name, {})[session] = None
        session.push(Push("reply", [_CONFIRMATIONS[kind][0], name, self._count(session, kind)]))

    def unsubscribe(self, session: Session, kind: str, names: list[bytes]) -> None:
        """Unsubscribe a session from the named channels or patterns; without names, from all."""
        word = _CONFIRMATIONS[kind][1]
        going: list[bytes | None] = list(names or session.subscriptions[kind])
        for name in going or [None]:
            if name is not None:
                self._forget(session, kind, name)
            session.push(Push("reply", [word, name, self._count(session, kind)]))

    def drop(self, session: Session) -> None:
        for kind in KINDS:
            for name in list(session.subscriptions[kind]):
                self._forget(session, kind, name)

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message to a channel; return the number of deliveries, one per subscription."""
        receivers = 0
        for session in self._listeners["channel"].get(channel, ()):
            session.push(Push("message", [b"message", channel, message]))
            receivers += 1
        for pattern, sessions in self._listeners["pattern"].items():
            if matcher(pattern)(channel):
                for session in sessions:
                    session.push(Push("message", [b"pmessage", pattern, channel, message]))
                    receivers += 1
        return receivers

    def receivers(self, channel: bytes) -> list[Session]:
        """Return who gets a message of a channel, once per subscription."""
        sessions = list(self._listeners["channel"].get(channel, ()))
        for pattern, listening in self._listeners["pattern"].items():
            if matcher(pattern)(channel):
                sessions += listening
        return sessions

    def publish_to_shard(self, channel: bytes, message: bytes) -> None:
        for session in self._listeners["shard"].get(channel, ()):
            session.push(Push("message", [b"smessage", channel, message]))

    def names(self, kind: str) -> list[bytes]:
        return list(self._listeners[kind])

    def subscriptions(self) -> list[tuple[str, bytes, list[Session]]]:
        """Return kind, name and subscribers of each channel, pattern and shard channel."""
        return [
            (kind, name, list(sessions))
            for kind, names in self._listeners.items()
            for name, sessions in names.items()
        ]

    def listeners(self, kind: str, name: bytes) -> Collection[Session]:
        return self._listeners[kind].get(name, ())

    def _forget(self, session: Session, kind: str, name: bytes) -> None:
        session.subscriptions[kind].pop(name, None)
        sessions = self._listeners[kind].get(name, {})
        sessions.pop(session, None)
        if not sessions:
            self._listeners[kind].pop(name, None)

    def _count(self, session: Session, kind: str) -> int:
        # Confirmations count shard channels separately, but channels and patterns together.
        counted = ("shard",) if kind == "shard" else ("channel", "pattern")
        return sum(len(session.subscriptions[kind]) for kind in counted)


_CLASSES = {  # for each letter of the parameter, the events it selects
    "g": "del expire persist rename_from rename_to move_from move_to copy_to restore",
    "$": "set setrange setbit append incrby incrbyfloat pfadd",
    "l": "lpush rpush lpop rpop linsert lset lrem ltrim sortstore",
    "s": "sadd srem spop sinterstore sunionstore sdiffstore",
    "h": "hset hdel hincrby hincrbyfloat hexpire hexpired hpersist",
    "z": "zadd zincr zrem zpopmin zpopmax zremrangebyscore zremrangebyrank zremrangebylex "
    "zunionstore zinterstore zdiffstore zrangestore georadiusstore geosearchstore",
    "x": "expired",
    "e": "evicted",
    "t": "xadd xdel xtrim xsetid xgroup-create xgroup-destroy xgroup-setid "
    "xgroup-createconsumer xgroup-delconsumer",
    "d": "json.set json.mset json.merge json.del json.numincrby json.nummultby json.strappend "
    "json.toggle json.clear json.arrappend json.arrinsert json.arrpop json.arrtrim "
    "arset ardel ardelrange arinsert arring arseek "
    "vector.create vector.add vector.del vadd vrem vsetattr",
    "m": "keymiss",
    "n": "new",
}
_CLASS_OF = {event: letter for letter, events in _CLASSES.items() for event in events.split()}


class Notifications:
    """Publishes the keyspace events that ``notify-keyspace-events`` enables."""

    def __init__(self, pubsub: PubSub) -> None:
        self._send = pubsub.publish
        self._letters: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._letters & {"K", "E"}) or self.include_fields

    @property
    def include_fields(self) -> bool:
        return not self._letters.isdisjoint(FIELD_LETTERS)

    @property
    def include_expiry(self) -> bool:
        return bool(self) and bool(self._letters & {"x", "h"})

    def enable(self, flags: str) -> None:
        self._letters = frozenset(flags.replace("A", ALL_EVENTS))

    def publish(self, database: int, key: bytes, event: str) -> None:
        if _CLASS_OF.get(event) not in self._letters:
            return
        text = event.encode()
        if "K" in self._letters:
            self._send(b"__keyspace@%d__:%b" % (database, key), text)
        if "E" in self._letters:
            self._send(b"__keyevent@%d__:%b" % (database, text), key)

    def publish_fields(
        self, database: int, key: bytes, event: str, fields: Iterable[bytes]
    ) -> None:
        """Publish an event of a hash with the fields that it is about."""
        letters = self._letters
        if _CLASS_OF.get(event) not in letters:
            return
        text, listed = event.encode(), b",".join(map(_with_length, fields))
        if "S" in letters:
            self._send(b"__subkeyspace@%d__:%b" % (database, key), b"%b|%b" % (text, listed))
        if "T" in letters:
            message = b"%b|%b" % (_with_length(key), listed)
            self._send(b"__subkeyevent@%d__:%b" % (database, text), message)
        # A line break separates the key and the field, so no channel is for a key that contains one.
        if "I" in letters and b"\n" not in key:
            for field in fields:
                self._send(b"__subkeyspaceitem@%d__:%b\n%b" % (database, key, field), text)
        if "V" in letters:
            self._send(b"__subkeyspaceevent@%d__:%b|%b" % (database, text, key), listed)


def _with_length(name: bytes) -> bytes:
    return b"%d:%b" % (len(name), name)


_KEEPS_CACHING = frozenset({"CLIENT CACHING", "CLIENT TRACKINGINFO", "MULTI", "EXEC"})
"""Commands after which CLIENT CACHING still applies. CLIENT TRACKINGINFO shows the mode."""
_CHANNEL = b"__redis__:invalidate"


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
        """Changed keys not announced to sessions with prefixes yet; True if expired or by a script."""
        self._kind: PushKind = "invalidation"
        """What messages are; ``"eviction"`` while they are about evicted keys."""
        self._noted: tuple[CommandSpec, list[bytes], bool | None] | None = None
        """The last line of a session that tracks keys, with the mode of CLIENT CACHING or None."""
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

    def note(self, session: Session, spec: CommandSpec, line: list[bytes]) -> None:
        """Remember the keys that a session has read or, for a script, that were passed to it."""
        options = session.tracking
        if options is None or spec.name in _KEEPS_CACHING:
            return
        noted, reads = self._noted, spec.readonly
        if noted is None or not session.in_script:
            # Commands that a script calls belong to the script's line.
            noted = self._noted = spec, line, options.caching
            reads = reads and spec.group != "scripting"
            if not session.in_exec:
                options.caching = None
        spec, line, caching = noted
        tracks = {"bcast": False, "optin": caching is True, "optout": caching is not False}
        if reads and all(tracks.get(word, True) for word in options.words):
            for place, _ in spec.key_positions(line):
                self._readers.setdefault(line[place], {})[session.id] = None

    def invalidate_changed(self, writer: Session | None, *, within: bool = False) -> None:
        """Send messages for the keys changed since the last call; ``within`` EXEC not for prefixes."""
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
        self._kind = "eviction"
        try:
            self.invalidate_changed(None)
        finally:
            self._kind = "invalidation"

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
                if matching := [key for key in keys if key.startswith(prefix)]:
                    self._send(session, options, matching)

    def keep_within_bounds(self) -> None:
        """Forget the oldest keys beyond ``tracking-table-max-keys``, and notify their readers."""
        most = self._config.number("tracking-table-max-keys")
        while most and len(self._readers) > most:
            # As for an expired key, NOLOOP does not apply.
            self._invalidate_readers({next(iter(self._readers)): True}, None)

    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of tracked keys, of their readers (summed over keys) and of prefixes."""
        sessions = self._sessions.values()
        prefixes = {
            prefix
            for session in sessions
            if session.tracking
            for prefix in session.tracking.prefixes
        }
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
                session.push(Push(self._kind, [b"invalidate", keys]))
            return
        target = self._connected.get(options.redirect)
        if target is not None and target.closing:
            target = None  # A client that is closing counts as disconnected.
        options.broken = target is None
        if target is None:
            if session.connection_resp == 3:
                session.push(Push(self._kind, [b"tracking-redir-broken", options.redirect]))
            return
        if target.connection_resp == 3:
            target.push(Push(self._kind, [b"invalidate", keys]))
        elif _CHANNEL in target.subscriptions["channel"]:
            target.push(Push(self._kind, [b"message", _CHANNEL, keys]))
