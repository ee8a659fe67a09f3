"""The commands ``pytest-fakecloud serve`` and ``run``: they serve a cloud with its control API."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import warnings
import webbrowser
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..cloud.base import context_of, record_times
from ..cloud.fake import Takeover, core_of
from ..cloud.services import by_part, find, named, services_by_word, settings_class, split_part
from ..core.command_line import EXIT_CANNOT_START, Usage, complain, ended_by_signals
from ..core.errors import ContractError
from ..core.hosts import is_loopback
from ..core.output_files import make_private
from ..core.settings import connection_settings
from ..core.timers import monotonic
from ..http.ports import Listeners, close_listeners, listen
from .addresses import CONTROL_PORT, CONTROL_URL, NEXT_PORT, Hosts, control_token, defaults
from .failed_tests import FailedTests
from .saving import INTERVAL_SECONDS, StateKeeper, locked, restored_now

if TYPE_CHECKING:
    from ..cloud.cloud import Cloud
    from .api import ControlApp
    from .control.clouds import Ended, IsolatedClouds


LogFormat: TypeAlias = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = ("text", "json")
_ASIDE = frozenset({"ready", "stopping"})
"""Events not written as text, because standard output shows them or the user caused them."""
EXIT_NO_COMMAND = 127
EXIT_NOT_SAVED = 1
"""The exit code of a server that could not save its state at the end."""
JOURNAL_ENTRIES = 10_000
"""Default maximum number of entries in the journal of a server, which may run for weeks."""
OPEN_FILES = 10_240
"""Number of files that a server may have open, which suffices for a hundred clouds."""
NAP_SECONDS = 0.5
"""Longest sleep of a server in seconds: on Windows, signals are only delivered between two waits."""
STOP_SECONDS = 0.7
"""Real seconds that a server may take to end after a signal, so that it ends within one second."""
SAVE_SECONDS = 60.0
"""The same for a server that saves its state, or writes the index of its pages."""
VIOLATIONS = 1_000
"""Maximum number of strict-mode violations that a server keeps."""
_MOST_REPORTS = 3
"""Maximum number of isolated clouds of which ``run`` prints a report if no test was named."""
LOG_SECONDS = 1.0
"""Seconds between the log lines while data is loaded."""
State: TypeAlias = tuple[Path, Mapping[str, Any]]
"""A state file: its path and its content."""


@dataclass(frozen=True)
class Options:
    """The options of ``serve`` and ``run``. None selects an option's default."""

    services: Mapping[str, Mapping[str, Any]]
    """The settings of each fake to start, as ``by_part()`` returns them."""
    host: str = "127.0.0.1"
    allow_host: Sequence[str] = ()
    control_port: int | None = None
    control_token: str | None = None
    seed: int | str | None = None
    now: Any = None
    clock: Any = None
    tls: bool = False
    random: bool = False
    load: Sequence[Path] = ()
    forward: Mapping[str, str] = field(default_factory=dict)
    log_format: LogFormat = "text"
    json: bool = False
    report: Path | None = None
    """The folder for the pages of failed tests."""
    journal: str | None = None
    journal_entries: int | None = None
    journal_bytes: int | None = None
    state: Path | None = None
    """The file that keeps the state of the server."""
    save_every: float = INTERVAL_SECONDS
    """Real seconds between two saves of this file."""
    token_is_kept: bool = False
    """Whether commands find the control token, because it is stored in the user's state folder."""
    guarded: Collection[str] = frozenset()
    """Names of fakes that reject requests of web pages, because their credentials are public."""
    listeners: Listeners = field(default_factory=dict)
    """Sockets that listen already at default ports."""


# -- serve -----------------------------------------------------------------------------------------


