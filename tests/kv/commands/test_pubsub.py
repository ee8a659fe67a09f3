"""Pub/sub commands: channels, patterns and shard channels."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import Status
from tests.kv.conftest import Run


@pytest.fixture
def listener(run: Run) -> Run:
    return run.other(transport="port")


@pytest.fixture
def heard(listener: Run) -> list[object]:
    messages: list[object] = []
    listener.session.deliver = messages.append
    return messages


class TestLooking:
    def test_subscriptions(self, run: Run, listener: Run) -> None:
        listener("SUBSCRIBE news sport")
        listener("PSUBSCRIBE n*")
        listener("SSUBSCRIBE shard")
        assert run("PUBSUB CHANNELS") == [b"news", b"sport"]
        assert run("PUBSUB CHANNELS n*") == [b"news"]
        assert run("PUBSUB NUMSUB news none") == [b"news", 1, b"none", 0]
        assert run("PUBSUB NUMSUB") == []
        assert run("PUBSUB NUMPAT") == 1
        assert run("PUBSUB SHARDCHANNELS s*") == [b"shard"]
        assert run("PUBSUB SHARDNUMSUB shard") == [b"shard", 1]
        assert Status(b"NUMPAT") in run("PUBSUB HELP")

    def test_a_session_that_ends_listens_no_more(self, run: Run, listener: Run) -> None:
        listener("SUBSCRIBE a")
        listener("PSUBSCRIBE p*")
        run.engine.abandon(listener.session)
        assert run("PUBSUB CHANNELS") == []
        assert run("PUBSUB NUMPAT") == 0
