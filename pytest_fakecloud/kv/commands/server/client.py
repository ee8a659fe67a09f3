"""Commands for connections: AUTH, HELLO and RESET on the client's own, and CLIENT for all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import combinations, product

from ... import errors
from ...acl import ANONYMOUS, AclUser
from ...engine.replication import at_same_node, node_of
from ...engine.sessions import Session, TrackingOptions
from ...engine.statistics import monitor_line
from ...errors import CommandError
from ...reply import NO_REPLY, OK, Map, Reply, SetReply, Status
from ...syntax import I64_MAX, decoded, parse_int
from ...table.registry import Args, command
from ..arguments import (
    arity_error,
    find_database,
    is_first,
    only_option,
    parse_milliseconds,
    parse_options,
    readable,
    subcommand_error,
)
from .server import module_list


def check_printable(text: bytes, error: bytes = errors.CLIENT_NAME) -> None:
    """Raise ``error`` for a string with spaces or control characters."""
    if not all(0x21 <= byte <= 0x7E for byte in text):
        raise CommandError(error)


# -- the client's own connection -----------------------------------------------------------------


@command("CLIENT ID")
def client_id(session: Session, args: Args) -> Reply:
    """Return the ID of the connection."""
    return session.id


@command("CLIENT GETNAME")
def client_getname(session: Session, args: Args) -> Reply:
    """Return the name of the connection."""
    return session.name or None


@command("CLIENT SETNAME")
def client_setname(session: Session, args: Args) -> Reply:
    """Set the name of the connection."""
    check_printable(args[0])
    session.name = args[0]
    return OK


@command("CLIENT SETINFO")
def client_setinfo(session: Session, args: Args) -> Reply:
    """Set the name or version of the client library that uses the connection."""
    attribute = args[0].lower().decode("utf-8", "replace")
    if attribute not in ("lib-name", "lib-ver"):
        raise CommandError(errors.unknown_client_attribute(args[0]))
    check_printable(args[1], errors.bad_client_attribute(attribute))
    session.library[attribute] = args[1]
    return OK


@command("CLIENT INFO")
def client_info(session: Session, args: Args) -> Reply:
    """Return information about the connection, in the format of CLIENT LIST."""
    return readable(session, session.describe("client|info"))


@command("CLIENT IMPORT-SOURCE")
def client_import_source(session: Session, args: Args) -> Reply:
    """Mark the connection as an import source; ON is an error, because there is no import mode."""
    if is_first(args[0], b"ON", b"OFF"):
        raise CommandError(errors.NOT_IMPORT_MODE)
    return OK


@command("CLIENT NO-EVICT")
def client_no_evict(session: Session, args: Args) -> Reply:
    """Exclude the connection from client eviction, which never happens here."""
    session.no_evict = is_first(args[0], b"ON", b"OFF")
    return OK


@command("CLIENT NO-TOUCH")
def client_no_touch(session: Session, args: Args) -> Reply:
    """Choose whether commands of the connection update the last access time of keys."""
    session.no_touch = is_first(args[0], b"ON", b"OFF")
    return OK


@command("CLIENT REPLY")
def client_reply(session: Session, args: Args) -> Reply:
    """Choose whether the connection receives replies."""
    mode = only_option(session, args)
    if mode != b"SKIP":
        session.reply_mode = "on" if mode == b"ON" else "off"
    elif session.reply_mode != "off":
        session.reply_mode = "skip next"
    return OK if mode == b"ON" else NO_REPLY


# -- tracking ------------------------------------------------------------------------------------


@command("CLIENT TRACKING")
def client_tracking(session: Session, args: Args) -> Reply:
    """Turn invalidation messages for keys that the connection has read on or off."""
    wanted = _tracking_options(session, args)
    tracking = session.engine.tracking
    if is_first(args[0], b"ON", b"OFF"):
        before = session.tracking
        _check_tracking(wanted, before)
        prefixes = wanted.prefixes or ([b""] if "bcast" in wanted.words else [])
        wanted.prefixes = sorted({*prefixes, *(before.prefixes if before is not None else ())})
        tracking.start(session, wanted)
    else:
        tracking.stop(session)
    session.engine.record_changes()
    return OK


def _check_tracking(wanted: TrackingOptions, before: TrackingOptions | None) -> None:
    """Raise the first error that Redis finds in new options, given those already in effect."""
    words, prefixes = wanted.words, wanted.prefixes
    if prefixes and "bcast" not in words:
        raise CommandError(errors.PREFIX_NEEDS_BCAST)
    if before is not None and ("bcast" in words) != ("bcast" in before.words):
        raise CommandError(errors.BCAST_SWITCH)
    if "bcast" in words and words & {"optin", "optout"}:
        raise CommandError(errors.OPT_WITH_BCAST)
    if {"optin", "optout"} <= words:
        raise CommandError(errors.OPTIN_AND_OPTOUT)
    if before is not None:
        if {"optin", "optout"} <= words | before.words:
            raise CommandError(errors.OPT_SWITCH)
        _check_overlap(product(prefixes, before.prefixes), "an existing prefix")
    _check_overlap(combinations(prefixes, 2), "another provided prefix")


def _check_overlap(pairs: Iterable[tuple[bytes, bytes]], described: str) -> None:
    for prefix, other in pairs:
        if prefix.startswith(other) or other.startswith(prefix):
            raise CommandError(errors.overlapping_prefixes(prefix, described, other))


def _tracking_options(session: Session, args: Args) -> TrackingOptions:
    wanted = TrackingOptions()
    for word, values in parse_options(args, 1, session.command.option_sizes):
        if word == b"REDIRECT":
            if wanted.redirect:
                raise CommandError(errors.SECOND_REDIRECT)
            wanted.redirect = parse_int(values[0])
            target = session.engine.connected.get(wanted.redirect)
            if target is None or not at_same_node(session, target):
                raise CommandError(errors.NO_REDIRECT_CLIENT)
        elif word == b"PREFIX":
            wanted.prefixes += values
        else:
            wanted.words |= {word.decode().lower()}
    return wanted


@command("CLIENT CACHING")
def client_caching(session: Session, args: Args) -> Reply:
    """Choose whether the keys of the next command are tracked."""
    if session.tracking is None:
        raise CommandError(errors.CACHING_WITHOUT_TRACKING)
    is_tracked = is_first(args[0], b"YES", b"NO")
    if ("optin" if is_tracked else "optout") not in session.tracking.words:
        raise CommandError(errors.CACHING_YES if is_tracked else errors.CACHING_NO)
    session.tracking.caching = is_tracked
    return OK


@command("CLIENT GETREDIR")
def client_getredir(session: Session, args: Args) -> Reply:
    """Return the ID of the client that receives invalidation messages.

    The ID is -1 if tracking is off, and 0 if the connection receives the messages itself.
    """
    return -1 if session.tracking is None else session.tracking.redirect


@command("CLIENT TRACKINGINFO")
def client_trackinginfo(session: Session, args: Args) -> Reply:
    """Return the tracking state of the connection."""
    state = session.tracking
    if state is None:
        return Map([b"flags", SetReply([b"off"]), b"redirect", -1, b"prefixes", []])
    words = ("bcast", "optin", "optout", "noloop")
    shown = [word.encode() for word in words if word in state.words]
    if state.caching is not None:
        shown.append(b"caching-yes" if state.caching else b"caching-no")
        if not session.in_exec:
            # CLIENT CACHING applies to the next command, which is this one.
            state.caching = None
    if state.broken:
        shown.append(b"broken_redirect")
    flags = SetReply([b"on", *shown])
    return Map([b"flags", flags, b"redirect", state.redirect, b"prefixes", state.prefixes])


# -- all connections -----------------------------------------------------------------------------

Filter = Callable[[Session], bool]


def _type_filter(word: bytes) -> Filter:
    kind = word.lower()
    if kind in (b"normal", b"pubsub"):
        return lambda other: any(other.subscriptions.values()) == (kind == b"pubsub")
    if kind in (b"master", b"primary", b"slave", b"replica"):
        return lambda other: False
    raise CommandError(errors.unknown_client_type(word))


@command("CLIENT LIST")
def client_list(session: Session, args: Args) -> Reply:
    """Return information about every connection of the database port, or of the client's node."""
    connected = {session.id: session, **session.engine.connected.copy()}
    listed = [other for _, other in sorted(connected.items()) if at_same_node(session, other)]
    word = args[0].upper() if args else b""
    if word == b"TYPE" and len(args) == 2:
        listed = list(filter(_type_filter(args[1]), listed))
    elif word == b"ID" and len(args) > 1:
        ids = {parse_int(text, 1, I64_MAX, errors.CLIENT_ID) for text in args[1:]}
        listed = [other for other in listed if other.id in ids]
    elif args:
        raise CommandError(errors.SYNTAX)
    lines = [other.describe("client|list" if other is session else "") for other in listed]
    return readable(session, b"".join(lines))


