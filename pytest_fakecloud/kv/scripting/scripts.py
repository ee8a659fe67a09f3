"""Runs the scripts of one engine, and caches them.

A script runs atomically: it holds the engine's lock, and all its commands see the same time. As in
the real service, writes before an error are kept. Decided here: a script that exceeds its limits
(``ScriptLimits``) fails like a script that raises an error.

While a script runs, commands of other clients wait, fail, or kill the script. SCRIPT KILL and
FUNCTION KILL take effect immediately. After ``busy-reply-threshold`` milliseconds, Redis rejects
all but a few commands with BUSY (measured on 7.0). Both wall-clock time and fake time count towards
the threshold; the longer one applies. The vendor's service cannot kill scripts and returns NOTBUSY.

No client waits longer than ``LONGEST_WAIT_SECONDS`` for a script (decided here). The vendor's scripts
end after that time. Those of a stock server may run for longer, as on Redis, but other clients then
receive BUSY, whatever the threshold.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.registry import Registry
from ...core.threads import step_aside
from ...core.timers import TimeLimit, give_way, monotonic
from ..acl import Denied
from ..engine.cluster import key_slot
from ..engine.limits import LONGEST_WAIT_SECONDS
from ..errors import OOM, CommandError, CountedError, as_reply, one_line
from ..reply import Reply
from ..table.over_rest import asks_to_wait
from . import errors
from .errors import LEVELS, PORT_LEVELS, HostLost, ScriptFailure, ScriptLimits
from .libraries import KEY_LOCKING, Libraries, Library, digest, library_shebang, script_shebang

if TYPE_CHECKING:
    from ...core.clock import Timekeeper
    from ..engine.engine import KVEngine
    from ..engine.sessions import Session
    from ..table.registry import CommandSpec
    from .host import LuaHost

_GIVE_WAY_SECONDS = 0.005
"""Seconds after which a running script lets other threads use the interpreter."""


@dataclass(eq=False, slots=True)
class ScriptRun:
    """A run of a script or function."""

    clock: Timekeeper
    session: Session
    read_only: bool
    keys: frozenset[bytes] | None
    """The keys that the script may access, or None if it may access all keys."""
    name: bytes
    without_memory: bool
    """Whether memory was full at the start: until a command writes, none may allocate more."""
    line: list[bytes] | None
    """The command line that called the function; None for a script."""
    begun: float
    """Start of the run in seconds of wall-clock time."""
    begun_us: int
    """Start of the run in microseconds of fake time."""
    wrote: bool = False
    """Whether a write command was called, after which the run cannot be killed."""
    killed: bool = False
    slots: set[int] | None = None
    """The slots of a cluster that the script has accessed, if it may access only one."""

    @property
    def is_function(self) -> bool:
        return self.line is not None

    @property
    def kill_command(self) -> str:
        return "FUNCTION KILL" if self.is_function else "SCRIPT KILL"

    @property
    def milliseconds(self) -> int:
        """Duration of the run in milliseconds, in wall-clock or fake time, whichever is longer."""
        return max(int(self.seconds * 1000), (self.clock.now_us() - self.begun_us) // 1000)

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds of wall-clock time."""
        return monotonic() - self.begun


_KILLS = frozenset({"SCRIPT KILL", "FUNCTION KILL"})
_RUN_DURING_SCRIPT = _KILLS | {"AUTH", "HELLO", "QUIT", "MULTI", "CLIENT SETINFO", "FUNCTION STATS"}
"""Commands that run while a script is running.

Real servers allow them, and they use no state that the script can change. All other commands wait
until the script ends (decided here).
"""
_MAY_REPLICATE = frozenset({"PUBLISH", "SPUBLISH", "PFCOUNT"})
"""Commands that read-only scripts may not call, although they are not write commands."""
_RUNS = frozenset({"EVAL", "EVALSHA", "FCALL"})
_FLUSHES = frozenset({"FLUSHDB", "FLUSHALL"})

CjsonSettings = tuple[dict[bytes, Any], dict[bytes, Any]]
"""The settings of the cjson library for scripts and for functions; those left out are the initial ones.

What a script sets lasts until SCRIPT FLUSH, and what a function sets as long as the server runs
(observed on Redis 7.0). The vendor has published nothing about it; decided here: it is the same.
"""


