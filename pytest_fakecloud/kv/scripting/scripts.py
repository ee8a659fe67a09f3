"""Runs the scripts and function libraries of one engine, and caches them.

A script runs atomically: it holds the engine's lock, and all its commands see the same time. As in
the real service, writes before an error are kept. Decided here: a script that exceeds its limits
(``ScriptLimits``) fails like a script that raises an error.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.timers import give_way, monotonic
from ..acl import Denied
from ..algorithms.quoting import split_words
from ..errors import BAD_DUMP, OOM, CommandError, CountedError, one_line
from ..reply import Reply
from ..table.config import Config
from ..table.registry import asks_to_wait
from ..table.versions import rdb_version
from . import errors
from .runs import (
    GIVE_WAY_SECONDS,
    LEVELS,
    PORT_LEVELS,
    HostLost,
    ScriptFailure,
    ScriptLimits,
    ScriptRun,
)

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.session import Session
    from ..table.registry import CommandSpec
    from .host import LuaHost


SCRIPT_FLAGS = frozenset(
    {b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys"}
)
KEY_LOCKING = b"allow-key-locking"
"""A flag of the vendor's service: the script may access only its declared keys."""


class Shebang(NamedTuple):
    """A parsed shebang line, and the source after it (``body``), which starts with the line break.

    ``flags`` is None if the script has no shebang line; such a script follows the rules from before
    flags were introduced.
    """

    flags: frozenset[bytes] | None
    body: bytes


def _split(source: bytes, no_line_end: bytes, open_quote: bytes) -> tuple[list[bytes], bytes]:
    """Return the words of the first line, and the rest of a source; raise one of the two errors."""
    line, line_end, rest = source.partition(b"\n")
    if not line_end:
        raise CommandError(no_line_end)
    words = split_words(line)
    if words is None:
        raise CommandError(open_quote)
    return words, line_end + rest


def script_shebang(source: bytes, vendor: bool) -> Shebang:
    """Parse the shebang line of a script; raise ``CommandError`` if it is invalid."""
    if not source.startswith(b"#!"):
        return Shebang(None, source)
    words, body = _split(source, errors.INVALID_SHEBANG, errors.INVALID_ENGINE)
    if words[0] != b"#!lua":
        raise CommandError(errors.unexpected_engine(words[0]))
    known = SCRIPT_FLAGS | {KEY_LOCKING} if vendor else SCRIPT_FLAGS
    flags: set[bytes] = set()
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(errors.unknown_shebang_option(word))
        listed = word.removeprefix(b"flags=")
        for flag in listed.split(b",") if listed else ():
            if flag not in known:
                raise CommandError(errors.unexpected_flag(flag))
            flags.add(flag)
    return Shebang(frozenset(flags), body)


def library_shebang(source: bytes) -> tuple[bytes, bytes]:
    """Return a library's name and body; raise ``CommandError`` for an invalid shebang line."""
    if not source.startswith(b"#!"):
        raise CommandError(errors.NO_METADATA)
    words, body = _split(source, errors.INVALID_METADATA, errors.INVALID_METADATA)
    name = None
    for word in words[1:]:
        if not word.lower().startswith(b"name="):
            raise CommandError(errors.bad_metadata(word))
        if name is not None:
            raise CommandError(errors.NAME_TWICE)
        name = word[len(b"name=") :]
    if name is None:
        raise CommandError(errors.NO_LIBRARY_NAME)
    if not re.fullmatch(rb"[A-Za-z0-9_]+", name):
        raise CommandError(errors.BAD_LIBRARY_NAME)
    engine = words[0].removeprefix(b"#!")
    if engine.lower() != b"lua":
        raise CommandError(errors.engine_not_found(engine))
    return name, body


class LibraryFunction(NamedTuple):
    """A function of a library. ``callback`` is the Lua function."""

    name: bytes
    callback: Any
    description: bytes | None
    flags: tuple[bytes, ...]


class Library(NamedTuple):
    """A function library."""

    name: bytes
    source: bytes
    functions: dict[bytes, LibraryFunction]


