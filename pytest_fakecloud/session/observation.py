"""What a run records of a test for its report, besides the journal of the fakes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..core.journal import recorder_of

if TYPE_CHECKING:
    import pytest

    from ..cloud import Cloud
    from ..reporting.applications import Listener, ServedRequest
    from .options import RunOptions

_FRAMEWORKS = ("flask", "django.core.signals", "starlette.testclient", "httpx")
"""Modules of frameworks whose requests are observed (see ``reporting.applications``)."""


class Observation:
    """Records the source lines of calls, their times, and the requests that the application serves."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._has_report = options.journal_when != "never" or options.timelines is not None
        self._listener: Listener | None = None
        self._found = 0
        """The number of frameworks that the process had imported when requests were last observed."""
        self._cloud: Cloud | None = None
        """The cloud of the current test."""

    def observe(self, cloud: Cloud, item: pytest.Item | None) -> None:
        """Record what the report of a test needs, from now on or since an earlier call."""
        options = self._options
        if cloud is not self._cloud:
            self._cloud = cloud
            recorded = recorder_of(cloud.journal).shared
            recorded.find_site = None
            if options.wants_call_sites(item):
                from ..transport.call_sites import call_site

                recorded.find_site = call_site
            if options.timelines is not None:
                from ..reporting.replay import record_times

                record_times(cloud)
        if self._has_report:
            self._listen(cloud)

    def _listen(self, cloud: Cloud) -> None:
        found = sum(name in sys.modules for name in _FRAMEWORKS)
        if found == 0:
            return
        if self._listener is None:
            from ..reporting.applications import Listener

            self._listener = Listener()
        if self._listener.recorder.cloud is not cloud or found > self._found:
            self._found = found
            self._listener.listen(cloud)

    def pause(self) -> None:
        """Record no requests until the next test."""
        self._cloud = None
        if self._listener is not None:
            self._listener.recorder.use(None)

    def served(self, cloud: Cloud) -> list[ServedRequest]:
        """Return the requests served during the test that used a cloud."""
        recorder = None if self._listener is None else self._listener.recorder
        return list(recorder.served) if recorder is not None and recorder.cloud is cloud else []

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener, self._found = None, 0