@command("CLIENT KILL")
def client_kill(session: Session, args: Args) -> Reply:
    """Close connections that match an address or filters.

    MAXAGE matches connections that are older than a number of seconds, which is at least 1; another
    number is out of range (decided here).
    """
    by_address = len(args) == 1
    words = [b"ADDR", args[0], b"SKIPME", b"no"] if by_address else args
    filters: list[Filter] = [functools.partial(at_same_node, session)]
    skip_me = True
    for word, (value,) in parse_options(words, 0, session.command.option_sizes):
        if word == b"SKIPME":
            skip_me = is_first(value, b"YES", b"NO")
        else:
            filters.append(_kill_filter(session, word, value))
    killed = 0
    for other in list(session.engine.connected.copy().values()):
        if all(matches(other) for matches in filters) and not (skip_me and other is session):
            other.disconnect()
            killed += 1
    if by_address and not killed:
        raise CommandError(errors.NO_SUCH_CLIENT)
    return OK if by_address else killed


def _kill_filter(session: Session, word: bytes, value: bytes) -> Filter:
    if word == b"ID":
        wanted = parse_int(value, 1, I64_MAX, errors.CLIENT_KILL_ID)
        return lambda other: other.id == wanted
    if word == b"MAXAGE":
        youngest_us = session.engine.execution.now_us - parse_int(value, 1, I64_MAX) * 1_000_000
        return lambda other: other.created_us < youngest_us
    if word == b"TYPE":
        return _type_filter(value)
    if word == b"ADDR":
        return lambda other: other.address.encode() == value
    if word == b"LADDR":
        return lambda other: other.local_address.encode() == value
    name = value.decode("utf-8", "replace")
    if name not in session.engine.users:
        raise CommandError(errors.no_such_user(value))
    return lambda other: other.user.name == name