class Libraries:
    """The loaded function libraries. ``read`` runs the source of a library and returns the library."""

    def __init__(self, read: Callable[[bytes], Library]) -> None:
        self._read = read
        self._libraries: dict[bytes, Library] = {}
        self.functions: dict[bytes, LibraryFunction] = {}
        """All functions, keyed by their names in lower case, because calls are case-insensitive."""

    def __len__(self) -> int:
        return len(self._libraries)

    def __iter__(self) -> Iterator[Library]:
        """Iterate over the libraries in the order in which they were loaded."""
        return iter(self._libraries.values())

    def load(self, source: bytes, replace: bool) -> bytes:
        """Load a library and return its name. If loading raises ``CommandError``, nothing changes."""
        library = self._read(source)
        if not replace and library.name in self._libraries:
            raise CommandError(errors.library_exists(library.name))
        self._replace_all([each for each in self if each.name != library.name] + [library])
        return library.name

    def _replace_all(self, libraries: list[Library]) -> None:
        """Replace the libraries, or raise ``CommandError`` if two functions have the same name."""
        functions: dict[bytes, LibraryFunction] = {}
        for library in libraries:
            for name, function in library.functions.items():
                if functions.setdefault(name.lower(), function) is not function:
                    raise CommandError(errors.function_exists(name))
        self._libraries = {library.name: library for library in libraries}
        self.functions = functions

    def delete(self, name: bytes) -> bool:
        if name not in self._libraries:
            return False
        self._replace_all([each for each in self if each.name != name])
        return True

    def flush(self) -> None:
        self._replace_all([])

    def dump(self, config: Config, version: str) -> bytes:
        """Return all libraries as a FUNCTION DUMP payload, in the format of a server version."""
        from ..rdb import dump_libraries

        return dump_libraries(list(self.sources()), config, rdb_version(version))

    def restore(self, payload: bytes, policy: bytes, version: str) -> None:
        """Load the libraries of a payload, or none if one of them is invalid."""
        from ..rdb import is_sealed, load_libraries

        if not is_sealed(payload, rdb_version(version)):
            raise CommandError(BAD_DUMP)
        try:
            sources = load_libraries(payload)
        except TypeError:
            raise CommandError(errors.NOT_A_FUNCTION) from None
        except ValueError:
            raise CommandError(errors.BAD_LIBRARIES) from None
        self.add_all(sources, policy)

    def add_all(self, sources: list[bytes], policy: bytes) -> None:
        """Load libraries, or none if one is invalid. ``policy`` is that of FUNCTION RESTORE."""
        added: dict[bytes, Library] = {}
        for source in sources:
            library = self._read(source)
            if library.name in added:
                raise CommandError(errors.library_exists(library.name))
            added[library.name] = library
        present = [] if policy == b"FLUSH" else list(self)
        for library in present:
            if library.name in added and policy == b"APPEND":
                raise CommandError(errors.library_collides(library.name))
        kept = [library for library in present if library.name not in added]
        self._replace_all([*kept, *added.values()])

    def sources(self) -> tuple[bytes, ...]:
        return tuple(library.source for library in self)

    def reload(self, sources: tuple[bytes, ...]) -> None:
        """Replace all libraries with those from these sources, whose global variables are reset.

        If a source raises ``CommandError``, nothing changes.
        """
        self._replace_all([self._read(source) for source in sources])


_MAY_REPLICATE = frozenset({"PUBLISH", "SPUBLISH", "PFCOUNT"})
"""Commands that read-only scripts may not call, although they are not write commands."""
_RUNS = frozenset({"EVAL", "EVALSHA", "FCALL"})
_FLUSHES = frozenset({"FLUSHDB", "FLUSHALL"})


@dataclass(eq=False)
class Script:
    """A cached script, with ``flags`` if it has a shebang line, and ``compiled`` once it has run."""

    source: bytes
    body: bytes
    flags: frozenset[bytes] | None
    compiled: Any = None


class ScriptingCopy(NamedTuple):
    """A copy of an engine's scripts and libraries, made by ``Scripting.snapshot()``."""

    scripts: dict[bytes, Script]
    libraries: tuple[bytes, ...]


