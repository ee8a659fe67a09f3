"""``Cloud``: fakes that share one clock and one seed, with or without pytest."""

from __future__ import annotations

import errno
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from .any_cloud import AnyCloud
from .core.clock import STANDS, Clock, Mode
from .core.errors import ContractError, shown
from .core.ids import Ids
from .core.journal import Journal
from .core.problems import PROBLEM_FIELDS, Problem
from .core.recorder import Recorder
from .core.results import Results, results_of
from .core.settings import PROCESS_TIME, SWITCH, TRANSPORT, choice, reject_unknown
from .core.timekeeper import Timekeeper
from .core.timeparse import Instant
from .handle import ClosedFakes, Context, Delivery, Handle, Snapshot, found_handles
from .services import find, handle_class
from .transport.patches import Changes

if TYPE_CHECKING:
    from .core.concurrency.dispatch import Dispatcher
    from .core.where import ProblemFields
    from .process_time import ProcessTimeMode
    from .transport.inprocess import Interception
    from .transport.tls import Authority

Transport = Literal["socket", "inprocess"]
_DELIVERY = choice("background", "driven")
_making_dispatchers = threading.Lock()


class CloudSnapshot(NamedTuple):
    """The data of all fakes of a cloud at a point in time."""

    handles: Mapping[str, Snapshot]


