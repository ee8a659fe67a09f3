"""``Cloud``: fakes that share one clock and one seed, with or without pytest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Unpack

from ..core.clock import in_thread
from ..core.errors import importing
from .base import BaseCloud

if TYPE_CHECKING:
    from pathlib import Path

    from ..core.journal import Results
    from ..explore.guests.every_failure import FailureOptions
    from ..explore.result.exploration import Exploration
    from ..explore.subject.options import Checks, ExploreOptions
    from ..explore.subject.programs import Functions
    from ..explore.values.failures import Failure
    from ..recordings.archives import Difference, ReplayOptions


class Cloud(BaseCloud):
    """Fakes of cloud services that share one clock and one seed.

    ``seed`` makes ids and random values reproducible; without one, a random seed is chosen and
    available as ``seed``. ``now`` and ``clock`` set the clock. With ``process_time=True``,
    ``time.time()`` and ``datetime.now()`` of this process follow the clock, which is frozen
    (decided here: ``clock="running"`` and ``resume()`` then raise an error, because the clock and
    the process's time cannot follow each other). ``process_time="autojump"`` also moves both
    whenever this process sleeps (see ``autojump()``). ``delivery`` determines how the queues'
    messages are delivered: by a background thread (``"background"``) or only when the test runs the
    queue (``"driven"``). With ``transport="inprocess"``, requests of this process skip the socket.
    ``tls=True`` serves HTTPS with a certificate authority of its own (``authority``).
    ``share_tls_context=False`` gives every client a TLS context of its own. A cloud is a context
    manager that closes all its fakes.

    Raises ``ContractError`` for invalid settings.
    """

    def autojump(self) -> AbstractContextManager[None]:
        """Return a context manager in which sleeping moves the clock instead of taking real time.

        Inside it the process's time follows the clock (extra ``time``), and ``time.sleep``,
        ``asyncio.sleep`` and ``trio.sleep`` (so anyio's too) advance both, including
        ``time.monotonic()``, ``time.perf_counter()`` and the timeouts of event loops. Concurrent
        sleeps overlap: the clock moves to the time at which the next of them ends. Sleeps of test
        runners, of servers' event loops and inside the standard library still take real time, and
        so does waiting for a response. Afterwards time is real again, and the clock continues.

        Raises ``ContractError`` without time-machine, and inside another cloud's ``autojump()``.
        """
        from ..process.process_time import AUTOJUMP, ProcessTime

        return ProcessTime(self._timekeeper, AUTOJUMP).controlled()

    def every_failure(
        self, run: Callable[[], object], check: Checks = None, **options: Unpack[FailureOptions]
    ) -> Results[Failure]:
        """Explore the failures of each call of the code: every kind of fault, one call at a time.

        ``explore.guests.every_failure.every_failure`` describes the options ``services``, ``faults`` and
        ``status``. Returns the trials with a failing call. Raises ``BrokenPromiseError`` if one of them
        broke the promise.
        """
        __tracebackhide__ = True
        with importing("every_failure()"):
            from ..explore.guests.every_failure import every_failure

        return every_failure(self, run, check, **options)

    def explore(
        self, run: Functions, check: Checks = None, **options: Unpack[ExploreOptions]
    ) -> Exploration:
        """Run code under many schedules of faults, orders, time and deliveries; check a promise.

        Raises ``BrokenPromiseError`` with the smallest schedule found that breaks the promise. The guide
        "Explore failures and interleavings" describes the options ``workers``, ``setup``, ``budget``,
        ``seed``, ``schedule``, ``kinds``, ``services``, ``patience``, ``horizon`` and ``process_time``.
        """
        __tracebackhide__ = True
        with importing("explore()"):
            from ..explore.explore import explore

        return explore(self, run, check, **options)

    def replay(
        self, file: str | Path | Mapping[str, Any], **options: Unpack[ReplayOptions]
    ) -> Results[Difference]:
        """Send a recorded session to the fakes and compare the responses.

        ``file`` is the path of an HTTP archive (HAR), or its parsed JSON. See
        ``recordings.archives.replay`` for the options ``into``, ``ignore`` and ``move_clock``.
        """
        __tracebackhide__ = True
        with importing("replay()"):
            from ..recordings.archives import replay

        return replay(self, file, **options)

    @property
    def aio(self) -> AioCloud:
        """Awaitable versions of the methods that run code or move the clock."""
        return AioCloud(self)


def archive_writer(option: str) -> Callable[..., Path]:
    """Return the function that writes a cloud's journal to a file as an HTTP archive (HAR).

    Raises ``ContractError`` about ``option`` if this part of the package is missing.
    """
    with importing(option):
        from ..recordings.archives import write
    return write


def archive_entries(cloud: BaseCloud) -> list[dict[str, Any]]:
    """Return a cloud's journal as entries of an archive, for the function of ``archive_writer()``."""
    from ..recordings.archives import entries_from

    return entries_from(cloud)


def archive_of(cloud: BaseCloud) -> dict[str, Any]:
    """Return a cloud's journal as an HTTP archive (HAR).

    Raises ``ContractError`` if this part of the package is missing.
    """
    with importing("an HTTP archive"):
        from ..recordings.archives import archive
    return archive(cloud)


class AioCloud:
    """Awaitable versions of a cloud's methods, for asyncio and trio."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def every_failure(
        self, run: Callable[[], object], check: Checks = None, **options: Unpack[FailureOptions]
    ) -> Results[Failure]:
        """Run ``Cloud.every_failure()`` in a running event loop, also with asynchronous functions."""
        __tracebackhide__ = True
        return await in_thread(self._cloud.every_failure, run, check, **options)

    async def explore(
        self, run: Functions, check: Checks = None, **options: Unpack[ExploreOptions]
    ) -> Exploration:
        """Run ``Cloud.explore()`` in a running event loop, also with asynchronous functions."""
        __tracebackhide__ = True
        return await in_thread(self._cloud.explore, run, check, **options)

    async def replay(
        self, file: str | Path | Mapping[str, Any], **options: Unpack[ReplayOptions]
    ) -> Results[Difference]:
        """Run ``Cloud.replay()`` without blocking the event loop."""
        __tracebackhide__ = True
        return await in_thread(self._cloud.replay, file, **options)
