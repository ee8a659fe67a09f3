"""The fakes of a cloud: their clock, seed, journal, data and strict-mode violations.

A closed cloud is in no circle of references, so it is freed with its data when its test ends. In a
circle, it would wait for Python's garbage collector, which takes only 70 µs for a fake, but looks at
old objects rarely in an application with many of them: beside 200 MB of such objects, 300 tests that
each store 1,000 hashes then need 100 MB more (1 MB for each test if the collector is off).

So a part refers to its fake weakly (``weakref.proxy()``, ``core.timers.weakly()``), the app of a
closing fake leaves it (``App.leave_fake()``), a closing cloud forgets its timers, and what outlives a
test refers to its cloud, not to the owner. ``tests/core/test_circles.py`` finds circles.
"""

from __future__ import annotations

import errno
import functools
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Container, Generator, Mapping
from operator import attrgetter
from os import urandom
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from ..core.clock import Clock, Mode, Timekeeper
from ..core.errors import ContractError, shown
from ..core.exits import Exits, call_all
from ..core.field_types import OneOf
from ..core.ids import Ids
from ..core.journal import Journal, Results, results_of
from ..core.matching import Field
from ..core.registry import Registry
from ..core.settings import DeliveryMode, read, reject_unknown
from ..core.timers import Instant
from ..core.violations import VIOLATION_FIELDS, Allowances, Violation, with_allowance
from ..process.surroundings import changes_for, no_proxy
from .config import CloudConfig, Transport
from .fake import FAKE_FIELDS, Context, Fake, Snapshot, Takeover, secrets_of
from .services import Service, fake_class, find, variable_prefix

if TYPE_CHECKING:
    from .._typing.core import ViolationFields
    from ..broker.fake import Broker, BrokerSettings
    from ..core.threads import Dispatcher
    from ..kv.fake import KVServer, KVSettings
    from ..process.process_time import ProcessTimeMode
    from ..process.surroundings import Authority
    from ..queue.capture.fake import CallbackCapture, CallbackCaptureSettings
    from ..queue.delivery.destination_server import Destination
    from ..queue.fake import Queue, QueueSettings
    from ..queue.settings import DestinationSettings
    from ..vector.fake import VectorIndex, VectorSettings

C = TypeVar("C", bound="BaseCloud")
_making_dispatchers = threading.Lock()


