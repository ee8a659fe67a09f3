"""Pub/Sub commands: PUBLISH, the SUBSCRIBE family, and PUBSUB."""

from __future__ import annotations

from collections.abc import Callable

from .. import errors
from ..algorithms.glob import matcher
from ..engine.engine import Session
from ..errors import CommandError
from ..reply import NO_REPLY, Reply
from ..table.registry import Args, command


@command("PUBLISH")
def publish(session: Session, args: Args) -> Reply:
    """Publish a message to a channel and return the number of receivers."""
    return session.engine.pubsub.publish(args[0], args[1])


@command("SPUBLISH")
def spublish(session: Session, args: Args) -> Reply:
    """Publish a message to a shard channel and return the number of receivers."""
    return session.engine.pubsub.publish_to_shard(args[0], args[1])


def _subscribe(kind: str) -> Callable[[Session, Args], Reply]:
    def run(session: Session, args: Args) -> Reply:
        for name in args:
            session.engine.pubsub.subscribe(session, kind, name)
        return NO_REPLY

    return run


def _unsubscribe(kind: str) -> Callable[[Session, Args], Reply]:
    def run(session: Session, args: Args) -> Reply:
        session.engine.pubsub.unsubscribe(session, kind, args)
        return NO_REPLY

    return run


for _kind, _prefix, _what in (
    ("channel", "", "channels"),
    ("pattern", "P", "channels that match patterns"),
    ("shard", "S", "shard channels"),
):
    _listen, _stop = _subscribe(_kind), _unsubscribe(_kind)
    _listen.__doc__ = f"Subscribe to {_what}."
    _stop.__doc__ = f"Unsubscribe from {_what}, or from all."
    command(f"{_prefix}SUBSCRIBE")(_listen)
    command(f"{_prefix}UNSUBSCRIBE")(_stop)


def _channels(session: Session, args: Args, kind: str, name: bytes) -> Reply:
    if len(args) > 1:
        raise CommandError(errors.bad_subcommand_arguments(name, "PUBSUB"))
    names = session.engine.pubsub.names(kind)
    return [channel for channel in names if not args or matcher(args[0])(channel)]


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


def _numbers(session: Session, args: Args, kind: str) -> Reply:
    pubsub = session.engine.pubsub
    return [item for name in args for item in (name, pubsub.listeners(kind, name))]


@command("PUBSUB NUMSUB")
def pubsub_numsub(session: Session, args: Args) -> Reply:
    """Return the number of subscribers of each channel."""
    return _numbers(session, args, "channel")


@command("PUBSUB SHARDNUMSUB")
def pubsub_shardnumsub(session: Session, args: Args) -> Reply:
    """Return the number of subscribers of each shard channel."""
    return _numbers(session, args, "shard")
