"""The fakes of a cloud: their clock, seed, journal, data and strict-mode violations."""

from __future__ import annotations

import errno
import functools
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from os import urandom
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from .core.clock import STANDS, Clock, Mode, Timekeeper
from .core.errors import ContractError, call_all, shown
from .core.field_types import OneOf
from .core.ids import Ids
from .core.journal import Journal, Results, results_of
from .core.matching import Field
from .core.problems import PROBLEM_FIELDS, Problem, with_allowance
from .core.settings import DELIVERY, PROCESS_TIME, SWITCH, TRANSPORT, DeliveryMode, reject_unknown
from .core.timers import Instant
from .handle import HANDLE_FIELDS, Context, Handle, Snapshot, secrets_of
from .http.ports import hand_over, release
from .outside.surroundings import changes_for, no_proxy
from .services import find, handle_class

if TYPE_CHECKING:
    from .broker.handle import Broker, BrokerSettings
    from .core.threads import Dispatcher
    from .core.typed import ProblemFields
    from .kv.handle import KVServer, KVSettings
    from .outside.process_time import ProcessTimeMode
    from .outside.surroundings import Authority
    from .queue.capture.handle import CallbackCapture, CallbackCaptureSettings
    from .queue.delivery.destination_server import Destination
    from .queue.handle import Queue, QueueSettings
    from .queue.settings import DestinationSettings
    from .vector.handle import VectorIndex, VectorSettings

Transport = Literal["socket", "inprocess"]
_making_dispatchers = threading.Lock()


