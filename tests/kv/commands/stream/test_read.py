"""Reading the entries of streams."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import Map
from tests.kv.commands.stream.conftest import fill
from tests.kv.conftest import Run


class TestVendorReading:
    def test_streams_are_a_map_in_resp3(self, run: Run) -> None:
        fill(run, "1-1")
        reply = run.other(resp=3)("XREAD STREAMS s 0")
        assert isinstance(reply, Map)
        assert reply == [b"s", [[b"1-1", [b"a", b"1-1"]]]]
