"""Serves a cloud with its control API, from the options of ``pytest-fakecloud serve``."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ..core.errors import ContractError, shown
from ..core.settings import connection_settings
from ..core.timeparse import monotonic
from ..core.wording import unknown_name
from ..http.ports import keep
from ..services import handle_class, services_by_word
from ..subcommands import Usage
from .development import CONTROL_PORT, control_token, defaults
from .hosts import Hosts, is_loopback
from .log import Log, LogFormat

if TYPE_CHECKING:
    from ..cloud import Cloud
    from ..queue.handle import Queue
    from .api import ControlApp
    from .control.clouds import Opener

PROBLEMS = 1_000
"""Maximum number of strict-mode violations that a server keeps."""
LOG_SECONDS = 1.0
"""Seconds between the log lines while data is loaded."""
State: TypeAlias = tuple[Path, Mapping[str, Any]]
"""A state file: its path and its content."""


@dataclass(frozen=True)
class Options:
    """The options of ``serve`` and ``run``. None selects an option's default."""

    services: Mapping[str, Mapping[str, Any]]
    """The settings of each service to start, by the service's name on the command line."""
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
    journal: str | None = None
    journal_entries: int | None = None
    journal_bytes: int | None = None
    token_is_kept: bool = False
    """Whether commands find the control token, because it is stored in the user's state folder."""
    guarded: Collection[str] = frozenset()
    """Names of fakes that reject requests of web pages, because their credentials are public."""


class Served(NamedTuple):
    """A served cloud with its control API."""

    cloud: Cloud
    app: ControlApp
    url: str


def with_defaults(options: Options, log: Log) -> Options:
    """Return the options of a server with the default ports and credentials added.

    The default ports are bound immediately, so that no other server takes one before this one has
    started; if it does not start, ``http.ports.release()`` closes them.

    A default port that is in use is replaced by any free one, which is logged. Raises ``Usage`` for
    a fake that other machines can reach but that has no token of its own.
    """
    services = {}
    names_to_guard = set()
    for word, given in options.services.items():
        host = given.get("host") or options.host
        services[word] = {**_service_defaults(word, given, host, log), **given}
        if is_loopback(host):
            names_to_guard.add(given.get("name") or services_by_word()[word].fixture)
    options = replace(options, services=services, guarded=names_to_guard)
    if options.control_port is None:
        port = _default_port("port", CONTROL_PORT, options.host, "control API", log)
        options = replace(options, control_port=port)
    if options.control_token is None:
        token = _kept_control_token(log)
        options = replace(options, control_token=token, token_is_kept=token is not None)
    return options


def _service_defaults(word: str, given: Mapping[str, Any], host: str, log: Log) -> dict[str, Any]:
    """Return the default credentials and ports of a fake; the ports are bound."""
    is_public = not is_loopback(host)
    added = defaults(word, given, public=is_public)
    if is_public and given.get("token") is None and given.get("password") is None:
        raise Usage(
            f"{word} would be reachable from other machines at {host} without a token of its own: "
            f"pass --{word}-token TOKEN, or --random for random tokens"
        )
    for name in [name for name in added if name.endswith("port")]:
        added[name] = _default_port(name, added[name], host, word, log)
    return added


def _kept_control_token(log: Log) -> str | None:
    """Return the control token of this user, which is created on first use; None if that fails."""
    try:
        return control_token(make=True)
    except (ContractError, OSError) as error:
        log.say("token", f"the control token could not be stored: {error}", level="warning")
        return None


def _default_port(name: str, port: int, host: str, of: str, log: Log) -> int:
    if keep(host.rstrip(".") or host, port):
        return port
    log.say(
        "port",
        f"{name} {port} of {of} is in use: using a free port, so an existing .env file is out of date",
        level="warning",
        port=port,
    )
    return 0


def serve_cloud(options: Options, log: Log) -> AbstractContextManager[Served]:
    """Serve the fakes described by the options, with their control API, for a with-block."""
    states = [(file, _state(file)) for file in options.load]
    return _served(options, states, log, partial(_isolated, options, states, log))


