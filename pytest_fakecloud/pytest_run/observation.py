"""What a run records of a test for its report, besides the journal of the fakes."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from time import process_time
from typing import TYPE_CHECKING

import pytest

from ..cloud.base import context_of, record_times
from ..cloud.cloud import Cloud
from ..core.exits import Exits
from ..core.libraries import add_test
from ..core.timers import monotonic
from ..process.stacks import Stacks
from .options import RunOptions

if TYPE_CHECKING:
    from ..process.applications import Listener, ServedRequest
    from .cloud_owner import CloudOwner

try:
    import resource
except ImportError:  # Windows has no ``resource`` module.
    resource = None  # type: ignore[assignment]

_FRAMEWORKS = frozenset({"flask", "django.core.signals", "starlette.testclient", "httpx", "httpx2"})
"""Modules of frameworks whose requests are observed (see ``process.applications``)."""


class Observation:
    """Records, for the report of one test, the source lines of its calls, their times, the requests that
    the application serves, and how long its code sleeps, until the ``test_exits`` are closed.
    """

    def __init__(self, options: RunOptions, item: pytest.Item, test_exits: Exits) -> None:
        self._options = options
        self._test_exits = test_exits
        self._has_report = options.journal_when != "never" or options.timelines is not None
        self._clouds: list[Cloud] = []
        """The clouds whose calls are observed."""
        self._has_call_sites = options.wants_call_sites(item)
        self._stacks: Stacks | None = None
        if self._has_call_sites or self._has_report:
            self._stacks = Stacks()
            self._stacks.watch_sockets(test_exits)
        self._listener: Listener | None = None
        self._sleep: SleepMeter | None = None
        """Measures the code of the test, from ``begin_call()`` on."""
        add_test(str(item.path))

    def begin_call(self) -> None:
        """Measure the sleep of the test's own code, which begins now or has begun before."""
        self._sleep = SleepMeter()

    def slept_seconds(self) -> float:
        """Return how long the code of the test has slept; 0 if it has not begun."""
        return 0.0 if self._sleep is None else self._sleep.seconds()

    def observe(self, owners: Collection[CloudOwner]) -> None:
        """Record from now on the calls of the clouds of these owners, and the requests served with the
        first one. Can be repeated, because clouds may have been opened since, and frameworks imported.
        """
        for owner in owners:
            if owner.cloud not in self._clouds:
                self._clouds.append(owner.cloud)
                self._record_calls(owner.cloud)
        if (
            self._listener is None
            and self._has_report
            and not sys.modules.keys().isdisjoint(_FRAMEWORKS)
        ):
            from ..process.applications import Listener

            listener = Listener()
            self._test_exits.callback(listener.close)
            self._test_exits.callback(listener.listen, None)
            self._listener = listener
        if self._listener is not None:
            self._listener.listen(context_of(next(iter(owners)).cloud).recorder)

    def _record_calls(self, cloud: Cloud) -> None:
        recorded = context_of(cloud).recorder.shared
        stacks = self._stacks
        if self._has_report:
            self._test_exits.callback(setattr, recorded, "records_scripts", False)
            recorded.records_scripts = True
        if stacks is not None:
            self._test_exits.callback(setattr, recorded, "note_caller", None)
            recorded.note_caller = stacks.note
            if self._has_call_sites:
                from ..process.call_sites import note_site

                recorded.note_caller = partial(note_site, stacks=stacks)
        if self._options.timelines is not None:
            record_times(cloud)

    def served(self, cloud: Cloud) -> list[ServedRequest]:
        """Return the requests served during the test that used a cloud."""
        listener = self._listener
        if listener is None or listener.recorder is not context_of(cloud).recorder:
            return []
        return list(listener.served)


MINIMUM_WAIT_SECONDS = 0.04
"""Minimum average wait that counts as sleep. Shorter waits are waits for the CPU."""
_OF_THREAD = getattr(resource, "RUSAGE_THREAD", getattr(resource, "RUSAGE_SELF", 0))


def _figures() -> tuple[float, float, int]:
    """Return real seconds (even if tools change the process's time), CPU seconds, and how often
    this thread was given the CPU (0 if unknown).
    """
    turns = 0
    if resource is not None:
        usage = resource.getrusage(_OF_THREAD)
        turns = usage.ru_nvcsw + usage.ru_nivcsw
    return monotonic(), process_time(), turns


class SleepMeter:
    """Measures how long the code of a test sleeps, from the creation of the meter on."""

    def __init__(self) -> None:
        self._began = _figures()

    def seconds(self) -> float:
        """Return the seconds slept since the start. Waits for the CPU on a busy machine are frequent
        and short, so only a long average wait counts as sleep.
        """
        real_s, busy_s, turns = (
            now - began for now, began in zip(_figures(), self._began, strict=True)
        )
        idle_s = real_s - busy_s
        return idle_s if turns > 0 and idle_s / turns >= MINIMUM_WAIT_SECONDS else 0.0
