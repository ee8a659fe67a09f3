"""Test that the official receiver is patched only during a delivery and restored afterwards."""

from __future__ import annotations

import contextlib

import pytest

from pytest_fakecloud.queue.signatures import WATCHER, FailedCheck

receiver = pytest.importorskip("qstash.receiver")


def fail() -> None:
    with contextlib.suppress(receiver.SignatureError):
        receiver.Receiver("one", "two").verify(signature="none", body="b", url="http://here.test")


def test_a_failed_check_is_recorded() -> None:
    checks: list[FailedCheck] = []
    WATCHER.begin(checks)
    fail()
    WATCHER.end(checks)
    fail()
    assert checks == [FailedCheck("http://here.test", "b", ("one", "two"))]


def test_overlapping_deliveries_give_back_what_was_there() -> None:
    before = vars(receiver.Receiver)["verify"]
    first: list[FailedCheck] = []
    second: list[FailedCheck] = []
    WATCHER.begin(first)
    WATCHER.begin(second)
    fail()
    WATCHER.end(first)
    fail()
    WATCHER.end(second)
    assert vars(receiver.Receiver)["verify"] is before
    assert (len(first), len(second)) == (0, 1)


def test_a_replacement_by_the_application_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver.Receiver, "verify", receiver.Receiver.verify)
    checks: list[FailedCheck] = []

    def own(self: object) -> None: ...

    WATCHER.begin(checks)
    receiver.Receiver.verify = own
    WATCHER.end(checks)
    assert receiver.Receiver.verify is own
