"""The interface shared by a cloud in this process (``Cloud``) and in a server (``RemoteCloud``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from .core.problems import Allowances
from .core.timers import Registry
from .explore.cloud_promises import CloudPromises

if TYPE_CHECKING:
    from pathlib import Path

    from .broker.handle import Broker
    from .broker.settings import BrokerSettings
    from .cloud import Cloud
    from .core.clock import Clock, Mode
    from .core.journal import Journal
    from .core.problems import Problem
    from .core.results import Results
    from .core.timeparse import Instant
    from .core.where import ProblemFields
    from .every_failure import Failure, FailureOptions
    from .explore.arguments import Runs
    from .explore.explore import Checks, ExploreOptions
    from .explore.result.exploration import Exploration
    from .handle import ClosedFakes, Handle
    from .kv.handle import KVServer
    from .kv.settings import KVSettings
    from .queue.capture.handle import CallbackCapture
    from .queue.delivery.destination_server import Destination
    from .queue.handle import Queue
    from .queue.settings import CallbackCaptureSettings, DestinationSettings, QueueSettings
    from .recordings import Differences, ReplayOptions
    from .transport.tls import Authority
    from .vector.handle import VectorIndex
    from .vector.settings import VectorSettings


class AnyCloud(CloudPromises, ABC):
    """Fakes of cloud services that share one clock and one seed, in this process or in a server.

    A context manager that closes the fakes started through it.
    """

    _fixture_settings: Mapping[str, Any] = MappingProxyType({})
    """Settings of the fixtures' fakes, by fixture name."""

    def __init__(self) -> None:
        self.closed = False
        self._fixture_handles: dict[str, Handle] = {}
        self._listeners = Registry[Callable[["Handle"], None]]()
        self._allowed = Allowances()

    # -- clock, seed and environment -------------------------------------------------------------

    @property
    @abstractmethod
    def seed(self) -> int | str:
        """The seed of all randomness."""

    @abstractmethod
    def reseed(self, seed: int | str) -> None:
        """Restart all randomness from another seed; raise ``ContractError`` for an invalid one."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The clock shared by all fakes."""

    @property
    @abstractmethod
    def journal(self) -> Journal:
        """The recorded calls and events of all fakes."""

    @property
    @abstractmethod
    def authority(self) -> Authority | None:
        """The certificate authority of HTTPS; None without HTTPS or if another process holds it."""

    @property
    @abstractmethod
    def env(self) -> dict[str, str]:
        """The environment variables of all fakes; of several fakes of a service, the first one's."""

    # -- starting fakes --------------------------------------------------------------------------

    def kv_server(self, **settings: Unpack[KVSettings]) -> KVServer:
        """Start another key-value server."""
        return cast("KVServer", self.start("kv_server", settings))

    def vector_index(self, **settings: Unpack[VectorSettings]) -> VectorIndex:
        """Start another vector index."""
        return cast("VectorIndex", self.start("vector_index", settings))

    def broker(self, **settings: Unpack[BrokerSettings]) -> Broker:
        """Start another broker."""
        return cast("Broker", self.start("broker", settings))

    def queue(self, **settings: Unpack[QueueSettings]) -> Queue:
        """Start another queue."""
        return cast("Queue", self.start("queue", settings))

    def callback_capture(self, **settings: Unpack[CallbackCaptureSettings]) -> CallbackCapture:
        """Start another receiver of callbacks."""
        return cast("CallbackCapture", self.start("callback_capture", settings))

    def destination(self, **settings: Unpack[DestinationSettings]) -> Destination:
        """Start another pytest-httpserver."""
        return cast("Destination", self.start("destination", settings))

    @abstractmethod
    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        """Start a fake by the name of its fixture.

        Besides the settings of the service, ``host`` and ``port`` choose its address and ``token``
        its credentials. Raises ``ContractError`` for unknown settings, and if the system has no
        file descriptor left.
        """

    @abstractmethod
    def fixture_handle(self, fixture: str) -> Any:
        """Return the fake of a fixture in this cloud, started on first use.

        Raises ``ContractError`` for an unknown fixture.
        """

    @property
    @abstractmethod
    def handles(self) -> Results[Handle]:
        """The open fakes, in the order they were started."""

    @property
    @abstractmethod
    def _closed_fakes(self) -> ClosedFakes:
        """The names, addresses and credentials of closed fakes, for reports."""

    @abstractmethod
    def _keep_only(self, known: Iterable[Handle]) -> None:
        """Close all fakes except the given fakes and the fixtures' fakes."""

    def _on_start(self, listener: Callable[[Handle], None]) -> Callable[[], None]:
        """Call the listener with each fake started from now on; return a function that stops it."""
        return self._listeners.add(listener)

    # -- strict-mode violations ------------------------------------------------------------------

    @property
    @abstractmethod
    def problems(self) -> Results[Problem]:
        """The strict-mode violations so far, except those that ``allow()`` covers."""

    @abstractmethod
    def allow(self, kind: str, **where: Unpack[ProblemFields]) -> None:
        """Ignore strict-mode violations of a kind, or only those whose facts match.

        ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``,
        ``rejected_step``, ``no_workflow`` or ``assertion``. Two more kinds suppress warnings:
        ``undelivered`` for messages that the test never delivers, and ``refused`` for calls that
        are answered 401 on purpose. ``where`` gives facts such as ``path=`` or ``url=``: a value, a
        string with ``*``, a compiled pattern or a function (see ``core.matching``). Raises
        ``ContractError`` for an unknown kind or fact, suggesting the nearest.
        """

    def _undelivered(self, strict: Container[str]) -> list[str]:
        """Describe the queues with messages that a test published but never delivered.

        If ``strict`` contains the kind ``undelivered``, record strict-mode violations instead.
        """
        return []

    # -- data ------------------------------------------------------------------------------------

    @abstractmethod
    def snapshot(self) -> Any:
        """Return the current data of all fakes."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Restore the data of a snapshot in the fakes that are still open."""

    @abstractmethod
    def reset(self) -> None:
        """Return every fake to its baseline; forget violations and journal."""

    @abstractmethod
    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        """Prepare for another test: remove all traces of the previous one.

        Closes requests in progress and open connections and returns every fake to its baseline.
        Sets the clock to its initial time and mode, or to ``now`` and ``clock`` if given.
        """

    # -- running code ----------------------------------------------------------------------------

    @abstractmethod
    def _require_local(self, method: str) -> Cloud:
        """Return this cloud, for a method that needs fakes in the test's own process.

        Raises ``ContractError``, which names the method, for a stand-alone server.
        """

    def autojump(self) -> AbstractContextManager[None]:
        """Return a context manager in which sleeping moves the clock instead of taking real time.

        Inside it the process's time follows the clock (extra ``time``), and ``time.sleep``,
        ``asyncio.sleep`` and ``trio.sleep`` (so anyio's too) advance both, including
        ``time.monotonic()``, ``time.perf_counter()`` and the timeouts of event loops. Concurrent
        sleeps overlap: the clock moves to the time at which the next of them ends. Sleeps of test
        runners, of servers' event loops and inside the standard library still take real time, and
        so does waiting for a response. Afterwards time is real again, and the clock continues.

        Raises ``ContractError`` without time-machine, inside another cloud's ``autojump()``, and
        for a stand-alone server, which is another process.
        """
        from .process_time import AUTOJUMP, ProcessTime

        return ProcessTime(self._require_local("autojump")._time, AUTOJUMP)

    def every_failure(
        self, run: Callable[[], object], **options: Unpack[FailureOptions]
    ) -> Results[Failure]:
        """Run code once per call it makes, with a fault in a different call each time.

        ``every_failure.every_failure`` describes the options ``services``, ``faults``, ``status``
        and ``check``. Returns the runs with a failing call. Raises ``BrokenRuns`` if one of them
        broke the promise, and ``ContractError`` for a stand-alone server.
        """
        __tracebackhide__ = True
        from .every_failure import every_failure

        return every_failure(self._require_local("every_failure"), run, **options)

    def explore(
        self, run: Runs, check: Checks = None, **options: Unpack[ExploreOptions]
    ) -> Exploration:
        """Run code under many schedules of faults, orders, time and deliveries; check a promise.

        Raises ``BrokenSchedule`` with the smallest schedule found that breaks the promise, and
        ``ContractError`` for a stand-alone server. The guide "Explore failures and
        interleavings" describes the options ``workers``, ``setup``, ``budget``, ``seed``,
        ``schedule``, ``kinds``, ``services``, ``patience``, ``horizon`` and ``process_time``.
        """
        __tracebackhide__ = True
        from .explore.explore import explore

        return explore(self._require_local("explore"), run, check, **options)

    def replay(
        self, file: str | Path | Mapping[str, Any], **options: Unpack[ReplayOptions]
    ) -> Differences:
        """Send a recorded session to the fakes and compare the responses.

        ``file`` is the path of an HTTP archive (HAR), or its parsed JSON. See
        ``recordings.replay`` for the options ``into``, ``ignore`` and ``move_clock``.
        """
        __tracebackhide__ = True
        from .recordings import replay

        return replay(self, file, **options)

    @property
    def aio(self) -> AioCloud:
        """Awaitable versions of the methods that run code or move the clock."""
        return AioCloud(self)

    # -- closing ---------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Close all fakes and connections of this cloud. Can be called repeatedly."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AioCloud:
    """Awaitable versions of a cloud's methods, for asyncio and trio."""

    def __init__(self, cloud: AnyCloud) -> None:
        from .core.concurrency.aio import in_thread

        self._cloud = cloud
        self._in_thread = in_thread

    async def every_failure(
        self, run: Callable[[], object], **options: Unpack[FailureOptions]
    ) -> Results[Failure]:
        """Run ``Cloud.every_failure()`` for asynchronous code."""
        __tracebackhide__ = True
        from .every_failure import every_failure_async

        return await every_failure_async(
            self._cloud._require_local("every_failure"), run, **options
        )

    async def explore(
        self, run: Runs, check: Checks = None, **options: Unpack[ExploreOptions]
    ) -> Exploration:
        """Run ``Cloud.explore()`` in a running event loop, also with asynchronous functions."""
        __tracebackhide__ = True
        return await self._in_thread(self._cloud.explore, run, check, **options)

    async def replay(
        self, file: str | Path | Mapping[str, Any], **options: Unpack[ReplayOptions]
    ) -> Differences:
        """Run ``Cloud.replay()`` without blocking the event loop."""
        __tracebackhide__ = True
        return await self._in_thread(self._cloud.replay, file, **options)