def serve(options: Options, *, opens: bool) -> int:
    """Serve the fakes until a signal arrives; ``opens`` opens the console in the browser."""
    log = Log(options.log_format)
    stop: SimpleQueue[int] = SimpleQueue()
    _allow_more_files()
    if options.journal_entries is None:
        options = replace(options, journal_entries=JOURNAL_ENTRIES)
    with contextlib.ExitStack() as stack:
        stack.callback(close_listeners, options.listeners)
        if not options.random:
            options = with_defaults(options, log)
        writes = options.state is not None or options.report is not None
        within_s = SAVE_SECONDS if writes else STOP_SECONDS
        stack.enter_context(ended_by_signals(stop.put, lambda number: 0, within_s=within_s))
        if options.state is not None:
            try:
                stack.enter_context(locked(options.state))
            except (ContractError, OSError) as error:
                raise Usage(f"--state: {error}") from None
        failed_tests = stack.enter_context(_failed_tests(options))
        app = stack.enter_context(serve_cloud(options, log, failed_tests=failed_tests))
        if options.state is not None:
            keeper = app.keeper = StateKeeper(app.cloud, options.state, options.save_every, log)
            keeper.start()
            stack.callback(keeper.close)
        _warn_of_other_addresses(options, log)
        print(_summary(app, options), flush=True)
        addresses = {fake.name: fake.url for fake in app.cloud.fakes()}
        log.say("ready", f"ready at {app.url}", control=app.url, fakes=addresses)
        if opens:
            webbrowser.open(app.console_url())
        while True:
            with contextlib.suppress(Empty):
                stop.get(timeout=NAP_SECONDS)
                break
        log.say("stopping", "stopping")
    # Exempt all objects from garbage collection, which could take seconds at exit.
    gc.freeze()
    return EXIT_NOT_SAVED if app.keeper is not None and app.keeper.failure else 0


def _allow_more_files() -> None:
    if sys.platform != "win32":
        import resource

        least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
        if least != resource.RLIM_INFINITY and least < limit:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def _warn_of_other_addresses(options: Options, log: Log) -> None:
    places = [options.host, *(settings.get("host") for settings in options.services.values())]
    for host in dict.fromkeys(str(place) for place in places if place):
        if not is_loopback(host):
            log.say(
                "address",
                f"{host} is reachable from other machines; the fakes are for tests and must not "
                "be exposed to a network you do not trust",
                level="warning",
                host=host,
            )


def _summary(app: ControlApp, options: Options) -> str:
    cloud = app.cloud
    if options.json:
        from .control.fakes import describe

        return json.dumps({
            "control": {"url": app.url, "token": app.token},
            "console": app.console_url(),
            "seed": cloud.seed,
            "fakes": [describe(cloud, fake) for fake in cloud.fakes()],
            "env": app.environment(),
        })  # fmt: skip
    lines = [f"pytest-fakecloud is ready: seed {cloud.seed!r}, clock {cloud.clock.mode}", ""]
    for fake in cloud.fakes():
        database = fake.env.get("REDIS_URL", "")
        lines.append(f"  {fake.name:<14} {fake.url:<26} {database}".rstrip())
    # Show only what differs from the defaults: commands use this address and the stored token.
    place = "" if app.url == CONTROL_URL else f" --url {shlex.quote(app.url)}"
    secret = "" if options.token_is_kept else f" --token {shlex.quote(app.token)}"
    command = f"pytest-fakecloud env{place}{secret}"
    lines += [
        f"  {'console':<14} {app.console_url()}",
        "",
        f'Next: eval "$({command})" in the shell of your application,',
        f"or {command} --dotenv .env. Stop with Ctrl+C.",
    ]
    return "\n".join(lines)


# -- run -------------------------------------------------------------------------------------------


