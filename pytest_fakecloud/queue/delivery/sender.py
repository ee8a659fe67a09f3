"""Send deliveries to the destinations that their URLs identify."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.clock import in_thread
from ...core.errors import FakecloudError, raised_by_test, runs_through_test
from ..model import Delivery, Outcome
from ..settings import DEFAULT_CAP, Unstubbed
from ..wire.headers import loopback_address
from ..wire.values import as_text
from .applications import Deadlines
from .destinations import DestinationRoute, Destinations, route_to

if TYPE_CHECKING:
    from .loopback import LoopbackSender


class UnstubbedDestinationError(FakecloudError, ConnectionError):
    """Raised if a destination has no route or mock and is not a loopback address. Nothing was sent."""

    __module__ = "pytest_fakecloud"


class Sender:
    """Performs deliveries in the caller's thread (``send``) or in the running loop (``asend``).

    ``unstubbed`` is ``"refuse"`` (send nothing and call ``report``) or ``"accept"`` (answer with
    200). ``report_raised`` receives each exception that a destination raised in the test's code,
    and the URL. ``cap`` is the maximum duration of an attempt over a socket or in a loop, in
    wall-clock seconds. ``is_fake`` recognises addresses of this cloud's fakes, which a route for
    ``"*"`` must not match, because it would intercept the callbacks of a capture. While
    ``time_passes()`` is true, a timeout below the cap applies in wall-clock seconds.
    ``side_by_side`` is True if several threads call ``send``.
    """

    def __init__(
        self,
        destinations: Destinations | None = None,
        *,
        unstubbed: Unstubbed = "refuse",
        report: Callable[[str, Delivery], object] | None = None,
        report_raised: Callable[[BaseException, str], object] | None = None,
        cap: float = DEFAULT_CAP,
        is_fake: Callable[[str], bool] = lambda url: False,
        time_passes: Callable[[], bool] = lambda: False,
        side_by_side: bool = False,
    ) -> None:
        self.destinations = destinations if destinations is not None else Destinations()
        self.unstubbed = unstubbed
        self._report = report
        self._report_raised = report_raised
        self._is_fake = is_fake
        self._deadlines = Deadlines(cap, time_passes)
        self._side_by_side = side_by_side
        self._lock = threading.Lock()
        self._sockets: LoopbackSender | None = None
        self._closed = False

    def send(self, delivery: Delivery) -> Outcome:
        """Perform one delivery and return its outcome.

        Exceptions of a destination are part of the outcome. Only exceptions that are not an
        ``Exception`` (``KeyboardInterrupt``, ``pytest.fail()`` in a handler) are raised, and a
        ``ContractError`` for a handler whose result is not a response.
        """
        target = self._destination(delivery)
        if isinstance(target, DestinationRoute):
            outcome = target._take(delivery, self._deadlines)
        elif target is None:
            outcome = self._loopback().send(delivery)
        else:
            outcome = target
        if outcome.exception is not None:
            self._report_if_raised_by_test(delivery, outcome)
        return outcome

    async def asend(self, delivery: Delivery) -> Outcome:
        """Perform one delivery in the running event loop (asyncio or trio) and return its outcome.

        ASGI applications and coroutine functions run in this loop, and everything else in the
        loop's thread. However, connections are made in a worker thread, so that a server in this
        loop can respond.
        """
        target = self._destination(delivery)
        if isinstance(target, DestinationRoute):
            outcome = await target._atake(delivery, self._deadlines)
        elif target is None:
            outcome = await in_thread(self._loopback().send, delivery)
        else:
            outcome = target
        if outcome.exception is not None:
            self._report_if_raised_by_test(delivery, outcome)
        return outcome

    def _destination(self, delivery: Delivery) -> DestinationRoute | Outcome | None:
        """Return a route, None for a server on a loopback address, or the outcome if it has neither."""
        if self._closed:
            text = f"{as_text(delivery.url)}: the queue is closed, and nothing was sent"
            return Outcome(exception=ConnectionAbortedError(text), where="closed")
        route = route_to(self.destinations, delivery.url)
        if route is not None and (route._is_prefix or not self._is_fake(delivery.url)):
            return route
        mismatch = None
        if "responses" in sys.modules:
            from .responses_mock import through_responses

            mocked = through_responses(delivery)
            if isinstance(mocked, Outcome):
                return mocked
            mismatch = mocked
        if loopback_address(delivery.url) is not None:
            return None
        return self._no_handler(delivery, mismatch)

    def _report_if_raised_by_test(self, delivery: Delivery, outcome: Outcome) -> None:
        """Report the exception of an outcome if the test's code raised it and no call will raise it.

        A test that waits for the outcome may end as soon as it is returned, so report first.
        """
        is_raised = outcome.raises and not self._side_by_side
        if self._report_raised is not None and not is_raised:
            error = _raised_by_test(outcome)
            if error is not None:
                self._report_raised(error, as_text(delivery.url))

    def release(self) -> None:
        """Close idle connections, which would block a single-threaded server."""
        if self._sockets is not None:
            self._sockets.release()

    def close(self) -> None:
        """Interrupt deliveries in progress, and close all connections, loops and threads."""
        self._closed = True
        if self._sockets is not None:
            self._sockets.close()
        self._deadlines.close()
        self.destinations._close()

    def _loopback(self) -> LoopbackSender:
        with self._lock:
            if self._sockets is None:
                # Imported here, because only tests that deliver over sockets need the HTTP client.
                from .loopback import LoopbackSender

                self._sockets = LoopbackSender(self._deadlines, keeps=not self._side_by_side)
            return self._sockets

    def _no_handler(self, delivery: Delivery, mismatch: str | None) -> Outcome:
        """Return the outcome for an unstubbed URL. ``mismatch`` is why no active mock matches it."""
        if self.unstubbed == "accept":
            return Outcome(200, where="accepted")
        url = as_text(delivery.url)
        text = (
            f"no handler for {delivery.method} {url} (message {delivery.message_id}): the URL is "
            "neither a loopback address nor a destination of this queue, and nothing was sent. "
            f'Add a destination handler, such as queue.destinations.respond("{url}", 200), '
            ".call(url, function), .wsgi(origin, app) or .asgi(origin, app), or set "
            'queue={"unstubbed": "accept"}'
        )
        if mismatch is not None:
            text += f". {mismatch}"
        if self._report is not None:
            self._report(text, delivery)
        return Outcome(exception=UnstubbedDestinationError(text), unstubbed=text, where="unstubbed")


def _raised_by_test(outcome: Outcome) -> BaseException | None:
    """Return the exception that a destination raised in the test's code, or None.

    See ``core.errors``. Functions and callbacks of mocks belong to the test. An assertion raised
    by an application belongs to the test if it passed through a test file, otherwise to the
    application.
    """
    found = raised_by_test(outcome.exception)
    if found is None or outcome.where == "respond":
        return None
    if isinstance(found, AssertionError) and outcome.where in ("wsgi", "asgi"):
        return found if runs_through_test(found) else None
    return found
