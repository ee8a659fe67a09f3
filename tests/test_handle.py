"""What all handles have in common."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from .demo import Demo


def test_a_handle_shows_what_a_tester_uses_and_nothing_else(demo: Demo) -> None:
    shown = {name for name in dir(demo) if not name.startswith("_")}
    assert shown - {"app", "context", "mount"} == {  # which the demo shows to its own tests
        "assert_called", "assert_not_called", "async_client", "client", "clock", "close", "closed",
        "end_connections", "env", "faults", "fixture", "headers", "intercept", "journal",
        "load", "name", "on_close", "reset", "restore", "rotate_token", "service", "set_baseline",
        "snapshot", "token", "url",
    }  # fmt: skip


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads that give way to each other all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def leave(demo: Demo, ended: list[int], together: threading.Barrier) -> None:
    together.wait()
    demo.on_close(lambda: ended.append(1))


@pytest.mark.usefixtures("switching")
def test_closing_ends_what_each_of_many_threads_left_to_it() -> None:
    for _ in range(300):
        ended: list[int] = []
        together = threading.Barrier(4)
        with Demo() as demo:
            threads = [
                threading.Thread(target=leave, args=(demo, ended, together)) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(ended) == 4
