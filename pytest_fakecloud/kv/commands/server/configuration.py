"""CONFIG commands, which read and change the configuration parameters of the server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ... import errors
from ...engine.engine import Engine, Session
from ...errors import CommandError, wrong_arity
from ...reply import OK, Map, Reply
from ...table.registry import Args, command
from ...table.syntax import encoded


@command("CONFIG GET")
def config_get(session: Session, args: Args) -> Reply:
    """Return the configuration parameters that match patterns, with their values."""
    found: dict[str, str] = {}
    for pattern in args:
        found.update(session.engine.config.matching(pattern))
    return Map([text.encode() for pair in found.items() for text in pair])


@command("CONFIG SET")
def config_set(session: Session, args: Args) -> Reply:
    """Set configuration parameters; if one is invalid, none is set.

    As in Redis, a port that cannot be bound is rejected. A valid port is stored, but the server
    keeps listening on its current port (decided here).
    """
    if len(args) % 2:
        raise CommandError(wrong_arity("config|set"))
    pairs = [(args[at], args[at + 1]) for at in range(0, len(args), 2)]
    engine = session.engine
    engine.config.change(pairs, partial(_check_ports, engine))
    engine.follow_config()
    # In the vendor's dialect, the default user cannot be changed, so requirepass does not set its
    # password.
    if engine.dialect == "redis" and any(name.lower() == b"requirepass" for name, _ in pairs):
        password = encoded(engine.config.text("requirepass"))
        engine.users["default"].set_password(password)
    return OK


def _check_ports(engine: Engine, changes: Mapping[str, str]) -> None:
    if engine.dialect != "redis":
        return
    port = changes.get("port", "0")
    if port not in ("0", engine.config.text("port")) and not engine.can_listen(int(port)):
        raise CommandError(errors.config_failed("port", errors.CANNOT_LISTEN))
    if changes.get("tls-port", "0") != "0":
        raise CommandError(errors.config_failed("tls-port", errors.NO_TLS))


@command("CONFIG RESETSTAT")
def config_resetstat(session: Session, args: Args) -> Reply:
    """Reset the statistics that INFO reports."""
    session.engine.reset_statistics()
    return OK


@command("CONFIG REWRITE")
def config_rewrite(session: Session, args: Args) -> Reply:
    """Write the configuration file; always returns an error, because there is no such file."""
    raise CommandError(errors.NO_CONFIG_FILE)
