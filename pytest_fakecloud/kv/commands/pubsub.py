"""Pub/Sub commands: PUBLISH, the SUBSCRIBE family, and PUBSUB."""

from __future__ import annotations

from .. import errors
from ..algorithms.glob import matcher
from ..engine.replication import at_same_node
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import NO_REPLY, Reply
from ..table.registry import Args, command, variant
from .arguments import subcommand_error


@command("PUBLISH")
def publish(session: Session, args: Args) -> Reply:
    """Publish a message to a channel and return the number of receivers."""
    pubsub = session.engine.pubsub
    if session.node is None:
        return pubsub.publish(*args)
    receivers = pubsub.receivers(args[0])
    pubsub.publish(*args)
    # The message reaches the clients of all nodes, but only those of this one count.
    return sum(at_same_node(session, receiver) for receiver in receivers)


@command("SPUBLISH")
def spublish(session: Session, args: Args) -> Reply:
    """Publish a message to a shard channel and return the number of receivers."""
    session.engine.pubsub.publish_to_shard(*args)
    return _subscribers(session, "shard", args[0])


@variant("SUBSCRIBE", "Subscribe to channels.", kind="channel")
@variant("PSUBSCRIBE", "Subscribe to channels that match patterns.", kind="pattern")
@variant("SSUBSCRIBE", "Subscribe to shard channels.", kind="shard")
def subscribe(session: Session, args: Args, *, kind: str) -> Reply:
    if kind == "shard" and session.in_exec:
        raise CommandError(errors.SSUBSCRIBE_DENIED)
    for name in args:
        session.engine.pubsub.subscribe(session, kind, name)
    return NO_REPLY


@variant("UNSUBSCRIBE", "Unsubscribe from channels, or from all.", kind="channel")
@variant(
    "PUNSUBSCRIBE", "Unsubscribe from channels that match patterns, or from all.", kind="pattern"
)
@variant("SUNSUBSCRIBE", "Unsubscribe from shard channels, or from all.", kind="shard")
def unsubscribe(session: Session, args: Args, *, kind: str) -> Reply:
    session.engine.pubsub.unsubscribe(session, kind, args)
    return NO_REPLY


@variant("PUBSUB CHANNELS", "Return the channels that have subscribers.", kind="channel")
@variant("PUBSUB SHARDCHANNELS", "Return the shard channels that have subscribers.", kind="shard")
def pubsub_channels(session: Session, args: Args, *, kind: str) -> Reply:
    if len(args) > 1:
        raise subcommand_error(session)
    names = _names(session, kind)
    return list(filter(matcher(args[0]), names)) if args else names


@command("PUBSUB NUMPAT")
def pubsub_numpat(session: Session, args: Args) -> Reply:
    """Return the number of patterns to which clients are subscribed."""
    return len(_names(session, "pattern"))


@variant("PUBSUB NUMSUB", "Return the number of subscribers of each channel.", kind="channel")
@variant(
    "PUBSUB SHARDNUMSUB", "Return the number of subscribers of each shard channel.", kind="shard"
)
def pubsub_numsub(session: Session, args: Args, *, kind: str) -> Reply:
    return [item for name in args for item in (name, _subscribers(session, kind, name))]


def _names(session: Session, kind: str) -> list[bytes]:
    """Return the channels or patterns that have subscribers at the client's node."""
    names = session.engine.pubsub.names(kind)
    return [name for name in names if _subscribers(session, kind, name)]


def _subscribers(session: Session, kind: str, name: bytes) -> int:
    """Return the number of subscribers at the client's node."""
    listeners = session.engine.pubsub.listeners(kind, name)
    return sum(at_same_node(session, listener) for listener in listeners)
