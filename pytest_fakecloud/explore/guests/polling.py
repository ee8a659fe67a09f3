"""``select.poll()`` and ``select.select()`` of explored code, which also know connections in memory.

Clients ask them whether a connection can be read: redis-py with hiredis before each command, urllib3
and httpcore before they use a connection again. The system sees only a socket that is not connected.

While one of them waits, only connections in memory end the wait. Source: decided here.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias

from ...process.replace import Patch
from ..fakes.connections import Connections, fileno_of
from ..fakes.memory_link import MemoryLink

# Windows has none of these.
_IN, _OUT, _PRIORITY, _ERROR, _END, _HANG_UP = (
    getattr(select, name, 0)
    for name in ("POLLIN", "POLLOUT", "POLLPRI", "POLLERR", "POLLHUP", "POLLRDHUP")
)
_WaitUntil: TypeAlias = Callable[[Callable[[], bool], float | None], None]
"""Waits until a condition is true; raises ``TimeoutError`` if it is not after these seconds."""


class MemoryPoll:
    """A ``select.poll()`` object."""

    def __init__(self, system: Any, connections: Connections, wait_until: _WaitUntil) -> None:
        self._system = system
        self._connections = connections
        self._wait_until = wait_until
        self._links: dict[int, tuple[MemoryLink, int]] = {}
        """The registered connections in memory with their event masks, by descriptor."""

    def register(self, fd: Any, *eventmask: int) -> None:
        link = self._connections.at(fd)
        if link is None:
            self._system.register(fd, *eventmask)
        else:
            [mask] = eventmask or (_IN | _PRIORITY | _OUT,)
            self._links[link.fileno] = link, mask

    def modify(self, fd: Any, eventmask: int) -> None:
        link = self._connections.at(fd)
        if link is None or link.fileno not in self._links:
            self._system.modify(fd, eventmask)
        else:
            self._links[link.fileno] = link, eventmask

    def unregister(self, fd: Any) -> None:
        if self._links.pop(fileno_of(fd), None) is None:
            self._system.unregister(fd)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Return the events of each ready descriptor; wait for one for ``timeout`` milliseconds."""
        if not self._links:
            events: list[tuple[int, int]] = self._system.poll(timeout)
            return events
        if not self._ready() and timeout != 0:
            seconds = None if timeout is None or timeout < 0 else timeout / 1000
            with suppress(TimeoutError):
                self._wait_until(lambda: bool(self._ready()), seconds)
        return [*self._ready(), *self._system.poll(0)]

    def _ready(self) -> list[tuple[int, int]]:
        ready = [(fileno, _events(link, mask)) for fileno, (link, mask) in self._links.items()]
        return [(fileno, events) for fileno, events in ready if events]


def _events(link: MemoryLink, mask: int) -> int:
    """Return the events of a connection that a mask asks for. Its end is reported in any case."""
    end, events = link.sock, _OUT
    if link.has_news():
        events |= _IN
    if end.is_ended:
        events |= _HANG_UP
    always = _ERROR | _END if end.is_reset else _END if end.is_ended and end.is_hung_up else 0
    return events & mask | always


def polling_patches(connections: Connections, wait_until: _WaitUntil) -> Iterator[Patch]:
    """Yield the functions of ``select`` that are replaced, as owner, name and value."""
    if not hasattr(select, "poll"):
        return  # on Windows
    system_poll, system_select = select.poll, select.select

    def poll() -> MemoryPoll:
        return MemoryPoll(system_poll(), connections, wait_until)

    def select_in_memory(
        rlist: Iterable[Any],
        wlist: Iterable[Any],
        xlist: Iterable[Any],
        timeout: float | None = None,
        /,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        lists = [*rlist], [*wlist], [*xlist]
        if all(connections.at(fileobj) is None for fileobj in chain(*lists)):
            return system_select(*lists, timeout)
        masks: dict[int, int] = {}
        for fileobjs, event in zip(lists, (_IN, _OUT, _PRIORITY), strict=True):
            for fileno in map(fileno_of, fileobjs):
                masks[fileno] = masks.get(fileno, 0) | event
        polled = poll()
        for fileno, mask in masks.items():
            polled.register(fileno, mask)
        events = dict(polled.poll(None if timeout is None else timeout * 1000))

        def ready(fileobjs: list[Any], mask: int) -> list[Any]:
            return [fileobj for fileobj in fileobjs if events.get(fileno_of(fileobj), 0) & mask]

        readable, writable, exceptional = lists
        return (
            ready(readable, _IN | _ERROR | _END),
            ready(writable, _OUT | _ERROR | _END),
            ready(exceptional, _PRIORITY),
        )

    yield select, "poll", poll
    yield select, "select", select_in_memory