def run(options: Options, program: list[str]) -> int:
    """Run a program with the fakes and their variables; return its exit code."""
    command = program[1:] if program[:1] == ["--"] else program
    if not command or not command[0]:
        raise Usage("run needs a command: pytest-fakecloud run -- npm test")
    journal = Path(options.journal) if options.journal else None
    if journal is not None:
        from ..cloud.cloud import archive_writer

        # Check this before the command runs, because it may run for an hour.
        write = archive_writer("--journal")
        try:
            make_private(journal)
        except OSError as error:
            raise Usage(f"cannot write the journal to {journal}: {error.strerror}") from error
    log = Log(options.log_format)
    clouds = _EndedClouds(keep_calls=journal is not None)
    with (
        _failed_tests(options) as failed_tests,
        serve_cloud(options, log, clouds.add, clouds.collect, failed_tests) as app,
    ):
        _warn_of_other_addresses(options, log)
        environment = {**os.environ, **app.environment()}
        try:
            code = _exit_code_of(command, environment)
        except OSError as error:
            hint = " (--services chooses the fakes)" if named(command[0]) else ""
            complain(f"cannot run {command[0]}: {error.strerror}{hint}")
            return EXIT_NO_COMMAND
        app.end_clouds()
        if journal is not None:
            try:
                write(app.cloud, journal, clouds.calls)
            except OSError as error:
                complain(f"cannot write the journal to {journal}: {error.strerror}")
                # The exit code of the command takes precedence.
                code = code or EXIT_CANNOT_START
        if code:
            print(clouds.report(app.cloud, failed_tests.summary()), file=sys.stderr)
        return code


class _EndedClouds:
    """What ``run`` keeps of clouds: the last isolated ones, and the calls of all for an archive."""

    def __init__(self, *, keep_calls: bool) -> None:
        self._keep_calls = keep_calls
        self._ended: deque[Ended] = deque(maxlen=_MOST_REPORTS)
        self.calls: list[Mapping[str, Any]] = []

    def add(self, ended: Ended) -> None:
        # A copy of a failed test's cloud has the same calls.
        if not ended.test:
            self._ended.append(ended)
            self.collect(ended.cloud)

    def collect(self, cloud: Cloud) -> None:
        """Keep the calls of a cloud that is about to lose them."""
        if self._keep_calls:
            from ..cloud.cloud import archive_entries

            self.calls += archive_entries(cloud)

    def report(self, cloud: Cloud, failed_tests: str) -> str:
        """Return the report of the server's cloud, and the summary of the failed tests, or without one
        the reports of the last clouds.
        """
        from ..reporting.render.text import section

        reports = [failed_tests] if failed_tests else [
            f"cloud {ended.id}:\n{section(ended.cloud)}"
            for ended in self._ended if ended.cloud.journal.entries
        ]  # fmt: skip
        if not reports or cloud.journal.entries:
            reports.insert(0, section(cloud))
        return "\n\n".join(reports)


@contextlib.contextmanager
def _failed_tests(options: Options) -> Iterator[FailedTests]:
    """Make the reports of failed tests in a with-block, and the index of their pages at its end."""
    if options.report is not None:
        try:
            options.report.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"cannot write reports to {options.report}: {error.strerror}"
            raise Usage(text) from error
    failed_tests = FailedTests(options.report)
    try:
        yield failed_tests
    finally:
        failed_tests.write_index()


