"""``pytest-fakecloud serve``: run the fakes until stopped."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

from ..http.ports import release
from ..serving import Log, serve_cloud, with_defaults
from ..standalone.signals import ended_by_signals
from .parser import JOURNAL_ENTRIES
from .summary import console, summary, warn_of_other_addresses

OPEN_FILES = 10_240
NAP_SECONDS = 0.5
"""Longest sleep of a server in seconds: on Windows, signals are only delivered between two waits."""


def _allow_more_files() -> None:
    """Raise the soft limit of open files, because a hundred clouds need more than most systems
    allow.
    """
    if sys.platform != "win32":
        import resource

        least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
        if least != resource.RLIM_INFINITY and least < wanted:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def serve(options: Mapping[str, Any], *, opens: bool) -> int:
    """Serve the fakes until a signal arrives; ``opens`` opens the console in the browser."""
    log = Log(options["log_format"])
    stop: SimpleQueue[int] = SimpleQueue()
    options = dict(options)
    _allow_more_files()
    if options["journal_entries"] is None:
        options["journal_entries"] = JOURNAL_ENTRIES
    with contextlib.ExitStack() as stack:
        stack.callback(release)
        if not options["random"]:
            options = with_defaults(options, log)
        stack.enter_context(ended_by_signals(stop.put, lambda number: 0))
        served = stack.enter_context(serve_cloud(options, log))
        warn_of_other_addresses(options, log)
        print(summary(served, options), flush=True)
        addresses = {handle.name: handle.url for handle in served.cloud.handles}
        log.say("ready", f"ready at {served.url}", control=served.url, fakes=addresses)
        if opens:
            import webbrowser

            webbrowser.open(console(served))
        while True:
            with contextlib.suppress(Empty):
                stop.get(timeout=NAP_SECONDS)
                break
        log.say("stopping", "stopping")
    # Exempt all objects from garbage collection: with much data, the collection at exit would take
    # seconds.
    gc.freeze()
    return 0