class Cloud(AnyCloud):
    """Fakes of cloud services that share one clock and one seed.

    ``seed`` makes ids and random values reproducible; without one, a random seed is chosen and
    available as ``seed``. ``now`` and ``clock`` set the clock. With ``process_time=True``,
    ``time.time()`` and ``datetime.now()`` of this process follow the clock, which is frozen
    (decided here: ``clock="running"`` and ``resume()`` then raise an error, because the clock and
    the process's time cannot follow each other). ``process_time="autojump"`` also moves both
    whenever this process sleeps (see ``autojump()``). ``delivery`` determines how the queues'
    messages are delivered: by a background thread (``"background"``) or only when the test runs the
    queue (``"driven"``). With ``transport="inprocess"``, requests of this process skip the socket.
    ``tls=True`` serves HTTPS with a certificate authority made for the run (``authority``).
    ``share_tls_context=False`` gives every client a TLS context of its own. A cloud is a context
    manager that closes all its fakes.

    Raises ``ContractError`` for invalid settings.
    """

    def __init__(
        self,
        seed: int | str | None = None,
        now: Instant | None = None,
        clock: Mode | None = None,
        process_time: ProcessTimeMode = False,
        *,
        delivery: Delivery = "background",
        transport: Transport = "socket",
        tls: bool = False,
        share_tls_context: bool = True,
    ) -> None:
        TRANSPORT.read("transport", transport, "Cloud")
        _DELIVERY.read("delivery", delivery, "Cloud")
        PROCESS_TIME.read("process_time", process_time, "Cloud")
        SWITCH.read("tls", tls, "Cloud")
        SWITCH.read("share_tls_context", share_tls_context, "Cloud")
        if process_time and clock == "running":
            raise ContractError(f"clock='running' is not possible: {STANDS}")
        _close_dropped()
        super().__init__()
        self._time = Timekeeper(now, clock)
        ids = Ids(int.from_bytes(os.urandom(4)) if seed is None else seed)
        self._context = Context(self._time, ids, Journal(Recorder(self._time.now_us)), delivery)
        self._starting = threading.RLock()
        self._time.on_background = self._deliver
        self._dispatcher: Dispatcher | None = None
        self._exits: list[Callable[[], None]] = []
        self._in_process = transport == "inprocess"
        self._authority: Authority | None = None
        self._context.interceptor = self._intercept
        try:
            self._change_process(share_tls_context, tls, process_time)
        except BaseException:
            # If the cloud cannot be created, undo all its changes to the process.
            self.closed = True
            _call_all(reversed(self._exits))
            raise

    def _change_process(
        self, share_tls_context: bool, tls: bool, process_time: ProcessTimeMode
    ) -> None:
        """Patch clients, create certificates and steer time; ``_exits`` undo what was done so far."""
        self._changes = Changes(shares_tls_context=share_tls_context, in_process=self._in_process)
        self._exits.append(self._changes.close)
        if tls:
            from .transport.tls import Authority

            self._authority = Authority()
            self._context.tls = self._authority.server_context
            self._exits.append(self._authority.close)
        if process_time:
            from .process_time import ProcessTime

            steering = ProcessTime(self._time, process_time)
            steering.start()
            self._exits.append(steering.stop)

    def _deliver(self) -> None:
        """Start the background thread when a delivery is planned, because most clouds need none."""
        if self._dispatcher is None:
            from .core.concurrency.dispatch import Dispatcher

            with _making_dispatchers:
                if self._dispatcher is None and not self.closed:
                    self._dispatcher = Dispatcher(self._time, self._delivery_failed)

    def _delivery_failed(self, error: BaseException) -> None:
        self._context.problems.report(
            "bug", f"a background delivery failed: {shown(error)}", exception=error
        )

    def _intercept(self, handle: Handle, origin: str) -> Interception:
        from .transport.inprocess import Interception

        return Interception(
            handle.url, origin, self._authority.ca_file if self._authority else None
        )

    def _open_transport(self, handle: Handle) -> None:
        self._changes.refresh()
        if self._in_process and find(handle.fixture).in_process:
            from .transport.inprocess import origins
            from .transport.shortcut import Shortcut

            handle.on_close(origins.add(handle._mount.origin, Shortcut(handle._mount)))

    @property
    def seed(self) -> int | str:
        return self._context.ids.seed

    def reseed(self, seed: int | str) -> None:
        self._context.ids.reseed(seed)

    @property
    def clock(self) -> Clock:
        return self._time

    @property
    def journal(self) -> Journal:
        return self._context.journal

    @property
    def authority(self) -> Authority | None:
        return self._authority

    # -- starting fakes --------------------------------------------------------------------------

    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        try:
            return self._start(fixture, settings)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise ContractError(
                f"{fixture} cannot be started: {error.strerror}. Each fake and each open connection "
                "uses a file: close unused clients and clouds (use with-blocks), or raise the limit of "
                "the process (ulimit -n)"
            ) from error

    def _start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        if self.closed:
            raise ContractError("this cloud is closed: create a new one")
        service = find(fixture)
        fixture = service.fixture
        made_by: Any = handle_class(service)
        if not isinstance(settings, Mapping):
            raise ContractError(f"{shown(settings)} are not settings of {fixture}: pass a dict")
        reject_unknown(made_by._settings, settings, fixture)
        with self._starting:
            handle: Handle = made_by(self._context, **settings)
        handle._given_settings = settings
        try:
            self._open_transport(handle)
            for listener in self._listeners.items:
                listener(handle)
        except BaseException:
            handle.close()
            raise
        return handle

    def fixture_handle(self, fixture: str) -> Any:
        fixture = find(fixture).fixture
        handle = self._fixture_handles.get(fixture)
        if handle is None:
            handle = self.start(fixture, self._fixture_settings.get(fixture, {}))
            self._fixture_handles[fixture] = handle
        return handle

    @property
    def handles(self) -> Results[Handle]:
        return found_handles(self._context.handles)

    @property
    def _closed_fakes(self) -> ClosedFakes:
        return self._context.closed_fakes

    @property
    def env(self) -> dict[str, str]:
        merged: dict[str, str] = {}
        for handle in self._context.handles:
            for name, value in handle.env.items():
                merged.setdefault(name, value)
        if self._authority is not None:
            merged.update(self._authority.variables)
        return merged

    # -- strict-mode violations ------------------------------------------------------------------

    @property
    def problems(self) -> Results[Problem]:
        found = list(self._context.problems)
        for handle in (*self._context.handles, *self._closed_fakes.last):
            found += handle._left_behind()
        counted = (one for one in found if not self._allowed.covers(one.kind, one.facts))
        return results_of(counted, PROBLEM_FIELDS, "problem")

    def allow(self, kind: str, **where: Unpack[ProblemFields]) -> None:
        __tracebackhide__ = True
        self._allowed.add(kind, where)

    def _undelivered(self, strict: Container[str]) -> list[str]:
        found = []
        for handle in self._context.handles:
            text = handle._undelivered()
            if text is None or self._allowed.covers("undelivered", {"handle": handle.name}):
                continue
            if "undelivered" in strict:
                self._context.problems.report("undelivered", text, handle=handle.name)
            else:
                found.append(text)
        return found

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> CloudSnapshot:
        return CloudSnapshot({h.name: h.snapshot() for h in self._context.handles})

    def restore(self, snapshot: CloudSnapshot) -> None:
        if not isinstance(snapshot, CloudSnapshot):
            raise ContractError(f"{shown(snapshot)} is not a snapshot of a cloud")
        for handle in self._context.handles:
            if handle.name in snapshot.handles:
                handle.restore(snapshot.handles[handle.name])

    def reset(self) -> None:
        for handle in self._context.handles:
            handle.reset()
        self._context.problems.clear()
        self._allowed.clear()
        self.journal.clear()
        self._closed_fakes.clear()

    def _keep_only(self, known: Iterable[Handle]) -> None:
        kept = {id(handle) for handle in (*known, *self._fixture_handles.values())}
        for handle in self.handles:
            if id(handle) not in kept:
                handle.close()

    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        for handle in self._context.handles:
            handle.end_connections()
        self._time.rewind(now, clock)
        self.reset()

    def _require_local(self, method: str) -> Cloud:
        return self

    # -- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop deliveries and close every fake. Can be called repeatedly.

        Does not wait for a handler that hangs: a ``RuntimeWarning`` names it and shows its stack.
        An exception of an ``on_close`` callback is raised after everything is closed.
        """
        if self.closed:
            return
        self.closed = True
        self._context.closed_fakes.last = handles = self._context.handles
        ends: list[Callable[[], object]] = [handle.close for handle in reversed(handles)]
        _call_all([self._stop_delivering, *ends, *reversed(self._exits)])

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
        if handles := self._context.handles:
            handles[0]._mount.hub.later(_close_dropped)

    def _stop_delivering(self) -> None:
        with _making_dispatchers:
            dispatcher = self._dispatcher
        if dispatcher is not None and not dispatcher.stop():
            warnings.warn(
                "a background delivery has not ended; its handler is at\n" + dispatcher.place,
                RuntimeWarning,
                stacklevel=4,
            )

    def __repr__(self) -> str:
        names = ", ".join(handle.name for handle in self._context.handles) or "no handles"
        return (
            f"<Cloud seed={self.seed!r} {self._time.mode} {self._time.now().isoformat()}: {names}>"
        )


_dropped: deque[Cloud] = deque()
"""Clouds that were garbage-collected without being closed."""


def _close_dropped() -> None:
    while _dropped:
        try:
            cloud = _dropped.popleft()
        except IndexError:  # Another thread has taken the last one.
            return
        cloud.close()


def _call_all(ends: Iterable[Callable[[], object]]) -> None:
    """Call all functions even if some raise, then raise the first exception."""
    first: BaseException | None = None
    for end in ends:
        try:
            end()
        except BaseException as error:
            if first is None:
                first = error
    if first is not None:
        raise first