class BaseCloud:
    """The fakes of a cloud, which share one clock and one seed; see ``cloud.Cloud``, which adds what
    needs exploration, recordings and reports. They are two classes because the modules of exploration,
    recordings and reports import ``BaseCloud``.

    A context manager that closes the fakes.

    By default, queues deliver in the background, because without pytest's fixtures a cloud usually
    serves an application that runs beside the code that creates it. The clouds of pytest's fixtures are
    ``"driven"`` (``pytest_run.cloud_owner``), except that of the session.
    """

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
        # The settings of CloudConfig, spelled out because help() and editors then show the defaults, and
        # the first ones can be given by position.
        settings = {
            "seed": seed,
            "now": now,
            "clock": clock,
            "process_time": process_time,
            "delivery": delivery,
            "transport": transport,
            "tls": tls,
            "share_tls_context": share_tls_context,
        }
        self._open(read(CloudConfig, settings, "Cloud"))

    def _open(self, config: CloudConfig) -> None:
        """Open the cloud with its settings."""
        if _dropped:
            _close_dropped()
        self._closed = False
        self._timekeeper = Timekeeper(config.now, config.clock)
        ids = Ids(int.from_bytes(urandom(4)) if config.seed is None else config.seed)
        self._context = Context(self._timekeeper, ids, config.delivery)
        self._allowed = Allowances()
        """The violations and warnings that ``allow()`` covers."""
        self._on_start: Registry[Callable[[Fake], None]] = Registry()
        """Functions that are called with each fake that has been started."""
        self._fixture_fakes: dict[str, Fake] = {}
        """The fakes of the fixtures that were used, by fixture name."""
        self._fixture_settings: Mapping[str, Mapping[str, Any]] = {}
        """The settings of the fakes of pytest's fixtures, by fixture name."""
        self._cache: Any = None
        """``config.cache`` of the pytest run that created the cloud, in which exploration stores
        schedules, or None. The modules on this floor do not import pytest.
        """
        self._dispatcher: Dispatcher | None = None
        self._timekeeper.on_background = self._deliver
        self._starting = threading.RLock()
        self._authority: Authority | None = None
        self._skips_socket = config.transport == "inprocess"
        self._changes = changes_for(config.share_tls_context, self._skips_socket)
        self._exits = Exits()
        """What ends with the cloud."""
        try:
            self._begin(config)
        except BaseException:
            self.close()
            raise

    def _begin(self, config: CloudConfig) -> None:
        """Begin what lasts as long as the cloud. What is registered last ends first."""
        exits = self._exits
        watch = self._watch()
        # Until its timers are forgotten, the clock keeps the cloud alive while a fake is open.
        exits.register(watch.close, self._timekeeper.forget_timers)
        next(watch)
        if config.tls:
            from ..process.surroundings import Authority

            self._authority = Authority()
            exits.callback(self._authority.close)
            self._context.tls = self._authority.server_context
            self._context.ca_file = self._authority.ca_file
        # Not the cloud itself: a change of the process refers to all of its users, and a cloud to which
        # nothing else refers closes.
        user = object()
        for change in self._changes:
            exits.callback(change.leave, user)
            change.enter(user)
        if config.process_time:
            from ..process.process_time import ProcessTime

            steering = ProcessTime(self._timekeeper, config.process_time)
            exits.callback(steering.stop)
            steering.start()
        # Deliveries stop first, because one can wait for a fake.
        exits.register(self._close_fakes, self._stop_delivering)

    def _deliver(self) -> None:
        """Start the background thread when a delivery is planned, because most clouds need none."""
        if self._dispatcher is None:
            from ..core.threads import Dispatcher

            with _making_dispatchers:
                if self._dispatcher is None and not self.closed:
                    self._dispatcher = Dispatcher(self._timekeeper, self._delivery_failed)

    def _delivery_failed(self, error: BaseException) -> None:
        self._context.violations.report(
            "bug", f"a background delivery failed: {shown(error)}", exception=error
        )

    @property
    def seed(self) -> int | str:
        """The seed of all randomness."""
        return self._context.ids.seed

    @property
    def clock(self) -> Clock:
        """The clock shared by all fakes."""
        return self._context.clock

    @property
    def journal(self) -> Journal:
        """The recorded calls and events of all fakes."""
        return self._context.journal

    @property
    def authority(self) -> Authority | None:
        """The certificate authority of HTTPS; None without HTTPS."""
        return self._authority

    @property
    def closed(self) -> bool:
        """Whether the cloud is closed or closing."""
        return self._closed

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

    def _start(
        self, fixture: str, settings: Mapping[str, Any], takeover: Takeover | None = None
    ) -> Fake:
        """Start a fake by the name of its fixture.

        Besides the settings of the service, ``host`` and ``port`` choose its address and ``token``
        its credentials. Raises ``ContractError`` for unknown settings, and if the system has no file
        descriptor left.
        """
        return self._start_service(find(fixture), settings, takeover)

    def _start_service(
        self, service: Service, settings: Mapping[str, Any], takeover: Takeover | None
    ) -> Fake:
        """Start a fake of a service, as ``_start()`` does."""
        if not isinstance(settings, Mapping):
            raise ContractError(
                f"{shown(settings)} are not settings of {service.fixture}: pass a dict"
            )
        # A name is taken only when its fake has started, and close() must not miss that fake.
        with self._starting:
            if self._closed:
                raise ContractError("this cloud is closed: create a new one")
            fake = self._create(service, settings, takeover)
            try:
                self._connect(fake, service)
            except BaseException:
                fake.close()
                raise
            return fake

    def _create(
        self, service: Service, settings: Mapping[str, Any], takeover: Takeover | None
    ) -> Fake:
        try:
            kind = fake_class(service)
            # The fake also does this, but it would take a setting named context for its parameter.
            if settings:
                reject_unknown(kind._config_class, settings, kind.fixture)
            return kind(self._context, takeover, **settings)
        except OSError as error:
            # Also of the import of the class, because a file can be the one too many.
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise ContractError(
                f"{service.fixture} cannot be started: {error.strerror}. Each fake and each open "
                "connection uses a file: close unused clients and clouds (use with-blocks), or raise "
                "the limit of the process (ulimit -n)"
            ) from error

    def _connect(self, fake: Fake, service: Service) -> None:
        """Let the clients of this process reach a fake that has started, and call ``_on_start``."""
        mount = fake._mount
        for change in self._changes:
            change.refresh()
        if mount.host not in no_proxy.hosts:
            no_proxy.add(mount.host)
        if self._skips_socket and service.in_process:
            from ..process.inprocess import origins
            from ..process.shortcut import Shortcut

            shortcut = Shortcut(mount)
            fake._exits.callback(origins.remove, mount.origin, shortcut)
            origins.add(mount.origin, shortcut)
        for function in self._on_start.items:
            function(fake)

    def fakes(self) -> Results[Fake]:
        """The open fakes, in the order they were started."""
        fakes = self._context.fakes.items
        fields = {
            name: _one_of(name, frozenset(map(attrgetter(name), fakes)))
            for name in ("name", "fixture", "service")
            if fakes
        }
        return results_of(fakes, {**FAKE_FIELDS, **fields}, "fake")

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of all fakes; of several fakes of a service, the first one's.

        A fake whose name is not that of its fixture also has its own, which begin with the name: those
        of ``vector_index(name="products")`` with ``PRODUCTS_``, as in
        ``PRODUCTS_UPSTASH_VECTOR_REST_URL``.
        """
        merged: dict[str, str] = {}
        for fake in self._context.fakes:
            for name, value in variables_of(fake).items():
                merged.setdefault(name, value)
        if self._authority is not None:
            merged.update(self._authority.variables)
        return merged

    # -- strict-mode violations ------------------------------------------------------------------

    def violations(self) -> Results[Violation]:
        """The strict-mode violations so far, except those that ``allow()`` covers."""
        violations = [*self._context.violations]
        for fake in self._context.fakes.items:
            violations += fake._left_behind()
        covers = self._allowed.covers
        counted = (
            [violation for violation in violations if not covers(violation.kind, violation.facts)]
            if violations
            else violations
        )
        return results_of(counted, VIOLATION_FIELDS, "violation")

    def allow(self, kind: str, **where: Unpack[ViolationFields]) -> None:
        """Ignore strict-mode violations of a kind, or only those whose facts match.

        ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``,
        ``rejected_step``, ``no_workflow`` or ``assertion``. Two more kinds suppress warnings:
        ``undelivered`` for messages that the test never delivers, and ``refused`` for calls that
        are answered 401 on purpose. ``where`` gives facts such as ``path=`` or ``url=``: a value, a
        string with ``*``, a compiled pattern or a function (see ``core.matching``). Raises
        ``ContractError`` for an unknown kind or fact, suggesting the nearest.
        """
        __tracebackhide__ = True
        self._allowed.add(kind, where)
        for fake in self._context.fakes:
            self._context.recorder.note_change(fake.name)

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the current data of all fakes."""
        return Snapshot("fakecloud", {h.name: h.snapshot() for h in self._context.fakes})

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data of a snapshot in the fakes that are still open."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != "fakecloud":
            raise ContractError(f"{shown(snapshot)} is not a snapshot of a cloud")
        for fake in self._context.fakes:
            if fake.name in snapshot.data:
                fake.restore(snapshot.data[fake.name])

    def reset(self) -> None:
        """Return every fake to its baseline; forget violations and journal."""
        for fake in self._context.fakes:
            fake.reset()
        self._context.violations.clear()
        self._allowed.clear()
        self.journal.clear()
        self._context.closed_fakes.clear()
        self._context.former_secrets = frozenset()

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
        with self._starting:
            self._closed = True
        self._exits.close()

    def _close_fakes(self) -> None:
        call_all(map(attrgetter("close"), reversed(self._context.fakes.items)))
        self._fixture_fakes.clear()

    def _watch(self) -> Generator[None, None, None]:
        """Close the cloud after the garbage collector has found it, unless it is closed by then."""
        # A generator that has ended, unlike a __del__(), runs no code for a closed cloud. Python ignores
        # exceptions in such code, so that of a signal's handler would be lost.
        try:
            yield
        finally:
            if not (self._closed or sys.is_finalizing()):
                # Close it in another thread, because this one may hold any lock.
                _dropped.append(self)
                if self._context.hub is not None:
                    self._context.hub.later(_close_dropped)
                warnings.warn(
                    f"{self!r} was garbage-collected without close(): use a with-block",
                    ResourceWarning,
                    stacklevel=2,
                    source=self,
                )

    def _stop_delivering(self) -> None:
        with _making_dispatchers:
            dispatcher = self._dispatcher
        if dispatcher is not None and not (dispatcher.stopped or dispatcher.stop()):
            warnings.warn(
                "a background delivery has not ended; its handler is at\n" + dispatcher.place,
                RuntimeWarning,
                stacklevel=4,
            )

    def __repr__(self) -> str:
        names = ", ".join(fake.name for fake in self._context.fakes) or "no fakes"
        clock = self.clock
        return f"<Cloud seed={self.seed!r} {clock.mode} {clock.now().isoformat()}: {names}>"


