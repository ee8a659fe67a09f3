"""Commands that run scripts and functions, or manage cached scripts and function libraries."""

from __future__ import annotations

from ..algorithms.glob import matcher
from ..engine.sessions import Session
from ..errors import NOT_INTEGER, TOO_MANY_KEYS, CommandError
from ..reply import OK, Map, Reply, SetReply, Status
from ..scripting import errors
from ..scripting.libraries import Library, library_shebang, sources_in
from ..syntax import parse_int
from ..table.registry import Args, command, variant
from .arguments import only_option, subcommand_error


def _keys_and_arguments(args: Args, error: bytes = NOT_INTEGER) -> tuple[list[bytes], list[bytes]]:
    """Return the keys, whose number is in ``args[1]``, and the arguments after the keys."""
    count = parse_int(args[1], 0, error=error, outside=errors.KEYS_NEGATIVE)
    if count > len(args) - 2:
        raise CommandError(TOO_MANY_KEYS)
    return args[2 : 2 + count], args[2 + count :]


@variant("EVAL", "Run a Lua script.", read_only=False)
@variant("EVAL_RO", "Run a read-only Lua script.", read_only=True)
def eval_(session: Session, args: Args, *, read_only: bool) -> Reply:
    keys, arguments = _keys_and_arguments(args)
    scripting = session.engine.scripting
    sha = scripting.load(args[0])
    return scripting.evaluate(session, sha, keys, arguments, read_only)


@variant("EVALSHA", "Run a cached Lua script by its SHA-1 digest.", read_only=False)
@variant("EVALSHA_RO", "Run a cached read-only Lua script by its SHA-1 digest.", read_only=True)
def evalsha(session: Session, args: Args, *, read_only: bool) -> Reply:
    if len(args[0]) != 40:
        raise CommandError(errors.NO_SCRIPT)
    keys, arguments = _keys_and_arguments(args)
    return session.engine.scripting.evaluate(session, args[0].lower(), keys, arguments, read_only)


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
    only_option(session, args, errors.SCRIPT_FLUSH_MODE)
    session.engine.scripting.flush()
    return OK


@command("SCRIPT SHOW")
def script_show(session: Session, args: Args) -> Reply:
    """Return the source of a script in the script cache."""
    script = session.engine.scripting.scripts.get(args[0].lower())
    if script is None:
        raise CommandError(errors.NO_SCRIPT)
    return script.source


@variant("SCRIPT KILL", "Stop the running script if it has not written anything.")
@variant("FUNCTION KILL", "Stop the running function if it has not written anything.")
def kill(session: Session, args: Args) -> Reply:
    session.engine.scripting.kill()
    return OK


@command("SCRIPT DEBUG")
def script_debug(session: Session, args: Args) -> Reply:
    """Set the debug mode of scripts. It has no effect, because there is no debugger."""
    only_option(session, args, errors.SCRIPT_DEBUG_MODE)
    return OK


@variant("FCALL", "Call a function of a library.", read_only=False)
@variant("FCALL_RO", "Call a read-only function of a library.", read_only=True)
def fcall(session: Session, args: Args, *, read_only: bool) -> Reply:
    scripting = session.engine.scripting
    if args[0].lower() not in scripting.libraries.functions:
        raise CommandError(errors.FUNCTION_NOT_FOUND)
    keys, arguments = _keys_and_arguments(args, errors.KEYS_BAD)
    return scripting.call_function(session, args[0], keys, arguments, read_only)


@command("FUNCTION LOAD")
def function_load(session: Session, args: Args) -> Reply:
    """Load a function library."""
    for option in args[:-1]:
        if option.upper() != b"REPLACE":
            raise CommandError(errors.unknown_load_option(option))
    scripting, source = session.engine.scripting, args[-1]
    name, _ = library_shebang(source)
    if len(args) == 1 and name in scripting.libraries:
        # As on a real server, even if the code cannot be compiled.
        raise CommandError(errors.library_exists(name))
    return scripting.libraries.load(scripting.read_library(source))


@command("FUNCTION DELETE")
def function_delete(session: Session, args: Args) -> Reply:
    """Delete a function library."""
    if not session.engine.scripting.libraries.delete(args[0]):
        raise CommandError(errors.LIBRARY_NOT_FOUND)
    return OK


@command("FUNCTION FLUSH")
def function_flush(session: Session, args: Args) -> Reply:
    """Delete all function libraries."""
    if len(args) > 1:
        raise subcommand_error(session)
    only_option(session, args, errors.FUNCTION_FLUSH_MODE)
    session.engine.scripting.libraries.replace_all([])
    return OK


@command("FUNCTION LIST")
def function_list(session: Session, args: Args) -> Reply:
    """Return the function libraries with their functions, in the order in which they were loaded."""
    pattern, with_code = None, False
    words = iter(args)
    for word in words:
        if word.upper() == b"WITHCODE" and not with_code:
            with_code = True
        elif word.upper() == b"LIBRARYNAME" and pattern is None:
            pattern = next(words, None)
            if pattern is None:
                raise CommandError(errors.NO_LIBRARY_ARGUMENT)
        else:
            raise CommandError(errors.unknown_list_argument(word))
    return [
        _shown(library, with_code)
        for library in session.engine.scripting.libraries.values()
        if pattern is None or matcher(pattern)(library.name)
    ]


def _shown(library: Library, with_code: bool) -> Map:
    functions = [
        Map([
            b"name", function.name, b"description", function.description,
            b"flags", SetReply(map(Status, function.flags)),
        ])
        for function in library.functions.values()
    ]  # fmt: skip
    shown = Map([b"library_name", library.name, b"engine", b"LUA", b"functions", functions])
    if with_code:
        shown += [b"library_code", library.source]
    return shown


@command("FUNCTION STATS")
def function_stats(session: Session, args: Args) -> Reply:
    """Return the running function, if any, and the numbers of libraries and functions."""
    scripting = session.engine.scripting
    libraries, run = scripting.libraries, scripting.running
    running = None
    if run is not None and run.line is not None:
        running = Map([b"name", run.name, b"command", run.line, b"duration_ms", run.milliseconds])
    functions = len(libraries.functions)
    counts = Map([b"libraries_count", len(libraries), b"functions_count", functions])
    return Map([b"running_script", running, b"engines", Map([b"LUA", counts])])


@command("FUNCTION DUMP")
def function_dump(session: Session, args: Args) -> Reply:
    """Return all function libraries as a payload for FUNCTION RESTORE."""
    return session.engine.scripting.libraries.dump(session.engine.config, session.engine.version)


@command("FUNCTION RESTORE")
def function_restore(session: Session, args: Args) -> Reply:
    """Load the function libraries of a FUNCTION DUMP payload, either all of them or none."""
    if len(args) > 2:
        raise subcommand_error(session)
    policy = only_option(session, args[1:], errors.BAD_POLICY) or b"APPEND"
    scripting = session.engine.scripting
    sources = sources_in(args[0], session.engine.version)
    scripting.libraries.add_all(map(scripting.read_library, sources), policy)
    return OK