def _exit_code_of(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, pass signals on to it, and return its exit code."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        # Do not pass on Ctrl+C, which the terminal sends to the command too: two may kill it.
        elif number != signal.SIGINT or not _has_terminal():
            process.send_signal(number)

    # Install the handlers before the command starts, so that no signal ends only this process.
    before = {
        signal_number: signal.signal(signal_number, pass_on)
        for signal_number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        program = command[0]
        if sys.platform == "win32":
            # Commands of npm are scripts (.cmd), which Windows does not find by their name alone.
            program = shutil.which(program) or program
        process = subprocess.Popen([program, *command[1:]], env=environment)
        for number in early:
            pass_on(number, None)
        code = process.wait()
    finally:
        for signal_number, handler in before.items():
            if handler is not None:  # None is a handler that was not installed from Python.
                signal.signal(signal_number, handler)
    return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    """Return whether keys pressed in a terminal send signals to this process and its command."""
    if sys.platform == "win32":
        return True
    with contextlib.suppress(OSError), open("/dev/tty", "rb", buffering=0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


# -- a cloud with its control API ------------------------------------------------------------------


def with_defaults(options: Options, log: Log) -> Options:
    """Return the options of a server with the default ports and credentials added.

    The default ports are bound immediately (``options.listeners``), so that no other server takes one
    before this one has started.

    A default port that is in use is replaced by any free one, which is logged. Raises ``Usage`` for
    a fake that other machines can reach but that has no token of its own.
    """
    services, guarded, words = {}, set(), set()
    next_ports = itertools.count(NEXT_PORT)
    for part, settings in options.services.items():
        host = settings.get("host") or options.host
        service, name = split_part(part)
        # The first fake of a service has its ports. Those of the others are the same after each start
        # with the same fakes.
        ports = next_ports if service.word in words else None
        words.add(service.word)
        services[part] = {**_service_defaults(options, part, settings, ports, log), **settings}
        if is_loopback(host):
            guarded.add(name or service.fixture)
    options = replace(options, services=services, guarded=guarded)
    if options.control_port is None:
        port = _default_port(options, "port", CONTROL_PORT, options.host, "control API", log)
        options = replace(options, control_port=port)
    if options.control_token is None:
        try:
            token = control_token(make=True)
        except (ContractError, OSError) as error:
            token = None
            log.say("token", f"the control token could not be stored: {error}", level="warning")
        options = replace(options, control_token=token, token_is_kept=token is not None)
    return options


def _service_defaults(
    options: Options, part: str, settings: Mapping[str, Any], ports: Iterator[int] | None, log: Log
) -> dict[str, Any]:
    """Return the default credentials and ports of a fake; the ports are bound. They are taken from
    ``ports``, or are those of the service.
    """
    host = settings.get("host") or options.host
    is_public = not is_loopback(host)
    added = defaults(part, settings, public=is_public)
    if is_public and settings.get("token") is None and settings.get("password") is None:
        word, _, name = part.partition(":")
        option = f"--{word} {name}:token=TOKEN" if name else f"--{word}-token TOKEN"
        raise Usage(
            f"{part} would be reachable from other machines at {host} without a token of its own: "
            f"pass {option}, or --random for random tokens"
        )
    for name in [name for name in added if name.endswith("port")]:
        port = added[name] if ports is None else next(ports)
        added[name] = _default_port(options, name, port, host, part, log)
    return added


def _default_port(options: Options, name: str, port: int, host: str, of: str, log: Log) -> int:
    with contextlib.suppress(OSError):
        options.listeners[host, port] = listen(host, port)
        return port
    log.say(
        "port",
        f"{name} {port} of {of} is in use: using a free port, so an existing .env file is out of date",
        level="warning",
        port=port,
    )
    return 0


def serve_cloud(
    options: Options,
    log: Log,
    ended: Callable[[Ended], object] = lambda cloud: None,
    begins: Callable[[Cloud], object] = lambda cloud: None,
    failed_tests: FailedTests | None = None,
) -> AbstractContextManager[ControlApp]:
    """Serve the fakes described by the options, with their control API, for a with-block.

    ``ended`` is called with each isolated cloud that was closed, ``begins`` with every cloud before
    it begins another test. ``failed_tests`` makes the reports of tests.
    """
    from .control.clouds import IsolatedClouds
    from .state_file import read_state

    try:
        states = [(file, read_state(file)) for file in options.load]
        kept: State | None = None
        if options.state is not None and options.state.exists():
            kept = options.state, read_state(options.state)
            options = _with_clock(options, kept[1].get("clock"))
    except ContractError as error:
        raise Usage(str(error)) from None

    @contextlib.contextmanager
    def isolated(changes: Mapping[str, Any]) -> Iterator[ControlApp]:
        """Serve an isolated cloud with the server's options, except those in ``wanted``.

        Raises ``ContractError`` for invalid options.
        """
        own = _isolated_options(options, changes)
        parts = [(file, _part_for(own.services, content)) for file, content in states]
        try:
            with _served(own, parts, None, log, begins, clouds=None) as app:
                yield app
        except Usage as error:
            raise ContractError(str(error)) from error

    isolated_clouds = IsolatedClouds(isolated, ended, failed_tests)
    return _served(options, states, kept, log, begins, isolated_clouds)


def _with_clock(options: Options, clock: Mapping[str, str] | None) -> Options:
    """Return options with which the clock continues that of a kept state, unless they set their own."""
    if clock is None or options.now is not None or options.clock is not None:
        return options
    return replace(options, now=restored_now(clock), clock=clock["mode"])


@contextlib.contextmanager
def _served(
    options: Options,
    states: Sequence[State],
    kept: State | None,
    log: Log,
    begins: Callable[[Cloud], object],
    clouds: IsolatedClouds | None,
) -> Iterator[ControlApp]:
    """Serve a cloud with its control API; ``clouds`` is None for an isolated cloud, which has none.

    ``states`` are its baseline, and ``kept`` is the state with which it continues.
    """
    from ..cloud.cloud import Cloud
    from .api import ControlApp
    from .control.fakes import start

    with Cloud(options.seed, options.now, options.clock, tls=options.tls) as cloud:
        cloud.journal.keep = options.journal_entries
        if options.journal_bytes is not None:
            cloud.journal.keep_bytes = options.journal_bytes
        if options.report is not None:
            record_times(cloud)
        hosts = Hosts(options.host, options.allow_host)
        for part, settings in options.services.items():
            fixture, settings = split_part(part)[0].fixture, {"host": options.host, **settings}
            if clouds is None:
                start(cloud, hosts, fixture, settings)
                continue
            fake = cloud._start(fixture, settings, Takeover(options.listeners))
            if fake.name in options.guarded:
                core_of(fake).app.guards.add(hosts.guard)
        if options.journal_entries is not None:
            # A server with a limited journal may run for long, so limit its violations, too.
            violations = context_of(cloud).violations
            violations.keep, violations.keep_exceptions = VIOLATIONS, 0
        app = ControlApp(
            cloud, options.control_token,
            hosts=hosts, log_bug=partial(log.say, "bug", level="error"), clouds=clouds, begins=begins,
        )  # fmt: skip
        app.loading = "not begun" if states or kept else ""
        port = options.control_port or 0
        listener = options.listeners.get((options.host, port))
        mount = context_of(cloud).mount(app, host=options.host, port=port, listener=listener)
        app.url = mount.url
        mount.on_stop.append(app.data.end_streams)
        mount.on_error.append(app.server_failed)
        try:
            _prepare(cloud, app, states, options.forward, log)
            if kept is not None:
                _load(cloud, app, *kept, log)
                # An option is newer than the destinations in the file.
                _forward(cloud, options.forward)
                cloud.journal.clear()
            if clouds is not None:
                app.history.begin()
            app.loading = ""
            yield app
        finally:
            app.history.end()
            app.end_clouds()
            mount.close()


def _prepare(
    cloud: Cloud, app: ControlApp, states: Sequence[State], forwards: Mapping[str, str], log: Log
) -> None:
    """Load the state files and set up the forwards: the baseline that ``reset`` returns to."""
    _forward(cloud, forwards)
    for url, target in forwards.items():
        log.say("forward", f"deliveries for {url} go to {target}", url=url, target=target)
    for file, content in states:
        _load(cloud, app, file, content, log)
    if states or forwards:
        for fake in cloud.fakes():
            fake.set_baseline()
    cloud.journal.clear()


def _forward(cloud: Cloud, forwards: Mapping[str, str]) -> None:
    queues: list[Any] = [fake for fake in cloud.fakes() if find(fake.fixture).delivers]
    for url, target in forwards.items():
        for queue in queues:
            queue.destinations.forward(url, target)


def _load(cloud: Cloud, app: ControlApp, file: Path, content: Mapping[str, Any], log: Log) -> None:
    """Load a state file; show the progress in the control API, and log it and what was skipped."""
    from .state_file import load_state

    logged = monotonic()

    def show_progress(name: str, done: int, whole: int) -> None:
        nonlocal logged
        app.loading = f"{file}: {name} {done} of {whole}"
        if monotonic() - logged >= LOG_SECONDS:
            logged = monotonic()
            log.say("loading", app.loading, file=file, fake=name, done=done, whole=whole)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            load_state(cloud, content, file.parent, show_progress)
        except ContractError as error:
            raise Usage(f"{file}: {error}") from None
    for warning in caught:
        log.say("skipped", str(warning.message), level="warning", file=file)
    # Saved data replaces what the fakes have from their settings.
    for fake in cloud.fakes():
        for contradicted in fake._add_missing():
            log.say("setting", f"{file}: {contradicted}", level="warning", file=file)
    log.say("loaded", f"{file} is loaded", file=file)


# -- isolated clouds -------------------------------------------------------------------------------


def _isolated_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """Return the options of an isolated cloud, whose addresses and credentials are its own."""
    changed = dict(changes)
    services = changed.pop("services", None)
    if services is None:
        services = {}
        for part, settings in options.services.items():
            own = connection_settings(settings_class(split_part(part)[0]))
            services[part] = {key: setting for key, setting in settings.items() if key not in own}
    services = by_part(services)
    return replace(
        options,
        services=services,
        forward=options.forward if _delivers(services) else {},
        control_port=0,
        control_token=None,
        state=None,
        guarded=frozenset(),
        listeners={},
        **changed,
    )


def _delivers(parts: Iterable[str]) -> bool:
    return any(split_part(part)[0].delivers for part in parts)


def _part_for(parts: Collection[str], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a state file has for some fakes. Data without a name is for a fake of its service
    that has no data of its own.
    """
    names = {*content, *content.get("saved", {}), *content.get("faults", {})}
    words = {part.partition(":")[0] for part in parts if part not in names or ":" not in part}

    def is_for_them(name: str) -> bool:
        word, colon, rest = name.partition(":")
        word = "queue" if word == "destinations" else word
        if word not in services_by_word():
            return True
        return f"{word}:{rest}" in parts if colon else word in words

    part = {name: value for name, value in content.items() if is_for_them(name)}
    for field_name in ("faults", "saved"):
        if field_name in part:
            fields = part[field_name].items()
            part[field_name] = {name: value for name, value in fields if is_for_them(name)}
    return part


# -- the log of a server ---------------------------------------------------------------------------


class Log:
    """The log of a server. An event has a name, a text, and its own fields.

    Logged events are the start, the progress of long loads, warnings, bugs and the end; calls are
    in the journal instead. As JSON, an event has ``at`` (wall-clock UTC), ``level``, ``event``,
    ``text`` and its own fields. No event contains a token.
    """

    def __init__(self, form: LogFormat = "text") -> None:
        self._form = form
        self._lock = threading.Lock()

    def say(self, event: str, text: str, *, level: str = "info", **fields: Any) -> None:
        if self._form == "text" and event in _ASIDE:
            return
        line = f"pytest-fakecloud: {'warning: ' if level == 'warning' else ''}{text}"
        if self._form == "json":
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = json.dumps(
                {"at": at, "level": level, "event": event, "text": text, **fields},
                ensure_ascii=False,
                default=str,
            )
        # Write each line with one call, so that lines from different threads are not interleaved.
        with self._lock:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
