"""AnyCloud: what every cloud offers, in this process (``Cloud``) or in a server's (``RemoteCloud``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

from .core.errors import ContractError, check_function, shown
from .core.found import Found, found_of
from .core.matching import (
    FLAG,
    MAPPING,
    MESSAGE_ID,
    METHOD,
    PATH,
    TEXT,
    URL,
    Field,
    Query,
    nearest,
    one_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from .broker.handle import Broker
    from .broker.settings import BrokerSettings
    from .core.clock import Clock
    from .core.journal import Journal
    from .core.problems import Problem
    from .core.timekeeper import Mode
    from .core.timeparse import Duration, Instant
    from .explore.explore import Checks, Exploration, ExploreOptions, Runs
    from .explore.promises import Check
    from .failures import FailureOptions, Failures
    from .handle import Gone, Handle
    from .kv.handle import KVServer
    from .kv.settings import KVSettings
    from .queue.capture.handle import CallbackCapture
    from .queue.capture.settings import CallbackCaptureSettings, DestinationSettings
    from .queue.delivery.destination_server import Destination
    from .queue.handle import Queue
    from .queue.settings import QueueSettings
    from .recordings import Differences, ReplayOptions
    from .transport.tls import Authority
    from .vector.handle import VectorIndex
    from .vector.settings import VectorSettings


class ProblemFields(TypedDict, total=False):
    """The facts of problems that ``allow()`` asks about; which of them one has depends on its kind."""

    handle: object
    method: object
    path: object
    url: object
    message_id: object
    run_id: object


PROBLEM_KINDS: Mapping[str, Mapping[str, Field]] = {
    "unrouted": {"path": Field(PATH), "method": Field(METHOD), "handle": Field(TEXT)},
    "unstubbed": {"url": Field(URL), "message_id": Field(MESSAGE_ID), "handle": Field(TEXT)},
    "bug": {"path": Field(PATH), "handle": Field(TEXT)},
    "unused_fault": {"handle": Field(TEXT)},
    "unmet": {"handle": Field(TEXT)},
    "rejected_step": {"run_id": Field(TEXT), "url": Field(URL), "handle": Field(TEXT)},
    "assertion": {"handle": Field(TEXT)},
}
"""What a strict test fails for, each with the facts that ``allow()`` may ask about."""
NAMED_KINDS: Mapping[str, Mapping[str, Field]] = {"undelivered": {"handle": Field(TEXT)}}
"""What is warned of, and fails a test whose ``strict=`` names it."""
ALLOWABLE: Mapping[str, Mapping[str, Field]] = {
    **PROBLEM_KINDS,
    **NAMED_KINDS,
    "refused": {"path": Field(PATH), "method": Field(METHOD), "handle": Field(TEXT)},
}
"""What ``allow()`` takes: these, and clients that get nothing but 401, which are warned of."""
PROBLEM_FIELDS: Mapping[str, Field] = {
    "kind": Field(one_of("kind of problem", [*PROBLEM_KINDS, *NAMED_KINDS])),
    "text": Field(TEXT),
    "facts": Field(MAPPING),
    "exception": Field(),
}
HANDLE_FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("name", "fixture", "service", "token"), Field(TEXT)),
    "url": Field(URL),
    "closed": Field(FLAG),
}


class AnyCloud(ABC):
    """Fakes of cloud services that share one clock and one seed, wherever they run.

    A with-block; leaving it closes what was started through it.
    """

    _fixture_settings: Mapping[str, Any] = MappingProxyType({})
    """Settings of the fixtures' handles, by fixture name."""

    def __init__(self) -> None:
        self.closed = False
        self._fixture_handles: dict[str, Handle] = {}
        self._listeners: list[Callable[[Handle], None]] = []
        self._allowed: list[tuple[str, Query]] = []

    # -- what it is ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def seed(self) -> int | str:
        """What all randomness comes from."""

    @abstractmethod
    def reseed(self, seed: int | str) -> None:
        """Start all randomness over from another seed; raises ``ContractError`` for what is none."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The clock of all fakes."""

    @property
    @abstractmethod
    def journal(self) -> Journal:
        """What happened on all fakes."""

    @property
    @abstractmethod
    def authority(self) -> Authority | None:
        """The authority of HTTPS, None without it or where another process has it."""

    @property
    @abstractmethod
    def env(self) -> dict[str, str]:
        """The environment variables of all handles; the first handle of a service has its names."""

    # -- handles ---------------------------------------------------------------------------------

    def kv_server(self, **settings: Unpack[KVSettings]) -> KVServer:
        """Start one more key-value server."""
        return cast("KVServer", self.start("kv_server", settings))

    def vector_index(self, **settings: Unpack[VectorSettings]) -> VectorIndex:
        """Start one more vector index."""
        return cast("VectorIndex", self.start("vector_index", settings))

    def broker(self, **settings: Unpack[BrokerSettings]) -> Broker:
        """Start one more broker."""
        return cast("Broker", self.start("broker", settings))

    def queue(self, **settings: Unpack[QueueSettings]) -> Queue:
        """Start one more queue."""
        return cast("Queue", self.start("queue", settings))

    def callback_capture(self, **settings: Unpack[CallbackCaptureSettings]) -> CallbackCapture:
        """Start one more receiver of callbacks."""
        return cast("CallbackCapture", self.start("callback_capture", settings))

    def destination(self, **settings: Unpack[DestinationSettings]) -> Destination:
        """Start one more pytest-httpserver on the hub."""
        return cast("Destination", self.start("destination", settings))

    @abstractmethod
    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        """Start a handle by the name of its fixture; unknown settings are a ``ContractError``.

        Besides the handle's own settings: ``host`` and ``port`` to stand at a chosen address, and
        ``token`` for chosen credentials.
        """

    @abstractmethod
    def fixture_handle(self, fixture: str) -> Any:
        """Return the one handle of a fixture in this cloud, started when it is first asked for.

        Raises ``ContractError`` for a name that is no fixture's.
        """

    @property
    @abstractmethod
    def handles(self) -> Found[Handle]:
        """The open handles, in the order they were started."""

    @property
    @abstractmethod
    def _gone(self) -> Gone:
        """What reports need of handles that are closed."""

    @abstractmethod
    def _keep_only(self, known: Iterable[Handle]) -> None:
        """Close the handles that are neither known nor a fixture's."""

    def _on_start(self, listener: Callable[[Handle], None]) -> Callable[[], None]:
        """Call the listener with each handle started from now on, until the result is called.

        Raises ``ContractError`` for what is no function.
        """
        check_function(listener, "that takes a handle")
        listeners = self._listeners
        listeners.append(listener)

        def stop() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return stop

    # -- problems --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def problems(self) -> Found[Problem]:
        """What a strict test would fail for, so far, less what ``allow`` covers."""

    @abstractmethod
    def allow(self, kind: str, **where: Unpack[ProblemFields]) -> None:
        """Do not count a kind of problem, or only those whose facts agree with what is given.

        ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet``,
        ``rejected_step`` or ``assertion``. Two more are otherwise warned of: ``undelivered`` for
        messages that are meant to stay undelivered, and ``refused`` for calls that are meant to be
        answered 401. ``where`` names
        facts such as ``path=`` or ``url=``: a value, a text with ``*``, a compiled pattern or a
        function (see ``core.matching``). Raises ``ContractError`` for a kind or a fact there is
        none of, naming the nearest.
        """

    def _undelivered(self, strict: Container[str]) -> list[str]:
        """Return, in words, the queues whose messages a test published and never delivered.

        Where ``strict`` names them they become problems instead.
        """
        return []

    def _remember_allowed(self, kind: str, where: Mapping[str, object]) -> None:
        if not isinstance(kind, str) or kind not in ALLOWABLE:
            near = nearest(kind, ALLOWABLE) if isinstance(kind, str) else ""
            raise ContractError(
                f"{shown(kind)} is not a kind of problem{near}; the kinds are: {', '.join(ALLOWABLE)}"
            )
        query = Query(where, ALLOWABLE[kind], f"problem of kind {kind!r}")
        self._allowed.append((kind, query))

    def _allows(self, kind: str, facts: Mapping[str, Any]) -> bool:
        """Whether ``allow()`` was told of it."""
        return any(kind == allowed and query(facts) for allowed, query in self._allowed)

    # -- data ------------------------------------------------------------------------------------

    @abstractmethod
    def snapshot(self) -> Any:
        """The present data of all handles."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Put the data of a snapshot back into the handles that are still open."""

    @abstractmethod
    def reset(self) -> None:
        """Return every handle to its baseline and forget problems and journal."""

    @abstractmethod
    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        """Start over for another test: nothing of the last one is left.

        Requests in flight and open connections end, every handle returns to its baseline, the clock
        to its start, or to how it would begin with ``now`` and ``clock``.
        """

    # -- running code ----------------------------------------------------------------------------

    @abstractmethod
    def autojump(self) -> AbstractContextManager[None]:
        """A block in which sleeping moves the clock instead of taking real time.

        In it the process's time follows the clock (extra ``time``), and ``time.sleep``,
        ``asyncio.sleep`` and ``trio.sleep`` (so anyio's too) advance both, and with them
        ``time.monotonic()``, ``time.perf_counter()`` and the timeouts of event loops. Several that
        sleep at once share the time: it goes to the nearest end. Sleeps of test runners, of servers'
        own loops and inside the standard library stay real, and so do waits for an answer. After it
        all is as it was, and the clock goes on from where it is.

        Raises ``ContractError`` without time-machine, inside another cloud's, and of a stand-alone
        server, which is another process.
        """

    @abstractmethod
    def every_failure(
        self, run: Callable[[], object], **options: Unpack[FailureOptions]
    ) -> Failures:
        """Rerun code once per call it makes, failing another call each time.

        See ``failures.every_failure`` for the options ``services``, ``faults``, ``status`` and
        ``check``, and for what counts as a broken promise.
        """

    @abstractmethod
    async def _every_failure(
        self, run: Callable[[], object], **options: Unpack[FailureOptions]
    ) -> Failures: ...

    @abstractmethod
    def explore(
        self,
        run: Runs,
        check: Checks = None,
        **options: Unpack[ExploreOptions],
    ) -> Exploration:
        """Run code under many schedules of faults, orders, time and deliveries, and check a promise.

        Raises ``BrokenSchedule`` with the smallest schedule that breaks the promise. See
        ``explore.explore`` for the options ``workers``, ``setup``, ``budget``, ``seed``, ``schedule``,
        ``kinds``, ``services``, ``patience``, ``horizon`` and ``process_time``.
        """

    @staticmethod
    def linearizable(
        model: Callable[[], Any], *, final: Callable[[Any], object] | None = None
    ) -> Check:
        """The promise that clients are linearizable; see ``promises.linearizable``."""
        from .explore.promises import linearizable

        return linearizable(model, final=final)

    @staticmethod
    def once(key: str) -> Check:
        """The promise that an effect kept under a key happens exactly once; see ``promises.once``."""
        from .explore.promises import once

        return once(key)

    @staticmethod
    def nothing_lost(
        sent: str | Callable[[], Iterable[object]], handled: Callable[[], Iterable[object]]
    ) -> Check:
        """The promise that all that was sent is handled; see ``promises.nothing_lost``."""
        from .explore.promises import nothing_lost

        return nothing_lost(sent, handled)

    @staticmethod
    def monotonic_reads(name: str) -> Check:
        """The promise that no client sees a value go back; see ``promises.monotonic_reads``."""
        from .explore.promises import monotonic_reads

        return monotonic_reads(name)

    @staticmethod
    def always(predicate: Callable[..., object]) -> Check:
        """The promise that a predicate holds after every step; see ``promises.always``."""
        from .explore.promises import always

        return always(predicate)

    @staticmethod
    def never(predicate: Callable[..., object]) -> Check:
        """The promise that a predicate never holds; see ``promises.never``."""
        from .explore.promises import never

        return never(predicate)

    @staticmethod
    def at_most_one(found: Callable[..., object]) -> Check:
        """The promise that a function returns at most one; see ``promises.at_most_one``."""
        from .explore.promises import at_most_one

        return at_most_one(found)

    @staticmethod
    def sometimes(predicate: Callable[..., object]) -> Check:
        """The promise that a predicate holds in at least one schedule; see ``promises.sometimes``."""
        from .explore.promises import sometimes

        return sometimes(predicate)

    @staticmethod
    def follows(model: Callable[[], Any]) -> Check:
        """The promise that every answer is a model's; see ``promises.follows``."""
        from .explore.promises import follows

        return follows(model)

    @staticmethod
    def eventually(predicate: Callable[..., object], *, within: Duration) -> Check:
        """The promise that a predicate holds a while after the run; see ``promises.eventually``."""
        from .explore.promises import eventually

        return eventually(predicate, within=within)

    @abstractmethod
    async def _explore(
        self,
        run: Runs,
        check: Checks = None,
        **options: Unpack[ExploreOptions],
    ) -> Exploration: ...

    def replay(self, file: str | Path, **options: Unpack[ReplayOptions]) -> Differences:
        """Send a recorded session (HAR) to the fakes and compare the answers.

        See ``recordings.replay`` for the options ``into``, ``ignore`` and ``move_clock``.
        """
        __tracebackhide__ = True
        from .recordings import replay

        return replay(self, file, **options)

    @property
    def aio(self) -> AioCloud:
        """The calls that run code or drive the clock, awaitable."""
        return AioCloud(self)

    # -- the end ---------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Close what was started through this cloud; may be called any number of times."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AioCloud:
    """Awaitable twins of a cloud's calls, for asyncio and trio."""

    def __init__(self, cloud: AnyCloud) -> None:
        self._cloud = cloud

    async def every_failure(
        self, run: Callable[[], object], **options: Unpack[FailureOptions]
    ) -> Failures:
        """``Cloud.every_failure`` for code that is awaited."""
        __tracebackhide__ = True
        return await self._cloud._every_failure(run, **options)

    async def explore(
        self,
        run: Runs,
        check: Checks = None,
        **options: Unpack[ExploreOptions],
    ) -> Exploration:
        """``Cloud.explore`` where a loop is running; ``run`` and ``check`` may be of either kind."""
        __tracebackhide__ = True
        return await self._cloud._explore(run, check, **options)

    async def replay(self, file: str | Path, **options: Unpack[ReplayOptions]) -> Differences:
        """``Cloud.replay``, awaitable."""
        __tracebackhide__ = True
        from .core.aio import in_thread

        return await in_thread(self._cloud.replay, file, **options)


def found_problems(problems: Iterable[Problem]) -> Found[Problem]:
    """Problems, with the fields that may be asked about them."""
    return found_of(problems, PROBLEM_FIELDS, "problem")


def found_handles(handles: Iterable[Handle]) -> Found[Handle]:
    """Return a list of fakes; its ``where()`` rejects a name or service that none of them has."""
    found = list(handles)
    names = {
        name: Field(
            one_of(f"{name} of a fake here", sorted({getattr(each, name) for each in found}))
        )
        for name in ("name", "fixture", "service")
        if found
    }
    return found_of(found, {**HANDLE_FIELDS, **names}, "handle")
