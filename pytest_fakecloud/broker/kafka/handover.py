"""Work that requests hand over to the thread of a consumer instance."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from .buffer import Partition
from .errors import Unavailable


class ThreadTasks:
    """Calls that requests make in an instance's thread, because a Kafka client belongs to one
    thread.
    """

    def __init__(self) -> None:
        self._tasks: deque[Callable[[], None]] = deque()
        self._added = threading.Event()

    def put(self, function: Callable[[], Any]) -> Future[Any]:
        """Let the thread call a function; return the future of its result."""
        result: Future[Any] = Future()

        def task() -> None:
            try:
                result.set_result(function())
            except Exception as error:
                result.set_exception(error)

        self._tasks.append(task)
        self._added.set()
        return result

    def run(self) -> None:
        """Make all calls. Only the thread calls this."""
        self._added.clear()
        while self._tasks:
            self._tasks.popleft()()

    def wait(self, seconds: float) -> None:
        """Wait for the next call or for ``wake()``, at most ``seconds``."""
        self._added.wait(seconds)

    def wake(self) -> None:
        """End the thread's wait."""
        self._added.set()


class PendingCommits:
    """The requested commits that the cluster has not confirmed yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: deque[tuple[dict[Partition, int], Future[Any]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    @contextmanager
    def expect(self, offsets: Mapping[Partition, int]) -> Iterator[Future[Any]]:
        """Return a future that receives the error of a commit, or None, when it is confirmed."""
        pending = (dict(offsets), Future[Any]())
        with self._lock:
            self._pending.append(pending)
        try:
            yield pending[1]
        finally:
            with self._lock:
                self._pending.remove(pending)

    def confirm(self, offsets: Mapping[Partition, int], problem: Any) -> bool:
        """Confirm the first commit of these offsets; return False if no request waits for it."""
        with self._lock:
            for wanted, confirmation in self._pending:
                if wanted == offsets and not confirmation.done():
                    confirmation.set_result(problem)
                    return True
        return False

    def fail_all(self) -> None:
        """End all waits because the instance has ended."""
        with self._lock:
            unconfirmed = [future for _, future in self._pending if not future.done()]
        for future in unconfirmed:
            future.set_exception(Unavailable("the instance has ended"))