class Scripting:
    """The scripts and function libraries of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.scripts: dict[bytes, Script] = {}
        self.libraries = Libraries(self._read_library)
        # Real servers let a script run until a client kills it. Here it also ends at a time limit,
        # which is generous, because scripts take many times longer on a busy machine.
        stock = ScriptLimits(instructions=10**12, seconds=30.0)
        self.limits = ScriptLimits() if self.vendor else stock
        """The limits of scripts. A change takes effect when the next Lua runtime is created."""
        self.allows_all_commands = False
        """Whether scripts may call any command that runs no script.

        ``DEBUG SET-DISABLE-DENY-SCRIPTS`` changes this.
        """
        self._host: LuaHost | None = None
        self.running: ScriptRun | None = None
        """The running script, or None. Other threads read this attribute."""

    @property
    def vendor(self) -> bool:
        """Whether error messages and flags are those of the vendor's service."""
        return self.engine.dialect == "vendor"

    @property
    def host(self) -> LuaHost:
        """The Lua runtime, which is created on first use."""
        if self._host is None:
            from .host import LuaHost  # Imported here because only scripts need lupa.

            self._host = LuaHost(
                call=self._command,
                may_call=self._may_call,
                clock=self._clock,
                check_progress=self._check_progress,
                limits=self.limits,
                flags=SCRIPT_FLAGS | {KEY_LOCKING} if self.vendor else SCRIPT_FLAGS,
                version=self.engine.version,
                knows=self.engine.table.knows,
            )
        return self._host

    # -- scripts and functions ---------------------------------------------------------------------

    def load(self, source: bytes) -> bytes:
        """Cache a script and return its SHA-1 digest; raise ``CommandError`` for a syntax error."""
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        if sha not in self.scripts:
            shebang = script_shebang(source, self.vendor)
            script = Script(source, shebang.body, shebang.flags)
            self._compile(script)
            self.scripts[sha] = script
        return sha

    def _compile(self, script: Script) -> None:
        try:
            script.compiled = self.host.compile(script.body)
        except SyntaxError as error:
            raise CommandError(errors.compile_error(str(error))) from None
        except ScriptFailure as failure:
            raise CommandError(failure.text) from None
        except HostLost:
            raise self._lose_host() from None

    def evaluate(
        self, session: Session, sha: bytes, keys: list[bytes], args: list[bytes], read_only: bool
    ) -> Reply:
        """Run a cached script; raise a NOSCRIPT error for an unknown digest."""
        script = self.scripts.get(sha)
        if script is None:
            raise CommandError(errors.NO_SCRIPT)
        if script.compiled is None:
            self._compile(script)
        return self._run(
            session, sha, keys, script.flags, read_only,
            lambda host: host.evaluate(script.compiled, keys, args),
        )  # fmt: skip

    def _read_library(self, source: bytes) -> Library:
        name, body = library_shebang(source)
        try:
            registered = self.host.load_library(body)
        except SyntaxError as error:
            raise CommandError(errors.library_compile_error(str(error))) from None
        except ScriptFailure as failure:
            text = errors.LOAD_TIMEOUT if failure.too_long else failure.text
            raise CommandError(errors.registration_error(text)) from None
        except HostLost:
            raise self._lose_host() from None
        if not registered:
            raise CommandError(errors.NO_FUNCTIONS)
        functions = {
            function_name: LibraryFunction(function_name, callback, description, tuple(flags))
            for function_name, callback, description, flags in registered
        }
        return Library(name, source, functions)

    def call_function(
        self, session: Session, name: bytes, keys: list[bytes], args: list[bytes], read_only: bool
    ) -> Reply:
        """Run a function of a library; the function must exist."""
        function = self.libraries.functions[name.lower()]
        return self._run(
            session, name, keys, frozenset(function.flags), read_only,
            lambda host: host.call_function(function.callback, keys, args),
            self.engine.line,
        )  # fmt: skip

    # -- flags -------------------------------------------------------------------------------------

    def may_write(self, spec: CommandSpec, argv: list[bytes]) -> bool:
        """Return whether CLIENT PAUSE WRITE delays a line, because it may write or publish.

        Scripts are judged by their flags; a script without flags may write (specification). Raises
        ``CommandError`` for an invalid shebang line.
        """
        if spec.name not in _RUNS:
            return spec.write or spec.name in _MAY_REPLICATE
        flags = self._flags_of(spec, argv)
        return flags is None or b"no-writes" not in flags

    def declares_writes(self, spec: CommandSpec, argv: list[bytes]) -> bool:
        """Return whether a command line runs a script whose flags allow writes."""
        if spec.name not in _RUNS:
            return False
        try:
            flags = self._flags_of(spec, argv)
        except CommandError:
            return False  # Ignore the error, because running the script will raise it again.
        return flags is not None and b"no-writes" not in flags

    def _flags_of(self, spec: CommandSpec, argv: list[bytes]) -> Collection[bytes] | None:
        """Return the flags of the script or function that a command line runs, or None."""
        match spec.name:
            case "EVAL":
                return script_shebang(argv[1], self.vendor).flags
            case "EVALSHA":
                script = self.scripts.get(argv[1].lower())
                return None if script is None else script.flags
            case _:
                function = self.libraries.functions.get(argv[1].lower())
                return None if function is None else function.flags

    # -- running -----------------------------------------------------------------------------------

    def _run(
        self,
        session: Session,
        name: bytes,
        keys: list[bytes],
        flags: frozenset[bytes] | None,
        read_only: bool,
        action: Callable[[LuaHost], Reply],
        line: list[bytes] | None = None,
    ) -> Reply:
        """Run a script or, with its command ``line``, a function, unless its flags forbid it.

        FCALL_RO in Redis rejects functions without the flag ``no-writes``. The vendor's service
        runs them, but rejects their writes.
        """
        no_writes = flags is not None and b"no-writes" in flags
        if read_only and flags is not None and not no_writes and not self.vendor:
            raise CommandError(errors.WRITE_FLAG_IN_RO)
        clock, now = self.engine.clock, monotonic()
        run = ScriptRun(
            clock,
            session,
            read_only or no_writes,
            frozenset(keys) if flags is not None and KEY_LOCKING in flags else None,
            name,
            self._is_without_memory(session, flags),
            line,
            now,
            clock.now_us(),
            now + GIVE_WAY_SECONDS,
        )
        before = (session.db, session.resp, session.in_script)
        session.resp_before_script = session.resp
        tracking = self.engine.tracking
        if tracking:
            tracking.invalidate_changed(session, within=True)
        session.in_script = True
        host = self.host
        host.levels = PORT_LEVELS if session.transport == "port" else LEVELS
        self.running = run
        try:
            reply = action(host)
        except ScriptFailure as failure:
            if run.killed:
                failure.text = errors.KILLED
            kind = CountedError if failure.counted else CommandError
            raise kind(self._failure_text(failure, run.name)) from None
        except HostLost:
            raise self._lose_host() from None
        finally:
            self.running = None
            if tracking:
                tracking.invalidate_changed(session, within=True)
            session.db, session.resp, session.in_script = before
            session.resp_before_script = 0
        if isinstance(reply, CommandError):
            raise reply
        return reply

    def _is_without_memory(self, session: Session, flags: frozenset[bytes] | None) -> bool:
        """Return whether memory is full; raise OOM for a script whose flags do not allow that."""
        if flags is not None and flags & {b"allow-oom", b"no-writes"}:
            return False
        if not self.engine.lacks_memory(session):
            return False
        if flags is not None:
            raise CommandError(OOM)
        return True

    def _lose_host(self) -> CommandError:
        """Replace a broken Lua runtime, load the libraries again, and return the error to raise.

        A library that breaks the new runtime, too, is removed.
        """
        self._host = None
        for script in self.scripts.values():
            script.compiled = None
        sources = self.libraries.sources()
        self.libraries.flush()
        for source in sources:
            with suppress(CommandError):
                self.libraries.load(source, replace=False)
        return CommandError(errors.OUT_OF_MEMORY)

    def _failure_text(self, failure: ScriptFailure, name: bytes) -> bytes:
        text = one_line(failure.text)
        if failure.source is None or failure.line is None:
            return b"ERR Error running script: " + text if self.vendor else text
        if not self.vendor:
            return b"%b script: %b, on %b:%d." % (text, name, failure.source, failure.line)
        place = b"%b:%d" % (failure.source, failure.line)
        inner = text.removeprefix(b"ERR %b: " % place.removeprefix(b"@"))
        trace = b"\nstack traceback:\n\t%b: in main chunk\n\t[G]: ?" % place
        return b"ERR Error running script: %b: %b%b" % (place, inner, trace)

    # -- callbacks of the Lua runtime --------------------------------------------------------------

    def _command(self, argv: list[bytes], resp: int) -> Reply:
        run = self.running
        assert run is not None
        spec: CommandSpec | None = None
        try:
            spec = self._resolve(run, argv)
            self._allow(run, spec, argv)
        except CommandError as error:
            self.engine.statistics.count_rejection(spec, error)
            return error
        try:
            run.session.resp = resp
            run.wrote = run.wrote or spec.write
            return self.engine.run(run.session, spec, argv)
        except CommandError as error:
            return error

    def _resolve(self, run: ScriptRun, argv: list[bytes]) -> CommandSpec:
        """Return the command of a line; raise ``CommandError`` unless this server has it."""
        try:
            spec = self.engine.table.resolve(argv)
        except CommandError:
            raise CommandError(errors.UNKNOWN_COMMAND) from None
        if not self.engine.admission.offers(run.session, spec):
            raise CommandError(errors.UNKNOWN_COMMAND)
        return spec

    def _allow(self, run: ScriptRun, spec: CommandSpec, argv: list[bytes]) -> None:
        if not spec.least <= len(argv) <= spec.most:
            raise CommandError(errors.WRONG_ARITY)
        # A script inside a script would crash Redis, so scripts can never call these commands.
        is_denied = spec.group == "scripting" or not self.allows_all_commands
        if "noscript" in spec.flags and is_denied:
            raise CommandError(errors.NOT_FROM_SCRIPT)
        if spec.may_wait and asks_to_wait(argv):
            raise CommandError(errors.waits_in_script(spec.name.lower()))
        if run.without_memory and "denyoom" in spec.flags:
            raise CommandError(OOM)
        if run.read_only and (spec.write or spec.name in _MAY_REPLICATE):
            raise CommandError(errors.READ_ONLY_VENDOR if self.vendor else errors.READ_ONLY)
        self.engine.admission.check_replicas(run.session, spec)
        if not run.session.user.unrestricted:
            try:
                self.engine.users.permit(run.session, spec, argv)
            except Denied as denied:
                raise CommandError(errors.NO_PERMISSION[denied.reason]) from None
        if run.keys is not None:
            if spec.name in _FLUSHES:
                raise CommandError(errors.FLUSH_WITH_KEY_LOCKING)
            for place, key_spec in spec.key_positions(argv):
                if "not_key" not in key_spec.flags and argv[place] not in run.keys:
                    raise CommandError(errors.dynamic_key(argv[place]))

    def _may_call(self, argv: list[bytes]) -> bool | bytes:
        run = self.running
        assert run is not None
        try:
            spec = self.engine.table.resolve(argv)
        except CommandError:
            return errors.INVALID_FOR_ACL_CHECK
        try:
            if not run.session.user.unrestricted:
                run.session.user.check(spec, argv)
        except CommandError:
            return False
        return True

    def _check_progress(self) -> float:
        now = monotonic()
        run = self.running
        if run is not None:
            if run.killed:
                return math.inf  # A time later than any deadline ends the script.
            if now > run.gives_way_at:
                run.gives_way_at = now + GIVE_WAY_SECONDS
                # Release the interpreter lock, so that another thread can run and kill the script.
                give_way()
        return now

    def _clock(self) -> float:
        return (self.engine.now_us - self.engine.started_us) / 1_000_000

    # -- copies ------------------------------------------------------------------------------------

    def snapshot(self) -> ScriptingCopy:
        return ScriptingCopy(dict(self.scripts), self.libraries.sources())

    def restore(self, saved: ScriptingCopy) -> None:
        """Restore scripts and libraries. Loading libraries again resets their global variables."""
        self.scripts = dict(saved.scripts)
        self.libraries.reload(saved.libraries)
