"""Frames of other threads."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable

import pytest

from pytest_fakecloud.core import frames

from ..harness import wait_until

GIVE: dict[str, Callable[[int], object]] = {
    "one": frames.thread_frame,
    "all": lambda ident: frames.thread_frames()[ident],
}


@pytest.mark.parametrize("give", GIVE.values(), ids=GIVE)
@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_frames_are_created(
    monkeypatch: pytest.MonkeyPatch, give: Callable[[int], object], collects: bool
) -> None:
    """Otherwise a thread could go on meanwhile, which Python 3.11 does not survive."""
    collected: list[bool] = []
    current_frames, me = sys._current_frames, threading.get_ident()

    def current() -> object:
        collected.append(gc.isenabled())
        return current_frames()

    monkeypatch.setattr(sys, "_current_frames", current)
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        assert give(me) is not None
        assert (collected, gc.isenabled()) == ([False], collects)
    finally:
        (gc.enable if before else gc.disable)()


def test_a_thread_that_has_ended_has_no_frame() -> None:
    thread = threading.Thread(target=int)
    assert frames.thread_frame(thread.ident) is None
    thread.start()
    thread.join()
    wait_until(lambda: frames.thread_frame(thread.ident) is None)
