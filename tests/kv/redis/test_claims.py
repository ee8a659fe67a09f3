"""Claims on databases, without a server."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("redis")

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.redis import claims
from pytest_fakecloud.kv.redis.connection import Unreachable


def test_a_lost_claim_stays_lost_and_an_error_is_no_extension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "_EXTEND_SECONDS", 0)
    replies: list[Any] = [Unreachable("here", "it hangs"), 0, None]

    class Registry:
        def call(self, argv: list[bytes]) -> Any:
            if isinstance(reply := replies.pop(0), Exception):
                raise reply
            return reply

    claim = claims.Claim(Registry(), 1)  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        claim.check()
    for _ in range(2):
        with pytest.raises(ContractError, match="has claimed database 1"):
            claim.check()
    assert replies == []