@contextlib.contextmanager
def _served(
    options: Options, states: Sequence[State], log: Log, opener: Opener | None
) -> Iterator[Served]:
    """Serve a cloud with its control API, which starts isolated clouds with ``opener``.

    An isolated cloud cannot start others, so its ``opener`` is None.
    """
    from ..cloud import Cloud
    from .api import ControlApp

    with Cloud(options.seed, options.now, options.clock, tls=options.tls) as cloud:
        cloud.journal.keep = options.journal_entries
        if options.journal_bytes is not None:
            cloud.journal.keep_bytes = options.journal_bytes
        for name, settings in options.services.items():
            if not isinstance(settings, Mapping):
                raise ContractError(f"settings of {name} must be an object, got {shown(settings)}")
            cloud._start(services_by_word()[name].fixture, {"host": options.host, **settings})
        if options.journal_entries is not None:
            # A server with a limited journal may run for long, so limit its problems, too.
            problems = cloud._context.problems
            problems.keep, problems.keep_exceptions = PROBLEMS, 0
        hosts = Hosts(options.host, options.allow_host)
        app = ControlApp(cloud, options.control_token, hosts=hosts, log_bug=log.bug, opener=opener)
        app.loading = "not begun" if states else ""
        for handle in cloud.fakes():
            if handle.name in options.guarded:
                handle._app.guard = hosts.guard
        mount = cloud._context.mount(app, host=options.host, port=options.control_port or 0)
        app.url = mount.url
        mount.on_close.append(app.end_streams)
        mount.on_error.append(app.server_failed)
        try:
            _prepare(cloud, app, states, options.forward, log)
            yield Served(cloud, app, mount.url)
        finally:
            app.end_clouds()
            mount.close()


def _state(file: Path) -> dict[str, Any]:
    from .state_file import read_state

    try:
        return read_state(file)
    except ContractError as error:
        raise Usage(str(error)) from None


def _prepare(
    cloud: Cloud, app: ControlApp, states: Sequence[State], forwards: Mapping[str, str], log: Log
) -> None:
    """Load the state files and set up the forwards: the baseline that ``reset`` returns to."""
    for url, target in forwards.items():
        for handle in cloud.fakes():
            if handle.fixture == "queue":
                cast("Queue", handle).destinations.forward(url, target)
        log.say("forward", f"deliveries for {url} go to {target}", url=url, target=target)
    for file, content in states:
        _load(cloud, app, file, content, log)
    if states or forwards:
        for handle in cloud.fakes():
            handle.set_baseline()
    cloud.journal.clear()
    app.loading = ""


def _load(cloud: Cloud, app: ControlApp, file: Path, content: Mapping[str, Any], log: Log) -> None:
    """Load a state file, and log what was skipped.

    The progress is always in the control API, and now and then in the log.
    """
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
    log.say("loaded", f"{file} is loaded", file=file)


# -- isolated clouds -------------------------------------------------------------------------------


@contextlib.contextmanager
def _isolated(
    options: Options, states: Sequence[State], log: Log, wanted: Mapping[str, Any]
) -> Iterator[Served]:
    """Serve an isolated cloud with the server's options, except those in ``wanted``.

    Raises ``ContractError`` for invalid options.
    """
    own = _isolated_options(options, wanted)
    parts = [(file, _part_for(own.services, content)) for file, content in states]
    try:
        with _served(own, parts, log, opener=None) as served:
            yield served
    except Usage as error:
        raise ContractError(str(error)) from error


def _isolated_options(options: Options, wanted: Mapping[str, Any]) -> Options:
    """Return the options of an isolated cloud, whose addresses and credentials are its own."""
    changed = dict(wanted)
    services = changed.pop("services", None)
    if services is None:
        services = {
            word: _without_connection(word, settings) for word, settings in options.services.items()
        }
    if not isinstance(services, Mapping):
        raise ContractError(f"services={shown(services)} is not an object of settings by service")
    for word in services:
        if word not in services_by_word():
            raise ContractError(unknown_name("service", word, services_by_word()))
    return replace(
        options,
        services=services,
        forward=options.forward if "queue" in services else {},
        control_port=0,
        control_token=None,
        guarded=frozenset(),
        **changed,
    )


def _without_connection(word: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fake's settings except those of its address and credentials."""
    declared = handle_class(services_by_word()[word])._settings
    own = connection_settings(declared)
    return {name: value for name, value in settings.items() if name not in own}


def _part_for(services: Collection[str], content: Mapping[str, Any]) -> dict[str, Any]:
    absent = {word for word in services_by_word() if word not in services}
    if "queue" in absent:
        absent.add("destinations")
    part = {name: value for name, value in content.items() if name not in absent}
    if "faults" in part:
        part["faults"] = {
            name: value for name, value in part["faults"].items() if name not in absent
        }
    return part