@command("CLIENT PAUSE")
def client_pause(session: Session, args: Args) -> Reply:
    """Delay all commands, or only writes, of the database port for a number of milliseconds."""
    timeout_ms = parse_milliseconds(session, args[0])
    mode = only_option(session, args[1:], errors.CLIENT_PAUSE_MODE)
    session.engine.pauses.pause(
        session.engine.execution.now_us + timeout_ms * 1000, mode == b"WRITE"
    )
    return OK


@command("CLIENT UNPAUSE")
def client_unpause(session: Session, args: Args) -> Reply:
    """Resume the commands that CLIENT PAUSE has delayed."""
    session.engine.pauses.pause(0, writes_only=False)
    return OK


@command("CLIENT UNBLOCK")
def client_unblock(session: Session, args: Args) -> Reply:
    """End a client's blocking command, either as if it had timed out or with an error."""
    if len(args) > 2:
        raise subcommand_error(session)
    mode = only_option(session, args[1:], errors.CLIENT_UNBLOCK_MODE)
    wanted = parse_int(args[0])
    waiter = session.engine.waiters.get(wanted)
    if waiter is None or not at_same_node(session, waiter.session):
        return 0
    session.engine.waiters.pop(wanted)
    unblocked = CommandError(errors.UNBLOCKED)
    waiter.finish(unblocked if mode == b"ERROR" else waiter.blocked.on_timeout)
    return 1


