"""Strings, command by command."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run


class TestSetAndGet:
    def test_a_value_set_is_a_value_read(self, run: Run) -> None:
        assert run("SET k v") == OK
        assert run("GET k") == b"v"
        assert run("GET missing") is None