class BaseCloud:
    """The fakes of a cloud, which share one clock and one seed; see ``cloud.Cloud``.

    A context manager that closes the fakes.
    """

    _closed_together: Sequence[Handle] = ()
    """The fakes that were open when the cloud closed. Reports read their addresses and secrets."""
    _dispatcher: Dispatcher | None = None
    _authority: Authority | None = None
    _has_changes = False
    """Whether this cloud is a user of the changes to the process."""

    def __init__(
        self,
        seed: int | str | None = None,
        now: Instant | None = None,
        clock: Mode | None = None,
        process_time: ProcessTimeMode = False,
        *,
        delivery: DeliveryMode = "background",
        transport: Transport = "socket",
        tls: bool = False,
        share_tls_context: bool = True,
    ) -> None:
        if process_time is not False:
            PROCESS_TIME.read("process_time", process_time, "Cloud")
            if process_time and clock == "running":
                raise ContractError(f"clock='running' is not possible: {STANDS}")
        if transport != "socket":
            TRANSPORT.read("transport", transport, "Cloud")
        if delivery != "driven":
            DELIVERY.read("delivery", delivery, "Cloud")
        if tls is not False:
            SWITCH.read("tls", tls, "Cloud")
        if share_tls_context is not True:
            SWITCH.read("share_tls_context", share_tls_context, "Cloud")
        if _dropped:
            _close_dropped()
        self.closed = False
        self._time = Timekeeper(now, clock)
        ids = Ids(int.from_bytes(urandom(4)) if seed is None else seed)
        self._context = Context(self._time, ids, delivery)
        self._time.on_background = self._deliver
        self._starting = threading.RLock()
        self._exits: list[Callable[[], None]] = []
        self._in_process = transport == "inprocess"
        if tls:
            from .outside.surroundings import Authority

            self._authority = Authority()
            self._context.tls = self._authority.server_context
            self._context.ca_file = self._authority.ca_file
            self._exits.append(self._authority.close)
        self._changes = changes_for(share_tls_context, self._in_process)
        self._changes.enter()
        self._has_changes = True
        if process_time:
            from .outside.process_time import ProcessTime

            steering = ProcessTime(self._time, process_time)
            self._exits.append(steering.stop)
            try:
                steering.start()
            except BaseException:
                self.close()
                raise

    def _deliver(self) -> None:
        """Start the background thread when a delivery is planned, because most clouds need none."""
        if self._dispatcher is None:
            from .core.threads import Dispatcher

            with _making_dispatchers:
                if self._dispatcher is None and not self.closed:
                    self._dispatcher = Dispatcher(self._time, self._delivery_failed)

    def _delivery_failed(self, error: BaseException) -> None:
        self._context.problems.report(
            "bug", f"a background delivery failed: {shown(error)}", exception=error
        )

    @property
    def seed(self) -> int | str:
        """The seed of all randomness."""
        return self._context.ids.seed

    @property
    def clock(self) -> Clock:
        """The clock shared by all fakes."""
        return self._context.public_clock

    @property
    def journal(self) -> Journal:
        """The recorded calls and events of all fakes."""
        return self._context.journal

    @property
    def authority(self) -> Authority | None:
        """The certificate authority of HTTPS; None without HTTPS or if another process holds it."""
        return self._authority

    # -- starting fakes --------------------------------------------------------------------------

    def kv_server(self, **settings: Unpack[KVSettings]) -> KVServer:
        """Start another key-value server."""
        return cast("KVServer", self._start("kv_server", settings))

    def vector_index(self, **settings: Unpack[VectorSettings]) -> VectorIndex:
        """Start another vector index."""
        return cast("VectorIndex", self._start("vector_index", settings))

    def broker(self, **settings: Unpack[BrokerSettings]) -> Broker:
        """Start another broker."""
        return cast("Broker", self._start("broker", settings))

    def queue(self, **settings: Unpack[QueueSettings]) -> Queue:
        """Start another queue."""
        return cast("Queue", self._start("queue", settings))

    def callback_capture(self, **settings: Unpack[CallbackCaptureSettings]) -> CallbackCapture:
        """Start another receiver of callbacks."""
        return cast("CallbackCapture", self._start("callback_capture", settings))

    def destination(self, **settings: Unpack[DestinationSettings]) -> Destination:
        """Start another server for deliveries, with a pytest-httpserver."""
        return cast("Destination", self._start("destination", settings))

    def _start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        """Start a fake by the name of its fixture.

        Besides the settings of the service, ``host`` and ``port`` choose its address and ``token``
        its credentials. Raises ``ContractError`` for unknown settings, and if the system has no
        file descriptor left.
        """
        if self.closed:
            raise ContractError("this cloud is closed: create a new one")
        service = find(fixture)
        if not isinstance(settings, (dict, Mapping)):
            raise ContractError(
                f"{shown(settings)} are not settings of {service.fixture}: pass a dict"
            )
        try:
            kind: Any = handle_class(service)
            if settings:
                reject_unknown(kind._settings, settings, kind.fixture)
            with self._starting:  # A name is taken only when its fake has started.
                handle: Handle = kind(self._context, **settings)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise ContractError(
                f"{fixture} cannot be started: {error.strerror}. Each fake and each open connection "
                "uses a file: close unused clients and clouds (use with-blocks), or raise the limit of "
                "the process (ulimit -n)"
            ) from error
        try:
            self._changes.refresh()
            no_proxy.add(handle._mount.host)
            if self._in_process and service.in_process:
                from .outside.inprocess import origins
                from .outside.shortcut import Shortcut

                mount = handle._mount
                handle._ends.append(origins.add(mount.origin, Shortcut(mount)))
            for listener in self._context.listeners.items:
                listener(handle)
        except BaseException:
            handle.close()
            raise
        return handle

    def fakes(self) -> Results[Handle]:
        """The open fakes, in the order they were started."""
        found = list(self._context.handles.items)
        fields = {
            name: _one_of(name, frozenset(map(attrgetter(name), found)))
            for name in ("name", "fixture", "service")
            if found
        }
        return results_of(found, {**HANDLE_FIELDS, **fields}, "handle")

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of all fakes; of several fakes of a service, the first one's."""
        merged: dict[str, str] = {}
        for handle in self._context.handles.items:
            for name, value in handle.env.items():
                merged.setdefault(name, value)
        if self._authority is not None:
            merged.update(self._authority.variables)
        return merged

    # -- strict-mode violations ------------------------------------------------------------------

    def problems(self) -> Results[Problem]:
        """The strict-mode violations so far, except those that ``allow()`` covers."""
        found = [*self._context.problems]
        for handle in (*self._context.handles.items, *self._closed_together):
            found += handle._left_behind()
        covers = self._context.allowed.covers
        counted = [one for one in found if not covers(one.kind, one.facts)] if found else found
        return results_of(counted, PROBLEM_FIELDS, "problem")

    def allow(self, kind: str, **where: Unpack[ProblemFields]) -> None:
        """Ignore strict-mode violations of a kind, or only those whose facts match.

        ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``,
        ``rejected_step``, ``no_workflow`` or ``assertion``. Two more kinds suppress warnings:
        ``undelivered`` for messages that the test never delivers, and ``refused`` for calls that
        are answered 401 on purpose. ``where`` gives facts such as ``path=`` or ``url=``: a value, a
        string with ``*``, a compiled pattern or a function (see ``core.matching``). Raises
        ``ContractError`` for an unknown kind or fact, suggesting the nearest.
        """
        __tracebackhide__ = True
        self._context.allowed.add(kind, where)

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the current data of all fakes."""
        return Snapshot("fakecloud", {h.name: h.snapshot() for h in self._context.handles.items})

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data of a snapshot in the fakes that are still open."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != "fakecloud":
            raise ContractError(f"{shown(snapshot)} is not a snapshot of a cloud")
        for handle in self._context.handles.items:
            if handle.name in snapshot.data:
                handle.restore(snapshot.data[handle.name])

    def reset(self) -> None:
        """Return every fake to its baseline; forget violations and journal."""
        for handle in self._context.handles.items:
            handle.reset()
        self._context.problems.clear()
        self._context.allowed.clear()
        self.journal.clear()
        self._context.closed_addresses.clear()
        self._context.former_secrets = frozenset()
        self._closed_together = ()

    # -- closing ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop deliveries and close every fake. Can be called repeatedly.

        Does not wait for a handler that hangs: a ``RuntimeWarning`` names it and shows its stack.
        An exception of an ``on_close`` callback is raised after everything is closed.
        """
        if self.closed:
            return
        self.closed = True
        self._context.closing = True
        self._closed_together = self._context.handles.items
        try:
            self._end()
        except BaseException:
            # A signal's handler may have interrupted any part of it. All of them can be repeated.
            self._end()
            raise

    def _end(self) -> None:
        closes = map(attrgetter("close"), reversed(self._closed_together))
        call_all([self._stop_delivering, *closes, *reversed(self._exits), self._leave_changes])
        # Until now, an open fake kept its cloud open.
        self._time.on_background = None
        self._time.forget_timers()

    def _leave_changes(self) -> None:
        if self._has_changes:
            self._changes.leave()
        self._has_changes = False

    def __del__(self) -> None:
        if getattr(self, "closed", True) or not hasattr(self, "_changes") or sys.is_finalizing():
            return
        warnings.warn(
            f"{self!r} was garbage-collected without close(): use a with-block",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        # Close the cloud in another thread, because this one may hold any lock.
        _dropped.append(self)
        if self._context.hub is not None:
            self._context.hub.later(_close_dropped)

    def _stop_delivering(self) -> None:
        with _making_dispatchers:
            dispatcher = self._dispatcher
        if dispatcher is not None and not (dispatcher.stopped or dispatcher.stop()):
            warnings.warn(
                "a background delivery has not ended; its handler is at\n" + dispatcher.place,
                RuntimeWarning,
                stacklevel=5,
            )

    def __repr__(self) -> str:
        names = ", ".join(handle.name for handle in self._context.handles.items) or "no handles"
        return (
            f"<Cloud seed={self.seed!r} {self._time.mode} {self._time.now().isoformat()}: {names}>"
        )


# -- for pytest's fixtures and the server ----------------------------------------------------------


def fixture_fake(cloud: BaseCloud, fixture: str) -> Any:
    """Return the fake of a fixture in a cloud, started on first use.

    Raises ``ContractError`` for an unknown fixture.
    """
    fixture = find(fixture).fixture
    context = cloud._context
    handle = context.fixture_handles.get(fixture)
    if handle is None:
        handle = cloud._start(fixture, context.fixture_settings.get(fixture, {}))
        context.fixture_handles[fixture] = handle
    return handle


def replace_early_fakes(cloud: BaseCloud, early: BaseCloud) -> list[tuple[Handle, Handle]]:
    """Start the fixtures' fakes of an earlier cloud again, with this cloud's settings, at the same
    addresses. Closes the earlier cloud; returns each of its fakes with its replacement.
    """
    replaced = []
    context, formers = cloud._context, early._context.fixture_handles
    try:
        for former in formers.values():
            for mount in former._mounts:
                hand_over(mount.host, mount.port, mount.listener)
        early.close()
        for fixture, former in formers.items():
            settings = {**context.fixture_settings.get(fixture, {}), "port": former._mount.port}
            handle = context.fixture_handles[fixture] = cloud._start(fixture, settings)
            handle._take_over(former)
            replaced.append((former, handle))
    finally:
        release()
    return replaced


def close_with_fixtures(cloud: BaseCloud) -> None:
    """Close a cloud after the tests that use its fixtures, and forget their fakes, which refer to the
    cloud: the circle of references would last until the garbage collector runs.
    """
    cloud.close()
    cloud._context.fixture_handles.clear()


def keep_only(cloud: BaseCloud, known: Iterable[Handle]) -> None:
    """Close all fakes except the given fakes and the fixtures' fakes."""
    kept = {id(handle) for handle in (*known, *cloud._context.fixture_handles.values())}
    for handle in cloud.fakes():
        if id(handle) not in kept:
            handle.close()


def credentials_of(cloud: BaseCloud) -> dict[Handle, tuple[str, ...]]:
    """Return the credentials of all open fakes, for ``restore_credentials()``."""
    return {handle: handle._credentials() for handle in cloud.fakes()}


def restore_credentials(cloud: BaseCloud, kept: Mapping[Handle, tuple[str, ...]]) -> None:
    """Undo the rotations since ``credentials_of()`` was called, in the fakes that are still open."""
    for handle, present in credentials_of(cloud).items():
        before = kept.get(handle, present)
        if before != present:
            handle._set_credentials(*before)


def begin_test(cloud: BaseCloud, now: Instant | None = None, clock: Mode | None = None) -> None:
    """Prepare a cloud for another test: end all requests, rewind the clock, reset every fake."""
    context = cloud._context
    for handle in context.handles.items:
        handle._renew_connections()
    context.clock.rewind(now, clock)
    cloud.reset()


def show_same(copy: BaseCloud, cloud: BaseCloud) -> None:
    """Give a new cloud the data, the journal, the violations and the time of another one. Its clock
    is frozen, and it delivers nothing until somebody moves it.
    """
    context = copy._context
    context.clock.on_background = None
    context.clock.rewind(cloud.clock.now(), "frozen")
    copies = {handle.name: handle for handle in copy.fakes()}
    for handle in cloud.fakes():
        # The journal shows the credentials of the other cloud, which reports must hide.
        context.former_secrets |= secrets_of(handle)
        if handle.name in copies:
            copies[handle.name].restore(handle.snapshot())
    copy.journal._recorder.adopt(cloud.journal._recorder)
    context.problems.extend(cloud._context.problems)


def undelivered(cloud: BaseCloud, strict: Container[str]) -> list[str]:
    """Describe the queues with messages that a test published but never delivered. If ``strict``
    contains this kind, record strict-mode violations instead.
    """
    found, context = [], cloud._context
    for handle in context.handles.items:
        text, facts = handle._undelivered(), {"handle": handle.name}
        if text is None or context.allowed.covers("undelivered", facts):
            continue
        if "undelivered" in strict:
            context.problems.report("undelivered", text, handle=handle.name)
        else:
            found.append(with_allowance(text, "undelivered", facts))
    return found


def closed_addresses(cloud: BaseCloud) -> dict[str, tuple[str, str]]:
    """Return the fixture and the address of each closed fake of a cloud, by name."""
    closed = {each.name: (each.fixture, each.url) for each in cloud._closed_together}
    return cloud._context.closed_addresses | closed


def secrets_in(cloud: BaseCloud) -> set[str]:
    """Return the credentials of all fakes of a cloud, of closed ones too."""
    context = cloud._context
    fakes = (*context.handles.items, *cloud._closed_together)
    return {*context.former_secrets}.union(*map(secrets_of, fakes))


_dropped: deque[BaseCloud] = deque()
"""Clouds that were garbage-collected without being closed."""


def _close_dropped() -> None:
    while _dropped:
        try:
            cloud = _dropped.popleft()
        except IndexError:  # Another thread has taken the last one.
            return
        cloud.close()


@functools.lru_cache(maxsize=64)
def _one_of(name: str, known: frozenset[str]) -> Field:
    return Field(OneOf(f"{name} of a fake here", sorted(known)))