@dataclass(eq=False)
class Script:
    """A cached script, with ``flags`` if it has a shebang line, and ``compiled`` once it has run."""

    source: bytes
    body: bytes
    flags: frozenset[bytes] | None
    compiled: Any = None


class ScriptingCopy(NamedTuple):
    """A copy of the scripts and function libraries of an engine."""

    scripts: dict[bytes, Script]
    libraries: tuple[bytes, ...]
    cjson_settings: CjsonSettings


class Scripting:
    """The scripts and function libraries of one engine."""

    def __init__(self, engine: KVEngine) -> None:
        self.engine: KVEngine = weakref.proxy(engine)
        self.vendor = engine.dialect == "vendor"
        self.scripts: dict[bytes, Script] = {}
        self.libraries = Libraries()
        # Real servers let a script run until a client kills it. Here it also ends at a time limit.
        stock = ScriptLimits(instructions=10**12, seconds=30.0)
        self.limits = ScriptLimits() if self.vendor else stock
        """The limits of scripts. A change takes effect when the next Lua runtime is created."""
        self.allows_all_commands = False
        """Whether ``DEBUG SET-DISABLE-DENY-SCRIPTS`` lets scripts call any other command."""
        self._time_limit: TimeLimit
        """The limit of the running code, from ``start_timing()`` on."""
        self._gives_way_at = 0.0
        """Wall-clock time at which to let other threads use the interpreter."""
        self.running: ScriptRun | None = None
        """The running script, or None. Other threads read this attribute."""
        self.listeners: Registry[Callable[[Session, list[bytes], Reply], None]] = Registry()
        """Functions that are called with a script's client, and an empty line when it begins, and then
        each of its command lines and its reply.
        """
        self.cut_listeners: Registry[Callable[[Session, float, int], None]] = Registry()
        """Functions that are called with a script's client, a number that the script returned, and the
        integer to which the server cuts it in the reply.
        """

    @cached_property
    def host(self) -> LuaHost:
        from .host import LuaHost  # Imported here because only scripts need lupa.

        return LuaHost(self)

    def load(self, source: bytes) -> bytes:
        """Cache a script and return its SHA-1 digest; raise ``CommandError`` for a syntax error."""
        sha = digest(source)
        if sha not in self.scripts:
            flags, body = script_shebang(source, self.vendor)
            script = Script(source, body, flags)
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
        script = self.scripts.get(sha)
        if script is None:
            raise CommandError(errors.NO_SCRIPT)
        if script.compiled is None:
            self._compile(script)
        return self._run(
            session, sha, keys, script.flags, read_only,
            lambda host: host.evaluate(script.compiled, keys, args),
        )  # fmt: skip

    def read_library(self, source: bytes) -> Library:
        name, body = library_shebang(source)
        try:
            functions = self.host.load_library(body)
        except SyntaxError as error:
            raise CommandError(errors.library_compile_error(str(error))) from None
        except ScriptFailure as failure:
            text = errors.LOAD_TIMEOUT if failure.too_long else failure.text
            raise CommandError(errors.registration_error(text)) from None
        except HostLost:
            raise self._lose_host() from None
        if not functions:
            raise CommandError(errors.NO_FUNCTIONS)
        return Library(name, source, {function.name: function for function in functions})

    def call_function(
        self, session: Session, name: bytes, keys: list[bytes], args: list[bytes], read_only: bool
    ) -> Reply:
        """Run a function of a library; the function must exist."""
        function = self.libraries.functions[name.lower()]
        return self._run(
            session, name, keys, frozenset(function.flags), read_only,
            lambda host: host.call_function(function.callback, keys, args),
            session.line,
        )  # fmt: skip

    def may_write(self, spec: CommandSpec, line: list[bytes]) -> bool:
        """Return whether CLIENT PAUSE WRITE delays a line, because it may write or publish.

        Scripts are judged by their flags; a script without flags may write (specification). Raises
        ``CommandError`` for an invalid shebang line.
        """
        if spec.name not in _RUNS:
            return spec.write or spec.name in _MAY_REPLICATE
        flags = self._flags_of(spec, line)
        return flags is None or b"no-writes" not in flags

    def declares_writes(self, spec: CommandSpec, line: list[bytes]) -> bool:
        if spec.name not in _RUNS:
            return False
        try:
            flags = self._flags_of(spec, line)
        except CommandError:
            return False  # Ignore the error, because running the script will raise it again.
        return flags is not None and b"no-writes" not in flags

    def _flags_of(self, spec: CommandSpec, line: list[bytes]) -> Collection[bytes] | None:
        """Return the flags of the script or function that a command line runs, or None."""
        if spec.name == "EVAL":
            return script_shebang(line[1], self.vendor)[0]
        is_cached, name = spec.name == "EVALSHA", line[1].lower()
        script = self.scripts.get(name) if is_cached else self.libraries.functions.get(name)
        return None if script is None else script.flags

    # -- commands of other clients while a script runs ---------------------------------------------

    def runs_now(self, line: list[bytes]) -> bool:
        """Return whether a command line is handled while a script holds the engine's lock."""
        run = self.running
        if run is None:
            return False
        threshold_ms = self.engine.config.number("busy-reply-threshold")
        is_busy = not self.vendor and (
            0 < threshold_ms <= run.milliseconds or run.seconds >= LONGEST_WAIT_SECONDS
        )
        spec = self.engine.table.find(line)
        if spec is None:
            return is_busy
        if spec.name in _KILLS and (self.vendor or spec.name == run.kill_command):
            return True
        needs_lock = "allow_busy" in spec.flags and spec.name not in _RUN_DURING_SCRIPT
        return is_busy and not needs_lock

    def check_during_script(self, spec: CommandSpec) -> None:
        """Raise a BUSY error if the command may not run while a script is running."""
        if self.vendor and spec.name in _KILLS:
            return
        # Check this even if the script has ended in the meantime, because the caller does not hold
        # the lock that other commands need.
        run = self.running
        is_function = run is not None and run.is_function
        if spec.name in _KILLS:
            may_run = run is None or spec.name == run.kill_command
        elif spec.name == "FUNCTION STATS":
            may_run = is_function
        else:
            may_run = spec.name in _RUN_DURING_SCRIPT
        if not may_run:
            raise CommandError(errors.busy("FUNCTION" if is_function else "SCRIPT"))

    def kill(self) -> None:
        """Kill the running script; raise NOTBUSY if none is running, UNKILLABLE if it has written."""
        run = self.running
        if run is None or self.vendor:
            raise CommandError(errors.NOT_BUSY)
        if run.wrote:
            raise CommandError(errors.UNKILLABLE)
        run.killed = True

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
        if flags is not None and b"no-cluster" in flags and self.engine.cluster is not None:
            raise CommandError(errors.NO_CLUSTER)
        clock = self.engine.clock
        run = ScriptRun(
            clock,
            session,
            read_only or no_writes,
            frozenset(keys) if flags is not None and KEY_LOCKING in flags else None,
            name,
            self._is_without_memory(session, flags),
            line,
            monotonic(),
            clock.now_us(),
        )
        is_in_one_slot = flags is not None and b"allow-cross-slot-keys" not in flags
        if self.engine.cluster is not None and session.node is not None and is_in_one_slot:
            run.slots = set(map(key_slot, keys))
        before = (session.db, session.resp, session.in_script)
        session.resp_before_script = session.resp
        tracking = self.engine.tracking
        if tracking:
            tracking.invalidate_changed(session, within=True)
        session.in_script = True
        host = self.host
        host.levels = PORT_LEVELS if session.interface == "port" else LEVELS
        self.running = run
        for listener in self.listeners.items:
            listener(session, [], None)
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
        if self.engine.make_room(session):
            return False
        if flags is not None:
            raise CommandError(OOM)
        return True

    def _lose_host(self) -> CommandError:
        """Replace a broken Lua runtime and the libraries that it can load; return the error."""
        del self.host
        for script in self.scripts.values():
            script.compiled = None
        sources = self.libraries.sources()
        self.libraries.replace_all([])
        for source in sources:
            with suppress(CommandError):
                self.libraries.load(self.read_library(source))
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

    def command(self, line: list[bytes], resp: int) -> Reply:
        """Run a command line for the running script; return the reply or the error."""
        run = self.running
        assert run is not None
        reply = self._reply(run, line, resp)
        for listener in self.listeners.items:
            listener(run.session, line, reply)
        return reply

    def _reply(self, run: ScriptRun, line: list[bytes], resp: int) -> Reply:
        spec: CommandSpec | None = None
        try:
            named = self.engine.table.find(line)
            if named is None or not self.engine.offers(run.session, named):
                raise CommandError(errors.UNKNOWN_COMMAND)
            spec = named
            self._allow(run, spec, line)
        except CommandError as error:
            self.engine.statistics.count_rejection(spec, error)
            return as_reply(error)
        try:
            run.session.resp = resp
            if spec.write:
                run.wrote = True
            return self.engine.run(run.session, spec, line, is_inner=True)
        except CommandError as error:
            return as_reply(error)

    def _allow(self, run: ScriptRun, spec: CommandSpec, line: list[bytes]) -> None:
        if not spec.least <= len(line) <= spec.most:
            raise CommandError(errors.WRONG_ARITY)
        # A script inside a script would crash Redis, so scripts can never call these commands.
        is_denied = spec.group == "scripting" or not self.allows_all_commands
        if "noscript" in spec.flags and is_denied:
            raise CommandError(errors.NOT_FROM_SCRIPT)
        if spec.may_wait and asks_to_wait(line):
            raise CommandError(errors.waits_in_script(spec.name.lower()))
        if run.read_only and (spec.write or spec.name in _MAY_REPLICATE):
            raise CommandError(errors.READ_ONLY_VENDOR if self.vendor else errors.READ_ONLY)
        if self.engine.topology is not None:
            self.engine.topology.check_in_script(run.session, spec, line)
            if run.slots is not None:
                run.slots.update(key_slot(line[place]) for place, _ in spec.key_positions(line))
                if len(run.slots) > 1:
                    raise CommandError(errors.CROSSSLOT)
        self.engine.check_replicas(run.session, spec.write)
        # A script that has written is not stopped halfway.
        if run.without_memory and not run.wrote and "denyoom" in spec.flags:
            raise CommandError(OOM)
        if not run.session.user.unrestricted:
            try:
                self.engine.users.permit(run.session, spec, line)
            except Denied as denied:
                raise CommandError(errors.NO_PERMISSION[denied.reason]) from None
        if run.keys is not None:
            if spec.name in _FLUSHES:
                raise CommandError(errors.FLUSH_WITH_KEY_LOCKING)
            for place, key_spec in spec.key_positions(line):
                if not key_spec.is_channel and line[place] not in run.keys:
                    raise CommandError(errors.dynamic_key(line[place]))

    def note_cut(self, number: float, integer: int) -> None:
        """Note that the running script returned a number which the reply has only as an integer."""
        run = self.running
        assert run is not None
        for listener in self.cut_listeners.items:
            listener(run.session, number, integer)

    def may_call(self, line: list[bytes]) -> bool | bytes:
        """Return whether the user may run a command line, or an error message."""
        run = self.running
        assert run is not None
        spec = self.engine.table.find(line)
        if spec is None:
            return errors.INVALID_FOR_ACL_CHECK
        try:
            run.session.user.check(spec, line)
        except CommandError:
            return False
        return True

    def start_timing(self, seconds: float) -> None:
        """Set the maximum number of seconds for the code that runs next."""
        self._gives_way_at = monotonic() + _GIVE_WAY_SECONDS
        self._time_limit = TimeLimit(seconds)

    def must_stop(self) -> bool:
        """Return whether the running code has to end. Lua calls this often."""
        now = monotonic()
        if now > self._gives_way_at:
            self._gives_way_at = now + _GIVE_WAY_SECONDS
            # Release the interpreter lock, so that another thread can run and kill the script.
            step_aside()
            give_way()
        run = self.running
        return (run is not None and run.killed) or self._time_limit.is_over(now)

    def flush(self) -> None:
        """Remove all scripts, and what they have set in the cjson library."""
        self.scripts.clear()
        _, of_functions = self._cjson_settings()
        self._set_cjson_settings(({}, of_functions))

    def _cjson_settings(self) -> CjsonSettings:
        return self.host.cjson_settings() if "host" in vars(self) else ({}, {})

    def _set_cjson_settings(self, settings: CjsonSettings) -> None:
        if "host" in vars(self) or any(settings):
            self.host.set_cjson_settings(settings)

    def snapshot(self) -> ScriptingCopy:
        return ScriptingCopy(dict(self.scripts), self.libraries.sources(), self._cjson_settings())

    def restore(self, saved: ScriptingCopy) -> None:
        """Restore a copy. Loading libraries again resets their global variables."""
        self.libraries.replace_all(list(map(self.read_library, saved.libraries)))
        self.scripts = dict(saved.scripts)
        self._set_cjson_settings(saved.cjson_settings)
