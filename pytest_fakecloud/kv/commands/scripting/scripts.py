"""EVAL and related commands, and the commands of the script cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import TOO_MANY_KEYS, CommandError
from ...reply import OK, Reply
from ...scripting import errors
from ...table.registry import Args, command
from ...table.syntax import parse_int

if TYPE_CHECKING:
    from ...engine.engine import Session


def keys_and_arguments(args: Args, error: bytes | None = None) -> tuple[list[bytes], list[bytes]]:
    """Return the keys, whose number is in ``args[1]``, and the arguments after the keys."""
    count = parse_int(args[1]) if error is None else parse_int(args[1], error=error)
    if count > len(args) - 2:
        raise CommandError(TOO_MANY_KEYS)
    if count < 0:
        raise CommandError(errors.KEYS_NEGATIVE)
    return args[2 : 2 + count], args[2 + count :]


def _eval(session: Session, args: Args, read_only: bool) -> Reply:
    keys, arguments = keys_and_arguments(args)
    scripting = session.engine.scripting
    sha = scripting.load(args[0])
    return scripting.evaluate(session, sha, keys, arguments, read_only)


def _evalsha(session: Session, args: Args, read_only: bool) -> Reply:
    if len(args[0]) != 40:
        raise CommandError(errors.NO_SCRIPT)
    keys, arguments = keys_and_arguments(args)
    return session.engine.scripting.evaluate(session, args[0].lower(), keys, arguments, read_only)


@command("EVAL")
def eval_(session: Session, args: Args) -> Reply:
    """Run a Lua script."""
    return _eval(session, args, False)


@command("EVAL_RO")
def eval_ro(session: Session, args: Args) -> Reply:
    """Run a read-only Lua script."""
    return _eval(session, args, True)


@command("EVALSHA")
def evalsha(session: Session, args: Args) -> Reply:
    """Run a cached Lua script by its SHA-1 digest."""
    return _evalsha(session, args, False)


@command("EVALSHA_RO")
def evalsha_ro(session: Session, args: Args) -> Reply:
    """Run a cached read-only Lua script by its SHA-1 digest."""
    return _evalsha(session, args, True)


@command("SCRIPT LOAD")
def script_load(session: Session, args: Args) -> Reply:
    """Add a Lua script to the script cache without running it, and return its SHA-1 digest."""
    return session.engine.scripting.load(args[0])


@command("SCRIPT EXISTS")
def script_exists(session: Session, args: Args) -> Reply:
    """Return for each SHA-1 digest whether the cache contains the script."""
    scripts = session.engine.scripting.scripts
    return [int(sha.lower() in scripts) for sha in args]


@command("SCRIPT FLUSH")
def script_flush(session: Session, args: Args) -> Reply:
    """Remove all scripts from the script cache."""
    if len(args) > 1 or (args and args[0].upper() not in (b"SYNC", b"ASYNC")):
        raise CommandError(errors.SCRIPT_FLUSH_MODE)
    session.engine.scripting.scripts.clear()
    return OK


@command("SCRIPT SHOW")
def script_show(session: Session, args: Args) -> Reply:
    """Return the source of a script in the script cache."""
    script = session.engine.scripting.scripts.get(args[0].lower())
    if script is None:
        raise CommandError(errors.NO_SCRIPT)
    return script.source


@command("SCRIPT KILL")
def script_kill(session: Session, args: Args) -> Reply:
    """Stop the running script if it has not written anything."""
    session.engine.turns.kill()
    return OK


@command("SCRIPT DEBUG")
def script_debug(session: Session, args: Args) -> Reply:
    """Set the debug mode of scripts. It has no effect, because there is no debugger."""
    if args[0].upper() not in (b"YES", b"SYNC", b"NO"):
        raise CommandError(errors.SCRIPT_DEBUG_MODE)
    return OK