# -- for pytest's fixtures and the server ----------------------------------------------------------
# Functions, because the methods of a cloud are what a test may use.


def cloud_with(kind: type[C], config: CloudConfig) -> C:
    """Return a new cloud of a class, with settings that have been read."""
    cloud = kind.__new__(kind)
    cloud._open(config)
    return cloud


def variables_of(fake: Fake) -> dict[str, str]:
    """Return the variables of a fake, and those that begin with its name if it has a name of its own."""
    if fake.name == fake.fixture:
        return fake.env
    prefix = variable_prefix(fake.name)
    return fake.env | {f"{prefix}{name}": value for name, value in fake.env.items()}


def context_of(cloud: BaseCloud) -> Context:
    """Return what the fakes of a cloud share."""
    return cloud._context


_MOST_READS = 500_000


def record_times(cloud: BaseCloud) -> None:
    """Record when each call and action reads the cloud's clock, for a later replay.

    Without these times, the replay of a running clock is exact only to the millisecond.
    """
    reads = deque[tuple[int, int]](maxlen=_MOST_READS)
    context = cloud._context
    context.timekeeper.reads = context.recorder.shared.reads = reads


def use_in_fixtures(
    cloud: BaseCloud, settings: Mapping[str, Mapping[str, Any]], cache: Any
) -> None:
    """Give a cloud the settings of its fixtures' fakes, by fixture name, and the cache of its run."""
    cloud._fixture_settings, cloud._cache = settings, cache


