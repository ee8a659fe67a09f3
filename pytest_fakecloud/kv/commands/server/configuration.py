"""CONFIG: the parameters of the server."""

from __future__ import annotations

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, wrong_arity
from ...reply import OK, Map, Reply
from ...table.registry import Args, command
from .help import help_reply

__all__: list[str] = []


@command("CONFIG GET")
def config_get(session: Session, args: Args) -> Reply:
    """The parameters that match patterns, and their values."""
    found: dict[str, str] = {}
    for pattern in args:
        found.update(session.engine.config.matching(pattern))
    return Map([text.encode() for pair in found.items() for text in pair])


@command("CONFIG SET")
def config_set(session: Session, args: Args) -> Reply:
    """Change parameters, all of them or none."""
    if len(args) % 2:
        raise CommandError(wrong_arity("config|set"))
    pairs = [(args[at], args[at + 1]) for at in range(0, len(args), 2)]
    engine = session.engine
    engine.config.change(pairs)
    engine.follow_config()
    # The vendor's own user cannot be changed.
    if engine.dialect == "redis" and any(name.lower() == b"requirepass" for name, _ in pairs):
        password = engine.config.text("requirepass").encode("utf-8", "surrogateescape")
        engine.users["default"].set_password(password)
    return OK


@command("CONFIG RESETSTAT")
def config_resetstat(session: Session, args: Args) -> Reply:
    """Begin the statistics of INFO anew."""
    session.engine.reset_statistics()
    return OK


@command("CONFIG REWRITE")
def config_rewrite(session: Session, args: Args) -> Reply:
    """Write the configuration file; refused, because there is none."""
    raise CommandError(errors.NO_CONFIG_FILE)


@command("CONFIG HELP")
def config_help(session: Session, args: Args) -> Reply:
    """The sub-commands of CONFIG."""
    return help_reply(session, "CONFIG")
