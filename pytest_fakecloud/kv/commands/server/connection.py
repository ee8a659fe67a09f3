"""Commands that act on the client's own connection, such as AUTH, HELLO and RESET."""

from __future__ import annotations

from ... import errors
from ...acl import AclUser
from ...engine.session import Session
from ...engine.usage import monitor_line
from ...errors import CommandError
from ...reply import OK, Map, Reply, Status
from ...table.registry import Args, command
from ...table.syntax import decoded, parse_int
from ..arguments import arity_error, find_database, options
from .client import check_printable
from .process import loaded_modules


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
    session.db = engine.database(0)
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
        context = "multi" if session.queue is not None or session.in_exec else "toplevel"
        session.engine.users.log_denied(session, "auth", context, word, name)
        raise


@command("HELLO")
def hello(session: Session, args: Args) -> Reply:
    """Choose the protocol version, and optionally authenticate and set the connection's name."""
    engine = session.engine
    version = session.resp
    if args:
        version = parse_int(args[0], error=errors.PROTO_NOT_INTEGER)
        if version not in (2, 3):
            raise CommandError(errors.NOPROTO)
    user, name = session.user, session.name
    for word, values in options(args, 1, {b"AUTH": 2, b"SETNAME": 1}, errors.hello_syntax):
        if word == b"AUTH":
            user = _log_in(session, decoded(values[0]), values[1], b"HELLO")
        else:
            name = values[0]
            check_printable(name)
    if not user.known:
        raise CommandError(errors.HELLO_NOAUTH)
    session.user, session.name, session.resp = user, name, version
    return Map([
        b"server", b"redis", b"version", engine.version.encode(), b"proto", version,
        b"id", session.id, b"mode", b"standalone", b"role", b"master",
        b"modules", loaded_modules(session),
    ])  # fmt: skip


@command("MONITOR")
def monitor(session: Session, args: Args) -> Reply:
    """Stream every command that the server runs to the connection."""
    if session.in_exec or session.in_script:
        raise CommandError(errors.MONITOR_DENIED)

    def show(at_us: int, other: Session, argv: list[bytes]) -> None:
        session.push([monitor_line(at_us, other, argv)])

    if session.monitor is None:
        session.monitor = show
        session.engine.monitors.append(show)
    return OK