def fixture_fake(
    cloud: BaseCloud, fixture: str, takeover: Takeover | None = None, **ports: int
) -> Any:
    """Return the fake of a fixture in a cloud, started on first use. ``ports`` are further settings.

    Raises ``ContractError`` for an unknown fixture.
    """
    service = find(fixture)
    fixture = service.fixture
    fake = cloud._fixture_fakes.get(fixture)
    if fake is None:
        settings = {**cloud._fixture_settings.get(fixture, {}), **ports}
        fake = cloud._start_service(service, settings, takeover)
        cloud._fixture_fakes[fixture] = fake
    return fake


def start_over(cloud: BaseCloud, now: Instant | None = None, clock: Mode | None = None) -> None:
    """Prepare a cloud for another test: end all requests, rewind the clock, reset every fake, forget
    what the test before has looked at.
    """
    context = cloud._context
    for fake in context.fakes:
        fake._renew_connections()
    context.timekeeper.rewind(now, clock)
    context.timekeeper.has_fired = False
    cloud.reset()
    context.recorder.was_read = False
    context.recorder.shared.looks.clear()
    for fake in context.fakes:
        fake._forget_looks()
    # If the next test requests the fixture of a fake that has been closed, that starts a new one.
    fixture_fakes = cloud._fixture_fakes
    for fixture in [name for name, fake in fixture_fakes.items() if fake.closed]:
        del fixture_fakes[fixture]


def show_same(copy: BaseCloud, cloud: BaseCloud) -> None:
    """Give a new cloud the data, the journal, the violations and the time of another one. Its clock
    is frozen, and it delivers nothing until somebody moves it.
    """
    context = copy._context
    context.timekeeper.on_background = None
    context.timekeeper.rewind(cloud.clock.now(), "frozen")
    copies = {fake.name: fake for fake in copy.fakes()}
    for fake in cloud.fakes():
        # The journal shows the credentials of the other cloud, which reports must hide.
        context.former_secrets |= secrets_of(fake)
        if fake.name in copies:
            copies[fake.name].restore(fake.snapshot())
    context.recorder.adopt(cloud._context.recorder)
    context.violations.extend(cloud._context.violations)


def undelivered(cloud: BaseCloud, strict: Container[str]) -> list[str]:
    """Describe the queues with messages that a test published but never delivered. If ``strict``
    contains this kind, record strict-mode violations instead.
    """
    texts, context = [], cloud._context
    for fake in context.fakes.items:
        text, facts = fake._undelivered(), {"fake": fake.name}
        if text is None or cloud._allowed.covers("undelivered", facts):
            continue
        if "undelivered" in strict:
            context.violations.report("undelivered", text, fake=fake.name)
        else:
            texts.append(with_allowance(text, "undelivered", facts))
    return texts


def secrets_in(cloud: BaseCloud) -> set[str]:
    """Return the credentials of all fakes of a cloud, of closed ones too."""
    context = cloud._context
    return {*context.former_secrets}.union(*map(secrets_of, context.fakes))


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
def _one_of(name: str, names: frozenset[str]) -> Field:
    return Field(OneOf(f"{name} of a fake here", sorted(names)))
