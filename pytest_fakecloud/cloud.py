"""Cloud: one clock and one seed for any number of fakes, with or without pytest."""

from __future__ import annotations

import errno
import importlib
import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from .core.clock import STANDS, Clock, Mode
from .core.dispatch import Dispatcher
from .core.errors import ContractError, check_function, shown
from .core.ids import Ids
from .core.journal import Found, Journal
from .core.problems import Problem, Problems
from .core.timeparse import Instant
from .handle import (
    Context,
    Delivery,
    Handle,
    Snapshot,
)
from .settings import PLACE_SETTINGS, check_settings
from .transport.patches import changes

if TYPE_CHECKING:
    from .broker.handle import Broker
    from .failures import Failures
    from .kv.handle import KVServer
    from .queue.capture.handle import CallbackCapture, Destination
    from .queue.handle import Queue
    from .standalone.recordings import Differences
    from .standalone.remote import RemoteCloud
    from .transport.intercept import Interception
    from .transport.tls import Authority
    from .vector.handle import VectorIndex

__all__ = ["PROBLEM_KINDS", "SERVICES", "Cloud", "CloudSnapshot"]

Transport = Literal["socket", "inprocess"]
PROBLEM_KINDS = ("unrouted", "unstubbed", "bug", "unused_fault", "unmet")

SERVICES: Mapping[str, tuple[str, str]] = {
    "kv_server": ("pytest_fakecloud.kv.handle", "KVServer"),
    "vector_index": ("pytest_fakecloud.vector.handle", "VectorIndex"),
    "broker": ("pytest_fakecloud.broker.handle", "Broker"),
    "queue": ("pytest_fakecloud.queue.handle", "Queue"),
    "callback_capture": ("pytest_fakecloud.queue.capture.handle", "CallbackCapture"),
    "destination": ("pytest_fakecloud.queue.capture.handle", "Destination"),
}
"""Fixture name to the module and class of its handle; imported when first asked for."""

DELIVERS = "queue"
"""The fixture whose handles have work for the thread in the background."""
SHORTCUTS = ("kv_server", "vector_index", "broker", "queue")
"""Fixtures whose handles can be reached in process."""


@dataclass(frozen=True, slots=True)
class CloudSnapshot:
    """The data of all handles of a cloud at one moment."""

    handles: Mapping[str, Snapshot]


