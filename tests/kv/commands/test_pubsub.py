"""Pub/sub commands: channels, patterns and shard channels."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import NO_REPLY, Status
from tests.kv.conftest import Run


@pytest.fixture
def listener(run: Run) -> Run:
    return run.other(transport="port")


@pytest.fixture
def heard(listener: Run) -> list[object]:
    messages: list[object] = []
    listener.session.deliver = messages.append
    return messages


class TestMessages:
    def test_channels(self, run: Run, listener: Run, heard: list[object]) -> None:
        assert listener("SUBSCRIBE a b") is NO_REPLY
        assert run("PUBLISH a hello") == 1
        assert run("PUBLISH c hello") == 0
        listener("UNSUBSCRIBE a")
        assert run("PUBLISH a again") == 0
        assert heard == [
            [b"subscribe", b"a", 1],
            [b"subscribe", b"b", 2],
            [b"message", b"a", b"hello"],
            [b"unsubscribe", b"a", 1],
        ]

    def test_one_of_two_listeners_leaves(self, run: Run, listener: Run) -> None:
        other = run.other(transport="port")
        for one in (listener, other):
            one("SUBSCRIBE a")
        listener("UNSUBSCRIBE a never")
        assert run("PUBLISH a hello") == 1
        other("UNSUBSCRIBE")
        assert run("PUBLISH a hello") == 0
        assert run("PUBSUB CHANNELS") == []

    def test_patterns_come_after_channels(
        self, run: Run, listener: Run, heard: list[object]
    ) -> None:
        listener("PSUBSCRIBE n*s")
        listener("SUBSCRIBE news")
        assert run("PUBLISH news x") == 2
        assert heard[2:] == [[b"message", b"news", b"x"], [b"pmessage", b"n*s", b"news", b"x"]]
        heard.clear()
        listener("PUNSUBSCRIBE")
        listener("UNSUBSCRIBE")
        listener("UNSUBSCRIBE")
        assert heard == [
            [b"punsubscribe", b"n*s", 1],
            [b"unsubscribe", b"news", 0],
            [b"unsubscribe", None, 0],
        ]

    def test_shard_channels_are_apart(self, run: Run, listener: Run, heard: list[object]) -> None:
        listener("SSUBSCRIBE a")
        assert run("PUBLISH a x") == 0
        assert run("SPUBLISH a x") == 1
        listener("SUNSUBSCRIBE a")
        assert heard == [
            [b"ssubscribe", b"a", 1],
            [b"smessage", b"a", b"x"],
            [b"sunsubscribe", b"a", 0],
        ]


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

    def test_refusals(self, run: Run) -> None:
        assert run.error("PUBSUB FOO") == "ERR unknown subcommand 'FOO'. Try PUBSUB HELP."
        assert run.error("PUBSUB CHANNELS a b") == (
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP."
        )
        assert run.error("PUBSUB") == "ERR wrong number of arguments for 'pubsub' command"
