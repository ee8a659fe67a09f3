"""Claims on databases, without a server."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("redis")

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.redis import share
from pytest_fakecloud.kv.redis.connection import Unreachable


def test_a_lost_claim_stays_lost_and_an_error_is_no_extension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share, "_EXTEND_SECONDS", 0)
    replies: list[Any] = [Unreachable("here", "it hangs"), 0, None]

    class Registry:
        def call(self, argv: list[bytes]) -> Any:
            if isinstance(reply := replies.pop(0), Exception):
                raise reply
            return reply

    claim = share.Claim(Registry(), 1)  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        claim.check()
    for _ in range(2):
        with pytest.raises(ContractError, match="has claimed database 1"):
            claim.check()
    assert replies == []


@pytest.mark.parametrize("reply", [[b"databases", b"4"], [], CommandError(b"ERR unknown command")])
def test_a_server_that_hides_its_configuration_has_sixteen_databases(reply: Any) -> None:
    class Server:
        def call(self, argv: list[bytes]) -> Any:
            if isinstance(reply, Exception):
                raise reply
            return reply

    server: Any = Server()
    assert share._databases(server) == (4 if reply == [b"databases", b"4"] else 16)