class Cloud:
    """Fakes of cloud services that share one clock and one seed.

    ``seed`` makes ids and randomness repeatable (a random one is chosen, and kept in ``seed``,
    when none is given); ``now`` and ``clock`` set up the clock; ``process_time=True`` makes
    ``time.time()`` and ``datetime.now()`` of this process follow it, and freezes it: both stand until
    the clock is told to move (decided here; ``clock="running"`` and ``resume()`` are refused then,
    since a clock cannot follow the time that follows it). ``delivery`` says who delivers
    the queues' messages: ``"background"`` or ``"driven"``. ``transport="inprocess"`` lets requests of
    this process skip the socket; ``tls=True`` serves HTTPS with an authority made for the run (in
    ``authority``); ``share_tls_context=False`` leaves the cost of clients as it is. A with-block;
    leaving it closes all.

    Raises ``ContractError`` for settings without meaning.
    """

    def __init__(
        self,
        seed: int | str | None = None,
        now: Instant | None = None,
        clock: Mode | None = None,
        process_time: bool = False,
        *,
        delivery: Delivery = "background",
        transport: Transport = "socket",
        tls: bool = False,
        share_tls_context: bool = True,
    ) -> None:
        if transport not in ("socket", "inprocess"):
            raise ContractError(
                f"transport={shown(transport)} is unknown: give 'socket' or 'inprocess'"
            )
        if delivery not in ("background", "driven"):
            raise ContractError(
                f"delivery={shown(delivery)} is unknown: give 'background' or 'driven'"
            )
        _check_switches(process_time=process_time, tls=tls, share_tls_context=share_tls_context)
        if process_time and clock == "running":
            raise ContractError(f"clock='running' is refused: {STANDS}")
        self.seed = secrets.randbits(32) if seed is None else seed
        self.clock = Clock(now, clock)
        self.journal = Journal(self.clock.now_us)
        self._recorded = Problems()
        self._allowed: list[tuple[str, dict[str, object]]] = []
        self._context = Context(self.clock, Ids(self.seed), self.journal, self._recorded, delivery)
        self.gone = self._context.gone
        self._starting = threading.RLock()
        self._dispatcher: Dispatcher | None = None
        self._listeners: list[Callable[[Handle], None]] = []
        self._exits: list[Callable[[], None]] = []
        self._in_process = transport == "inprocess"
        self.authority: Authority | None = None
        self.fixture_settings: Mapping[str, Any] = {}
        """Settings of the fixtures' handles, by fixture name."""
        self._fixture_handles: dict[str, Handle] = {}
        self.closed = False
        try:
            self._changes = changes(
                shares_tls_context=share_tls_context, in_process=self._in_process
            )
            self._exits.append(self._changes.close)
            self._context.interceptor = self._intercept
            if tls:
                from .transport.tls import Authority

                self.authority = Authority()
                self._context.tls = self.authority.server_context
                self._exits.append(self.authority.close)
            if process_time:
                from .process_time import ProcessTime

                steering = ProcessTime(self.clock)
                steering.start()
                self._exits.append(steering.stop)
        except BaseException:
            # A cloud that never was must not keep what it changed in the process.
            self._give_back()
            raise

    def _give_back(self) -> None:
        exits, self._exits = self._exits, []
        _call_all(reversed(exits))

    def _delivery_failed(self, error: BaseException) -> None:
        self._recorded.report(
            "bug", f"a delivery in the background failed: {shown(error)}", exception=error
        )

    def _intercept(self, handle: Handle, origin: str) -> Interception:
        from .transport.intercept import Interception

        return Interception(handle, origin, self.authority.ca_file if self.authority else None)

    def _open_transport(self, handle: Handle) -> None:
        self._changes.refresh()
        app = getattr(handle, "_app", None)
        if self._in_process and app is not None and handle.fixture in SHORTCUTS:
            from .transport.inprocess import origins

            origins.add(handle._mount)
            handle.on_close(partial(origins.remove, handle._mount.origin))

    @staticmethod
    def connect(url: str, token: str | None = None) -> RemoteCloud:
        """The cloud of a stand-alone server (``pytest-fakecloud serve``), with the same handles.

        ``token`` is its control token; it may also stand in the URL (``?token=…``) or in the
        variable ``PYTEST_FAKECLOUD_TOKEN``.
        """
        from .standalone.remote import connect

        return connect(url, token)

    def reseed(self, seed: int | str) -> None:
        """Start all randomness over from another seed; raises ``ContractError`` for what is none."""
        self._context.ids.reseed(seed)
        self.seed = seed

    # -- handles ---------------------------------------------------------------------------------

    def kv_server(self, **settings: Any) -> KVServer:
        """Start one more key-value server."""
        return cast("KVServer", self.start("kv_server", settings))

    def vector_index(self, **settings: Any) -> VectorIndex:
        """Start one more vector index."""
        return cast("VectorIndex", self.start("vector_index", settings))

    def broker(self, **settings: Any) -> Broker:
        """Start one more broker."""
        return cast("Broker", self.start("broker", settings))

    def queue(self, **settings: Any) -> Queue:
        """Start one more queue."""
        return cast("Queue", self.start("queue", settings))

    def callback_capture(self, **settings: Any) -> CallbackCapture:
        """Start one more receiver of callbacks."""
        return cast("CallbackCapture", self.start("callback_capture", settings))

    def destination(self, **settings: Any) -> Destination:
        """Start one more pytest-httpserver on the hub."""
        return cast("Destination", self.start("destination", settings))

    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        """Start a handle by the name of its fixture; unknown settings are a ``ContractError``.

        Besides the handle's own settings: ``host`` and ``port`` to stand at a chosen address, and
        ``token`` for chosen credentials. Raises ``ContractError`` too where the system has no file or
        socket left for it.
        """
        try:
            return self._start(fixture, settings)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise ContractError(
                f"{fixture} cannot be started: {error.strerror}. Each fake and each open connection "
                "takes one: close clients and clouds that are done with (with-blocks do), or allow "
                "the process more (ulimit -n)"
            ) from error

    def _start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        if self.closed:
            raise ContractError("this cloud is closed: make a new one")
        handle_class = _handle_class(_service(fixture))
        if not isinstance(settings, Mapping):
            raise ContractError(
                f"{shown(settings)} are no settings of {fixture}: give a dict, empty for none"
            )
        if settings:
            check_settings(fixture, handle_class, settings)
        own = {key: value for key, value in settings.items() if key not in PLACE_SETTINGS}
        with self._starting:
            if self._dispatcher is None and fixture == DELIVERS:
                self._dispatcher = Dispatcher(self.clock, self._delivery_failed)
            self._context.place = {
                key: settings[key] for key in ("host", "port") if settings.get(key) is not None
            }
            self._context.wanted_token = settings.get("token")
            try:
                handle = handle_class(self._context, **own)
            finally:
                self._context.place, self._context.wanted_token = {}, None
        self._open_transport(handle)
        for listener in tuple(self._listeners):
            listener(handle)
        return handle

    def fixture_handle(self, fixture: str) -> Any:
        """The one handle of a fixture in this cloud, started with the fixture's settings.

        Raises ``ContractError`` for a name that is no fixture's.
        """
        handle = self._fixture_handles.get(_service(fixture))
        if handle is None:
            if not isinstance(self.fixture_settings, Mapping):
                raise ContractError(
                    f"fixture_settings={shown(self.fixture_settings)} are no settings: give a dict of "
                    "dicts, by fixture name"
                )
            handle = self.start(fixture, self.fixture_settings.get(fixture, {}))
            self._fixture_handles[fixture] = handle
        return handle

    @property
    def handles(self) -> Found[Handle]:
        """The open handles, in the order they were started."""
        return Found(self._context.handles)

    def on_start(self, listener: Callable[[Handle], None]) -> Callable[[], None]:
        """Call the listener with each handle started from now on, until the result is called."""
        return listen(self._listeners, listener)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of all handles; the first handle of a service has its names."""
        merged: dict[str, str] = {}
        for handle in self._context.handles:
            for name, value in handle.env.items():
                merged.setdefault(name, value)
        if self.authority is not None:
            merged.update(self.authority.variables)
        return merged

    # -- problems --------------------------------------------------------------------------------

    @property
    def problems(self) -> Found[Problem]:
        """What a strict test would fail for, so far, less what ``allow`` covers."""
        found = list(self._recorded)
        for handle in (*self._context.handles, *self.gone.last):
            found += handle._left_behind()
        return Found(problem for problem in found if not self._covers(problem))

    def allow(self, kind: str, **where: object) -> None:
        """Do not count a kind of problem, or only those whose facts are as given.

        ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault`` or ``unmet``; ``where``
        names facts such as ``path=`` or ``url=`` (a callable is a predicate).
        """
        if kind not in PROBLEM_KINDS:
            raise ContractError(
                f"{shown(kind)} is no kind of problem; the kinds are: {', '.join(PROBLEM_KINDS)}"
            )
        self._allowed.append((kind, where))

    def _covers(self, problem: Problem) -> bool:
        for kind, where in self._allowed:
            if kind == problem.kind and all(
                (
                    wanted(problem.facts.get(name))
                    if callable(wanted)
                    else problem.facts.get(name) == wanted
                )
                for name, wanted in where.items()
            ):
                return True
        return False

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> CloudSnapshot:
        """The present data of all handles."""
        return CloudSnapshot({h.name: h.snapshot() for h in self._context.handles})

    def restore(self, snapshot: CloudSnapshot) -> None:
        """Put the data of a snapshot back into the handles that are still open."""
        if not isinstance(snapshot, CloudSnapshot):
            raise ContractError(f"{shown(snapshot)} is no snapshot of a cloud")
        for handle in self._context.handles:
            if handle.name in snapshot.handles:
                handle.restore(snapshot.handles[handle.name])

    def reset(self) -> None:
        """Return every handle to its baseline and forget problems and journal."""
        for handle in list(self._context.handles):
            handle.reset()
        self._recorded.clear()
        self._allowed.clear()
        self.journal.clear()
        self.gone.clear()

    def keep_only(self, known: Iterable[Handle]) -> None:
        """Close the handles that are neither known nor a fixture's."""
        known = (
            [known] if isinstance(known, str) or not isinstance(known, Iterable) else list(known)
        )
        if strange := [each for each in known if not isinstance(each, Handle)]:
            raise ContractError(
                f"{', '.join(map(shown, strange))} are no handles: give those that are to stay open"
            )
        kept = {id(handle) for handle in (*known, *self._fixture_handles.values())}
        for handle in self.handles:
            if id(handle) not in kept:
                handle.close()

    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        """Start over for another test: nothing of the last one is left.

        Requests in flight and open connections end, every handle returns to its baseline, the clock
        to its start, or to how it would begin with ``now`` and ``clock``.
        """
        for handle in self._context.handles:
            handle.end_connections()
        self.clock.rewind(now, clock)
        self.reset()

    def every_failure(self, run: Callable[[], object], **options: Any) -> Failures:
        """Rerun code once per call it makes, failing another call each time.

        See ``failures.every_failure`` for the options ``services``, ``faults``, ``status`` and
        ``check``, and for what counts as a broken promise.
        """
        from .failures import every_failure

        return every_failure(self, run, **options)

    def replay(self, file: str | Path, **options: Any) -> Differences:
        """Send a recorded session (HAR) to the fakes and compare the answers.

        See ``control.record.replay`` for the options ``into``, ``ignore`` and ``move_clock``.
        """
        if not isinstance(file, str | Path):
            raise ContractError(f"{shown(file)} is no file: give the path of an HTTP archive (HAR)")
        from .standalone.recordings import replay

        return replay(self, file, **options)

    @property
    def aio(self) -> AioCloud:
        """The calls that run code or drive the clock, awaitable."""
        return AioCloud(self)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Deliver nothing more and close every handle; may be called any number of times.

        A handler that does not end is not waited for: a ``RuntimeWarning`` says which, and where it is.
        What a tester's ``on_close`` raises comes up when everything is closed.
        """
        if self.closed:
            return
        self.closed = True
        self.gone.last = list(self._context.handles)
        closes = [handle.close for handle in reversed(self.gone.last)]
        _call_all([self._stop_delivering, *closes, self._give_back])

    def _stop_delivering(self) -> None:
        if self._dispatcher is not None and not self._dispatcher.stop():
            warnings.warn(
                "a delivery in the background has not ended and is left alone; its handler is at\n"
                + self._dispatcher.place,
                RuntimeWarning,
                stacklevel=4,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(handle.name for handle in self._context.handles) or "no handles"
        return (
            f"<Cloud seed={self.seed!r} {self.clock.mode} {self.clock.now().isoformat()}: {names}>"
        )


class AioCloud:
    """Awaitable twins of a cloud's calls, for asyncio and trio."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def every_failure(self, run: Callable[[], object], **options: Any) -> Failures:
        """``Cloud.every_failure`` for code that is awaited."""
        from .failures import every_failure_async

        return await every_failure_async(self._cloud, run, **options)

    async def replay(self, file: str | Path, **options: Any) -> Differences:
        """``Cloud.replay``, awaitable."""
        from .core.aio import in_thread

        return await in_thread(self._cloud.replay, file, **options)


def listen(
    listeners: list[Callable[[Handle], None]], listener: Callable[[Handle], None]
) -> Callable[[], None]:
    """Add a listener to those that hear of new handles; the result takes it off again."""
    check_function(listener, "that takes a handle")
    listeners.append(listener)

    def stop() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return stop


def _call_all(ends: Iterable[Callable[[], object]]) -> None:
    """Call each, whatever the others raise; in the end, what the first of them raised is raised."""
    first: BaseException | None = None
    for end in ends:
        try:
            end()
        except BaseException as error:
            if first is None:
                first = error
    if first is not None:
        raise first


def _check_switches(**switches: object) -> None:
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ContractError(f"{name}={shown(value)} is no switch: give True or False")


def _service(fixture: str) -> str:
    if not isinstance(fixture, str) or fixture not in SERVICES:
        raise ContractError(
            f"{shown(fixture)} is no service; the services are: {', '.join(SERVICES)}"
        )
    return fixture


@cache
def _handle_class(fixture: str) -> type[Handle]:
    module, name = SERVICES[fixture]
    return cast("type[Handle]", getattr(importlib.import_module(module), name))
