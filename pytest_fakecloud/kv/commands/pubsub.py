"""Pub/Sub commands: PUBLISH, the SUBSCRIBE family, and PUBSUB."""

from __future__ import annotations

from ..algorithms.glob import matcher
from ..engine.engine import Session
from ..reply import NO_REPLY, Reply
from ..table.registry import Args, command
from .arguments import subcommand_error


@command("PUBLISH")
def publish(session: Session, args: Args) -> Reply:
    """Publish a message to a channel and return the number of receivers."""
    return session.engine.pubsub.publish(args[0], args[1])


@command("SPUBLISH")
def spublish(session: Session, args: Args) -> Reply:
    """Publish a message to a shard channel and return the number of receivers."""
    return session.engine.pubsub.publish_to_shard(args[0], args[1])


def _subscribe(session: Session, kind: str, names: Args) -> Reply:
    for name in names:
        session.engine.pubsub.subscribe(session, kind, name)
    return NO_REPLY


def _unsubscribe(session: Session, kind: str, names: Args) -> Reply:
    session.engine.pubsub.unsubscribe(session, kind, names)
    return NO_REPLY


@command("SUBSCRIBE")
def subscribe(session: Session, args: Args) -> Reply:
    """Subscribe to channels."""
    return _subscribe(session, "channel", args)


@command("UNSUBSCRIBE")
def unsubscribe(session: Session, args: Args) -> Reply:
    """Unsubscribe from channels, or from all."""
    return _unsubscribe(session, "channel", args)


@command("PSUBSCRIBE")
def psubscribe(session: Session, args: Args) -> Reply:
    """Subscribe to channels that match patterns."""
    return _subscribe(session, "pattern", args)


@command("PUNSUBSCRIBE")
def punsubscribe(session: Session, args: Args) -> Reply:
    """Unsubscribe from channels that match patterns, or from all."""
    return _unsubscribe(session, "pattern", args)


@command("SSUBSCRIBE")
def ssubscribe(session: Session, args: Args) -> Reply:
    """Subscribe to shard channels."""
    return _subscribe(session, "shard", args)


@command("SUNSUBSCRIBE")
def sunsubscribe(session: Session, args: Args) -> Reply:
    """Unsubscribe from shard channels, or from all."""
    return _unsubscribe(session, "shard", args)


def _channels(session: Session, args: Args, kind: str, name: bytes) -> Reply:
    if len(args) > 1:
        raise subcommand_error(session)
    names = session.engine.pubsub.names(kind)
    return list(filter(matcher(args[0]), names)) if args else list(names)


@command("PUBSUB CHANNELS")
def pubsub_channels(session: Session, args: Args) -> Reply:
    """Return the channels that have subscribers."""
    return _channels(session, args, "channel", b"CHANNELS")


@command("PUBSUB SHARDCHANNELS")
def pubsub_shardchannels(session: Session, args: Args) -> Reply:
    """Return the shard channels that have subscribers."""
    return _channels(session, args, "shard", b"SHARDCHANNELS")


@command("PUBSUB NUMPAT")
def pubsub_numpat(session: Session, args: Args) -> Reply:
    """Return the number of patterns to which clients are subscribed."""
    return len(session.engine.pubsub.names("pattern"))


def _subscriber_counts(session: Session, args: Args, kind: str) -> Reply:
    pubsub = session.engine.pubsub
    return [item for name in args for item in (name, pubsub.listeners(kind, name))]


@command("PUBSUB NUMSUB")
def pubsub_numsub(session: Session, args: Args) -> Reply:
    """Return the number of subscribers of each channel."""
    return _subscriber_counts(session, args, "channel")


@command("PUBSUB SHARDNUMSUB")
def pubsub_shardnumsub(session: Session, args: Args) -> Reply:
    """Return the number of subscribers of each shard channel."""
    return _subscriber_counts(session, args, "shard")
