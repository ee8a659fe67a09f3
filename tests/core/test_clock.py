"""The clock as tests see it: the members of its public class."""

from __future__ import annotations

from pytest_fakecloud.core.clock import Clock


def test_it_shows_what_a_tester_uses_and_nothing_else() -> None:
    assert [name for name in dir(Clock) if not name.startswith("_")] == [
        "advance", "advance_to_next", "aio", "freeze", "mode", "move_to", "next_due", "now",
        "now_ms", "now_us", "resume", "run_due", "wait_cap",
    ]  # fmt: skip