# -- commands of the own connection other than CLIENT --------------------------------------------


@command("PING")
def ping(session: Session, args: Args) -> Reply:
    """Return PONG, or the given message."""
    if len(args) > 1:
        raise arity_error(session)
    if session.resp == 2 and any(session.subscriptions.values()):
        return [b"pong", args[0] if args else b""]
    return args[0] if args else Status(b"PONG")


@command("ECHO")
def echo(session: Session, args: Args) -> Reply:
    """Return the given message."""
    return args[0]


@command("SELECT")
def select(session: Session, args: Args) -> Reply:
    """Select the database of the connection."""
    if session.engine.cluster is not None and parse_int(args[0]) != 0:
        raise CommandError(errors.SELECT_IN_CLUSTER)
    session.db = find_database(session, args[0])
    return OK


@command("QUIT")
def quit_(session: Session, args: Args) -> Reply:
    """Close the connection."""
    session.closing = True
    return OK


@command("RESET")
def reset(session: Session, args: Args) -> Reply:
    """Reset the connection to its initial state."""
    engine = session.engine
    engine.forget_state(session)
    session.name = b""
    session.resp = 2
    session.reply_mode = "on"
    session.no_evict = session.no_touch = False
    session.db = engine.databases[0]
    session.user = engine.users.visitor()
    return Status(b"RESET")


@command("AUTH")
def auth(session: Session, args: Args) -> Reply:
    """Authenticate the connection as a user."""
    if len(args) > 2:
        raise CommandError(errors.SYNTAX)
    name = "default" if len(args) == 1 else decoded(args[0])
    if len(args) == 1 and session.engine.users["default"].passwordless:
        raise CommandError(errors.AUTH_WITHOUT_PASSWORD)
    session.user = _log_in(session, name, args[-1], b"AUTH")
    return OK


def _log_in(session: Session, name: str, password: bytes, word: bytes) -> AclUser:
    try:
        return session.engine.users.authenticate(name, password)
    except CommandError:
        context = "multi" if session.transaction is not None else "toplevel"
        session.engine.users.log_denied(session, "auth", context, word, name)
        raise


@command("HELLO")
def hello(session: Session, args: Args) -> Reply:
    """Choose the protocol version, and optionally authenticate and set the connection's name."""
    engine = session.engine
    version = session.resp
    if args:
        version = parse_int(args[0], 2, 3, errors.PROTO_NOT_INTEGER, errors.NOPROTO)
    user, name = session.user, session.name
    for word, values in parse_options(args, 1, session.command.option_sizes, errors.hello_syntax):
        if word == b"AUTH":
            user = _log_in(session, decoded(values[0]), values[1], b"HELLO")
        else:
            name = values[0]
            check_printable(name)
    if user is ANONYMOUS:
        raise CommandError(errors.HELLO_NOAUTH)
    session.user, session.name, session.resp = user, name, version
    mode, role = "standalone", "master"
    if engine.topology is not None:
        mode = engine.topology.mode
        role = "master" if node_of(session).primary is None else "replica"
    return Map([
        b"server", b"redis", b"version", engine.version.encode(), b"proto", version,
        b"id", session.id, b"mode", mode.encode(), b"role", role.encode(),
        b"modules", module_list(session, []),
    ])  # fmt: skip


@command("MONITOR")
def monitor(session: Session, args: Args) -> Reply:
    """Stream every command that the server runs to the connection."""
    if session.in_exec or session.in_script:
        raise CommandError(errors.MONITOR_DENIED)

    def show(at_us: int, other: Session, line: list[bytes]) -> None:
        text = monitor_line(at_us, other, line)
        # The vendor documents bulk strings.
        session.push([text if session.engine.dialect == "vendor" else Status(text)])

    if session.monitor is None:
        session.monitor = show
        session.engine.monitors.append(show)
    return OK
