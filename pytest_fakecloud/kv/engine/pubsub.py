"""Pub/sub: subscriptions to channels, patterns and shard channels, and keyspace notifications.

The parameter ``notify-keyspace-events`` selects classes of keyspace events (``g$lshzxetdmn``; ``A``
is all but ``m`` and ``n``) and channels. ``K`` selects ``__keyspace@<db>__:<key>``, whose messages
are event names; ``E`` selects ``__keyevent@<db>__:<event>``, whose messages are keys. Names and
order of the events were observed on Redis 7.0, those of field expiry on Valkey 9.1. Those of JSON
commands are decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algorithms.glob import matcher
from ..reply import Push
from ..table.config import ALL_EVENTS

if TYPE_CHECKING:
    from .engine import Engine
    from .keyspace import Keyspace
    from .session import Session

_CONFIRMATIONS = {
    "channel": (b"subscribe", b"unsubscribe"),
    "pattern": (b"psubscribe", b"punsubscribe"),
    "shard": (b"ssubscribe", b"sunsubscribe"),
}
"""For each kind of subscription, the first words of the messages that confirm its start and end."""
KINDS = tuple(_CONFIRMATIONS)


class PubSub:
    """The pub/sub subscriptions of all sessions.

    Messages are passed to ``session.deliver`` as ``Push`` lists. That function is called under the
    engine's lock, so it must only queue a message for a thread of the transport, and must not write
    to a socket or run a test's code.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, dict[bytes, dict[Session, None]]] = {kind: {} for kind in KINDS}

    def subscribe(self, session: Session, kind: str, name: bytes) -> None:
        """Subscribe a session to a channel or pattern, and push the confirmation."""
        session.subscriptions[kind][name] = None
        self._listeners[kind].setdefault(name, {})[session] = None
        session.push(Push([_CONFIRMATIONS[kind][0], name, self._count(session, kind)]))

    def unsubscribe(self, session: Session, kind: str, names: list[bytes]) -> None:
        """Unsubscribe a session from the named channels or patterns; without names, from all."""
        word = _CONFIRMATIONS[kind][1]
        going: list[bytes | None] = list(names or session.subscriptions[kind])
        for name in going or [None]:
            if name is not None:
                self._forget(session, kind, name)
            session.push(Push([word, name, self._count(session, kind)]))

    def drop(self, session: Session) -> None:
        """Remove the subscriptions of a session that has ended, without pushing confirmations."""
        for kind in KINDS:
            for name in list(session.subscriptions[kind]):
                self._forget(session, kind, name)

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message to a channel; return the number of deliveries, one per subscription."""
        receivers = 0
        for session in self._listeners["channel"].get(channel, ()):
            session.push(Push([b"message", channel, message]))
            receivers += 1
        for pattern, sessions in self._listeners["pattern"].items():
            if matcher(pattern)(channel):
                for session in sessions:
                    session.push(Push([b"pmessage", pattern, channel, message]))
                    receivers += 1
        return receivers

    def publish_to_shard(self, channel: bytes, message: bytes) -> int:
        sessions = self._listeners["shard"].get(channel, {})
        for session in sessions:
            session.push(Push([b"smessage", channel, message]))
        return len(sessions)

    def names(self, kind: str) -> list[bytes]:
        return list(self._listeners[kind])

    def listeners(self, kind: str, name: bytes) -> int:
        return len(self._listeners[kind].get(name, ()))

    def _forget(self, session: Session, kind: str, name: bytes) -> None:
        session.subscriptions[kind].pop(name, None)
        sessions = self._listeners[kind].get(name, {})
        sessions.pop(session, None)
        if not sessions:
            self._listeners[kind].pop(name, None)

    def _count(self, session: Session, kind: str) -> int:
        # Confirmations count shard channels separately, but channels and patterns together.
        counted = ("shard",) if kind == "shard" else ("channel", "pattern")
        return sum(len(session.subscriptions[each]) for each in counted)


# -- keyspace notifications ------------------------------------------------------------------------

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
    "json.toggle json.clear json.arrappend json.arrinsert json.arrpop json.arrtrim",
    "m": "keymiss",
    "n": "new",
}
_CLASS_OF = {event: letter for letter, events in _CLASSES.items() for event in events.split()}


class Notifications:
    """Publishes the keyspace events that ``notify-keyspace-events`` enables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._letters: frozenset[str] = frozenset()
        self._planned_us: int | None = None
        """Time in microseconds of the pending timer for the next expiry, or None."""

    def __bool__(self) -> bool:
        return bool(self._letters & {"K", "E"})

    def follow_config(self) -> None:
        flags = self._engine.config.text("notify-keyspace-events")
        self._letters = frozenset(flags.replace("A", ALL_EVENTS))
        for keyspace in self._engine.databases:
            keyspace.notify = self.publish if self else None
        self.plan()

    def publish(self, keyspace: Keyspace, key: bytes, event: str | None) -> None:
        """Publish an enabled event; None means the event of the running command, ``""`` none.

        Also set the timer again after an event that can mean a new expiry.
        """
        running = self._engine.running
        if event == "expire" or event == "":
            self.plan()
        if event is None:
            event = "" if running is None else running.event
        if event == "keymiss" and (running is None or not running.reads_keys):
            return
        if _CLASS_OF.get(event) not in self._letters:
            return
        send, number, text = self._engine.pubsub.publish, keyspace.index, event.encode()
        if "K" in self._letters:
            send(b"__keyspace@%d__:%b" % (number, key), text)
        if "E" in self._letters:
            send(b"__keyevent@%d__:%b" % (number, text), key)

    def plan(self) -> None:
        """Set a timer for the next expiry, so that its event does not need an access to the key."""
        publishes_expiry = self and self._letters & {"x", "h"}
        if not publishes_expiry and not self._engine.tracking:
            return
        dues = [due for each in self._engine.databases if (due := each.next_expiry()) is not None]
        due_us = min(dues, default=0) * 1000
        if dues and (self._planned_us is None or due_us < self._planned_us):
            self._planned_us = due_us
            clock = self._engine.clock
            clock.call_at(due_us, self._expire, lane="background", label="keys expire")

    def _expire(self, due_us: int) -> None:
        with self._engine.lock:
            if self._planned_us == due_us:
                self._planned_us = None
            self._engine.remove_expired()
            self.plan()
