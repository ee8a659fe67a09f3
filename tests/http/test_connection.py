"""Test the detection of events at the other end of a connection."""

from __future__ import annotations

import select
import socket
from typing import Any

import pytest

from pytest_fakecloud.http.server import Connection


@pytest.mark.parametrize("portable", [False, True])
def test_a_client_that_closed_its_side_is_seen(
    portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if portable:
        monkeypatch.delattr(select, "POLLRDHUP", raising=False)
    home: Any = None
    here, there = socket.socketpair()
    connection = Connection(here, None, home)
    assert not connection.has_hung_up()
    there.sendall(b"x")
    assert not connection.has_hung_up()
    assert here.recv(9) == b"x"
    there.close()
    assert connection.has_hung_up()
    here.close()


def test_it_is_seen_without_waiting_where_reading_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "POLLRDHUP", raising=False)
    monkeypatch.delattr(select, "poll", raising=False)
    home: Any = None
    here, there = socket.socketpair()
    with here, there:
        connection = Connection(here, None, home)
        assert not connection.has_hung_up()
        there.shutdown(socket.SHUT_WR)
        assert connection.has_hung_up()
