"""Test the methods that all fakes share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from .budget import cases
from .demo import Demo


def test_a_handle_shows_what_a_tester_uses_and_nothing_else(demo: Demo) -> None:
    shown = {name for name in dir(demo) if not name.startswith("_")}
    assert shown - {"app", "context", "mount"} == {  # which the demo shows to its own tests
        "assert_called", "assert_not_called", "async_client", "client", "clock", "close", "closed",
        "end_connections", "env", "faults", "fixture", "headers", "intercept", "journal",
        "load", "name", "on_close", "reset", "restore", "rotate_token", "service", "set_baseline",
        "snapshot", "token", "url",
    }  # fmt: skip


def test_journal_faults_and_calls_show_what_a_tester_uses_and_nothing_else(demo: Demo) -> None:
    fault = demo.faults.answer(503)
    httpx.get(f"{demo.url}/echo/x")

    def shown(value: object) -> set[str]:
        return {name for name in dir(value) if not name.startswith("_")}

    assert shown(demo.journal) == {
        "assert_called", "assert_not_called", "calls", "clear", "entries", "events", "keep",
        "keep_bytes",
    }  # fmt: skip
    assert shown(demo.faults) == {
        "answer", "call", "clear", "delay", "down", "drop", "hang", "is_down", "lose_answer",
        "random", "rate_limit", "sequence", "truncate", "unused", "up",
    }  # fmt: skip
    assert shown(fault) == {"active", "description", "hits", "kind", "remove"}
    assert shown(demo.journal.calls().only()) == {
        "answer", "answer_headers", "answer_json", "at", "at_us", "body", "client", "cut", "facts",
        "fault", "faults", "handle", "headers", "json", "method", "note", "number", "outcome",
        "path", "problem", "reached", "route", "service", "status", "target",
    }  # fmt: skip
    assert shown(demo.journal.calls()) - set(dir(list)) == {"last", "only", "where"}


@pytest.fixture
def switching() -> Iterator[None]:
    """Switch between threads as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def leave(demo: Demo, ended: list[int], together: threading.Barrier) -> None:
    together.wait()
    demo.on_close(lambda: ended.append(1))


@pytest.mark.usefixtures("switching")
def test_closing_ends_what_each_of_many_threads_left_to_it() -> None:
    for _ in range(cases(60)):
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
